"""Runs random queries as views, and holds every step against Spark's answer over all rows so far."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import boatlift as bl
from views.random_queries import Generated

__all__ = [
    "INTERPRETED",
    "QUICK",
    "CaseError",
    "RaisedError",
    "Rows",
    "WrongError",
    "compare",
    "flow_of",
    "judge",
    "rows_of",
    "run_case",
    "write",
]

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings that spare the compilation of code, which few rows use. Shapes of queries are tested with compiled code."""

QUICK = {
    **INTERPRETED,
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m -XX:+UseSerialGC",
}
"""Settings of a session in which a small query costs a third."""

Rows = Counter[tuple[Any, ...]]


class CaseError(AssertionError):
    """A case that does not come out as Spark's answers."""


class RaisedError(CaseError):
    """A case that Boatlift refuses, or fails at.

    Attributes:
        condition: The condition of Boatlift's error.
    """

    def __init__(self, case: Generated, error: bl.BoatliftError) -> None:
        queries = "\n".join(f"query {number}: {query}" for number, query in enumerate(case.queries))
        super().__init__(f"{error}\n{queries}")
        self.condition = error.condition


class WrongError(CaseError):
    """A view whose changes do not add up to Spark's answer.

    Attributes:
        query: The number of the query.
        step: The step after which they do not.
    """

    def __init__(self, case: Generated, query: int, step: int, held: Rows, expected: Rows) -> None:
        super().__init__(
            f"query {query}, step {step}: {case.queries[query]}\n"
            f"has too much: {dict(held - expected)}\nlacks: {dict(expected - held)}"
        )
        self.query, self.step = query, step


def judge(spark: SparkSession, case: Generated, folder: Path) -> int:
    """Run the queries of a case, and compare each step of each view; return how many were compared.

    Raises:
        RaisedError: Boatlift does not run the case.
        WrongError: the changes of some view do not add up to Spark's answer.
        UnavailableError: `[JVM_DIED]`, which judges no query.
    """
    with _inside(folder):
        write(case)
        try:
            run_case(spark, case)
        except bl.BoatliftError as error:
            if error.condition == "JVM_DIED":
                raise
            raise RaisedError(case, error) from error
        return compare(spark, case)


def write(case: Generated) -> None:
    """Write the tables of a case into the working directory, a file a step."""
    for table in case.tables:
        Path(table.name).mkdir()
        schema = table.schema.append(pa.field("_weight", pa.int64())) if table.loses_rows else table.schema
        for number, rows in enumerate(table.changes()):
            pq.write_table(pa.Table.from_pylist(rows, schema), f"{table.name}/{number:03}.parquet")


def run_case(spark: SparkSession, case: Generated) -> None:
    """Run the views of a case over all files in the working directory."""
    bl.run(flow_of(case), "store", available_now=True, spark=spark)


def flow_of(case: Generated, policies: Sequence[bl.Lazy | bl.Eager] = ()) -> bl.Dataflow:
    """Return the views of a case as a dataflow; without policies they have the default one."""
    flow = bl.Dataflow("views")
    for table in case.tables:
        name, ddl = (f"{table.name}-log", f"{table.ddl}, _weight LONG") if table.loses_rows else (table.name, table.ddl)
        stream = flow.source(
            name, bl.files(f"{table.name}/*.parquet", format="parquet", schema=ddl, max_files_per_step=1)
        )
        if table.loses_rows:
            stream.changes(table.name)
    read = set()
    for number, query in enumerate(case.queries):
        view = flow.sql(f"v{number}", query, policy=policies[number] if policies else None)
        read |= set(flow.processors[view.name].reads)
        view.sink(f"v{number}-out", bl.parquet(f"out/{number}"))
    for table in case.tables:
        if table.name not in read:  # each source has a reader
            rest = flow.sql(f"all-{table.name}", f"SELECT * FROM {table.name}")
            rest.sink(f"{table.name}-out", bl.parquet(f"out/{table.name}"))
    return flow


def compare(spark: SparkSession, case: Generated) -> int:
    """Compare the steps in the working directory with Spark's answers; return how many were compared.

    Raises:
        WrongError: the changes of some view do not add up to Spark's answer.
    """
    try:
        return _compared(spark, case)
    finally:
        for table in case.tables:
            spark.catalog.dropTempView(table.name)


def _compared(spark: SparkSession, case: Generated) -> int:
    paths = [sorted(Path(f"out/{number}").glob("*.parquet")) for number in range(len(case.queries))]
    held: list[Rows] = [Counter() for _ in case.queries]
    for step in range(max(map(len, paths))):
        for table in case.tables:
            rows = pa.Table.from_pylist(table.held(step), table.schema)
            spark.createDataFrame(rows).createOrReplaceTempView(table.name)
        for number, query in enumerate(case.queries):
            if step >= len(paths[number]):
                continue
            for row in pq.read_table(paths[number][step]).to_pylist():
                weight = row.pop("_weight")
                held[number][_row(row.values())] += weight
            spark.conf.set("spark.sql.sort.enableRadixSort", "false")  # else it loses the order of LATERAL (… LIMIT 2)
            expected = Counter(_row(row.values()) for row in spark.sql(query).toArrow().to_pylist())
            if {row: count for row, count in held[number].items() if count} != expected:
                raise WrongError(case, number, step, held[number], expected)
    return sum(map(len, paths))


def rows_of(path: Path) -> Rows:
    """Return the rows of a step's file, with their weights."""
    return Counter(_row(row.values()) for row in pq.read_table(path).to_pylist())


def _row(values: Any) -> tuple[Any, ...]:
    return tuple(map(_comparable, values))


def _comparable(value: Any) -> Any:
    """Return a value that equals itself, and can be counted."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((name, _comparable(each)) for name, each in value.items())
    return tuple(map(_comparable, value)) if isinstance(value, list) else value


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    folder.mkdir(parents=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
