"""Ticks: a row a period, whether anything else comes or not."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.connectors.generator import TicksSource
from boatlift.runtime.host.clock import SteadyClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_period_has_one_tick_and_a_clock_that_goes_back_has_none() -> None:
    now = [10_500_000]
    source = TicksSource(1_000_000, lambda: now[0])
    cursor = source.start()
    position = source.next(cursor)
    assert position == {"number": 10}
    cursor = source.advance(cursor, position)
    assert source.next(cursor) is None
    now[0] = 9_000_000
    assert source.next(cursor) is None
    now[0] = 14_000_000  # periods that nobody saw have no tick
    assert source.next(cursor) == {"number": 14}


@pytest.mark.spark
def test_a_tick_has_the_time_of_its_position(spark: SparkSession) -> None:
    source = TicksSource(60_000_000, lambda: 0)
    (row,) = source.load(spark, {"number": 29_000_000}).collect()
    assert row.number == row._position == 29_000_000
    assert row.at.astimezone(UTC) == datetime.fromtimestamp(29_000_000 * 60, UTC)
    assert source.schema(spark).names == ["number", "at"]


def test_ticks_without_a_reader_are_left_out() -> None:
    flow = bl.Dataflow("f", tick="1 second")
    assert not flow.processors
    flow.sql("last", "SELECT max(at) AS now FROM tick")
    assert list(flow.processors) == ["tick", "last"]
    assert flow.tick.name == "tick"


def test_a_dataflow_without_ticks_says_how_it_gets_them() -> None:
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_OPTION\] f has no ticks: write bl.Dataflow\('f', tick='1 second'\)"
    ):
        _ = bl.Dataflow("f").tick
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] tick='soon'"):
        bl.Dataflow("f", tick="soon")


@pytest.mark.spark
def test_rows_leave_a_view_as_time_passes_though_nothing_comes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()
    Path("orders/1.csv").write_text("id,at\n1,1970-01-01 00:00:05\n2,1970-01-01 00:00:08\n")
    now = [9_000_000]

    def run() -> list[int]:
        flow = bl.Dataflow("f", tick="1 second")
        monkeypatch.setattr(flow._processors["tick"].source, "_clock", SteadyClock(lambda: now[0], unit=1000))
        flow.source("orders", bl.files("orders/*.csv", schema="id LONG, at TIMESTAMP"))
        flow.sql(
            "recent",
            "SELECT id, count(*) AS n FROM orders, (SELECT max(at) AS now FROM tick) "
            "WHERE orders.at > now - INTERVAL 3 SECONDS GROUP BY id",
        ).sink("out", bl.sqlite("out.db", table="recent", key=["id"]))
        bl.run(flow, store="store", available_now=True, spark=spark)
        with sqlite3.connect("out.db") as database:
            return [row[0] for row in database.execute("SELECT id FROM recent ORDER BY id")]

    held = []
    for seconds in (7, 9, 12):
        now[0] = seconds * 1_000_000
        held.append(run())
    assert held == [[1, 2], [2], []]
