"""The watermarks of the paths by which rows come to a unit, and the one that holds for all of them.

A stream with event time has a watermark after each step. Where streams meet, the watermark is the least of theirs. A
step of several inputs has messages of some of them alone, so the least needs a memory: the newest watermark of each
*path*. A path is an input with a watermark; behind an input that hands on the watermarks of several paths it is one of
these. Units that do not go by event time hand on what has come, path by path; of these a view whose rows expire has a
memory for itself. A unit that goes by event time has the memory in its state, and its messages carry the least.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from boatlift.dataflow import OperatorTree
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import Message
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, payload_of

Interval = tuple[int, int]
"""The watermarks before and after a step, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class InputWatermarks:
    """The watermarks by which rows come to a unit.

    Laws:
        * No row that a step takes by a path is before the first of its interval, and none of a later step is before the
          second. So no row of a later step is before the least of the newest watermarks of all paths.
        * The result depends on the messages of a step and on `known` alone: it is equal in each replay.

    Attributes:
        paths: All paths, each as `INPUT` or `INPUT/PATH`. An input without a watermark has none.
        edges: The edge of each input to its name; tables that are looked up are left out.
    """

    paths: tuple[str, ...]
    edges: Mapping[str, str]

    def of(self, messages: Sequence[Message]) -> dict[str, Interval]:
        """Return the interval of each path by which messages have come."""
        found: dict[str, Interval] = {}
        for message in messages:
            sent = None if message.payload is None else payload_of(message.payload)
            sender = self.edges.get(message.edge)
            if sender is None or not isinstance(sent, RunsPayload):
                continue
            several = {f"{sender}/{path}": each for path, each in (sent.bounds_by or {}).items()}
            for path, (before, after) in (several or ({} if sent.bounds is None else {sender: sent.bounds})).items():
                if path in self.paths:
                    found[path] = (found[path][0] if path in found else before, after)
        return found

    def behind(self, inputs: Collection[str]) -> tuple[str, ...]:
        """Return the paths through some inputs."""
        return tuple(path for path in self.paths if path.partition("/")[0] in inputs)

    def heard(self, known: Mapping[str, int], found: Mapping[str, Interval]) -> dict[str, int]:
        """Return the newest watermark of each path after a step, given those before it."""
        newest = {**known, **{path: after for path, (_, after) in found.items()}}
        return {path: newest[path] for path in self.paths if path in newest}

    def least(self, known: Mapping[str, int], found: Mapping[str, Interval]) -> Interval:
        """Return the interval of a step over all paths, given the newest watermarks before it."""
        after = self.heard(known, found)
        before = [found[path][0] if path in found else known.get(path, NO_WATERMARK) for path in self.paths]
        return min(before), min(after.get(path, NO_WATERMARK) for path in self.paths)


def input_watermarks(units: Mapping[str, CompiledUnit]) -> dict[str, InputWatermarks]:
    """Return the watermarks of each unit's input.

    Args:
        units: All units of a program, each behind those that it reads.
    """
    made: dict[str, InputWatermarks] = {}
    for name, unit in units.items():
        inputs = list(dict.fromkeys(_row_leaves(unit.unit.body)))
        paths: list[str] = []
        for sender in (each for each in inputs if unit.leaves[each].has_watermark):
            passed_on = made[sender].paths if sender in made and not _has_its_own(units[sender]) else ()
            paths += [f"{sender}/{path}" for path in passed_on] if len(passed_on) > 1 else [sender]
        made[name] = InputWatermarks(tuple(paths), {edge_name(each, name): each for each in inputs})
    return made


def _has_its_own(unit: CompiledUnit) -> bool:
    return unit.top is not None and unit.top.goes_by_event_time


def _row_leaves(body: OperatorTree | str) -> Iterator[str]:
    """Yield the sources and units whose rows are in a unit's rows: all but tables that are looked up."""
    if isinstance(body, str):
        yield body
        return
    for read, each in zip(body.operator.reads, body.inputs, strict=True):
        if read not in body.operator.looks_up:
            yield from _row_leaves(each)
