"""The graph of a program as its identity in a store records it, and the division of a plan into units for a claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

import msgspec

from boatlift.dataflow import Batch, History, Plan, Policy, Timing, Unit
from boatlift.dataflow.identity import ProcessorRecord, processors_of
from boatlift.errors import RESTORE, DataError, InternalError, InvalidError
from boatlift.recovery import Kind
from boatlift.runtime.graph import RecoveryNode, edge_name, program_from
from boatlift.runtime.machine import Program
from boatlift.storage.records.records import UnitRecord, units_in

_POLICIES: Mapping[str, type[Policy]] = {kind.__name__: kind for kind in get_args(Policy)}


def division_of(plan: Plan) -> dict[str, Any]:
    """Return the units of a plan, as JSON."""
    return {name: msgspec.to_builtins(_recorded(unit)) for name, unit in plan.units.items()}


def _recorded(unit: Unit) -> UnitRecord:
    options = {field.name: getattr(unit.policy, field.name) for field in fields(unit.policy)}
    if isinstance(unit.policy, History) and unit.policy.batch is None:
        del options["batch"]  # as it was recorded before batches could have this policy
    return UnitRecord(
        tuple(operator.name for operator in unit.operators),
        {edge_name(read, unit.name): read for read in unit.reads},
        {edge_name(unit.name, sink.name): sink.name for sink in unit.sinks},
        {"name": type(unit.policy).__name__, **options},
    )


def policy_of(record: UnitRecord) -> Policy:
    """Return the policy of a recorded unit.

    Raises:
        KeyError: there is no such policy.
        TypeError: the policy has no such option.
        InvalidError: an option cannot have this value.
    """
    options = dict(record.policy)
    if options["name"] == History.__name__ and options.get("batch") is not None:
        options["batch"] = Batch(**options["batch"])
    return _POLICIES[options.pop("name")](**options)


def recorded_program(identity: Mapping[str, Any]) -> Program:
    """Return the program of the machine from its recorded identity; an empty program if none was ever claimed.

    Raises:
        DataError: `[CORRUPT]` the recorded identity is no program.
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
        raise DataError("CORRUPT", f"the log's newest claim records no valid program ({error!r}): {RESTORE}") from error


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
