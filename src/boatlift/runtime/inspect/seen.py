"""Whether an item of input was recorded, and in which sinks its results are visible.

A client, or a consumer of results, names the item as its source knows it. The step that took it is a determinant of the
log, or lies before a recorded cursor. From there on projections lead to each sink: the smallest frontier of the sink
that has all messages of that step (`boatlift.times.projections`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import msgspec

from boatlift.dataflow import Plan
from boatlift.dataflow.contracts.values import Json, with_names
from boatlift.errors import InvalidError
from boatlift.recovery import Kind
from boatlift.runtime.inspect.contents import store_at
from boatlift.runtime.inspect.explanation import last_held, monitor_from_log
from boatlift.runtime.inspect.status import reported_status
from boatlift.storage.input_log import InputLog
from boatlift.storage.log import Log
from boatlift.storage.opening import StorePlace
from boatlift.storage.records.history import LogHistory
from boatlift.times import AnyFrontier, Frontier, last_number


class Seen(msgspec.Struct, frozen=True):
    """What became of an item of input: by the log, and by the report of an owner that lives on this computer.

    The log records a commit with whatever it records next. An owner's report is some seconds old. So a sink may hold
    more than is said here, and never less.

    Attributes:
        step: The step of the source that took it; -1 if none has. Of an item whose record is deleted, a later one.
        sinks: Each sink that the source leads to, and whether all results of the step are visible there.
    """

    source: str
    item: str
    step: int
    sinks: Mapping[str, bool]

    @property
    def everywhere(self) -> bool:
        return self.step >= 0 and all(self.sinks.values())


def seen_in(planned: Plan, path: StorePlace, source: str, item: str) -> Seen:
    """Return what became of an item.

    Args:
        item: A file's name below the source's folder, `topic/partition:offset`, or the key of a push.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such source, or it has no items that can be named.
        DataError: `[CORRUPT]` the store is damaged.
    """
    if source not in planned.sources:
        raise InvalidError("BAD_OPTION", f"there is no source {source}: name one of {', '.join(planned.sources)}")
    able = planned.sources[source].source.capabilities
    contains = able.contains
    if contains is None:
        raise InvalidError("BAD_OPTION", f"input of {source} has no names: ask for a source of files, Kafka or pushes")
    log = Log.open(store_at(path), planned.dataflow)
    if able.store_backed is not None:
        pushed = InputLog(store_at(path), log.store_id, source)
        pushed.load()
        pushed.key_packs.open(pushed.keys.packed)
        reader: Any = copy(able.store_backed)  # a run in this process may use the source itself
        reader.attach(pushed)
        contains = reader.contains
    step = _step_of(planned, log, source, lambda taken: contains(taken, item))
    activity = reported_status(log, store_at(path)).activity
    return Seen(source, item, step, _sinks(log.history, {} if activity is None else activity.sinks, source, step))


def _step_of(planned: Plan, log: Log, source: str, has: Callable[[Json], bool]) -> int:
    for time, fact in log.history.live_records.determinants.get(source, {}).items():
        position = (fact.outcome or {}).get("position")
        if position is not None and has(position):
            return last_number((time,))
    time, cursor = log.history.cursors.get(source, (-1, None))
    if cursor is None:
        return -1
    start = planned.sources[source].source.start()
    return time if has(with_names(start, cursor, log.names_taken(source))) else -1


def _sinks(history: LogHistory, reported: Mapping[str, int], source: str, step: int) -> dict[str, bool]:
    program, _ = monitor_from_log(history)
    graph = program.graph
    needed: dict[str, AnyFrontier] = {source: Frontier.up_to(step)}
    for name in graph.order:
        for edge in graph.inputs[name]:
            if edge.source in needed:
                sent = edge.projection.sent(needed[edge.source])
                needed[name] = sent | needed[name] if name in needed else sent
    held = last_held(program, history)
    return {
        name: step >= 0 and needed[name] <= Frontier.up_to(max(held[name], reported.get(name, -1)))
        for name in graph.order
        if name in needed and graph.vertices[name].kind is Kind.SINK
    }
