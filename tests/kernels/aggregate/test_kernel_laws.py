"""The kernels of aggregations keep the laws of kernels: append-only, over changes, without keys, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from boatlift.kernels.aggregate import (
    AggregateColumn,
    AggregateKernel,
    CombiningKernel,
    Layout,
    PartialKernel,
    ReduceKernel,
)
from boatlift.kernels.kernel import ROWS_INPUT, Kernel, KernelInputs, StepOutput
from boatlift.kernels.step_state import StepState
from kernels.kernel_laws import KernelCase, KernelLaws, Step
from support.rows.keyed_state import Fields, Hash, Oracle, Row, crowded_hash, record_batch, same_hash, spread_hash

F64, I64, TEXT = pa.float64(), pa.int64(), pa.string()
D20, D38 = pa.decimal128(20, 2), pa.decimal128(38, 4)

KEYS = (("a", I64), ("b", TEXT), ("c", F64))
ADDITIVE = (
    AggregateColumn("count_all", None, "n", None, I64),
    AggregateColumn("count", "x", "n_x", F64, I64),
    AggregateColumn("sum", "x", "s_x", F64, F64),
    AggregateColumn("avg", "x", "a_x", F64, F64),
    AggregateColumn("avg", "i", "a_i", I64, F64),
    AggregateColumn("sum", "j", "s_j", pa.int8(), I64),
    AggregateColumn("count", "t", "n_t", TEXT, I64),
    AggregateColumn("sum", "d", "s_d", D20, pa.decimal128(30, 2)),
    AggregateColumn("avg", "d", "a_d", D20, pa.decimal128(24, 6)),
    AggregateColumn("avg", "e", "a_e", D38, pa.decimal128(38, 8)),
)
MOMENTS = (
    AggregateColumn("var_pop", "y", "vp", F64, F64),
    AggregateColumn("var_samp", "y", "vs", F64, F64),
    AggregateColumn("stddev_pop", "y", "sp", F64, F64),
    AggregateColumn("stddev_samp", "z", "ss", pa.float32(), F64),
    AggregateColumn("sum", "y", "s_y", F64, F64),
)
EXTREMES = (
    AggregateColumn("min", "x", "l_x", F64, F64),
    AggregateColumn("max", "i", "g_i", I64, I64),
    AggregateColumn("max", "t", "g_t", TEXT, TEXT),
)
# Without count(*) a step may leave a touched key's row as it is.
FEW = (AggregateColumn("avg", "x", "a_x", F64, F64), AggregateColumn("sum", "j", "s_j", pa.int8(), I64))

some_float = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.1, 1e300, -1e300, 1e-300, float("inf"), float("-inf"), float("nan")]),
    st.floats(),
)
some_value = st.one_of(
    st.none(),
    st.sampled_from([0.0, 1.0, 1.0 + 2.0**-52, 0.1, 1e9, 1e9 + 1, -1e100, 5e153, 1e200, float("nan"), float("inf")]),
    st.floats(-1e60, 1e60).map(lambda value: value if abs(value) > 1e-60 else 0.0),
)
some_row = st.fixed_dictionaries(
    {
        "a": st.one_of(st.none(), st.integers(0, 2)),
        "b": st.sampled_from([None, "", "x"]),
        "c": st.sampled_from([None, 0.0, -0.0, float("nan")]),
        "x": some_float,
        "y": some_value,
        "z": st.one_of(st.none(), st.sampled_from([0.5, 3.0, float("nan"), float("-inf")])),
        "i": st.one_of(st.none(), st.integers(-(2**58), 2**58), st.integers(-3, 3)),
        "j": st.one_of(st.none(), st.integers(-3, 3)),
        "t": st.sampled_from([None, "", "text"]),
        "d": st.one_of(st.none(), st.sampled_from([Decimal("0.01"), Decimal("-7.50"), Decimal(10**15)])),
        "e": st.one_of(st.none(), st.sampled_from([Decimal("0.0001"), Decimal(2**70), Decimal(-(2**70))])),
    }
)
some_weight = st.sampled_from([1, 1, 1, 2, 3, 2**20, 2**31, 2**32 + 1, 2**40 - 1])


def appended() -> st.SearchStrategy[list[Step]]:
    steps = st.lists(st.lists(some_row, max_size=12), min_size=1, max_size=5)
    return steps.map(lambda all_rows: [{ROWS_INPUT: rows} for rows in all_rows])


@st.composite
def changed(draw: st.DrawFn) -> list[Step]:
    """Draw steps that add rows and take back rows that are there, in the same step or later, one by one or at once."""
    steps: list[Step] = []
    present: list[tuple[Fields, int]] = []
    for _ in range(draw(st.integers(1, 5))):
        rows: list[Fields] = []
        for _ in range(draw(st.integers(0, 10))):
            if present and draw(st.booleans()):
                row, count = present.pop(draw(st.integers(0, len(present) - 1)))
                weight = draw(st.one_of(st.just(count), st.integers(1, count)))
                if weight < count:
                    present.append((row, count - weight))
                rows.append({**row, "_weight": -weight})
            else:
                row, weight = draw(some_row), draw(some_weight)
                present.append((row, weight))
                rows.append({**row, "_weight": weight})
        steps.append({ROWS_INPUT: rows})
    if draw(st.booleans()):
        steps.append({ROWS_INPUT: [{**row, "_weight": -count} for row, count in present]})
    return steps


class StateOracle:
    def __init__(self, layout: Layout) -> None:
        self.oracle = Oracle(layout)

    def take(self, inputs: Step) -> Counter[Row]:
        return self.oracle.step(inputs[ROWS_INPUT])


class ReduceOracle:
    """Aggregates each step afresh; its rows have no weight."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def take(self, inputs: Step) -> Counter[Row]:
        change = Oracle(self.layout).step(inputs[ROWS_INPUT])
        return Counter({row[:-1]: count for row, count in change.items()})


