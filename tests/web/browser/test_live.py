"""A console beside a run: what it shows while the run goes on, when it is killed, and when it goes on again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from boatlift.operators import operators_with_status
from boatlift.web.documents import Documents
from boatlift.web.server import Console, listener_at
from support.browser import Opens, screenshot
from support.commands import begun, boatlift
from support.console import consoling
from support.engine.hosts import crashed
from support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.spark]

PROGRAM = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("live")
rows = flow.source("rows", bl.files("rows/*.csv", schema="k LONG"))
sums = rows.group_by("k").agg("sums", F.count("*").alias("n"), policy=bl.Lazy(every=1000))
sums.sink("kept", bl.sqlite("kept.db", table="sums", key=["k"]))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "live.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "rows").mkdir()
    put(tmp_path, 0)
    return tmp_path


def put(folder: Path, number: int) -> None:
    """Bring one more file, which becomes one more step."""
    written = folder / f"{number}.new"
    written.write_text("k\n" + "".join(f"{k % 5}\n" for k in range(50)), encoding="utf-8")
    written.rename(folder / "rows" / f"{number:04}.csv")


def seen(page: Page, step: int) -> None:
    """Wait until the sink's row shows a step: the page is not loaded again."""
    page.locator(".sink[data-sink=kept] .seen", has_text=str(step)).wait_for(timeout=30_000)


def test_a_run_that_is_killed_and_goes_on_is_followed(folder: Path, opened: Opens) -> None:
    command = ("run", "live:flow", "--store", "store")
    with begun(folder, *command) as process:
        until(lambda: (folder / "store" / "log").exists() and any((folder / "store" / "log").iterdir()))
        with consoling(folder / "store") as reader:
            page = opened(reader.console.url)
            seen(page, 0)
            loaded = page.evaluate("performance.timeOrigin")
            for step in range(1, 4):
                put(folder, step)
                seen(page, step)
            page.locator(".state.good", has_text="running").wait_for()
            page.locator("[data-tile='Rows in'] strong", has_text="/s").wait_for()
            screenshot(page, "running")
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            page.locator(".state.bad", has_text="crashed").wait_for(timeout=30_000)
            told = boatlift(folder, "explain", "--store", "store", "--json")
            again = sum(cost["steps"] for cost in json.loads(told.stdout)["processors"].values())
            assert again == 4
            page.locator(".banner.bad", has_text=f"{again} steps of 1 processor again").wait_for()
            page.locator("[data-tile='The next start repeats'] strong", has_text=f"{again} steps").wait_for()
            screenshot(page, "crashed")
            with begun(folder, *command) as successor:
                page.locator(".state.good", has_text="running").wait_for(timeout=60_000)
                put(folder, 4)
                seen(page, 4)
                page.locator("a[href='#/history']").click()
                page.locator(".events .claim").nth(1).wait_for()
                assert page.evaluate("performance.timeOrigin") == loaded
                successor.terminate()
                successor.wait(60)
                page.locator(".state", has_text="stopped").wait_for(timeout=60_000)
                page.locator(".events .stop").wait_for()
                status = json.loads(boatlift(folder, "status", "--store", "store", "--json").stdout)
                page.locator("a[href='#/']").first.click()
                seen(page, status["sinks"]["kept"])


@pytest.fixture
def port() -> int:
    with listener_at(("127.0.0.1", 0), print) as listener:
        found: int = listener.getsockname()[1]
        return found


def test_a_console_that_ends_and_comes_back_is_followed_again(
    tmp_path: Path, opened: Opens, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(tmp_path)
    token = "a-token-for-both-lives"
    monkeypatch.setenv("BOATLIFT_CONSOLE_TOKEN", token)

    def serve() -> Console:
        made = Console(Documents(str(tmp_path), operators_with_status()), listener_at(("127.0.0.1", port), print))
        made.serve()
        return made

    first = serve()
    page = opened(f"{first.url}#token={token}", may_fail=True)
    page.locator(".live.on").wait_for()
    first.close()
    page.locator(".live:not(.on)").wait_for(timeout=30_000)
    assert page.locator(".card").count() == 3, "what is there stays"
    second = serve()
    try:
        page.locator(".live.on").wait_for(timeout=30_000)
    finally:
        second.close()
