"""Operators whose past cannot be computed change from now on, with the rows of a fresh store over what comes then."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import DataError
from support.changes import changes, evolve, run
from support.refusals import refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "k INT, v LONG, at TIMESTAMP"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        write(number)


def write(number: int) -> None:
    Path("in").mkdir(exist_ok=True)
    rows = [f"{n % 3},{number * 10 + n},2026-01-01T{number:02}:{n:02}:00Z" for n in range(6)]
    Path(f"in/{number:03}.csv").write_text("\n".join(["k,v,at", *rows, rows[0]]) + "\n")


def reduced(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.group_by("k").reduce("op", (F.max if changed else F.sum)("v").alias("v"))


def processed(rows: bl.Stream, changed: bool) -> bl.Stream:
    def number(key: Any, rows: Any, state: Any, _context: Any) -> Any:
        state.n = (state.n or 0) + len(rows)
        yield key.k, -state.n if changed else state.n

    return rows.group_by("k").process("op", number, state="n LONG", output="k INT, n LONG")


def in_arrow(rows: bl.Stream, changed: bool) -> bl.Stream:
    def number(batch: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        v = batch.rows.column("v")
        made = pa.table({"k": batch.rows.column("k"), "v": pc.negate(v) if changed else v})
        return bl.Processed(made)

    return rows.group_by("k").process_arrow("op", number, output="k INT, v LONG")


def without_duplicates(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.drop_duplicates("op", ["v"] if changed else ["k"])


def recent(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.recent("op", "at", "20000 days" if changed else "1 day")


def windows(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    timely = rows.with_watermark("timely", "at", "1 minute")
    window = bl.window("at", "30 minutes" if changed else "10 minutes")
    return timely.group_by(window).agg("op", F.count("*").alias("n"))


def final_windows(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    timely = rows.with_watermark("timely", "at", "1 minute")
    window = bl.window("at", "30 minutes" if changed else "10 minutes")
    return timely.group_by(window).agg("op", F.count("*").alias("n"), emit="final")


def timely(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.with_watermark("op", "at", "2 hours" if changed else "1 hour")


def drawn(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    sign = -1 if changed else 1
    return rows.transform("op", lambda df: df.select("k", (F.floor(bl.rand("k", "v")) + sign * F.col("v")).alias("v")))


def asked(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    sign = -1 if changed else 1

    return rows.transform(
        "op", lambda df: df.select("k", F.udf(lambda v: sign * v, "long")("v").alias("v")), deterministic=False
    )


OPERATORS: dict[str, tuple[Callable[[bl.Stream, bool], bl.Stream], str]] = {
    "reduce": (reduced, r"op gives other rows if its input comes in other steps"),
    "process": (processed, r"op gives other rows if its input comes in other steps"),
    "process_arrow": (in_arrow, r"op gives other rows if its input comes in other steps"),
    "drop_duplicates": (without_duplicates, r"op gives other rows if its input comes in other steps"),
    "recent": (recent, r"op gives other rows if its input comes in other steps"),
    "windows": (windows, r"timely gives other rows if its input comes in other steps"),
    "final windows": (final_windows, r"timely gives other rows if its input comes in other steps"),
    "watermark": (timely, r"op gives other rows if its input comes in other steps"),
    "rand": (drawn, r"op uses bl\.now\(\), bl\.rand\(\) or bl\.uuid\(\), which are each step's own"),
    "not deterministic": (asked, r"op gives other rows each time that it is executed"),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_it_is_refused_and_begins_now(name: str, spark: SparkSession) -> None:
    build, why = OPERATORS[name]

    def flow(*, changed: bool) -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows = made.source("rows", bl.files("in/*.csv", schema=SCHEMA, max_files_per_step=1))
        build(rows, changed).sink("history", bl.parquet("history"))
        return made

    run(flow(changed=False), spark)
    refused(flow(changed=True), rf"\[HISTORY_GONE\] the past of (op|timely) cannot be computed, because {why}", spark)
    write(3)
    run(flow(changed=False), spark)
    before = changes("history")
    evolve(flow(changed=True), spark, op="now")
    assert changes("history") == before
    for number in (4, 5, 6):
        write(number)
    run(flow(changed=True), spark)
    came = Counter(changes("history"))
    came.subtract(before)
    Path("fresh/in").mkdir(parents=True)
    for number in (4, 5, 6):
        shutil.copy(f"in/{number:03}.csv", "fresh/in")
    with chdir("fresh"):
        run(flow(changed=True), spark)
        assert {row: n for row, n in came.items() if n} == changes("history")


def test_the_mode_that_is_advised_for_windows_is_taken(spark: SparkSession) -> None:
    def flow(*, changed: bool) -> bl.Dataflow:
        made = bl.Dataflow("flow")
        rows = made.source("rows", bl.files("in/*.csv", schema=SCHEMA, max_files_per_step=1))
        windows(rows, changed).sink("history", bl.parquet("history"))
        return made

    run(flow(changed=False), spark)
    with pytest.raises(DataError, match=r"\[HISTORY_GONE\]") as told:
        evolve(flow(changed=True), spark)
    again, now = str(told.value).split(", or choose ")
    modes = dict(re.findall(r"--change (\w+)=(\w+)", again))
    assert modes == {"timely": "replay", "op": "replay"}
    assert bl.evolution(flow(changed=True), "store", change=modes, spark=spark).obstacles == {}
    evolve(flow(changed=True), spark, **dict(re.findall(r"--change (\w+)=(\w+)", now)))
