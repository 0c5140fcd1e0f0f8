"""Positions and cursors of topics: which offsets a step takes. Pure.

A position is `{"ranges": [{"topic", "id", "number", "partition", "start", "end"}, …]}`: end excluded, and in order. `id` tells a topic from
another of the same name; `number` is the order in which topics were seen. `skipped` beside `start` counts offsets that were lost before it.
A cursor is `{"topics": {topic: {"id", "number", "next": {partition: offset}}}, "began"}`: whether there was a first step, which tells where partitions
begin, if not with the first offset that is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from boatlift.dataflow.contracts import Json
from boatlift.errors import DataError

__all__ = ["BLOCK", "Found", "Range", "advanced", "blocks_of", "ranges_of", "shares", "taken_next"]

BLOCK = 1 << 16
"""Offsets are digested in blocks that begin at multiples of this, so that a digest does not depend on who reads what."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of a partition, end excluded."""

    topic: str
    id: str
    number: int
    partition: int
    start: int
    end: int
    skipped: int = 0

    def to_json(self) -> dict[str, Any]:
        """Gives it as the log keeps it."""
        told = {name: getattr(self, name) for name in ("topic", "id", "number", "partition", "start", "end")}
        return told | ({"skipped": self.skipped} if self.skipped else {})


@dataclass(frozen=True, slots=True)
class Found:
    """A partition as it is now: the first offset that is there, and the end of what may be read."""

    topic: str
    id: str
    partition: int
    low: int
    high: int


def ranges_of(position: Json) -> list[Range]:
    """Reads a position."""
    return [Range(**each) for each in position["ranges"]]


def advanced(cursor: Json, position: Json) -> dict[str, Any]:
    """Gives the cursor after a position."""
    topics = {name: {**topic, "next": dict(topic["next"])} for name, topic in cursor["topics"].items()}
    for each in ranges_of(position):
        topic = topics.setdefault(each.topic, {"id": each.id, "number": each.number, "next": {}})
        topic["next"][str(each.partition)] = each.end
    return {"topics": topics, "began": True}


def taken_next(
    cursor: Json,
    found: Sequence[Found],
    first: Mapping[tuple[str, int], int] | None,
    ends: Mapping[tuple[str, int], int],
    limit: int,
    *,
    fail_on_data_loss: bool,
) -> dict[str, Any] | None:
    """Chooses what the next step takes: of each partition a part of what is there, in proportion.

    Args:
        cursor: What was taken.
        found: All partitions, as they are.
        first: Where to begin with the partitions that are there at the first step; None, and for those that come later: with the first offset
            that is there.
        ends: Where partitions end for good.
        limit: How many offsets at most; but one of each partition that has any.
        fail_on_data_loss: Whether offsets that are gone stop the dataflow; else they are counted as skipped.

    Returns:
        A position; None if there is nothing new.

    Raises:
        DataError: `[INPUT_MISSING]`, `[INPUT_CHANGED]`.
    """
    numbers = {name: topic["number"] for name, topic in cursor["topics"].items()}
    for name in sorted({each.topic for each in found} - numbers.keys()):
        numbers[name] = max(numbers.values(), default=-1) + 1
    _refuse_lost_topics(cursor, found)
    began = bool(cursor.get("began"))
    # Where partitions begin is on the record at once, also of those of which nothing is taken yet.
    chooses = first is not None and not began
    begins = first or {}
    there = []
    for each in sorted(found, key=lambda each: (numbers[each.topic], each.partition)):
        key = each.topic, each.partition
        known = cursor["topics"].get(each.topic, {"next": {}})["next"].get(str(each.partition))
        begin = known if known is not None else begins.get(key, each.low) if chooses else each.low
        last = ends.get(key, each.high)
        start = max(begin, min(each.low, max(last, begin)))  # of what is gone, what comes before the end is missed
        if known is not None and (start > known or each.high < known):
            _tell_loss(each, known, fail=fail_on_data_loss)
        end = max(start, min(each.high, last))
        lost = start - known if known is not None else 0
        if end > start or lost or (chooses and key in begins):
            there.append(Range(each.topic, each.id, numbers[each.topic], each.partition, start, end, lost))
    shared = shares([each.end - each.start for each in there], limit)
    taken = [
        Range(each.topic, each.id, each.number, each.partition, each.start, each.start + share, each.skipped)
        for each, share in zip(there, shared, strict=True)
        if share or each.end == each.start or chooses
    ]
    return {"ranges": [each.to_json() for each in taken]} if taken or chooses else None


def _refuse_lost_topics(cursor: Json, found: Sequence[Found]) -> None:
    ids = {each.topic: each.id for each in found}
    partitions = {(each.topic, str(each.partition)) for each in found}
    for name, topic in cursor["topics"].items():
        if name not in ids:
            raise DataError(
                "INPUT_MISSING",
                f"topic {name}, of which rows were taken, is gone: restore it, or begin with a new store",
            )
        if ids[name] != topic["id"]:
            raise DataError(
                "INPUT_CHANGED",
                f"topic {name} was deleted and made again (its id was {topic['id']} and is {ids[name]}): what it had is gone; begin with a "
                f"new store",
            )
        for partition in topic["next"]:
            if (name, partition) not in partitions:
                raise DataError("INPUT_MISSING", f"partition {partition} of topic {name} is gone: restore it")


def _tell_loss(each: Found, following: int, *, fail: bool) -> None:
    if fail and each.high < following:
        raise DataError(
            "INPUT_MISSING",
            f"topic {each.topic}, partition {each.partition}, ends with offset {each.high - 1}, but offsets up to {following - 1} were taken: the cluster has "
            f"lost some; to go on with what comes, set fail_on_data_loss=False",
        )
    if fail:
        raise DataError(
            "INPUT_MISSING",
            f"offsets {following} to {each.low - 1} of topic {each.topic}, partition {each.partition}, were deleted before they were taken: "
            f"keep topics longer; to go on without them, and record what was skipped, set fail_on_data_loss=False",
        )


def shares(there: Sequence[int], limit: int) -> list[int]:
    """Divides a limit in proportion to what is there; whatever has something gets something, as far as the limit reaches."""
    total = sum(there)
    if total <= limit:
        return list(there)
    given = [min(part, max(1, part * limit // total)) if part else 0 for part in there]
    over = sum(given) - limit
    for index in sorted(range(len(given)), key=lambda index: -given[index]):
        if over <= 0:
            break
        less = max(0, min(over, given[index] - 1))
        given[index] -= less
        over -= less
    return given


def blocks_of(each: Range) -> Iterator[tuple[int, int]]:
    """Cuts a range where blocks begin."""
    start = each.start
    while start < each.end:
        end = min(each.end, (start // BLOCK + 1) * BLOCK)
        yield start, end
        start = end
