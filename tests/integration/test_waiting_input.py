"""A running dataflow tells what its sources could still take, and a look into its store shows that."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.dataflow import WaitingInput
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 40


def test_files_that_no_step_has_taken_are_counted_while_a_sink_is_slow(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    for number in range(FILES):
        Path("rows", f"{number:03d}.csv").write_text(f"k\n{number}\n")
    go = tmp_path / "go"

    def slowly(rows: object, step: int) -> None:
        del rows, step  # runs in a task, which does not know the folders of tests
        while not go.exists():
            time.sleep(0.02)

    def told() -> Iterable[WaitingInput]:
        status = bl.status("store")
        return () if status.input is None else status.input.waiting.values()

    flow = bl.Dataflow("slow")
    source = bl.files("rows/*.csv", schema="k INT", max_files_per_step=1)
    flow.source("rows", source).sink("out", bl.foreach(slowly))
    running = bl.start(flow, "store", available_now=True, spark=spark)
    try:
        until(lambda: list(Path("store").glob("scratch/*/run-report.json")))
        waiting = until(lambda: next((each for each in told() if each.count < FILES), None))
        assert waiting.count > 0
        assert waiting.unit == "files"
        assert waiting.bytes
        assert waiting.oldest_at
    finally:
        go.touch()
    assert running.wait(300)
    assert bl.status("store").input is None, "nobody lives who could tell"
