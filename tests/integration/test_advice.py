"""Every piece of code that an error advises compiles, as it stands, into a dataflow."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.dataflow.advice import OF_DATAFLOW, OF_GROUPED, OF_STREAM
from boatlift.spark.compile.program import compile_program

pytestmark = pytest.mark.spark

COLUMNS = {"k": "id % 3", "x": "id * 0.5D", "t": "timestamp_seconds(id * 600)", "kind": "if(id % 2 = 0, 'a', 'b')"}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.chdir(tmp_path)
    spark.createDataFrame([(0, "zero")], "k LONG, text STRING").write.parquet(str(tmp_path / "table"))


def flow_of() -> tuple[bl.Dataflow, Any, Any]:
    flow = bl.Dataflow("flow")
    rows, other = (flow.source(name, bl.generator(COLUMNS, rows_per_step=9, steps=2)) for name in ("rows", "other"))
    return flow, rows, other


def code_of(advice: str) -> list[str]:
    return re.findall(r"`([^`]+)`", advice)


def try_out(spark: SparkSession, advice: str, **names: Any) -> None:
    """Executes each piece of code in a dataflow of its own, unless it goes on with the one before, and compiles it."""
    pieces = code_of(advice)
    flow, rows, other = flow_of()
    for number, code in enumerate(pieces):
        if not re.match(r"bl\.|spark\.", code) and number:
            flow, rows, other = flow_of()
        code = code.replace('"table"', f'"{Path("table").absolute()}"')
        known = {"bl": bl, "F": F, "spark": spark, "flow": flow, "rows": rows, "stream": rows, "other": other, **names}
        made = eval(code, known)
        if isinstance(made, bl.Dataflow | type(rows)) and made is not flow:
            made.sink("sunk", bl.parquet("sunk"))
        for each in (rows, other):
            each.sink(f"{each.name}-sunk", bl.parquet(each.name))
        if code.startswith("flow.source"):
            continue
        compile_program(spark, plan(flow), ON_SPARK).close()


def advices() -> dict[str, tuple[str, str]]:
    """By text, so that what many names share is tried once."""
    found: dict[str, tuple[str, str]] = {}
    for owner, table in (("rows", OF_STREAM), ("grouped", OF_GROUPED), ("flow", OF_DATAFLOW)):
        for name, text in table.items():
            if owner != "flow" and "bl.run" not in text:
                found.setdefault(owner + text, (owner, name))
    return found


@pytest.mark.parametrize(("owner", "name"), advices().values(), ids=str)
def test_advised_code_compiles(spark: SparkSession, owner: str, name: str) -> None:
    _, rows, _ = flow_of()
    with pytest.raises(bl.InvalidError) as caught:
        getattr(rows.group_by("k", "kind") if owner == "grouped" else rows, name)
    pieces = code_of(caught.value.message)
    assert pieces or "leave it out" in caught.value.message
    try_out(spark, caught.value.message)


def test_advised_code_shows_rows(spark: SparkSession) -> None:
    flow, rows, other = flow_of()
    other.sink("other-sunk", bl.parquet("other-folder"))
    with pytest.raises(bl.InvalidError) as caught:
        rows.show()
    sink, run, read = code_of(caught.value.message)
    eval(sink, {"rows": rows, "bl": bl})
    eval(run, {"flow": flow, "bl": bl})
    shown = eval(read.replace('"folder"', f'"{Path("folder").absolute()}"'), {"spark": spark})
    assert shown.count() == 18
    with pytest.raises(bl.InvalidError) as caught:
        flow.run()  # type: ignore[attr-defined]
    assert code_of(caught.value.message) == [run]


def test_a_source_is_advised_as_it_is_written() -> None:
    flow, _, _ = flow_of()
    with pytest.raises(bl.InvalidError) as caught:
        flow.readStream  # type: ignore[attr-defined]  # noqa: B018
    (code,) = code_of(caught.value.message)
    assert eval(code, {"flow": flow, "bl": bl}).name == "name"


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: F.col("kind"), 'rows.group_by("kind")'),
        (lambda: F.window("t", "1 hour"), 'rows.group_by(bl.window("t", "1 hour"))'),
        (lambda: F.window("t", "1 hour", "20 minutes"), 'rows.group_by(bl.window("t", "1 hour", "20 minutes"))'),
        (
            lambda: F.upper("kind").alias("big"),
            'rows.transform("keyed", lambda df: df.withColumn("big", …)).group_by("big")',
        ),
    ],
)
def test_a_column_as_a_key_is_answered_with_what_to_write(spark: SparkSession, make: Any, code: str) -> None:
    _, rows, _ = flow_of()
    key: Column = make()
    with pytest.raises(
        bl.InvalidError, match=r"\[NOT_ON_A_STREAM\] (group_by takes names of col|windows are made by)"
    ) as caught:
        rows.group_by("k", key)
    assert code_of(caught.value.message) == [code]
    counted = code.replace("…", 'F.upper("kind")') + '.agg("name", F.count("*").alias("n"))'
    try_out(spark, f"`{counted}`")


@pytest.mark.parametrize(
    ("aggregate", "says"),
    [
        (lambda: F.count_distinct("x"), "distinct values are not kept as state: a view keeps them"),
        (lambda: F.approx_count_distinct("x"), "distinct values are not kept as state: a view keeps them"),
        (lambda: F.max_by("kind", "x"), "max_by is not kept as state: .* write a view, which has all of"),
        (lambda: F.collect_list("x"), "collect_list is not kept as state: .* write a view, which has all of"),
    ],
)
def test_an_aggregate_that_is_not_kept_is_answered_with_a_view(spark: SparkSession, aggregate: Any, says: str) -> None:
    flow, rows, other = flow_of()
    other.sink("other-sunk", bl.parquet("other"))
    rows.group_by("k").agg("counts", aggregate().alias("n")).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=rf"\[UNSUPPORTED_AGGREGATE\] n: {says}") as caught:
        compile_program(spark, plan(flow), ON_SPARK)
    try_out(spark, caught.value.message)


def test_a_stream_where_spark_takes_a_dataframe_is_reported_though_it_has_a_sink(spark: SparkSession) -> None:
    flow, rows, other = flow_of()
    other.sink("other-sunk", bl.parquet("other"))

    tables = {"other": other}
    rows.transform("joined", lambda df: df.join(tables["other"], "k")).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=r"\[NOT_ON_A_STREAM\] other is a Stream, used where Spark takes"):
        compile_program(spark, plan(flow), ON_SPARK)
