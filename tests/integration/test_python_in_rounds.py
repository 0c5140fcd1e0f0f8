"""Python UDFs of small steps in rounds of the long-running job: the bits of a job a step, and its errors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.errors import UnavailableError, UserCodeError
from support.rows.long_running_jobs import has_long_running_job
from support.rows.long_running_rows import SCHEMA, rows_of
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("soon")]

STEPS = 12


@F.udf("string", useArrow=True)  # type: ignore[untyped-decorator]
def shown(number: int, item: str | None) -> str | None:
    return None if item is None else f"{item}: {number}"


@F.udf("struct<half: decimal(13, 3), day: date, tags: array<string>>", useArrow=True)  # type: ignore[untyped-decorator]
def nested(cost: Any, at: Any, tags: list[str] | None) -> Any:
    return cost / 2, at.date(), tags and tags[::-1]


@F.pandas_udf("double")  # type: ignore[call-overload]
def scaled(amount: pd.Series, by: pd.Series) -> pd.Series:
    return amount * by


@F.arrow_udf("timestamp")  # type: ignore[untyped-decorator]
def later(at: pa.Array) -> pa.Array:
    return pc.add(at, pa.scalar(3_600_000_000, pa.duration("us")))


@F.udf("boolean", useArrow=True)  # type: ignore[untyped-decorator]
def is_odd(number: int) -> bool:
    if number < 0:
        raise ValueError("no such row")
    return number % 2 == 1


@F.udf("long", useArrow=True)  # type: ignore[untyped-decorator]
def doubled(number: int) -> int:
    return 2 * number


@F.udf("int", useArrow=True)  # type: ignore[untyped-decorator]
def seven() -> int:
    return 7


FRAMES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "plain": lambda df: df.select("id", shown("id", "item").alias("shown"), nested("cost", "at", "tags").alias("n")),
    "pandas": lambda df: df.select("id", scaled(F.col("amount") + 1, F.length("item")).alias("scaled")),
    "arrow": lambda df: df.select("id", later("at").alias("later"), "tags"),
    "by name": lambda df: df.select("id", shown(item=F.upper("item"), number=F.col("id")).alias("shown")),
    "of its result": lambda df: df.select(shown(F.length(shown("id", "item")), F.lit("x")).alias("length"), "id"),
    "of another one": lambda df: df.select("id", is_odd(doubled("id")).alias("odd"), doubled("id").alias("twice")),
    "in a filter": lambda df: df.where(is_odd("id") & (F.col("id") >= 1000)).select("id", "cost"),
    "without arguments": lambda df: df.select("id", seven().alias("seven")),
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tasks have another working folder, and cannot import this module."""
    monkeypatch.chdir(tmp_path)
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def sums_of(bits: list[Any]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the rows and the digest of each unit's steps."""
    sums: dict[tuple[str, int], tuple[int, int]] = {}
    for name, number, _, _, rows, digest, _ in bits:
        before = sums.get((name, number), (0, 0))
        sums[name, number] = before[0] + rows, (before[1] + digest) % 2**64
    return sums


@pytest.mark.parametrize("kind", [*FRAMES, "changes", "aggregate", "view"])
def test_the_bits_are_those_of_a_job_a_step(
    spark: SparkSession, answered: list[int], bits: list[Any], kind: str
) -> None:
    def run(*, long_running: bool) -> list[Any]:
        folder = f"long running {long_running}"
        flow = bl.Dataflow("same")
        rows = flow.source("rows", bl.push(SCHEMA, ack="stable"))
        if kind == "view":
            rows.transform("odd", FRAMES["plain"], deterministic=True)
            joined = "SELECT a.shown, count(*) AS n FROM odd AS a JOIN rows AS b ON a.id = b.id + 1 GROUP BY a.shown"
            out: Any = flow.sql("out", joined)
        elif kind == "aggregate":
            odd = rows.transform("odd", FRAMES["in a filter"], deterministic=True)
            out = odd.group_by("cost").agg("out", F.count("*").alias("n"))
        elif kind == "changes":
            per = rows.group_by("item").agg("per", F.count("*").alias("n"))
            shows = lambda df: df.select("item", shown("n", "item").alias("shown"))  # noqa: E731
            out = per.transform("out", shows, deterministic=True)
        else:
            out = rows.transform("out", FRAMES[kind], deterministic=True)
        out.sink("written", bl.parquet(f"{folder}/out"))
        assert bl.plan(flow, spark=spark).own_jobs == {}
        before = len(bits)
        running = bl.start(flow, f"{folder}/store", spark=spark, long_running=long_running)
        try:
            for step in range(STEPS):
                flow.push("rows", rows_of(step))
                if long_running and step == 2:
                    until(lambda: has_long_running_job(spark))
        finally:
            running.stop()
        return bits[before:]

    Path("long running True").mkdir()
    Path("long running False").mkdir()
    alone = run(long_running=False)
    assert not answered
    together = run(long_running=True)
    assert set(answered) >= set(range(3, STEPS))
    if kind == "changes":  # the two weights are two partitions of a job, and one in a round
        together, alone = ([sums_of(found)] for found in (together, alone))
    assert sorted(together, key=str) == sorted(alone, key=str)


def test_a_function_that_raises_is_named_as_by_a_job_of_its_step(spark: SparkSession, answered: list[int]) -> None:
    flow = bl.Dataflow("raises")
    rows = flow.source("rows", bl.push("id LONG NOT NULL", ack="stable"))
    out = rows.transform("odd", lambda df: df.where(is_odd("id")), deterministic=True)
    out.sink("written", bl.parquet("out"))
    running = bl.start(flow, "store", spark=spark)
    for step in range(STEPS):
        flow.push("rows", [{"id": step}])
        if step == 2:
            until(lambda: has_long_running_job(spark))
    assert answered

    with pytest.raises(UnavailableError, match="NOT_RUNNING"):
        flow.push("rows", [{"id": -1}])
    with pytest.raises(UserCodeError, match=r"(?s)step 12 of odd.*no such row"):
        running.wait()
