"""The kernel of the first rows keeps the laws of kernels: over new rows, and over changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from boatlift.dataflow.columns import WEIGHT
from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.operators.top_n.kernel import TopNKernel
from boatlift.state.row_hash import hash_rows
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Row, batch_maker, crowded_hash, same_hash, spread_hash

KEYS = (("a", pa.int64()),)
COLUMNS = pa.schema([*KEYS, ("v", pa.int64()), ("t", pa.string())])
COUNT = 2
TEXTS = [None, "", "longer than eight bytes, a", "longer than eight bytes, b"]


class FirstOfKeys:
    """The same in plain Python: all rows, sorted."""

    def __init__(self) -> None:
        self.held: Counter[Row] = Counter()

    def first(self) -> Counter[Row]:
        by_key: dict[Any, list[Row]] = {}
        for row in self.held.elements():
            by_key.setdefault(row[0], []).append(row)
        return Counter(row for rows in by_key.values() for row in sorted(rows, key=place)[:COUNT])

    def take(self, inputs: Step) -> Counter[Row]:
        before = self.first()
        for row in inputs[ROWS_INPUT]:
            self.held[row["a"], row["v"], row["t"]] += row.get(WEIGHT, 1)
        assert min(self.held.values(), default=0) >= 0
        after = self.first()
        return Counter({(*row, 1): n for row, n in (after - before).items()}) + Counter(
            {(*row, -1): n for row, n in (before - after).items()}
        )


def place(row: Row) -> tuple[Any, ...]:
    """`v DESC, t`: NULL is last in descending order, and first in ascending order; then by content."""
    _, v, t = row
    content = [
        int(
            hash_rows([pa.array([value], field.type) for value, field in zip(row, COLUMNS, strict=True)], 1, seed).view(
                "int64"
            )[0]
        )
        for seed in (1, 2)
    ]
    return (v is None, -(v or 0), t is not None, t or "", *content)


@st.composite
def steps(draw: st.DrawFn, *, weighted: bool) -> list[Step]:
    """Return steps of rows, many of one key and place; with weights, some of the rows that hold are retracted."""
    held: list[Fields] = []
    made: list[Step] = []
    row = st.fixed_dictionaries(
        {
            "a": st.one_of(st.none(), st.integers(0, 1)),
            "v": st.one_of(st.none(), st.integers(-1, 1)),
            "t": st.sampled_from(TEXTS),
        }
    )
    for _ in range(draw(st.integers(1, 6))):
        came = draw(st.lists(row, max_size=8))
        if not weighted:
            made.append({ROWS_INPUT: came})
            continue
        gone = draw(st.lists(st.sampled_from(held), unique_by=id, max_size=4)) if held else []
        held = [each for each in held if all(each is not other for other in gone)] + came
        made.append({ROWS_INPUT: [*({**each, WEIGHT: 1} for each in came), *({**each, WEIGHT: -1} for each in gone)]})
    return made


def case(hash_of: Hash, *, weighted: bool) -> KernelCase:
    columns = COLUMNS.append(pa.field(WEIGHT, pa.int64())) if weighted else COLUMNS
    return KernelCase(
        TopNKernel("t", KEYS, COLUMNS, weighted, COUNT, (("v", True), ("t", False))),
        steps(weighted=weighted),
        FirstOfKeys,
        batch_maker(columns, lambda row: hash_of((row["a"],))),
        lambda _, row: hash_of((row["a"],)),
    )


class TestNewRows(KernelLaws):
    case = case(spread_hash, weighted=False)


class TestNewRowsCrowded(KernelLaws):
    case = case(crowded_hash, weighted=False)


class TestChanges(KernelLaws):
    case = case(spread_hash, weighted=True)


class TestChangesOfOneHash(KernelLaws):
    case = case(same_hash, weighted=True)
