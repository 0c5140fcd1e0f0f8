"""Reading the graph out of a program's identity, as a store has recorded it: without the program, and without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from boatlift.dataflow import Timing
from boatlift.dataflow.identity import ProcessorRecord, processors_of
from boatlift.errors import RESTORE, DataError, InternalError, InvalidError
from boatlift.recovery import Kind
from boatlift.runtime.division import policy_of
from boatlift.runtime.graph import RecoveryNode, program_from
from boatlift.runtime.machine import Program
from boatlift.storage.records.division import UnitRecord, units_in

__all__ = ["recorded_program"]


def recorded_program(identity: Mapping[str, Any]) -> Program:
    """Return sources, units and sinks as the machine takes them; an empty program if nothing was ever claimed.

    Raises:
        DataError: `[CORRUPT]` what was recorded is no program.
    """
    try:
        return program_from(_nodes(identity))
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        msgspec.ValidationError,
        InternalError,
        InvalidError,
    ) as error:
        raise DataError(
            "CORRUPT", f"the log's newest claim records what is no program ({error!r}): {RESTORE}"
        ) from error


def _nodes(identity: Mapping[str, Any]) -> list[RecoveryNode]:
    processors, units = processors_of(identity), units_in(identity)
    nodes = [
        RecoveryNode(key.removeprefix("source "), (), Kind.SOURCE, repeats=not about.get("forgets", False))
        for key, about in identity.items()
        if key.startswith("source ")
    ]
    nodes += [_node(name, unit, [processors[each] for each in unit.operators]) for name, unit in units.items()]
    nodes += [
        RecoveryNode(sink, (name,), Kind.SINK, ledger=identity[f"sink {sink}"].get("account", True))
        for name, unit in units.items()
        for sink in unit.outputs.values()
    ]
    missing = {key.removeprefix("sink ") for key in identity if key.startswith("sink ")} - {each.name for each in nodes}
    if missing:
        raise ValueError(f"no unit stages {', '.join(sorted(missing))}")
    return nodes


def _node(name: str, unit: UnitRecord, operators: list[ProcessorRecord]) -> RecoveryNode:
    timings = {Timing(each.timing) for each in operators}
    return RecoveryNode(
        name,
        tuple(unit.inputs.values()),
        Kind.STATEFUL if any(each.keeps_state for each in operators) else Kind.STATELESS,
        policy_of(unit),
        Timing.ARRIVAL in timings,
        Timing.BATCH in timings,
        all(each.deterministic for each in operators),
        any(each.records_answers for each in operators),
    )
