"""The page on Kubernetes: its commands name what there is, and its tables say what the run answers."""

from __future__ import annotations

import re
import shlex

import pytest

from boatlift.console.app import app
from boatlift.runtime.host.health import Health
from support.manifests import DEPLOY, container_of, documents_of, named
from support.pages import ROOT, blocks

PAGE = ROOT / "docs/kubernetes.md"
COMMANDS = [shlex.split(line) for block in blocks() if block.page == PAGE for line in block.text.splitlines()]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_commands_of_the_page_name_what_there_is(command: list[str]) -> None:
    documents = documents_of(DEPLOY / "base")
    container = container_of(documents)
    for each in command:
        if each.startswith("../boatlift/"):
            assert (ROOT / each.removeprefix("../boatlift/")).exists()
        if each.startswith("deploy/"):
            assert named(documents, "Deployment", each.removeprefix("deploy/"))
        if each.startswith("app="):
            assert named(documents, "Deployment")["spec"]["template"]["metadata"]["labels"] == {"app": each[4:]}
    match command:
        case ["podman", *_]:
            assert container["image"] in command
        case ["kubectl", "create", "secret", "generic", name, *_]:
            assert container["envFrom"][1]["secretRef"]["name"] == name
        case ["kubectl", "exec", _, "--", "boatlift", *arguments]:
            app.parse_args([*arguments, "--store", named(documents, "ConfigMap")["data"]["BOATLIFT_STORE"]])
        case ["kubectl", verb, *_]:
            assert verb in ("apply", "get", "logs", "scale")


def test_the_table_of_probes_is_what_is_answered() -> None:
    roles = [Health() for _ in range(5)]
    owner, ready, cold, _, stopping = roles
    owner.owns(list)
    ready.follows(lambda: True)
    cold.follows(lambda: False)
    stopping.stops()
    table = dict(re.findall(r"^\| `GET (\S+)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE))
    assert len(table) == 3
    for target, cells in table.items():
        assert [int(cell) for cell in cells.split("|")] == [each.answer(target)[0] for each in roles]


def test_the_arguments_on_the_page_are_those_of_the_manifest() -> None:
    documents = documents_of(DEPLOY / "base")
    given = " ".join(container_of(documents)["args"])
    first = re.findall(r"^\| `(--[^`]*)` \|", PAGE.read_text(), re.MULTILINE)
    assert len(first) == 3
    assert all(each in given for each in first)
    grace = named(documents, "Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert f"`terminationGracePeriodSeconds`, {grace}," in PAGE.read_text()
