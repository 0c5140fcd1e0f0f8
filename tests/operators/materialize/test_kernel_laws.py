"""The kernel of a materialized stream keeps the laws of kernels: over new rows, and over changes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError
from boatlift.kernels.kernel import ROWS_INPUT
from boatlift.kernels.step_state import StepState
from boatlift.operators.materialize import MaterializeKernel
from boatlift.state.key_groups import Share
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Row, batch_maker, same_hash, spread_hash

KEYS = (("a", pa.int64()), ("t", pa.string()))
COLUMNS = pa.schema([*KEYS])


class HeldRows:
    """The same in plain Python: the change of the rows that hold."""

    def take(self, inputs: Step) -> Counter[Row]:
        change: Counter[Row] = Counter()
        for row in inputs[ROWS_INPUT]:
            change[row["a"], row["t"]] += row.get(WEIGHT, 1)
        return Counter({(*row, 1 if n > 0 else -1): abs(n) for row, n in change.items() if n})


@st.composite
def steps(draw: st.DrawFn, *, weighted: bool) -> list[Step]:
    """Return steps of rows, many of them equal; with weights, some of the rows that hold are retracted."""
    held: list[Fields] = []
    made: list[Step] = []
    text = st.sampled_from([None, "", "longer than eight bytes"])
    row = st.fixed_dictionaries({"a": st.one_of(st.none(), st.integers(0, 2)), "t": text})
    for _ in range(draw(st.integers(1, 6))):
        came = draw(st.lists(row, max_size=8))
        gone = draw(st.lists(st.sampled_from(held), unique_by=id, max_size=4)) if weighted and held else []
        held = [each for each in held if all(each is not other for other in gone)] + came
        signed = [*({**each, WEIGHT: 1} for each in came), *({**each, WEIGHT: -1} for each in gone)]
        made.append({ROWS_INPUT: signed if weighted else came})
    return made


def case(hash_of: Hash, *, weighted: bool) -> KernelCase:
    columns = COLUMNS.append(pa.field(WEIGHT, pa.int64())) if weighted else COLUMNS
    return KernelCase(
        MaterializeKernel("m", KEYS, COLUMNS, weighted),
        steps(weighted=weighted),
        HeldRows,
        batch_maker(columns, lambda row: hash_of((row["a"], row["t"]))),
        lambda _, row: hash_of((row["a"], row["t"])),
    )


class TestNewRows(KernelLaws):
    case = case(spread_hash, weighted=False)


class TestChanges(KernelLaws):
    case = case(spread_hash, weighted=True)


class TestChangesOfOneHash(KernelLaws):
    case = case(same_hash, weighted=True)


def test_a_row_that_never_came_cannot_be_taken_back(tmp_path: Path) -> None:
    found = case(spread_hash, weighted=True)
    batch = found.batch_of(ROWS_INPUT, [{"a": 1, "t": "x", WEIGHT: -1}])
    state = StepState({"": []}, lambda _: tmp_path / "run", 0, Share())
    with pytest.raises(DataError, match=r"\[NEGATIVE_WEIGHT\].*the input of m loses"):
        found.kernel.step({ROWS_INPUT: [batch]}, state)
    assert not (tmp_path / "run").exists()
