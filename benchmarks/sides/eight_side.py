"""A dataflow of eight stateful processors; the Python workers of one of them die on demand."""

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

__all__ = ["EVERY"]

COUNT = 8
EVERY = 20
"""Steps between two checkpoints."""

FAILING = "sums3"


def failing_while(there: Path) -> Callable[[DataFrame], DataFrame]:
    """Return a transform whose Python worker dies while a file exists: a function that raises is not tried again."""

    def checked(value: float) -> float:
        if there.exists():
            os.kill(os.getpid(), signal.SIGKILL)
        return value

    def transform(rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        return rows.withColumn("v", F.udf(checked, "double")("v"))

    return transform


class Eight:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._folder = Path()
        self._fed = 0

    def prepare(self, folder: str) -> Answer:
        """Make the session; `run` or `fresh` then starts the dataflow, or go on with it."""
        import boatlift as bl

        self._folder = Path(folder)
        (self._folder / "input").mkdir(exist_ok=True)
        self._fed = len(list((self._folder / "input").iterdir()))
        self._spark = bl.session()
        self._spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        return {"ready": True}

    def start(self) -> Answer:
        """Start the dataflow; return the seconds until all sinks hold all input."""
        from pyspark.sql import functions as F

        import boatlift as bl

        began = time.monotonic()
        flow = bl.Dataflow("eight")
        schema = "k BIGINT, v DOUBLE"
        rows = flow.source("rows", bl.files(self._folder / "input", format="parquet", schema=schema))
        for number in range(COUNT):
            name = f"sums{number}"
            read = rows.transform(f"read{number}", failing_while(self._folder / name), deterministic=True)
            sums = read.group_by("k").agg(
                name, F.count("*").alias("n"), F.sum("v").alias("total"), policy=bl.Lazy(EVERY)
            )
            sums.sink(f"out{number}", bl.parquet(self._folder / f"output{number}", key=["k"]))
        self._watch.running = bl.start(flow, self._folder / "store", spark=self._spark, on_progress=self._watch)
        self._watch.wait(self._is_fresh)
        replayed = sum(step.progress.replay for n in range(COUNT) for step in self._watch.of("step", f"sums{n}"))
        return {"seconds": time.monotonic() - began, "replayed": replayed}

    def run(self, files: list[str]) -> Answer:
        """Feed files, one after the other."""
        for file in files:
            self._feed(file)
            self._watch.wait(self._is_fresh)
        return {"fed": self._fed}

    def fail(self, file: str) -> Answer:
        """Let one processor fail at the next step; return the seconds until all sinks hold it, until the others do."""
        flag, failures = self._folder / FAILING, self._watch.of("failure", FAILING)
        before = len(failures)
        flag.touch()
        began = time.monotonic()
        self._feed(file)
        self._watch.wait(lambda: len(failures) > before)
        flag.unlink()
        self._watch.wait(self._is_fresh)
        others = [self._watch.of("commit", f"out{n}")[-1].at for n in range(COUNT) if f"sums{n}" != FAILING]
        return {"seconds": time.monotonic() - failures[before].at, "others": max(others) - began}

    def _feed(self, file: str) -> None:
        feed(self._folder / "input", self._fed, Path(file))
        self._fed += 1

    def _is_fresh(self) -> bool:
        return all(self._watch.last("commit", f"out{n}") >= self._fed - 1 for n in range(COUNT))


def main() -> None:
    """Serve one dataflow."""
    side = Eight()
    serve({name: getattr(side, name) for name in ("prepare", "start", "run", "fail")})


if __name__ == "__main__":
    main()
