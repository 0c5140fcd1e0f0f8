"""Views whose queries say something of time: `withWatermark`, `dropDuplicatesWithinWatermark`, and `now()`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.runtime.inspect.opening import log_at
from boatlift.runtime.inspect.status import status_of
from support.event_time import SECOND, drawn_steps, first_rows, judged, windows_of
from support.stepped_rows import Fields, rows_of, run, steps_of, write_steps

MINUTE = 60 * SECOND


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _counts(rows: DataFrame) -> DataFrame:
    timely = rows.withWatermark("at", "1 minute")
    counts = timely.groupBy(F.window("at", "1 minute"), "k").agg(F.count("*").alias("n"), F.sum("v").alias("v"))
    return counts.select(F.col("window.start").alias("begin"), "k", "n", "v")


def _once(rows: DataFrame) -> DataFrame:
    timely = rows.where("at IS NOT NULL").withColumnRenamed("k", "name").withWatermark("at", "3 minutes")
    return timely.where("v >= 0").dropDuplicatesWithinWatermark(["name"]).select("name", "at")


def _flow() -> bl.Dataflow:
    flow = bl.Dataflow("cut")
    rows_of(flow)
    views: dict[str, Callable[[DataFrame], DataFrame]] = {"counts": _counts, "once": _once}
    for name, query in views.items():
        flow.add_view(name, ("rows",), query, bl.Lazy(every=3), None).sink(f"{name}_out", bl.parquet(f"out/{name}"))
    return flow


def test_watermarks_of_a_view_are_a_lateness_and_duplicates_within_it(spark: SparkSession) -> None:
    steps = drawn_steps(7, nulls=True)
    half = len(steps) // 2
    write_steps(steps[:half])
    run(_flow(), spark)
    for number, path in enumerate(_rest(steps, half)):
        path.rename(f"rows/{half + number:03}.parquet")
    run(_flow(), spark)  # another dataflow of the same program goes on

    timely, late, bounds = judged(steps, MINUTE)
    assert sum(map(len, late)) > 5
    total: Counter[tuple[Any, ...]] = Counter()
    for row in (row for rows in steps_of("out/counts") for row in rows):
        total[row["begin"], row["k"], row["n"], row["v"]] += row["_weight"]
    with_time = [[row for row in rows if row["at"] is not None] for rows in timely]
    never_over = windows_of(with_time, bounds, timedelta(days=9999), timedelta(days=9999))
    assert not any(never_over), "no window has ended"
    expected: Counter[tuple[Any, ...]] = Counter()
    for row in (row for rows in with_time for row in rows):
        expected[row["at"].replace(second=0, microsecond=0), row["k"]] += 1
    assert Counter({(begin, k): n for begin, k, n, _ in total.elements()}) == expected
    assert set(total.values()) <= {0, 1}

    steps = [[row for row in rows if row["at"] is not None] for rows in steps]
    timely, _, bounds = judged(steps, 3 * MINUTE)
    found = [Counter((row["name"], row["at"]) for row in rows) for rows in steps_of("out/once")]
    assert found == first_rows(timely, bounds, 3 * MINUTE)
    assert status_of(log_at(Path("store"))).event_times.keys() == {"counts_watermark", "once_watermark"}


def _rest(steps: list[list[Fields]], half: int) -> list[Path]:
    write_steps(steps[half:], "rest")
    return sorted(Path("rest").iterdir())


FRESH = {
    "later": "SELECT k, v + 1 AS v FROM rows WHERE at > now() - INTERVAL 3 SECONDS AND v < 9",
    "earlier": "SELECT k, v + 1 AS v FROM rows r WHERE v < 9 AND current_timestamp() <= r.at + INTERVAL '3' SECOND",
    "counted": "SELECT k, count(*) + 1 AS v FROM (SELECT * FROM rows WHERE at >= now() - INTERVAL 3 SECONDS) "
    "GROUP BY k",
}


def test_rows_leave_a_view_as_now_passes(spark: SparkSession) -> None:
    now = datetime.now(UTC)
    ages = {"old": 3600, "aging": -2, "new": -4, "timeless": None}
    rows = [{"k": k, "v": 1, "at": None if age is None else now - age * SECOND} for k, age in ages.items()]
    write_steps([rows])
    flow = bl.Dataflow("fresh", tick="1 second")
    rows_of(flow)
    for name, query in FRESH.items():
        flow.sql(name, query).sink(f"{name}_out", bl.parquet(f"out/{name}"))
    running = bl.start(flow, store="store", spark=spark)

    def held(name: str) -> Counter[tuple[str, int]]:
        total: Counter[tuple[str, int]] = Counter()
        for row in (row for step in steps_of(f"out/{name}") for row in step):
            total[row["k"], row["v"]] += row["_weight"]
        return +total

    end = time.monotonic() + 120
    while time.monotonic() < end and running.is_active:
        if all(steps_of(f"out/{name}") and not held(name) for name in FRESH):
            break
        time.sleep(0.1)
    running.stop()
    for name in FRESH:
        steps = steps_of(f"out/{name}")
        came = {(row["k"], row["v"]) for step in steps for row in step if row["_weight"] == 1}
        assert came == {("aging", 2), ("new", 2)}, name
        assert not held(name)
        gone = {row["k"]: number for number, step in enumerate(steps) for row in step if row["_weight"] == -1}
        assert gone["aging"] < gone["new"], "the row that is older leaves at an earlier step"


REFUSED: dict[str, tuple[str | Callable[[DataFrame], DataFrame], str, str]] = {
    "no watermark": (lambda rows: rows.dropDuplicatesWithinWatermark(["k"]), "NO_LATENESS", r"call withWatermark\("),
    "no such column": (lambda rows: rows.withWatermark("w", "1 minute"), "SCHEMA_MISMATCH", "its rows have k, v, at"),
    "no timestamp": (lambda rows: rows.withWatermark("v", "1 minute"), "TYPE_REFUSED", "v, a bigint"),
    "no period": (lambda rows: rows.withWatermark("at", "a while"), "BAD_OPTION", "'a while', no period"),
    "months": (lambda rows: rows.withWatermark("at", "2 months"), "BAD_OPTION", "without months"),
    "watermark in SQL": ("SELECT k FROM rows WATERMARK at DELAY OF INTERVAL 1 MINUTE", "NOT_ON_A_STREAM", "lateness"),
    "now as a value": ("SELECT k, now() AS n FROM rows", "NOT_INCREMENTAL", "bl.now"),
    "rows to come": ("SELECT k FROM rows WHERE at < now()", "NOT_INCREMENTAL", "at > now"),
    "duplicates of changes": (
        lambda rows: rows.groupBy("at").count().withWatermark("at", "1 day").dropDuplicatesWithinWatermark(["at"]),
        "NOT_NEW_ROWS",
        "gives changes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused(spark: SparkSession, name: str) -> None:
    query, condition, words = REFUSED[name]
    write_steps(drawn_steps(1, steps=1))
    flow = bl.Dataflow("refused")
    rows_of(flow)
    flow.add_view("x", ("rows",), query, None, None).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=words) as refused:
        run(flow, spark)
    assert refused.value.condition == condition
