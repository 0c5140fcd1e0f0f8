"""Our side of a query over several inputs: the query as a view, or as many, with log, state and checkpoints."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch
from benchmarks.sides.boatlift_side import SETTINGS

__all__ = ["SCHEMA"]

SCHEMA = "k BIGINT, v DOUBLE"


class Query:
    """One dataflow of one view or of many, fed file by file."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._fed: dict[str, int] = {}
        self._folder = Path()

    def prepare(
        self,
        folder: str,
        sources: list[str],
        query: str,
        every: int = 5,
        key: list[str] | None = None,
        weighted: bool = False,
        views: int = 1,
    ) -> Answer:
        """Make the session and start the dataflow.

        Args:
            folder: The folder of all files.
            sources: The inputs; each has the columns `SCHEMA`.
            query: The view.
            every: Steps between two checkpoints.
            key: Group by this, count and sum, in place of the query: a keyed aggregate.
            weighted: Whether the rows of the one source carry weights; the query reads `now`.
            views: The number of views, each with a sink; `{number}` in the query is the view's.
        """
        from pyspark.sql import functions as F

        import boatlift as bl

        self._folder = Path(folder)
        spark = bl.session(master="local[2]", **SETTINGS)
        # Whatever the first job and the first Python worker of a session cost is not a dataflow's.
        spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        flow = bl.Dataflow("bench")
        schema = f"{SCHEMA}, _weight BIGINT" if weighted else SCHEMA
        for name in sources:
            (self._folder / name).mkdir()
            self._fed[name] = 0
            stream = flow.source(name, bl.files(self._folder / name, format="parquet", schema=schema))
        if weighted:
            stream.changes("now")
        policy = bl.Lazy(every=every)
        self._outputs = [f"out{number}" for number in range(views)]
        for number, out in enumerate(self._outputs):
            if key:
                totals = (F.count("*").alias("n"), F.sum("v").alias("s"))
                view = stream.group_by(*key).agg("view", *totals, policy=policy)
            else:
                view = flow.sql(f"view{number}", query.replace("{number}", str(number)), policy=policy)
            view.sink(out, bl.parquet(self._folder / out, compression="snappy"))
        self._watch.running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._watch)
        return {"ready": True}

    def run(self, files: list[tuple[str, str]]) -> Answer:
        """Feed files, each an input's and a step, and wait for as many commits of each sink."""
        visible = [self._watch.of("commit", out) for out in self._outputs]
        before, began = [len(each) for each in visible], time.monotonic()
        for source, file in files:
            feed(self._folder / source, self._fed[source], Path(file))
            self._fed[source] += 1
        self._watch.wait(lambda: all(len(v) >= b + len(files) for v, b in zip(visible, before, strict=True)))
        steps = zip(*(each[first:] for each, first in zip(visible, before, strict=True)), strict=False)
        return {"visible": [max(at for at, _ in step) - began for step in steps]}

    def one_by_one(self, files: list[tuple[str, str]]) -> Answer:
        """Feed files, each once the output of the one before is visible; return the milliseconds of each."""
        return {"ms": [1000 * float(self.run([file])["visible"][-1]) for file in files]}


def main() -> None:
    """Serve one dataflow."""
    side = Query()
    serve({name: getattr(side, name) for name in ("prepare", "run", "one_by_one")})


if __name__ == "__main__":
    main()
