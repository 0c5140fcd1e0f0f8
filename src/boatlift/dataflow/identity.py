"""The identity of a program, which a store records with every claim and compares.

It covers sources, operators and sinks. Their division into units is recorded beside it, and may change
(`runtime/evolution.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from boatlift.dataflow.contracts import Delivery
from boatlift.dataflow.groups import Groups
from boatlift.dataflow.operator import Timing
from boatlift.dataflow.plan import Plan
from boatlift.decoders import look_up


class OwnState(msgspec.Struct, frozen=True):
    """The state and code of a user-defined processor; see `ProcessorRecord`."""

    state: dict[str, dict[str, str]]
    code: str


class ProcessorRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The properties of an operator on which recovery depends.

    Attributes:
        timing: The value of its `Timing`.
        schema: The columns of its rows, in Spark's notation.
        plan: The canonical hash of its plan.
        state: For a user-defined processor: part of its state to the columns, each with type and initial value.
        code: A hash of the user's function, if a program may change it together with the state.
        written: A hash of the operator as the user wrote it, which no upgrade changes; empty if there is none.
        layout: A hash of the form in which its state is kept; empty if it keeps none.
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
    written: str = ""
    layout: str = ""


look_up(ProcessorRecord)


def identity_of(
    plan: Plan,
    schemas: Mapping[str, str],
    plans: Mapping[str, str],
    states: Mapping[str, OwnState],
    written: Mapping[str, str] = MappingProxyType({}),
    layouts: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the identity of a program, as JSON.

    Args:
        schemas: Operator to the columns of its rows, in Spark's notation.
        plans: Operator to the canonical hash of its plan.
        states: User-defined processor to its state and code.
        written: Operator to the hash of what the user wrote.
        layouts: Operator to the hash of the form of its state.
    """
    identity: dict[str, Any] = {}
    for name, source in plan.sources.items():
        # The path is no part of the program: input may be moved, as long as names and bytes stay.
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
                    written.get(operator.name, ""),
                    layouts.get(operator.name, ""),
                )
            )
    for name, sink in plan.sinks.items():
        identity[f"sink {name}"] = {"reads": sink.upstream, "key": list(sink.sink.key or [])}
        if sink.sink.delivery is Delivery.AT_LEAST_ONCE:
            identity[f"sink {name}"]["account"] = False
        if sink.sink.capabilities.refuses_duplicates:
            identity[f"sink {name}"]["unique"] = True  # the sink refuses a second row of a key
        if by := sink.sink.capabilities.identified_by:
            # A receiver knows the rows that it has by these columns alone, and by such requests.
            identity[f"sink {name}"]["identified_by"] = list(by)
            identity[f"sink {name}"]["requests"] = "of a row" if sink.sink.capabilities.named_by_row else "of rows"
        if plan.unit_of_sink(name).timing is Timing.BATCH:
            # An older version counted the epochs of the batch's input, and its stores must not match.
            identity[f"sink {name}"]["counts"] = "epochs of the batch"
    for group in plan.groups:
        for name in group:
            identity[f"sink {name}"]["together"] = list(group)
    return identity


def groups_of(identity: Mapping[str, Any]) -> Groups:
    """Return the sinks that are shown together, by the identity of a program."""
    about = (each for entry, each in identity.items() if entry.startswith("sink "))
    return tuple(sorted({tuple(each["together"]) for each in about if "together" in each}))


def processors_of(identity: Mapping[str, Any]) -> dict[str, ProcessorRecord]:
    """Return the operators in an identity.

    Raises:
        ValidationError: an entry is no operator.
    """
    begin = "processor "
    return {
        key.removeprefix(begin): msgspec.convert(about, ProcessorRecord)
        for key, about in identity.items()
        if key.startswith(begin)
    }