class ByBranches(AggregateKernel):
    """Aggregates each batch of a step by itself, as one branch of a union, and combines the partial rows."""

    def step(self, inputs: KernelInputs, state: StepState, *, upserts: bool = False) -> StepOutput:
        partial = PartialKernel(self.layout, self.processor)
        combined: list[pa.RecordBatch] = []
        names = [name for name, _ in self.layout.keys]
        for batch in (piece for each in inputs[ROWS_INPUT] for piece in (each.slice(0, 3), each.slice(3))):
            hashes = {tuple(row[name] for name in names): row["_hash"] for row in canonical(batch, names)}
            for rows in partial.step({ROWS_INPUT: [batch]}, state).batches:
                found = [hashes[tuple(row[name] for name in names)] for row in canonical(rows, names)]
                combined.append(rows.append_column("_hash", pa.array(found, pa.int64())))
        return CombiningKernel(self.layout, self.processor).step({ROWS_INPUT: combined}, state, upserts=upserts)


def canonical(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows whose keys are equal in Python if they are one key: NaN is a text, and -0.0 is 0.0."""
    rows = batch.to_pylist()
    for row in rows:
        for name in names:
            if isinstance(row[name], float):
                row[name] = "NaN" if row[name] != row[name] else row[name] + 0.0
    return rows


def case(
    layout: Layout,
    steps: st.SearchStrategy[list[Step]],
    hash_of: Hash = spread_hash,
    kernel_of: Callable[[Layout, str], Kernel] = AggregateKernel,
    oracle_of: Any = StateOracle,
) -> KernelCase:
    def hash_of_key(key: Row) -> int:
        return hash_of(key) if layout.keys else 0

    def batch_of(_: str, rows: Sequence[Fields]) -> pa.RecordBatch:
        return record_batch(layout, rows, hash_of_key)

    def hash_of_row(_: str, row: Fields) -> int:
        return hash_of_key(tuple(row[name] for name, _ in layout.keys))

    keeps_state = kernel_of in (AggregateKernel, ByBranches)
    return KernelCase(kernel_of(layout, "p"), steps, lambda: oracle_of(layout), batch_of, hash_of_row, keeps_state)


class TestAggregate(KernelLaws):
    case = case(Layout(KEYS, (*ADDITIVE, *EXTREMES)), appended())


class TestVariances(KernelLaws):
    case = case(Layout(KEYS, MOMENTS), appended())


class TestVariancesOfChanges(KernelLaws):
    case = case(Layout(KEYS[:1], MOMENTS, weighted=True), changed())


class TestAggregateOfCollidingKeys(KernelLaws):
    case = case(Layout(KEYS, (*FEW, *EXTREMES)), appended(), crowded_hash)


class TestAggregateOfChanges(KernelLaws):
    case = case(Layout(KEYS, ADDITIVE, weighted=True), changed())


class TestFewAggregatesOfChangesOfCollidingKeys(KernelLaws):
    case = case(Layout(KEYS[:1], FEW, weighted=True), changed(), same_hash)


class TestRunningTotal(KernelLaws):
    case = case(Layout((), (*ADDITIVE, *EXTREMES)), appended())


class TestRunningTotalOfChanges(KernelLaws):
    case = case(Layout((), ADDITIVE, weighted=True), changed())


class TestReduce(KernelLaws):
    case = case(Layout(KEYS, (*ADDITIVE, *EXTREMES)), appended(), crowded_hash, ReduceKernel, ReduceOracle)


class TestReduceWithoutKeys(KernelLaws):
    case = case(Layout((), (*ADDITIVE, *EXTREMES)), appended(), spread_hash, ReduceKernel, ReduceOracle)


class TestPartials(KernelLaws):
    case = case(Layout(KEYS, (*ADDITIVE, *EXTREMES)), appended(), kernel_of=ByBranches)


class TestPartialsOfCollidingKeys(KernelLaws):
    case = case(Layout(KEYS, (*FEW, *EXTREMES)), appended(), crowded_hash, ByBranches)


class TestPartialsOfChanges(KernelLaws):
    case = case(Layout(KEYS[:1], (*ADDITIVE, *MOMENTS), weighted=True), changed(), kernel_of=ByBranches)


class TestPartialsOfAllRows(KernelLaws):
    case = case(Layout((), (*ADDITIVE, *EXTREMES)), appended(), kernel_of=ByBranches)
