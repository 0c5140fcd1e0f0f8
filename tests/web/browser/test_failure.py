"""A console beside a run of which one processor fails: its worker is killed, and it alone goes back."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.browser import Opens, go, screenshot
from support.commands import begun, boatlift
from support.console import consoling
from support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Locator

pytestmark = [pytest.mark.browser, pytest.mark.spark]

UI = ("--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0")
PROGRAM = """
import os, pathlib, time
import boatlift as bl
from pyspark.sql import functions as F

HERE = pathlib.Path(__file__).parent

@F.udf("long")
def dies(k):
    for order in HERE.glob("die-*"):
        order.unlink()
        os.kill(os.getpid(), 9)
    if (HERE / "slow").exists():
        time.sleep(0.3)
    return k

flow = bl.Dataflow("failing")
rows = flow.source("rows", bl.files("rows/*.csv", schema="k LONG"))
sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), policy=bl.Lazy(every=1000))
sums.sink("kept", bl.sqlite("kept.db", table="sums", key=["k"]))
keyed = rows.transform("keyed", lambda frame: frame.select(dies("k").alias("k")), deterministic=True)
frail = keyed.group_by("k").agg("frail", F.count("*").alias("n"), policy=bl.Lazy(every=1000))
frail.sink("other", bl.sqlite("kept.db", table="frail", key=["k"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "failing.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "rows").mkdir()
    return tmp_path


def put(folder: Path, number: int) -> None:
    """Bring one more file, which becomes one more step."""
    written = folder / f"{number}.new"
    written.write_text("k\n" + "".join(f"{k % 5}\n" for k in range(10)), encoding="utf-8")
    written.rename(folder / "rows" / f"{number:04}.csv")


def shows(sink: Locator, step: int) -> None:
    sink.locator(".seen", has_text=str(step)).wait_for(timeout=60_000)


def test_a_processor_whose_worker_is_killed_goes_back_alone_and_one_that_is_slow_is_the_bottleneck(
    folder: Path, opened: Opens
) -> None:
    with begun(folder, "run", "failing:flow", "--store", "store", *UI) as process:
        log = folder / "store" / "log"
        until(lambda: process.poll() is not None or (log.exists() and any(log.iterdir())))
        assert process.poll() is None, process.communicate()
        with consoling(folder / "store") as reader:
            page = opened(reader.console.url)
            for step in range(8):
                put(folder, step)
                shows(page.locator(".sink[data-sink=kept]"), step)
            shows(page.locator(".sink[data-sink=other]"), 7)
            (folder / "slow").touch()
            for attempt in range(2):  # Spark itself tries a task twice
                (folder / f"die-{attempt}").touch()
            put(folder, 8)
            page.locator(".card[data-name=frail].replaying").wait_for(timeout=60_000)
            assert page.locator(".card[data-name=sums].replaying").count() == 0
            page.locator(".state.warn", has_text="running, replaying").wait_for()
            screenshot(page, "replaying")
            put(folder, 9)
            shows(page.locator(".sink[data-sink=kept]"), 9)
            for step in range(10, 14):
                put(folder, step)
            page.locator(".card[data-name=frail].bottleneck").wait_for(timeout=60_000)
            assert page.locator(".card.bottleneck").count() == 1
            screenshot(page, "bottleneck")
            (folder / "slow").unlink()
            shows(page.locator(".sink[data-sink=other]"), 13)
            page.locator(".state.good", has_text="running").wait_for(timeout=30_000)
            past = reader.document("steps")
            ((who, number, _, said),) = past["failures"]
            assert (who, number) == ("frail", 8)
            assert said.startswith("[")
            condition = said.partition("]")[0] + "]"
            go(page, "history")
            page.locator(".events .failure", has_text=condition).wait_for()
            page.locator(".events .replay", has_text="executed 8 steps again, up to step 7").wait_for(timeout=30_000)
            screenshot(page, "history-failure")
            go(page, "steps")
            page.get_by_role("region", name="Failures that were retried").get_by_text(condition).wait_for()
            screenshot(page, "steps-failure")
            assert ["frail", -1] in [each[:2] for each in reader.document("steps")["rollbacks"]]
            metrics = reader.ask("/metrics").body.decode()
            assert 'boatlift_steps_total{dataflow="failing",kind="replay",processor="frail"} 8.0' in metrics
            assert 'boatlift_recovery_seconds_count{cause="failure",dataflow="failing"} 1.0' in metrics
            address = reader.document("status")["activity"]["page"]
            assert page.locator(".spark").get_attribute("href") == address
            with urllib.request.urlopen(f"{address}/jobs/", timeout=60) as answer:
                assert "frail · step" in answer.read().decode()
            process.terminate()
            process.wait(60)
    status = json.loads(boatlift(folder, "status", "--store", "store", "--json").stdout)
    assert status["sinks"] == {"kept": 13, "other": 13}
