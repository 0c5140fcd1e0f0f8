"""An operator of two inputs with other columns each, which no code of Boatlift knows: it runs as it is registered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import RowKind, Rows, plan
from boatlift.dataflow.operator import KeyedOperator
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.step_state import StepState
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput
from boatlift.spark.compile.operator import Columns, Kit
from boatlift.spark.engine import SparkEngine
from boatlift.spark.jobs import planner
from boatlift.storage.local import LocalStore

COUNT = AggregateColumn("count_all", None, "n", None, pa.int64())


@dataclass(frozen=True, slots=True)
class Balance(KeyedOperator):
    """How many rows of a key are on the left less those on the right, where the key has another name."""

    kind = "balance"

    def fuses(self, read: int) -> bool:
        return read in (0, 1)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        return Rows(self.name, RowKind.CHANGES, unique=("k",))


class BalanceKernel(AggregateKernel):
    @property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        return {"left": ("k", "_hash"), "right": ("key", "text", "_hash")}

    def step(
        self,
        inputs: Mapping[str, Sequence[pa.RecordBatch]],
        state: StepState,
        *,
        upserts: bool = False,
    ) -> StepOutput:
        assert all(set(batch["text"].to_pylist()) <= {"t"} for batch in inputs["right"])
        rows = [
            pa.record_batch(
                {"k": batch[0], "_hash": batch["_hash"], "_weight": pa.array([weight] * len(batch), pa.int64())}
            )
            for name, weight in (("left", 1), ("right", -1))
            for batch in inputs[name]
        ]
        return AggregateKernel.step(self, {ROWS_INPUT: rows}, state, upserts=upserts)


def compile_balance(operator: Balance, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    left, right = inputs
    assert (left.names, right.names) == (["k", "v"], ["key", "text"])
    return CompiledKeyed(
        columns=Columns(operator.name, StructType([left.schema["k"], StructField("n", LongType())]), changes=True),
        kernel=BalanceKernel(Layout((("k", pa.int64()),), (COUNT,), weighted=True), operator.name),
        inputs=(
            KeyedInput((F.col("k"),), ("k",), StructType([left.schema["k"]])),
            KeyedInput((F.col("key"), F.col("text")), ("key",), right.schema),
        ),
    )


def write(source: str, number: int, columns: Mapping[str, Any]) -> None:
    Path(source).mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), f"{source}/part-{number}.parquet")


@pytest.mark.parametrize("one_task", [True, False], ids=["one task", "divided"])
def test_two_inputs_of_other_columns_are_one_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_task: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    if not one_task:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)
    for number, (left, right) in enumerate([([1, 1, 2, 5000], [1]), ([3], [2, 1]), ([], []), ([1], [3])]):
        write("left", number, {"k": pa.array(left, pa.int64()), "v": pa.array(left, pa.int64())})
        write("right", number, {"key": pa.array(right, pa.int64()), "raw": pa.array(right, pa.int64())})
    flow = bl.Dataflow("balance")
    left, right = (
        flow.source(name, bl.files(name, format="parquet", schema=schema, max_files_per_step=1))
        for name, schema in (("left", "k LONG, v LONG"), ("right", "key LONG, raw LONG"))
    )
    texts = right.transform("texts", lambda df: df.select("key", F.lit("t").alias("text")))
    made = flow.add(Balance("balance", (left.name, texts.name), bl.Lazy(every=2)))
    made.sink("out", bl.parquet("out"))
    registry = replace(ON_SPARK, operators={**ON_SPARK.operators, Balance: compile_balance})
    store = LocalStore.open(Path("store"), create=True)
    Host(SparkEngine(spark, plan(flow), registry), store, RunOptions(available_now=True)).run()
    found = [
        {(row["k"], row["n"], row["_weight"]) for row in pq.read_table(path).to_pylist()}
        for path in sorted(Path("out").glob("*.parquet"))
    ]
    assert found == [
        {(1, 1, 1), (2, 1, 1), (5000, 1, 1)},
        {(1, 1, -1), (2, 1, -1), (3, 1, 1)},
        set(),
        {(1, 1, 1), (3, 1, -1)},
    ]


def test_two_branches_of_one_source_are_two_units_and_one_step(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, keys in enumerate([[1, 2, 3], [2, 4]]):
        write("rows", number, {"k": pa.array(keys, pa.int64()), "v": pa.array(keys, pa.int64())})
    flow = bl.Dataflow("diamond")
    rows = flow.source("rows", bl.files("rows", format="parquet", schema="k LONG, v LONG", max_files_per_step=1))
    left = rows.transform("left", lambda df: df.where("v > 1"))
    right = rows.transform("right", lambda df: df.where("v % 2 = 0").selectExpr("k AS key", "'t' AS text"))
    made = flow.add(Balance("balance", (left.name, right.name), bl.Lazy(every=2)))
    made.sink("out", bl.parquet("out"))
    planned = plan(flow)
    assert {name: unit.reads for name, unit in planned.units.items()} == {
        "right": ("rows",),
        "balance": ("rows", "right"),
    }
    registry = replace(ON_SPARK, operators={**ON_SPARK.operators, Balance: compile_balance})
    store = LocalStore.open(Path("store"), create=True)
    Host(SparkEngine(spark, planned, registry), store, RunOptions(available_now=True)).run()
    found = [
        {(row["k"], row["n"], row["_weight"]) for row in pq.read_table(path).to_pylist()}
        for path in sorted(Path("out").glob("*.parquet"))
    ]
    assert found == [{(3, 1, 1)}, set()]
