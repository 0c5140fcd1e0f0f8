"""What sinks hold after a crash, compared with what they hold without one. Pure.

The rows of a sink are a multiset: the sum of its changes. A sink that delivers at least once may have a part of a step
twice, with the same rows.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["RowsOfSink", "SinkDifference", "compare"]

_SHOWN = 400
"""The most characters of a row in a message."""


@dataclass(frozen=True, slots=True)
class RowsOfSink:
    """What a sink holds.

    Attributes:
        key: The key columns of a sink with one.
        rows: The text of each row (`twins.row_text`), with the number of times that it is there.
        repeated: How many parts of steps were delivered again, with the same rows.
        torn: A part that was delivered again with other rows, in words; empty if there is none.
        at_least_once: Whether the sink may have parts twice.
    """

    key: Sequence[str] | None
    rows: Counter[str]
    repeated: int = 0
    torn: str = ""
    at_least_once: bool = False

    @classmethod
    def read(cls, lines: Iterable[str]) -> RowsOfSink:
        """Read what `twins.write_held` has written."""
        rest = iter(lines)
        about = json.loads(next(rest))
        rows = Counter[str]()
        parts: dict[str, dict[str, Counter[str]]] = {}
        for line in rest:
            weight, delivered, text = json.loads(line)
            if delivered is None:
                rows[text] += weight
            else:
                part, delivery = delivered
                parts.setdefault(part, {}).setdefault(delivery, Counter())[text] += weight
        torn = ""
        for part, deliveries in sorted(parts.items()):
            first, *others = deliveries.values()
            rows.update(first)
            if other := next((each for each in others if each != first), None):
                torn = torn or f"{_again(part)}: {_first(first, other, None)}"
        repeated = sum(len(deliveries) - 1 for deliveries in parts.values())
        held = Counter({text: count for text, count in rows.items() if count})
        return cls(about["key"], held, repeated, torn, about["again"])


def _again(part: str) -> str:
    """Return in words that a part of a step, or a row with an identity, came again otherwise."""
    number = part.partition("-")[0]
    if number.isdigit():
        return f"step {int(number)} was delivered again with other rows"
    return f"the row {part} was delivered again with other content"


@dataclass(frozen=True, slots=True)
class SinkDifference:
    """A sink of a trial beside that of an undisturbed run.

    Attributes:
        sink: Its name.
        rows, expected: How many rows it holds, and the undisturbed run's.
        lost, extra: Rows that it lacks, and rows that it alone has; a changed row is both.
        repeated: Parts of steps that were delivered again, which is right at an at-least-once sink.
        first: The first row that differs, in words; empty if none does.
        at_least_once: Whether the sink may have parts twice.
    """

    sink: str
    rows: int
    expected: int
    lost: int = 0
    extra: int = 0
    repeated: int = 0
    first: str = ""
    at_least_once: bool = False

    @property
    def right(self) -> bool:
        return not self.first


def compare(expected: Mapping[str, RowsOfSink], found: Mapping[str, RowsOfSink]) -> tuple[SinkDifference, ...]:
    """Compare all sinks of two runs.

    Examples:
        >>> one, two = (RowsOfSink(None, Counter(rows)) for rows in (["a", "b"], ["a", "a"]))
        >>> compare({"out": one}, {"out": two})[0].first
        'lost b and extra a'
    """
    return tuple(_compared(name, expected[name], found[name]) for name in expected)


def _compared(name: str, expected: RowsOfSink, found: RowsOfSink) -> SinkDifference:
    lost, extra = _minus(expected.rows, found.rows), _minus(found.rows, expected.rows)
    first = found.torn or (_first(expected.rows, found.rows, expected.key) if lost or extra else "")
    counts = sum(found.rows.values()), sum(expected.rows.values()), sum(lost.values()), sum(extra.values())
    return SinkDifference(name, *counts, found.repeated, first, found.at_least_once)


def _minus(one: Counter[str], other: Counter[str]) -> Counter[str]:
    """Return what is more often in one than in the other; unlike `-`, also of negative counts."""
    return Counter({text: more for text in one.keys() | other.keys() if (more := one[text] - other[text]) > 0})


def _first(expected: Counter[str], found: Counter[str], key: Sequence[str] | None) -> str:
    lost, extra = sorted(_minus(expected, found)), sorted(_minus(found, expected))
    if key is not None and lost and extra:
        after = {_key(text, key): text for text in extra}
        changed = next((text for text in lost if _key(text, key) in after), None)
        if changed is not None:
            return f"changed from {_shown(changed)} to {_shown(after[_key(changed, key)])}"
    words = [f"{what} {_shown(texts[0])}" for what, texts in (("lost", lost), ("extra", extra)) if texts]
    return " and ".join(words)


def _key(text: str, key: Sequence[str]) -> str:
    row = json.loads(text)
    return json.dumps([row.get(column) for column in key])


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
