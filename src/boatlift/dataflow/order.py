"""The three kinds of operators by what their results owe to order (Clonos §4), and the merges that may gather."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache

from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.processors import Processor, SinkSpec
from boatlift.dataflow.rows import RowKind, Rows


class OrderKind(Enum):
    """What has to be repeated so that results come out again the same; the more, the later in this list."""

    INSENSITIVE = "order-insensitive"
    """A row depends on its inputs alone, however they come in steps, and in whatever order."""
    CONVERGENT = "convergent"
    """The state depends on the set of rows that have come; a step's changes also on how they came in steps."""
    DIVERGENT = "divergent"
    """Another order, another division or another execution gives other rows."""


def order_of(operator: Operator) -> tuple[OrderKind, str]:
    """Return the kind of an operator, and for a divergent one why, after its name."""
    if not operator.deterministic:
        return OrderKind.DIVERGENT, "calls a function that is not deterministic"
    if operator.records_answers:
        return OrderKind.DIVERGENT, "asks an external system"
    if operator.timing is Timing.ARRIVAL:
        return OrderKind.DIVERGENT, "takes its inputs in the order of arrival"
    if operator.timing is Timing.BATCH:
        return OrderKind.DIVERGENT, "ends epochs by conditions on what has come"
    if operator.of_steps and operator.timing is Timing.EPOCHS:
        return OrderKind.DIVERGENT, operator.of_steps
    return (OrderKind.CONVERGENT if operator.keeps_state else OrderKind.INSENSITIVE), ""


def with_gathering(processors: Mapping[str, Processor], rows: Mapping[str, Rows]) -> dict[str, Processor]:
    """Return the processors of a dataflow, with merges that gather where nothing behind them minds the order of rows.

    What minds it: an operator whose rows depend on how its input comes in steps (`Operator.of_steps`), a table that is
    looked up, a sink that keeps the newest row of each key, and one that gets rows in the order of their source, unless
    its receiver recognises rows: that may get them again, out of order. Behind an operator with state nothing does: it
    gives changes, which depend on the epochs, and these are recorded.
    """
    readers: dict[str, list[Processor]] = {name: [] for name in processors}
    for processor in processors.values():
        for read in processor.reads:
            readers[read].append(processor)

    def minds(name: str, reader: Processor) -> bool:
        if isinstance(reader, SinkSpec):
            newest = reader.sink.key is not None and rows[name].kind is RowKind.APPEND
            return newest or (has_order(name) and not reader.sink.capabilities.identified_by)
        assert isinstance(reader, Operator)
        by_arrival = reader.timing is Timing.ARRIVAL
        if name in reader.looks_up or (reader.of_steps and not by_arrival):
            return True
        passes = by_arrival or not reader.keeps_state
        return passes and any(minds(reader.name, each) for each in readers[reader.name])

    @cache
    def has_order(name: str) -> bool:
        """Return whether rows have an order in their source, or some of them do, where several streams became one."""
        processor = processors[name]
        passes = isinstance(processor, Operator) and not processor.keeps_state and processor.timing is not Timing.BATCH
        return rows[name].ordered_within is not None or (passes and any(map(has_order, processor.reads)))

    return {
        name: each.gathered() if isinstance(each, Operator) and not any(minds(name, r) for r in readers[name]) else each
        for name, each in processors.items()
    }
