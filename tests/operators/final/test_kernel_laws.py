"""The kernel of final rows keeps the laws of kernels: what holds of a row is given once, at its time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.operators.final import FinalKernel
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

COLUMNS = (("a", pa.int64()), ("b", pa.string()))


class Held:
    """The same in plain Python: how often each row holds that may change yet."""

    def __init__(self) -> None:
        self.step = 0
        self.held: Counter[tuple[Any, ...]] = Counter()

    def take(self, inputs: Step) -> Counter[Row]:
        now = 100 * self.step + 99
        self.step += 1
        for row in inputs[ROWS_INPUT]:
            self.held[row["_leaves"], row["a"], row["b"]] += row["_weight"]
        final = Counter({row: count for row, count in self.held.items() if row[0] <= now})
        self.held -= final
        found: Counter[Row] = Counter()
        for (_, *row), count in final.items():
            found[tuple(row)] += count
        return +found


@st.composite
def steps(draw: st.DrawFn) -> list[Step]:
    """Return steps of changes: a row is taken back no more often than it came, and never once it is final.

    A row may come at the bound itself.
    """
    made: list[Step] = []
    there: Counter[tuple[Any, ...]] = Counter()
    for number in range(draw(st.integers(1, 6))):
        drawn = draw(
            st.lists(
                st.tuples(
                    st.integers(-1, 6), st.sampled_from([None, 1, 2]), st.sampled_from([None, "", "x"]), st.booleans()
                ),
                max_size=10,
            )
        )
        rows: list[Fields] = []
        for ahead, a, b, back in drawn:
            row = (100 * number + 50 * ahead + 49, a, b)  # steps are at 99, 199, 299
            weight = -1 if back and ahead >= 0 and there[row] > 0 else 1
            there[row] += weight
            rows.append({"_leaves": row[0], "a": a, "b": b, "_weight": weight})
        made.append({ROWS_INPUT: rows})
    return made


KERNEL = FinalKernel("f", COLUMNS, weighted=True, column="ends")


def case(hash_of: Hash) -> KernelCase:
    columns = pa.schema([("_leaves", pa.int64()), *COLUMNS, ("_weight", pa.int64())])
    return KernelCase(
        KERNEL,
        steps(),
        Held,
        batch_maker(columns, lambda row: hash_of((row["_leaves"], row["a"], row["b"]))),
        lambda _, row: hash_of((row["_leaves"], row["a"], row["b"])),
        timed=True,
    )


class TestSpread(KernelLaws):
    case = case(spread_hash)


class TestCrowded(KernelLaws):
    case = case(crowded_hash)


class TestOneHash(KernelLaws):
    case = case(same_hash)


def test_a_change_of_a_final_row_is_refused(tmp_path: Path) -> None:
    execution = case(spread_hash).run_in(tmp_path)
    row = {"_leaves": 50, "a": 1, "b": "x", "_weight": 1}
    assert execution.take({ROWS_INPUT: [row]})[0] == Counter({(1, "x"): 1})
    with pytest.raises(
        DataError, match=r"\{'a': 1, 'b': 'x'\} of f changes, or comes, after it was final by ends"
    ) as refused:
        execution.take({ROWS_INPUT: [{**row, "_weight": -1}]})
    assert refused.value.condition == "NOT_FINAL"
