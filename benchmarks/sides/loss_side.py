"""A dataflow with steady input of which a part is lost: the longest silence at its sink."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path

from benchmarks.harness.side import Answer, serve
from benchmarks.harness.watch import Watch

__all__ = ["EVERY"]

EVERY = 0.05
"""Seconds from one push of rows to the next."""

ROWS, KEYS = 200, 1000


class SteadyFlow:
    """Pushed rows, a Python UDF, and an aggregate by key to Parquet."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._over = threading.Event()

    def prepare(self, folder: str, master: str, settings: Mapping[str, str]) -> Answer:
        """Make the session, start the dataflow and push until the process ends."""
        from pyspark.sql import functions as F

        import boatlift as bl

        spark = bl.session(master=master, **settings)
        flow = bl.Dataflow("steady")
        rows = flow.source("rows", bl.push("k LONG NOT NULL, v LONG NOT NULL"))

        @F.udf("long", useArrow=True)
        def doubled(value: int) -> int:
            return 2 * value

        twice = rows.transform("twice", lambda df: df.select("k", doubled("v").alias("v")), deterministic=True)
        totals = twice.group_by("k").agg("totals", F.sum("v").alias("v"))
        totals.sink("out", bl.parquet(Path(folder) / "out"))
        self._watch.running = bl.start(flow, Path(folder) / "store", spark=spark, on_progress=self._watch)

        def push() -> None:
            number = 0
            while not self._over.wait(EVERY):
                flow.push("rows", [{"k": (number + row) % KEYS, "v": row} for row in range(ROWS)])
                number += ROWS

        threading.Thread(target=push, name="pusher", daemon=True).start()
        self._watch.wait(lambda: len(self._watch.of("commit", "out")) > 200)
        return {"ready": True}

    def silence(self, seconds: float, lose: str = "", pid: int = 0) -> Answer:
        """Send a signal, and return the longest time between two commits within some seconds.

        Args:
            lose: The name of a signal.
            pid: The process that gets it; 0: a Python worker of this dataflow.
        """
        began = time.monotonic()
        if lose:
            chosen = pid or max(_workers())
            os.kill(chosen, signal.Signals[lose])
        self._over.wait(seconds)
        at = [seen.at for seen in self._watch.of("commit", "out") if seen.at > began - 1]
        self._watch.wait(lambda: self._watch.of("commit", "out")[-1].at > began + seconds)
        return {"seconds": max(later - earlier for earlier, later in pairwise(at))}


def _workers() -> Iterator[int]:
    """Yield the Python workers that work for this process, on this machine: the daemons' children."""
    daemons = [pid for pid in _running() if b"worker_daemon" in _read(pid, "cmdline")]
    for daemon in daemons:
        children = [int(pid) for pid in _read(daemon, f"task/{daemon}/children").split()]
        yield from (pid for pid in children if pid in daemons)


def _running() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _read(pid: int, what: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:  # the process has just ended
        return b""


def main() -> None:
    """Serve one dataflow."""
    side = SteadyFlow()
    serve({"prepare": side.prepare, "silence": side.silence})


if __name__ == "__main__":
    main()
