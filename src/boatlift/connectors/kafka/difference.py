"""The first difference between the newest step in a topic and the same step as it came out again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from boatlift.connectors.kafka.offsets import Range
from boatlift.connectors.kit import difference_of_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from boatlift.connectors.kafka.topics import Topics


def difference(topics: Topics, topic: str, begins: Mapping[int, int], now: Sequence[pa.Table]) -> str:
    """Return, in words, the first message that only one of the two has, by key and value.

    Args:
        topics, topic: The topic that holds the step.
        begins: Partition to an offset at or before the step's first message.
        now: The step as it came out again.
    """
    from boatlift.connectors.kafka.columns import KEY, VALUE
    from boatlift.connectors.kafka.fetching import messages_in

    ends = topics.ends_asked(topic)()
    ranges = [Range(topic, "", 0, number, begins.get(number, 0), end) for number, end in ends.items()]
    held = [
        _shown(message.key(), message.value())
        for _, some in messages_in(ranges, topics.access, topic, committed=True)
        for message in some
    ]
    again = [
        _shown(key, value)
        for piece in now
        for key, value in zip(piece.column(KEY).to_pylist(), piece.column(VALUE).to_pylist(), strict=True)
    ]
    only_held, only_now = _without(held, again), _without(again, held)
    return difference_of_rows(next(iter(only_held), None), next(iter(only_now), None))


def _shown(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    return {"key": _text(key), "value": _text(value)}


def _text(content: bytes | None) -> Any:
    if content is None:
        return None
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return content.decode(errors="backslashreplace")


def _without(some: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    left = Counter(map(repr, others))
    lacking = []
    for one in sorted(some, key=repr):
        left[repr(one)] -= 1
        if left[repr(one)] < 0:
            lacking.append(one)
    return lacking
