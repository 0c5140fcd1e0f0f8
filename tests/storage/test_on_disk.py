"""The names on disk, of records, fields and operators: a store of yesterday is read by the program of today."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

import boatlift
from boatlift.dataflow.operator import Operator

LIST = Path(__file__).with_name("on_disk.txt")
ROOMS = ("storage.records.", "connectors.kafka.ledger.", "tasks.loop_checkpoint_files.", "dataflow.identity.")


def below(kind: type) -> Iterator[type]:
    for each in kind.__subclasses__():
        yield each
        yield from below(each)


def names_on_disk() -> list[str]:
    for module in pkgutil.walk_packages(boatlift.__path__, "boatlift."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    lines = set()
    for record in below(msgspec.Struct):
        name = f"{record.__module__}.{record.__qualname__}".removeprefix("boatlift.")
        if name.startswith(ROOMS):
            config, fields = record.__struct_config__, ", ".join(record.__struct_encode_fields__)
            shape = f"[{fields}]" if config.array_like else f"{{{fields}}}"
            lines.add(f"record {config.tag or name.removeprefix('storage.records.')} {shape}")
    for operator in below(Operator):
        if hasattr(operator, "kind") and operator.__module__.startswith("boatlift."):
            lines.add(f"operator {operator.kind}")
    return sorted(lines)


def test_names_on_disk_are_those_of_the_list() -> None:
    """A line that differs needs a new format of stores, or a field with a default at the end; then the list follows."""
    assert names_on_disk() == LIST.read_text(encoding="utf-8").splitlines()
