"""The identity of a program: what a store records of it with every claim, and compares.

The identity is of sources, processors and sinks. How these are divided into units is recorded beside it, and may change
(`runtime/evolution.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from boatlift.dataflow.contracts import Delivery
from boatlift.dataflow.operator import Timing
from boatlift.dataflow.plan import Plan
from boatlift.decoders import look_up

__all__ = ["OwnState", "ProcessorRecord", "identity_of", "processors_of"]


class OwnState(msgspec.Struct, frozen=True):
    """The state and the code of a processor of the user's; see `ProcessorRecord`."""

    state: dict[str, dict[str, str]]
    code: str


class ProcessorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What recovery needs to know of an operator.

    Attributes:
        kind: The operator's kind.
        reads: The processors that it reads.
        timing: The times that it has, as `Timing` writes them.
        keeps_state: True if a step depends on the steps before it.
        deterministic: True if executing a step again, with the same determinants, gives the same rows.
        options: The operator's description of itself.
        schema: The columns of its rows, as Spark writes them.
        plan: The canonical hash of its plan.
        state: Of a processor of the user's: part of its state to the columns, each with its type and first value.
        records_answers: True if answers of the outside are determinants.
        code: A hash of the user's function, where a program may change it together with the state.
    """

    kind: str
    reads: tuple[str, ...]
    timing: str
    keeps_state: bool
    deterministic: bool
    options: dict[str, Any]
    schema: str
    plan: str
    state: dict[str, dict[str, str]] | None = None
    code: str = ""
    records_answers: bool = False


look_up(ProcessorRecord)


def identity_of(
    plan: Plan, schemas: Mapping[str, str], plans: Mapping[str, str], states: Mapping[str, OwnState]
) -> dict[str, Any]:
    """Return the identity of a program, as JSON.

    Args:
        plan: The dataflow.
        schemas: Operator to the columns of its rows, as Spark writes them.
        plans: Operator to the canonical hash of its plan.
        states: Each processor of the user's to its state and code.
    """
    identity: dict[str, Any] = {}
    for name, source in plan.sources.items():
        # The place of input is no part of the program: input may be moved, as long as names and bytes stay.
        described = source.source.describe()
        identity[f"source {name}"] = {key: value for key, value in described.items() if key != "path"}
        if plan.keeps_no_rows(name):
            identity[f"source {name}"]["forgets"] = True
    for unit in plan.units.values():
        for operator in unit.operators:
            own = states.get(operator.name)
            identity[f"processor {operator.name}"] = msgspec.to_builtins(
                ProcessorRecord(
                    operator.kind,
                    operator.reads,
                    operator.timing.value,
                    operator.keeps_state,
                    operator.deterministic,
                    dict(operator.describe()),
                    schemas[operator.name],
                    plans[operator.name],
                    None if own is None else own.state,
                    "" if own is None else own.code,
                    operator.records_answers,
                )
            )
    for name, sink in plan.sinks.items():
        identity[f"sink {name}"] = {"reads": sink.upstream, "key": list(sink.sink.key or [])}
        if sink.sink.delivery is Delivery.AT_LEAST_ONCE:
            identity[f"sink {name}"]["account"] = False
        if sink.sink.capabilities.refuses_duplicates:
            identity[f"sink {name}"]["unique"] = True  # its steps have rows that are left out for another
        if plan.unit_of_sink(name).timing is Timing.BATCH:
            # Else a store in which such a sink counted the epochs of the batch's input would be taken for this one.
            identity[f"sink {name}"]["counts"] = "epochs of the batch"
    return identity


def processors_of(identity: Mapping[str, Any]) -> dict[str, ProcessorRecord]:
    """Return the operators that an identity records.

    Raises:
        ValidationError: an entry is no operator's.
    """
    begin = "processor "
    return {
        key.removeprefix(begin): msgspec.convert(about, ProcessorRecord)
        for key, about in identity.items()
        if key.startswith(begin)
    }
