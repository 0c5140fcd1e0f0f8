"""The death of the driver alone: steps that are executed again, and the silence at the sink."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result
from benchmarks.harness.steady import STEADY, Steady, longest

__all__ = ["measure"]

MOST_SECONDS = 2.0


def silence(steady: Steady, process: subprocess.Popen[bytes]) -> float:
    """Kill the driver under a supervisor, and return the longest time between two steps at the sink after that."""
    killed = time.monotonic()
    os.kill(_driver(process.pid), signal.SIGKILL)
    return longest(killed, steady.watch(STEADY))


def _driver(supervisor: int) -> int:
    """Return the child that has been running for the longest; the other one is the spare."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    drivers = [pid for pid in children if b"boatlift.console" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return min(map(int, drivers))


def measure(effort: Effort) -> Result:
    """Kill the driver again and again: under a supervisor, and with a restart of everything."""
    supervised, whole, replayed = list[float](), list[float](), 0
    with tempfile.TemporaryDirectory() as folder:
        steady = Steady(Path(folder), "--supervised")
        with steady.running() as process:
            steady.watch(STEADY)
            for _ in range(5 * effort.rounds):
                supervised.append(silence(steady, process))
        replayed += steady.replayed
    with tempfile.TemporaryDirectory() as folder:
        steady = Steady(Path(folder))
        for _ in range(effort.rounds):
            with steady.running() as process:
                steady.watch(STEADY)
                killed = time.monotonic()
                process.kill()
            with steady.running():
                whole.append(longest(killed, steady.watch(STEADY)))
        replayed += steady.replayed
    median = statistics.median(supervised)
    return Result(
        name="restart_replay",
        target=f"0 steps executed again; supervised: at most {MOST_SECONDS:g} s of silence",
        met=replayed == 0 and median <= MOST_SECONDS,
        ratios={
            "steps executed again": replayed,
            "silence, supervised, s": median,
            "supervised over a restart of everything": median / statistics.median(whole),
        },
        figures={"supervised": Figure.of("s", supervised), "a restart of everything": Figure.of("s", whole)},
    )
