"""The kernel of duplicates keeps the laws of kernels: for ever, and within a time."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.operators.duplicates import DuplicatesKernel
from boatlift.state.row_hash import hash_rows
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

KEYS = (("a", pa.int64()), ("b", pa.string()))
COLUMNS = pa.schema([*KEYS, ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
WITHIN = 150
"""In milliseconds; the bound of event time is at 99, 199, 299 after the steps of an execution."""


class Earliest:
    """The same in plain Python: the time of the row of each key."""

    def __init__(self, within: int | None) -> None:
        self.step, self.within = 0, within
        self.held: dict[tuple[Any, ...], int] = {}

    def take(self, inputs: Step) -> Counter[Row]:
        now = 100 * self.step - 1 if self.step else -(1 << 50)  # the bound of the rows before: none, for the first
        self.step += 1
        found: Counter[Row] = Counter()
        by_key: dict[tuple[Any, ...], list[Fields]] = {}
        for row in inputs[ROWS_INPUT]:
            by_key.setdefault((row["a"], row["b"]), []).append(row)
        for key, rows in by_key.items():
            at = [now if row["at"] is None else row["at"] // 1000 for row in rows] if self.within else [0] * len(rows)
            if key in self.held and (self.within is None or self.held[key] + self.within > now):
                continue
            earliest = min(range(len(rows)), key=lambda number: (at[number], content(rows[number])))
            self.held[key] = min(at)
            found[(*key, rows[earliest]["v"], moment(rows[earliest]["at"]))] += 1
        return found


def content(row: Fields) -> int:
    """Return what decides between rows of one key and time: their content, whatever their order."""
    return int(hash_rows([pa.array([row[field.name]], field.type) for field in COLUMNS], 1, 1)[0])


def moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Return steps of rows, of which some have one key and time."""
    made: list[Step] = []
    for number in range(draw(st.integers(1, 6))):
        rows = draw(
            st.lists(
                st.tuples(
                    st.one_of(st.none(), st.integers(0, 2)),
                    st.sampled_from([None, "", "x"]),
                    st.sampled_from([None, -51, -50, -1, 49, 50, 149, 200]),
                    st.integers(0, 2),
                ),
                max_size=12,
            )
        )
        at = [None if late is None else (100 * number + late) * 1000 for _, _, late, _ in rows]
        made.append(
            {ROWS_INPUT: [{"a": a, "b": b, "v": v, "at": time} for (a, b, _, v), time in zip(rows, at, strict=True)]}
        )
    return made


def case(hash_of: Hash, within: int | None = WITHIN) -> KernelCase:
    kernel = DuplicatesKernel("d", KEYS, COLUMNS, *(() if within is None else ("at", within)))
    return KernelCase(
        kernel,
        steps(),
        lambda: Earliest(within),
        batch_maker(COLUMNS, lambda row: hash_of((row["a"], row["b"]))),
        lambda _, row: hash_of((row["a"], row["b"])),
        timed=within is not None,
    )


class TestSpread(KernelLaws):
    case = case(spread_hash)


class TestCrowded(KernelLaws):
    case = case(crowded_hash)


class TestOneHash(KernelLaws):
    case = case(same_hash)


class TestForEver(KernelLaws):
    case = case(spread_hash, None)


class TestForEverCrowded(KernelLaws):
    case = case(crowded_hash, None)
