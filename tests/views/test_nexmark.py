"""Nexmark, whole: after every step each query's changes add up to Spark's answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from benchmarks.cases.nexmark_queries import COLUMNS, QUERIES, REFUSED, SIDE_INPUT, events
from views.judge import flow_of, judge, write
from views.random_queries import Generated, Table

STEPS, PARTS = 2, 3


def tables(count: int, steps: int) -> list[Table]:
    columns = {name: dict(column.strip().split(" ") for column in ddl.split(",")) for name, ddl in COLUMNS.items()}
    return [Table(name, columns[name], rows) for name, rows in events(count, steps).items()]


@pytest.mark.parametrize("part", range(PARTS))
def test_each_query_is_kept_up_to_date(interpreting: SparkSession, tmp_path: Path, part: int) -> None:
    interpreting.sql(SIDE_INPUT)
    queries = list(QUERIES.values())[part::PARTS]
    case = Generated(tables(300, STEPS), queries)
    assert judge(interpreting, case, tmp_path / "case") == STEPS * len(queries)


@pytest.mark.parametrize("query", REFUSED.values(), ids=REFUSED)
def test_windows_of_processing_time_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    case = Generated(tables(50, 1), [query])
    monkeypatch.chdir(tmp_path)
    write(case)
    with pytest.raises(bl.InvalidError, match=r"\[NOT_INCREMENTAL\] v0 uses current_timestamp\(\)"):
        bl.run(flow_of(case), "store", available_now=True, spark=spark)


def test_small_steps_of_all_queries_but_two_go_round(
    interpreting: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interpreting.sql(SIDE_INPUT)
    case = Generated(tables(50, 1), list(QUERIES.values()))
    monkeypatch.chdir(tmp_path)
    write(case)
    own_jobs = bl.plan(flow_of(case), spark=interpreting).own_jobs
    names = dict(zip((f"v{number}" for number in range(len(QUERIES))), QUERIES, strict=True))
    assert {names[view]: why for view, why in own_jobs.items()} == {
        "q6": "rows do not pass Window one by one",
        "q11": "rows do not pass Aggregate one by one",
    }
