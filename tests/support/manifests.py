"""The manifests in deploy/kubernetes: read, and patched as `kubectl apply -k` does."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from support.pages import ROOT

__all__ = ["DEPLOY", "Document", "container_of", "documents_in", "documents_of", "named"]

DEPLOY = ROOT / "deploy/kubernetes"

Document = dict[str, Any]


def documents_in(path: Path) -> list[Document]:
    return list(yaml.safe_load_all(path.read_text()))


def documents_of(folder: Path) -> list[Document]:
    """Return the documents of a kustomization. Only what ours use is known: resources, and patches of RFC 6902."""
    (kustomization,) = documents_in(folder / "kustomization.yaml")
    assert kustomization.keys() <= {"apiVersion", "kind", "resources", "patches"}
    found: list[Document] = []
    for resource in kustomization["resources"]:
        path = folder / resource
        found += documents_of(path) if path.is_dir() else documents_in(path)
    for patch in kustomization.get("patches", ()):
        _patch(named(found, **patch["target"]), yaml.safe_load(patch["patch"]))
    return found


def named(documents: list[Document], kind: str, name: str = "flights") -> Document:
    (found,) = (each for each in documents if each["kind"] == kind and each["metadata"]["name"] == name)
    return found


def container_of(documents: list[Document]) -> Document:
    (container,) = named(documents, "Deployment")["spec"]["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def _patch(document: Document, operations: list[dict[str, Any]]) -> None:
    for operation in operations:
        *parents, last = operation["path"].removeprefix("/").split("/")
        place: Any = document
        for each in parents:
            place = place[int(each) if isinstance(place, list) else each]
        value = deepcopy(operation["value"])
        match operation["op"], place:
            case "add", list():
                assert last == "-"
                place.append(value)
            case "add", dict():
                place[last] = value
            case "replace", dict():
                assert last in place, operation
                place[last] = value
            case _:
                raise AssertionError(operation)
