"""The kernel of recent rows keeps the laws of kernels: over new rows and over changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.operators.recent import RecentKernel
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

COLUMNS = (("a", pa.int64()), ("b", pa.string()))


class Held:
    """The same in plain Python: how often each row came that has not left."""

    def __init__(self) -> None:
        self.step = 0
        self.held: Counter[tuple[Any, ...]] = Counter()

    def take(self, inputs: Step) -> Counter[Row]:
        now = 100 * self.step + 99
        self.step += 1
        gone = {row: count for row, count in self.held.items() if row[0] <= now}
        came: Counter[tuple[Any, ...]] = Counter()
        for row in inputs[ROWS_INPUT]:
            if row["_leaves"] > now:
                came[row["_leaves"], row["a"], row["b"]] += row.get("_weight", 1)
        self.held = Counter({row: count for row, count in self.held.items() if row not in gone})
        for row, count in came.items():
            self.held[row] += count
        found: Counter[Row] = Counter()
        for (_, *row), count in came.items():
            found[(*row, 1 if count > 0 else -1)] += abs(count)
        for (_, *row), count in gone.items():
            found[(*row, -1)] += count
        return found


@st.composite
def steps(draw: st.DrawFn, *, weighted: bool) -> list[Step]:
    """Return steps; of changes, a row is taken back no more often than it came."""
    made: list[Step] = []
    there: Counter[tuple[Any, ...]] = Counter()
    for number in range(draw(st.integers(1, 6))):
        drawn = draw(
            st.lists(
                st.tuples(
                    st.integers(-60, 250),
                    st.one_of(st.none(), st.integers(0, 2)),
                    st.sampled_from([None, "", "x"]),
                    st.booleans(),
                ),
                max_size=10,
            )
        )
        rows: list[Fields] = []
        for ahead, a, b, back in drawn:
            row = (100 * number + ahead - ahead % 50 - 1, a, b)  # steps are at 99, 199, 299
            comes = not (weighted and back and there[row] > 0)
            there[row] += 1 if comes else -1
            weight = {"_weight": 1 if comes else -1} if weighted else {}
            rows.append({"_leaves": row[0], "a": a, "b": b, **weight})
        made.append({ROWS_INPUT: rows})
    return made


def case(hash_of: Hash, *, weighted: bool) -> KernelCase:
    weight = [("_weight", pa.int64())] if weighted else []
    columns = pa.schema([("_leaves", pa.int64()), *COLUMNS, *weight])
    return KernelCase(
        RecentKernel("r", COLUMNS, weighted),
        steps(weighted=weighted),
        Held,
        batch_maker(columns, lambda row: hash_of((row["_leaves"], row["a"], row["b"]))),
        lambda _, row: hash_of((row["_leaves"], row["a"], row["b"])),
    )


class TestNewRows(KernelLaws):
    case = case(spread_hash, weighted=False)


class TestChanges(KernelLaws):
    case = case(spread_hash, weighted=True)


class TestCrowded(KernelLaws):
    case = case(crowded_hash, weighted=True)


class TestOneHash(KernelLaws):
    case = case(same_hash, weighted=True)
