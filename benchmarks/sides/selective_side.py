"""A dataflow of two inputs, one of which comes late; the functions of its three processors count the rows they execute.

The Python workers of one of the processors die on demand: a function that raises is not tried again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["EVERY", "PROCESSORS"]

PROCESSORS = {"sums": "sums", "early": "read-early", "late": "read-late"}
"""Who can fail, by the name of what it counts in."""

EVERY = 10
"""Steps between two checkpoints."""


def counting(folder: Path, name: str) -> Callable[[DataFrame], DataFrame]:
    """Return a transform that writes a byte for each row that it executes, and dies while another file exists."""
    tally, fails = folder / f"count-{name}", folder / f"fail-{name}"

    def noted(value: float) -> float:
        if fails.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        with tally.open("ab") as file:
            file.write(b".")
        return value

    def transform(rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.withColumn("v", F.udf(noted, "double")("v"))

    return transform


class Selective:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._folder = Path()
        self._fed = {"early": 0, "late": 0}
        self._taken_before: dict[str, int] = {}
        self._since = 0.0

    def prepare(self, folder: str) -> Answer:
        """Make the session and start the dataflow, or go on with it until all is as new as can be."""
        from pyspark.sql import functions as F

        import boatlift as bl

        spark = bl.session()
        self._folder = Path(folder)
        for name in self._fed:
            (self._folder / name).mkdir(exist_ok=True)
            self._fed[name] = self._taken_before[name] = len(list((self._folder / name).iterdir()))
        self._since = time.monotonic()
        flow = bl.Dataflow("two")
        early, late = (
            flow.source(name, bl.files(self._folder / name, format="parquet", schema="k BIGINT, v DOUBLE")).transform(
                f"read-{name}", counting(self._folder, name), deterministic=True
            )
            for name in self._fed
        )
        both = early.union("both", late).transform("counted", counting(self._folder, "sums"), deterministic=True)
        sums = both.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("total"), policy=bl.Lazy(EVERY))
        sums.sink("out", bl.parquet(self._folder / "output", key=["k"]))
        self._watch.running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._watch)
        self._watch.wait(self._is_fresh)
        return self._counts()

    def run(self, early: list[str], late: list[str]) -> Answer:
        """Feed files, a step of each at a time, the surplus of `early` first; return the rows executed by then."""
        ahead = len(early) - len(late)
        self._feed("early", early[:ahead])
        for file, late_file in zip(early[ahead:], late, strict=True):
            self._feed("early", [file])
            self._feed("late", [late_file])
        return self._counts()

    def fail(self, who: str, early: str, late: str) -> Answer:
        """Let one processor fail at the next step; return the rows executed when all output is fresh."""
        failures = self._watch.of("failure", PROCESSORS[who])
        flag = self._folder / f"fail-{who}"
        flag.touch()
        for name, file in (("early", early), ("late", late)):
            feed(self._folder / name, self._fed[name], Path(file))
            self._fed[name] += 1
        self._watch.wait(lambda: bool(failures))
        self._since = time.monotonic()
        flag.unlink()
        self._watch.wait(self._is_fresh)
        return self._counts()

    def _feed(self, name: str, files: list[str]) -> None:
        for file in files:
            self._since = time.monotonic()
            feed(self._folder / name, self._fed[name], Path(file))
            self._fed[name] += 1
            self._watch.wait(self._is_fresh)

    def _is_fresh(self) -> bool:
        """Return whether each processor has executed all files, of which each is a step of its source."""
        taken = (self._taken_before[name] + len(self._watch.of("take", name)) >= n for name, n in self._fed.items())
        return all(taken) and all(map(self._is_idle, self._fed))

    def _is_idle(self, source: str) -> bool:
        """Return whether a source has had nothing of late, while no processor had a step to execute."""
        return any(each.at > self._since and not each.progress.behind for each in self._watch.of("idle", source)[-2:])

    def _counts(self) -> Answer:
        places = {name: self._folder / f"count-{name}" for name in PROCESSORS}
        return {name: place.stat().st_size if place.exists() else 0 for name, place in places.items()}


def main() -> None:
    """Serve one dataflow."""
    side = Selective()
    serve({name: getattr(side, name) for name in ("prepare", "run", "fail")})


if __name__ == "__main__":
    main()
