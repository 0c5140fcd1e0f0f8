"""A source that had nothing is asked again."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import boatlift as bl
from boatlift.runtime.host.sources import LEAST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, _pause_after

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_what_comes_after_a_source_ran_dry_is_taken(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "1.csv").write_text("a\n1\n")
    changed = threading.Condition()
    seen: list[bl.Progress] = []

    def note(progress: bl.Progress) -> None:
        with changed:
            seen.append(progress)
            changed.notify_all()

    def wait_for(what: str, count: int) -> None:
        with changed:
            while sum(progress.what == what for progress in seen) < count:
                assert running.is_active or running.wait()
                changed.wait(0.1)

    flow = bl.Dataflow("idle")
    rows = flow.source("rows", bl.files(tmp_path / "input" / "*.csv", schema="a INT"))
    rows.sink("out", bl.parquet(tmp_path / "output"))
    running = bl.start(flow, tmp_path / "store", spark=spark, on_progress=note)
    try:
        wait_for("commit", 1)
        wait_for("idle", 2)
        (tmp_path / "input" / ".2.csv").write_text("a\n2\n")
        (tmp_path / "input" / ".2.csv").rename(tmp_path / "input" / "2.csv")
        wait_for("commit", 2)
    finally:
        running.stop()
    assert sorted(row.a for row in spark.read.parquet(str(tmp_path / "output")).collect()) == [1, 2]


def test_a_source_that_had_nothing_is_left_alone_for_as_long_as_a_poll_costs() -> None:
    assert _pause_after(0.0, 0.0) == LEAST_PAUSE_SECONDS
    assert _pause_after(0.05, 0.02) == 0.4, "a poll that works takes a twentieth of a core"
    assert _pause_after(0.007, 0.0005) == 0.035, "a poll that waits for a core is no reason to look seldom"
    assert _pause_after(0.1, 0.001) == 0.5, "a slow file server is left alone"
    assert _pause_after(9.0, 9.0) == LONGEST_PAUSE_SECONDS
