"""A dataflow with a fast path beside a batch: questions are answered from its newest result.

The batch draws the medians of all history again and again, in Python. It can be killed: the process that executes its
task dies, and each one that takes its place, until the job has failed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["RESAMPLES"]

RESAMPLES = 12
"""So often each median is drawn anew: makes the batch last for some seconds."""

GROUPS = 8
TICK = 1.0
"""Every so many seconds there is more history: the batch has always something to do."""


def fit_until_killed(deadly: Path) -> Callable[[DataFrame], DataFrame]:
    """Return the function of the batch.

    Args:
        deadly: While this file exists, the process that finds it dies.
    """

    def medians(rows: pa.Table) -> pa.Table:
        import numpy as np
        import pyarrow as pa

        random = np.random.default_rng(0)
        values = rows.sort_by("k")["v"].to_numpy()
        keys, begins = np.unique(np.sort(rows["k"].to_numpy()), return_index=True)
        found = []
        for mine in np.split(values, begins[1:]):
            if deadly.exists():
                os._exit(1)
            drawn = [np.median(random.choice(mine, len(mine))) for _ in range(RESAMPLES)]
            found.append((float(np.median(mine)), float(np.ptp(drawn))))
        median, spread = zip(*found, strict=True)
        return pa.table({"k": keys, "median": median, "spread": spread})

    def fit(rows: DataFrame) -> DataFrame:
        return rows.groupBy(rows.k % GROUPS).applyInArrow(medians, "k BIGINT, median DOUBLE, spread DOUBLE")

    return fit


class FastPath:
    """One dataflow, whose history and questions are fed file by file."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._folder = Path()
        self._asked = self._ticks = 0

    def prepare(self, folder: str, master: str, settings: Mapping[str, str], history: list[str]) -> Answer:
        """Make the session and start the dataflow.

        Args:
            folder: The folder of all files.
            master: Spark's master URL.
            settings: Of the session.
            history: The files of history at the beginning.
        """
        from pyspark.sql import functions as F

        import boatlift as bl

        self._folder = Path(folder)
        for name in ("history", "questions"):
            (self._folder / name).mkdir()
        for file in history:
            self._tick(file)
        spark = bl.session(master=master, **settings)
        flow = bl.Dataflow("fast")
        schema = "k BIGINT, v DOUBLE"
        past = flow.source("history", bl.files(self._folder / "history", format="parquet", schema=schema))
        live = past.group_by("k").agg("live", F.count("*").alias("n"), F.avg("v").alias("mean"))
        fits = past.recompute("fits", fit_until_killed(self._folder / "deadly"), policy=bl.Batch(epochs=1))
        questions = flow.source("questions", bl.files(self._folder / "questions", format="parquet", schema=schema))
        answers = questions.lookup("asked", live=live.by("k"), fit=fits.by("k"), policy=bl.Lazy(every=20))
        answers.sink("answers", bl.parquet(self._folder / "answers"))
        self._watch.running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._watch)
        self._watch.wait(lambda: len(self._watch.of("step", "fits")) > 0)
        return {"ready": True}

    def ask(self, questions: list[str], every: float, history: list[str], kill_every: float | None) -> Answer:
        """Ask questions at their times, whether or not the earlier ones are answered.

        Args:
            questions: A file at a time.
            every: Seconds from one to the next.
            history: The files of history that come meanwhile.
            kill_every: Every so many seconds the batch is killed; None: never.

        Returns:
            `seconds` from each question to its answer, the `kills`, and the share of time that the batch was `busy`.
        """
        begin, failures, done = time.monotonic(), len(self._failures()), len(self._watch.of("step", "fits"))
        answered = len(self._answered())
        over = threading.Event()
        helpers = [threading.Thread(target=self._remember, args=(history, over))]
        if kill_every is not None:
            helpers.append(threading.Thread(target=self._kill, args=(kill_every, over)))
        for helper in helpers:
            helper.start()
        due = [begin + number * every for number in range(len(questions))]
        for at, file in zip(due, questions, strict=True):
            time.sleep(max(0.0, at - time.monotonic()))
            feed(self._folder / "questions", self._asked, Path(file))
            self._asked += 1
        self._watch.wait(lambda: len(self._answered()) >= answered + len(questions))
        last = self._answered()[-1]
        self._watch.wait(lambda: self._watch.last("commit", "answers") >= last)
        took = time.monotonic() - begin
        over.set()
        for helper in helpers:
            helper.join()
        visible = {commit.progress.time: commit.at for commit in self._watch.of("commit", "answers")}
        ran = [step.progress.durationMs / 1000 for step in self._watch.of("step", "fits")[done:]]
        return {
            "seconds": [visible[time] - at for at, time in zip(due, self._answered()[answered:], strict=True)],
            "kills": len(self._failures()) - failures,
            "busy": sum(ran) / took,
            "batches": len(ran),
        }

    def _answered(self) -> list[int]:
        """Return the times at which questions were answered; in between, the table changed."""
        return [step.progress.time for step in self._watch.of("step", "asked") if step.progress.numOutputRows]

    def _failures(self) -> list[object]:
        return [*self._watch.of("failure", "fits")]

    def _remember(self, history: list[str], over: threading.Event) -> None:
        for file in history:
            self._tick(file)
            if over.wait(TICK):
                return

    def _tick(self, file: str) -> None:
        feed(self._folder / "history", self._ticks, Path(file))
        self._ticks += 1

    def _kill(self, every: float, over: threading.Event) -> None:
        deadly = self._folder / "deadly"
        while not over.wait(every):
            deadly.touch()
            failed = len(self._failures())
            self._watch.wait(lambda: over.is_set() or len(self._failures()) > failed)  # noqa: B023 used at once
            deadly.unlink()


def main() -> None:
    """Serve one dataflow."""
    side = FastPath()
    serve({"prepare": side.prepare, "ask": side.ask})


if __name__ == "__main__":
    main()
