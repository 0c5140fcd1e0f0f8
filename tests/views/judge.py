"""Runs random queries as views, and holds every step against Spark's answer over all rows so far."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import boatlift as bl
from views.random_queries import Generated, random_case

__all__ = ["WrongError", "judge"]


class WrongError(AssertionError):
    """A view whose changes do not add up to Spark's answer."""


def judge(spark: SparkSession, root: Path, seed: int, *, queries: int = 4, steps: int = 6, rows: int = 4) -> int:
    """Run the queries of a seed; return how many steps of views were compared.

    Raises:
        WrongError: the changes of some view do not add up to Spark's answer.
    """
    case = random_case(seed, queries=queries, steps=steps, rows=rows)
    with _inside(root / f"seed-{seed}"):
        _write(case)
        bl.run(_flow(case), "store", available_now=True, spark=spark)
        return sum(_compare(spark, case, number, seed) for number in range(len(case.queries)))


def _write(case: Generated) -> None:
    for table in case.tables:
        Path(table.name).mkdir()
        for number, rows in enumerate(table.steps):
            pq.write_table(pa.Table.from_pylist(rows, table.schema), f"{table.name}/{number:03}.parquet")


def _flow(case: Generated) -> bl.Dataflow:
    flow = bl.Dataflow("views")
    for table in case.tables:
        flow.source(
            table.name, bl.files(f"{table.name}/*.parquet", format="parquet", schema=table.ddl, max_files_per_step=1)
        )
    read = set()
    for number, query in enumerate(case.queries):
        view = flow.sql(f"v{number}", query)
        read |= set(flow.processors[view.name].reads)
        view.sink(f"v{number}-out", bl.parquet(f"out/{number}"))
    for table in case.tables:
        if table.name not in read:
            flow.sql(f"all-{table.name}", f"SELECT * FROM {table.name}").sink(
                f"{table.name}-out", bl.parquet(f"out/{table.name}")
            )
    return flow


def _compare(spark: SparkSession, case: Generated, number: int, seed: int) -> int:
    query = case.queries[number]
    held: Counter[tuple[Any, ...]] = Counter()
    paths = sorted(Path(f"out/{number}").glob("*.parquet"))
    for step, path in enumerate(paths):
        for row in pq.read_table(path).to_pylist():
            weight = row.pop("_weight")
            held[_row(row.values())] += weight
        for table in case.tables:
            files = [str(Path(f"{table.name}/{each:03}.parquet").absolute()) for each in range(step + 1)]
            spark.read.schema(table.ddl).parquet(*files).createOrReplaceTempView(table.name)
        expected = Counter(_row(row) for row in spark.sql(query).collect())
        if {row: count for row, count in held.items() if count} != expected:
            raise WrongError(
                f"seed {seed}, query {number}, step {step}: {query}\n"
                f"has too much: {dict(held - expected)}\nlacks: {dict(expected - held)}"
            )
    for table in case.tables:
        spark.catalog.dropTempView(table.name)
    return len(paths)


def _row(values: Any) -> tuple[Any, ...]:
    return tuple("NaN" if isinstance(value, float) and math.isnan(value) else value for value in values)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    folder.mkdir(parents=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
