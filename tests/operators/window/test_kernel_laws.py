"""The kernel of windows that end keeps the laws of kernels: each window comes once, whatever was merged before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from boatlift.kernels.aggregate import AggregateColumn, Layout
from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.operators.window.kernel import FinalWindowKernel
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

TIME = pa.timestamp("us", "UTC")
KEYS = (("window_start", TIME), ("window_end", TIME), ("k", pa.int64()))
SLIDE, LENGTH = 33, 66
"""In milliseconds; the steps of an execution are at 99, 199, 299: the first is at the end of a window."""

LAYOUT = Layout(
    KEYS,
    (
        AggregateColumn("count_all", None, "n", None, pa.int64()),
        AggregateColumn("sum", "v", "total", pa.int64(), pa.int64()),
        AggregateColumn("max", "v", "most", pa.int64(), pa.int64()),
    ),
)


class Windows:
    """The same in plain Python: the values of each window that has not ended."""

    def __init__(self, now: Callable[[int], int]) -> None:
        self.step, self.now = 0, now
        self.held: dict[tuple[Any, ...], list[int]] = {}

    def take(self, inputs: Step) -> Counter[Row]:
        now = self.now(self.step) * 1000
        self.step += 1
        for row in inputs[ROWS_INPUT]:
            self.held.setdefault((row["window_start"], row["window_end"], row["k"]), []).append(row["v"])
        ended = [key for key in self.held if key[1] <= now]
        return Counter(
            (moment(key[0]), moment(key[1]), key[2], len(values), sum(values), max(values))
            for key in ended
            for values in [self.held.pop(key)]
        )


KEY = st.one_of(st.none(), st.integers(0, 2))


def steadily(step: int) -> int:
    return 100 * step + 99


def by_leaps(step: int) -> int:
    """Stand still, then leap."""
    return 300 * (step // 3) + 99


def by_little(step: int) -> int:
    """Take several steps for a slide."""
    return 7 * step + 99


def steps(length: int, now: Callable[[int], int]) -> st.SearchStrategy[list[Step]]:
    """Return steps of rows of windows that have not ended when their step begins."""

    @st.composite
    def drawn(draw: st.DrawFn) -> list[Step]:
        made: list[Step] = []
        for number in range(draw(st.integers(1, 6))):
            first = (now(number - 1) - length) // SLIDE + 1
            rows = draw(st.lists(st.tuples(st.integers(0, 9), KEY, st.integers(-9, 9)), max_size=12))
            made.append({ROWS_INPUT: [row_of(SLIDE * (first + ahead), length, k, v) for ahead, k, v in rows]})
        return made

    return drawn()


def row_of(begin: int, length: int, key: int | None, value: int) -> Fields:
    return {"window_start": begin * 1000, "window_end": (begin + length) * 1000, "k": key, "v": value}


def moment(microseconds: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def key_of(row: Fields) -> tuple[Any, ...]:
    return row["window_start"], row["window_end"], row["k"]


def case(hash_of: Hash, length: int = LENGTH, now: Callable[[int], int] = steadily) -> KernelCase:
    columns = pa.schema([*KEYS, ("v", pa.int64())])
    return KernelCase(
        FinalWindowKernel(LAYOUT, "w", 1, SLIDE * 1000, length * 1000),
        steps(length, now),
        lambda: Windows(now),
        batch_maker(columns, lambda row: hash_of(key_of(row))),
        lambda _, row: hash_of(key_of(row)),
        now=now,
    )


class TestSpread(KernelLaws):
    case = case(spread_hash)


class TestCrowded(KernelLaws):
    case = case(crowded_hash)


class TestOneHash(KernelLaws):
    case = case(same_hash)


class TestWindowsThatEndBetweenSlides(KernelLaws):
    case = case(spread_hash, 50)


class TestABoundThatStandsAndLeaps(KernelLaws):
    case = case(spread_hash, 50, by_leaps)


class TestStepsWithinASlide(KernelLaws):
    case = case(spread_hash, 50, by_little)
