"""A store whose program is changed, or taken back: each run is timed until it has returned, with no new input.

A batch query of the same rows runs in the same JVM, which is as warm, and in a session with Spark's own settings.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.sides.boatlift_side import SETTINGS

if TYPE_CHECKING:
    import boatlift as bl

SCHEMA = "k BIGINT, v DOUBLE"

PLAIN = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.parquet.filterPushdown": "true",
    "spark.sql.shuffle.partitions": "2",
}
"""The settings of plain Spark in place of those that Boatlift gives a session."""


class Changing:
    """One store, and the programs that run on it one after the other.

    A program is given by words: its `factor`, the number of its `views`, and its `sinks`.
    """

    def __init__(self) -> None:
        self._folder = Path()
        self._fed = 0

    def prepare(self, folder: str) -> Answer:
        """Make the session."""
        import boatlift as bl

        self._folder = Path(folder)
        (self._folder / "input").mkdir()
        self._spark = bl.session(master="local[2]", **SETTINGS)
        self._plain: Any = self._spark.newSession()
        for name, value in PLAIN.items():
            self._plain.conf.set(name, value)
        return {"ready": True}

    def feed(self, files: list[str]) -> Answer:
        """Put files into the input, each for one step."""
        for file in files:
            feed(self._folder / "input", self._fed, Path(file))
            self._fed += 1
        return {"fed": self._fed}

    def run(self, **program: Any) -> Answer:
        """Run until all input is taken; return the seconds."""
        import boatlift as bl

        flow, began = self._flow(**program), time.monotonic()
        bl.run(flow, self._folder / "store", available_now=True, spark=self._spark)
        return {"seconds": time.monotonic() - began}

    def evolve(self, change: Mapping[str, str] | None = None, **program: Any) -> Answer:
        """Run another program on the store; return the seconds, and the units that were computed from the past."""
        import boatlift as bl

        flow, store = self._flow(**program), self._folder / "store"
        plan = bl.evolution(flow, store, change=change, spark=self._spark)
        began = time.monotonic()
        bl.run(flow, store, available_now=True, evolve=plan.id, change=change, spark=self._spark)
        return {"seconds": time.monotonic() - began, "computed": plan.computed}

    def keep(self, name: str) -> Answer:
        """Keep a restore point."""
        command = [sys.executable, "-m", "boatlift.console", "keep", "--store", str(self._folder / "store")]
        subprocess.run([*command, "--name", name], check=True, stdout=sys.stderr)
        return {"kept": name}

    def rewind(self, to: str, **program: Any) -> Answer:
        """Go back to a restore point; return the seconds, and how many steps were undone."""
        import boatlift as bl

        flow, store = self._flow(**program), self._folder / "store"
        plan = bl.evolution(flow, store, to=to, spark=self._spark)
        began = time.monotonic()
        bl.rewind(flow, store, to=to, evolve=plan.id, spark=self._spark)
        return {"seconds": time.monotonic() - began, "undone": plan.undone["rows"]}

    def batch(self, query: str) -> Answer:
        """Run a query over the input with plain Spark; return the seconds until its answer is in Parquet."""
        began = time.monotonic()
        self._plain.read.parquet(str(self._folder / "input")).createOrReplaceTempView("rows")
        answer = self._plain.sql(query).write.mode("overwrite").option("compression", "snappy")
        answer.parquet(str(self._folder / "answer"))
        return {"seconds": time.monotonic() - began}

    def wrong(self, sink: str) -> Answer:
        """Return how many rows of a Parquet sink of changes differ from the last answer, but for rounding."""
        held = self._plain.read.parquet(str(self._folder / sink)).groupBy("k", "n", "s").agg({"_weight": "sum"})
        now = held.where("`sum(_weight)` <> 0")
        answer = self._plain.read.parquet(str(self._folder / "answer"))
        both = now.alias("now").join(answer.alias("answer"), "k", "full")
        same = "now.`sum(_weight)` = 1 AND now.n = answer.n AND abs(now.s - answer.s) <= 1e-9 * abs(answer.s)"
        return {"wrong": both.where(f"NOT coalesce({same}, false)").count(), "rows": answer.count()}

    def _flow(self, factor: int = 1, views: int = 0, sinks: Sequence[str] = ()) -> bl.Dataflow:
        """Return a program.

        Args:
            factor: Of the sum of the aggregate, or of the first view.
            views: The number of views, each with a sink, in place of the aggregate.
            sinks: Those of the aggregate: `changes`, `keyed` and `copy` are Parquet, `table` is SQLite.
        """
        from pyspark.sql import functions as F

        import boatlift as bl

        flow = bl.Dataflow("bench")
        source = bl.files(self._folder / "input", format="parquet", schema=SCHEMA, max_files_per_step=1)
        rows = flow.source("rows", source)
        for number in range(views):
            scaled = factor if number == 0 else 1
            query = f"SELECT k, count(*) AS n, sum((v + {number}) * {scaled}) AS s FROM rows GROUP BY k"
            out = bl.parquet(self._folder / f"out{number}", compression="snappy")
            flow.sql(f"view{number}", query).sink(f"out{number}", out)
        if sinks:
            totals = (F.count("*").alias("n"), F.sum(F.col("v") * factor).alias("s"))
            sums = rows.group_by("k").agg("sums", *totals)
        for name in sinks:
            if name == "table":
                sums.sink(name, bl.sqlite(self._folder / "answers.db", table="sums", key=["k"]))
            else:
                key = ["k"] if name == "keyed" else None
                sums.sink(name, bl.parquet(self._folder / name, key=key, compression="snappy"))
        return flow


def main() -> None:
    """Serve one store."""
    side = Changing()
    names = ("prepare", "feed", "run", "evolve", "keep", "rewind", "batch", "wrong")
    serve({name: getattr(side, name) for name in names})


if __name__ == "__main__":
    main()
