"""`--health` of real runs: supervised, for a handover, stopped twice, and with a port that is taken."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from boatlift.testing.loopback import ReservedPort
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLOW = """
import time
import boatlift as bl
from pyspark.sql import functions as F

@F.udf("long")
def slowly(v):
    open(BEGUN, "w").close()
    time.sleep(SECONDS)
    return v

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.generator({"v": "id"}, rows_per_step=1, steps=1))
slow = rows.transform("slow", lambda df: df.select(slowly("v").alias("v")), deterministic=True)
slow.sink("history", bl.parquet("history"))
"""


class Runs:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack

    def begin(self, *options: str, port: int, seconds: float = 0) -> subprocess.Popen[bytes]:
        (self.folder / "mine.py").write_text(
            FLOW.replace("SECONDS", str(seconds)).replace("BEGUN", repr(str(self.folder / "begun")))
        )
        command = [sys.executable, "-m", "boatlift.console", "run", "mine:flow", "-s", "store", *options]
        with (self.folder / "said").open("ab") as said:
            run = subprocess.Popen(
                [*command, "--health", f"127.0.0.1:{port}"], cwd=self.folder, stdout=said, stderr=said
            )
        self._stack.callback(run.wait)
        self._stack.callback(run.kill)
        return run

    def said(self) -> str:
        return (self.folder / "said").read_text()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with ExitStack() as stack:
        yield Runs(tmp_path, stack)


@pytest.fixture
def port() -> Iterator[int]:
    with ReservedPort() as reserved:
        yield reserved.number


def status_of(port: int, target: str = "/readyz") -> int:
    with suppress(OSError), closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
        connection.request("GET", target)
        return connection.getresponse().status
    return 0


def test_a_supervised_run_answers_again_after_its_death(runs: Runs, port: int) -> None:
    supervisor = runs.begin("--supervised", port=port)
    until(lambda: status_of(port) == 200, 60)
    for child in Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split():
        with suppress(OSError):
            if b"boatlift.console" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(int(child), signal.SIGKILL)
    until(lambda: "it is started again" in runs.said(), 120)
    until(lambda: status_of(port) == 200, 60)
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(120) == 0


def test_a_standby_for_a_handover_answers_and_a_port_that_is_taken_is_reported(runs: Runs, port: int) -> None:
    with ReservedPort() as other:
        owner = runs.begin(port=port)
        until(lambda: status_of(port) == 200, 60)
        runs.begin("--for-handover", port=other.number)
        until(lambda: status_of(other.number, "/readyz?standbyok") == 200, 120)
        assert status_of(other.number) == 503
        second = runs.begin("--standby", port=port)
        assert second.wait(120) == 3
        assert f"[LISTEN_FAILED] cannot listen at 127.0.0.1:{port} for probes" in runs.said()
        handover = [sys.executable, "-m", "boatlift.console", "handover", "-s", "store"]
        subprocess.run(handover, cwd=runs.folder, check=True, timeout=120)
        assert owner.wait(60) == 0
        until(lambda: status_of(other.number) == 200, 120)
        assert status_of(port) == 0


def test_the_port_answers_during_a_step_and_a_second_sigterm_ends_it_at_once(runs: Runs, port: int) -> None:
    run = runs.begin(port=port, seconds=1000)
    until(lambda: status_of(port) == 200, 60)
    until((runs.folder / "begun").exists, 60)
    run.send_signal(signal.SIGTERM)
    until(lambda: "finishing the steps under way" in runs.said(), 120)
    assert (status_of(port), status_of(port, "/livez")) == (503, 200)
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 130
