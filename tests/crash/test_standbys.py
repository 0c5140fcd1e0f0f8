"""The owner of the flow of all regimes dies with a standby waiting, again and again: one execution is left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.storage.local import LocalStore
from boatlift.storage.log_reader import LogReader
from boatlift.testing.crash import CrashPoint
from crash.test_all_regimes import VICTIM as REGIMES
from support.crash.tests import KILLED, Undisturbed, chosen, place_of, show

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

VICTIM = replace(REGIMES, points=6)

SECONDS = 300.0
"""A process ends within so many seconds."""


class Line:
    """Processes that run a dataflow one after the other: one owns it, and the next one stands by.

    Args:
        points: Where they die, each at the next one: by SIGKILL, or stopped by SIGSTOP until the standby kills them.

    Attributes:
        died: Where they died.
    """

    def __init__(self, folder: Path, jvms: Iterator[WarmJvm], points: list[CrashPoint], stack: ExitStack) -> None:
        self.place = place_of(folder, next(jvms), VICTIM)
        self._jvms, self._points, self._stack = jvms, points, stack
        self.died: list[CrashPoint] = []
        self._at: dict[subprocess.Popen[bytes], CrashPoint | None] = {}

    def run(self) -> None:
        """Let owners die until one comes to the end."""
        owner, standby = self._start(), self._start("--standby")
        until = time.monotonic() + SECONDS
        while not self._has_stopped():
            if owner.poll() == KILLED:
                self._note(owner)
                # Without a claim there is nothing to take over.
                owner, standby = (standby, self._start("--standby")) if self._has_claim() else (self._start(), standby)
            elif standby.poll() == KILLED:  # while it followed
                self._note(standby)
                standby = self._start("--standby")
            else:
                assert time.monotonic() < until, self._said()
                time.sleep(0.02)
                continue
            until = time.monotonic() + SECONDS
        for process in (owner, standby):
            assert process.wait(SECONDS) in (0, KILLED), self._said()

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        point = self._points.pop(0) if self._points else None
        pauses = ["--pause"] if len(self._at) % 2 else []
        dies = [] if point is None else ["--at", str(point), *pauses]
        process = self.place.start(next(self._jvms), *options, *dies)
        self._stack.callback(process.kill)
        self._at[process] = point
        return process

    def _note(self, process: subprocess.Popen[bytes]) -> None:
        if (point := self._at.pop(process)) is not None:
            self.died.append(point)

    def _log(self) -> LogReader:
        log = LogReader(LocalStore.open(self.place.folder / "store", create=True), "")
        log.load()
        return log

    def _has_claim(self) -> bool:
        return self._log().owner > 0

    def _has_stopped(self) -> bool:
        return self._log().history.stopped

    def _said(self) -> str:
        return (self.place.folder / "log.txt").read_text()[-3000:]


def test_owners_die_at_crash_points_with_a_standby_waiting(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    # Each process has only a part of the input.
    points = [replace(point, visit=min(point.visit, 2)) for point in chosen(VICTIM, undisturbed.points)]
    died = list[CrashPoint]()
    with ExitStack() as stack:
        jvms = cycle((warm_jvm, stack.enter_context(WarmJvm())))
        while points:
            line = Line(tmp_path_factory.mktemp("line"), jvms, points, stack)
            line.run()
            undisturbed.judge(line.place)
            died += line.died
    assert len(died) >= VICTIM.points
    show(f"{VICTIM.flow}, with a standby waiting", died, VICTIM.outcome)
