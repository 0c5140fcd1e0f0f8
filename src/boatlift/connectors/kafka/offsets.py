"""Positions and cursors of topics: the offsets that a step takes. Pure.

A position is `{"ranges": [{"topic", "id", "number", "partition", "start", "end"}, …]}`, in order, end excluded. `id`
identifies a topic, because a name may be used again; `number` is the order in which topics were seen. `skipped` counts
offsets that were lost before `start`. A cursor is `{"topics": {topic: {"id", "number", "first": {partition:
offset}, "next": {partition: offset}}}, "began"}`. `first` is the first offset that was taken of a partition; earlier
versions did not record it. `began` is true after the first step. The position of that step records where partitions
begin, unless they begin with their first available offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from boatlift.dataflow.contracts import Json
from boatlift.errors import DataError

BLOCK = 1 << 16
"""Blocks of offsets begin at multiples of this. Each has a digest, whatever the division into tasks."""


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
        fields = {name: getattr(self, name) for name in ("topic", "id", "number", "partition", "start", "end")}
        return fields | ({"skipped": self.skipped} if self.skipped else {})


@dataclass(frozen=True, slots=True)
class Found:
    """A partition as it is now: its first available offset, and the end of the readable ones."""

    topic: str
    id: str
    partition: int
    low: int
    high: int


def ranges_of(position: Json) -> list[Range]:
    """Return the ranges of a position."""
    return [Range(**each) for each in position["ranges"]]


def size_of(ranges: Iterable[Range]) -> int:
    """Return the number of offsets."""
    return sum(each.end - each.start for each in ranges)


def advanced(cursor: Json, position: Json) -> dict[str, Any]:
    """Return the cursor after a position."""
    topics = {
        name: {**topic, "first": dict(topic.get("first", {})), "next": dict(topic["next"])}
        for name, topic in cursor["topics"].items()
    }
    for each in ranges_of(position):
        topic = topics.setdefault(each.topic, {"id": each.id, "number": each.number, "first": {}, "next": {}})
        partition = str(each.partition)
        if partition not in topic["next"]:
            topic["first"][partition] = each.start
        topic["next"][partition] = each.end
    return {"topics": topics, "began": True}


def taken_up_to(cursor: Json) -> list[Range]:
    """Return all offsets that were taken up to a cursor, lost ones among them.

    Raises:
        DataError: `[HISTORY_GONE]` an earlier version took the first offsets, and did not record them.
    """
    taken = []
    for name, topic in sorted(cursor["topics"].items(), key=lambda each: each[1]["number"]):
        for partition, end in sorted(topic["next"].items(), key=lambda each: int(each[0])):
            start = topic.get("first", {}).get(partition)
            if start is None:
                raise DataError(
                    "HISTORY_GONE",
                    f"the first offset that was taken of topic {name}, partition {partition}, is not recorded, because "
                    "an earlier version of Boatlift took it: choose --change NAME=now for what changes, or begin with "
                    "a new store",
                )
            if start < end:
                taken.append(Range(name, topic["id"], topic["number"], int(partition), start, end))
    return taken


def taken_next(
    cursor: Json,
    found: Sequence[Found],
    first: Mapping[tuple[str, int], int] | None,
    ends: Mapping[tuple[str, int], int],
    limit: int,
    *,
    fail_on_data_loss: bool,
) -> dict[str, Any] | None:
    """Choose the input of the next step: of each partition a part, in proportion to what is available.

    Args:
        first: Where the partitions begin that exist at the first step. None, and later partitions: at the first
            available offset.
        ends: Where partitions end for good.
        limit: The most offsets; each partition with new offsets gets at least one, if the limit suffices.
        fail_on_data_loss: Whether lost offsets stop the dataflow; otherwise they are counted as skipped.

    Returns:
        A position; None if there is nothing new.
    """
    numbers = {name: topic["number"] for name, topic in cursor["topics"].items()}
    for name in sorted({each.topic for each in found} - numbers.keys()):
        numbers[name] = max(numbers.values(), default=-1) + 1
    _refuse_lost_topics(cursor, found)
    began = bool(cursor.get("began"))
    # The first position records where all partitions begin, also if it takes no offset of them yet.
    chooses = first is not None and not began
    begins = first or {}
    available = []
    for each in sorted(found, key=lambda each: (numbers[each.topic], each.partition)):
        key = each.topic, each.partition
        known = cursor["topics"].get(each.topic, {"next": {}})["next"].get(str(each.partition))
        begin = known if known is not None else begins.get(key, each.low) if chooses else each.low
        last = ends.get(key, each.high)
        start = max(begin, min(each.low, max(last, begin)))  # lost offsets up to the last one are skipped
        if known is not None and (start > known or each.high < known):
            _refuse_loss(each, known, fail=fail_on_data_loss)
        end = max(start, min(each.high, last))
        lost = start - known if known is not None else 0
        if end > start or lost or (chooses and key in begins):
            available.append(Range(each.topic, each.id, numbers[each.topic], each.partition, start, end, lost))
    shared = shares([each.end - each.start for each in available], limit)
    taken = [
        Range(each.topic, each.id, each.number, each.partition, each.start, each.start + share, each.skipped)
        for each, share in zip(available, shared, strict=True)
        if share or each.end == each.start or chooses
    ]
    return {"ranges": [each.to_json() for each in taken]} if taken or chooses else None


def divided_into(ranges: Sequence[Range], limit: int) -> list[Json]:
    """Return positions with some offsets, in the order in which `taken_next` would take them.

    Args:
        limit: The most offsets of a position.
    """
    positions, left = list[Json](), list(ranges)
    while left:
        taken = [
            replace(each, end=each.start + share)
            for each, share in zip(left, shares([each.end - each.start for each in left], limit), strict=True)
        ]
        positions.append({"ranges": [each.to_json() for each in taken if each.end > each.start]})
        rest = (replace(each, start=cut.end) for each, cut in zip(left, taken, strict=True))
        left = [each for each in rest if each.start < each.end]
    return positions


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
                f"topic {name} was deleted and made again (its id was {topic['id']} and is {ids[name]}), so its rows "
                "are gone: begin with a new store",
            )
        for partition in topic["next"]:
            if (name, partition) not in partitions:
                raise DataError("INPUT_MISSING", f"partition {partition} of topic {name} is gone: restore it")


def _refuse_loss(each: Found, following: int, *, fail: bool) -> None:
    # The lower end is not temporary: a new or restarted leader of a partition returns no end (OFFSET_NOT_AVAILABLE,
    # KIP-207) until it has everything that was readable before.
    if fail and each.high < following:
        raise DataError(
            "INPUT_MISSING",
            f"topic {each.topic}, partition {each.partition}, ends with offset {each.high - 1}, but offsets up to "
            f"{following - 1} were taken, so the cluster has lost some: to go on with new rows, set "
            "fail_on_data_loss=False",
        )
    if fail:
        raise DataError(
            "INPUT_MISSING",
            f"offsets {following} to {each.low - 1} of topic {each.topic}, partition {each.partition}, were deleted "
            "before they were taken: keep topics longer; to go on without them, and record how many were skipped, set "
            "fail_on_data_loss=False",
        )


def shares(available: Sequence[int], limit: int) -> list[int]:
    """Divide a limit in proportion to available offsets; each partition with any gets one, if the limit suffices."""
    total = sum(available)
    if total <= limit:
        return list(available)
    parts = [min(part, max(1, part * limit // total)) if part else 0 for part in available]
    over = sum(parts) - limit
    for index in sorted(range(len(parts)), key=lambda index: -parts[index]):
        if over <= 0:
            break
        less = max(0, min(over, parts[index] - 1))
        parts[index] -= less
        over -= less
    return parts


def blocks_of(each: Range) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range between the beginnings of blocks."""
    start = each.start
    while start < each.end:
        end = min(each.end, (start // BLOCK + 1) * BLOCK)
        yield start, end
        start = end
