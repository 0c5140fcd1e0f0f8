"""What the head and the banner say of each state that a dataflow can be in, from its store and its owner's report."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from boatlift.dataflow import WaitingInput
from boatlift.runtime.host.counters import UnitSums
from boatlift.runtime.host.deadlines import StuckCall
from boatlift.runtime.host.run_report import FILE, ActivityReport, InputReport, RunReport
from boatlift.runtime.peers.owner import StandbyReport
from boatlift.storage.records.facts import StepDigest
from boatlift.storage.records.records import Claim
from support.browser import Opens, screenshot
from support.console import Reader, consoling
from support.engine.hosts import crashed, open_store, process_of, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.facts import made
from support.worlds.logs import claimed

pytestmark = pytest.mark.browser


class Owner:
    """A store whose owner is another process that lives, and reports what a test says."""

    def __init__(self, folder: Path, pid: int) -> None:
        store = open_store(folder)
        log = claimed(store, Claim(socket.gethostname(), pid, self.now(), PROGRAM, {}, process_of(pid), 16 << 30))
        log.append([made(time_, "rows") for time_ in range(12)])
        log.append([StepDigest("clean", step, "d", 10, 5.0) for step in range(12)])
        log.append([StepDigest("sums", step, "d", 10, 5.0) for step in range(4)])
        self._report = store.scratch(1) / FILE
        self._began = self.now()

    @staticmethod
    def now() -> int:
        return time.time_ns() // 1_000_000

    def reports(self, at: int = 0, step_since: int = 0, **more: object) -> None:
        """Report sums as they are so many milliseconds after the beginning.

        Args:
            step_since: When the unit `sums` began the step that is under way; 0: none is.
        """
        until, since = (step_since, self._began + step_since) if step_since else (at, 0)
        units = {
            "clean": UnitSums(at // 100, at // 10, at // 10, at / 10, at // 10),
            "sums": UnitSums(
                until // 100,
                until // 10,
                milliseconds=0.9 * until,
                busy=9 * until // 10,
                since=since,
                replaying=bool(more.pop("replaying", False)),
            ),
        }
        activity = ActivityReport(self._began, self._began + at, units)
        report = RunReport(self.now(), activity=activity, **more)  # type: ignore[arg-type]
        written = self._report.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(report))
        written.replace(self._report)


@contextmanager
def owned(folder: Path) -> Iterator[tuple[Owner, Reader, subprocess.Popen[bytes]]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            owner = Owner(folder, process.pid)
            owner.reports()
            with consoling(folder) as reader:
                yield owner, reader, process
        finally:
            process.kill()


def test_a_run_in_good_order(tmp_path: Path, opened: Opens) -> None:
    run(MemoryEngine(World()), open_store(tmp_path))
    with consoling(tmp_path) as reader:
        page = opened(reader.console.url)
        assert page.locator(".state").inner_text() == "stopped"
        assert "The next start executes no step again." in page.locator(".banner").inner_text()
        assert page.locator("[data-tile='A failure of everything'] strong").inner_text() == "costs nothing"


def test_a_run_whose_life_cannot_be_told(tmp_path: Path, opened: Opens) -> None:
    crashed(tmp_path)
    with consoling(tmp_path) as reader:
        page = opened(reader.console.url)
        assert page.locator(".state").inner_text() == "running or crashed"
        assert "The next start executes 6 steps of 2 processors again." in page.locator(".banner").inner_text()


def test_a_living_run_with_input_that_waits_a_bottleneck_and_a_standby(tmp_path: Path, opened: Opens) -> None:
    with owned(tmp_path) as (owner, reader, process):
        page = opened(reader.console.url, height=580)
        page.locator(".state.good", has_text="running").wait_for()
        page.locator(".live.on").wait_for()
        assert page.locator(".banner").count() == 0
        standby = StandbyReport("host-b", 4711, ready=True, behind=0)
        waiting = InputReport(owner.now(), {"rows": WaitingInput(1234, "files", None, owner.now() - 5000)})
        owner.reports(10_000, input=waiting, standbys=[standby])
        page.locator(".standby", has_text="host-b:4711 stands by").wait_for()
        page.locator("[data-tile='Not taken yet'] strong", has_text="1,234").wait_for()
        page.locator("[data-tile='Rows in'] strong", has_text="100/s").wait_for()
        assert "100 rows/s" in page.locator(".card[data-name=sums] .nums").inner_text()
        assert [each.get_attribute("data-name") for each in page.locator(".card.bottleneck").all()] == ["sums"]
        assert "8" in (page.locator(".queue").text_content() or "")
        screenshot(page, "owned")
        owner.reports(14_000, step_since=10_000)
        page.locator(".card[data-name=clean] .nums", has_text="100 rows/s").wait_for()
        page.locator(".card[data-name=sums] .nums", has_not_text="rows/s").wait_for()
        assert [each.get_attribute("data-name") for each in page.locator(".card.bottleneck").all()] == ["sums"]
        owner.reports(20_000, replaying=True)
        page.locator(".state.warn", has_text="running, replaying").wait_for()
        assert [each.get_attribute("data-name") for each in page.locator(".card.replaying").all()] == ["sums"]
        stuck = StuckCall("sums", 4, owner.now() - 60_000, "job 3, stage 4, task 5 on a.example")
        owner.reports(30_000, stuck=[stuck])
        page.locator(".state.warn", has_text="stuck").wait_for()
        told = page.locator(".banner.warn").inner_text()
        assert re.search(r"sums, step 4, for \d+ s: job 3, stage 4", told), told
        os.kill(process.pid, 9)
        process.wait()
        page.locator(".state.bad", has_text="crashed").wait_for()
        assert "16 steps of 2 processors again" in page.locator(".banner.bad").inner_text()
