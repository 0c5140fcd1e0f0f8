"""Our side of a loop: the connected components of a graph, kept up to date."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.watch import Watch
from benchmarks.sides.boatlift_side import SETTINGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Loop:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._folder = Path()
        self._fed = 0

    def prepare(self, folder: str, every: int | None = 20) -> Answer:
        """Make the session and start the dataflow.

        Args:
            folder: The folder of all files.
            every: Steps between two checkpoints; None: there are none.
        """
        from pyspark.sql import functions as F

        import boatlift as bl

        def components(labels: DataFrame, edges: DataFrame) -> DataFrame:
            own = edges.selectExpr("a AS v", "a AS label")
            offered = labels.join(edges, labels.v == edges.a).selectExpr("b AS v", "label")
            return own.union(offered).groupBy("v").agg(F.min("label").alias("label"))

        self._folder = Path(folder)
        spark = bl.session(master="local[2]", **SETTINGS)
        # Whatever the first job and the first Python worker of a session cost is not a dataflow's.
        spark.range(0, 1000, 1, 2).repartition(2, "id").mapInArrow(lambda batches: batches, "id long").collect()
        flow = bl.Dataflow("bench")
        (self._folder / "input").mkdir()
        schema = "a BIGINT, b BIGINT, _weight BIGINT"
        source = bl.files(self._folder / "input", format="parquet", schema=schema, max_files_per_step=1)
        edges = flow.source("input", source).changes("edges")
        view = edges.iterate("components", components, output="v LONG, label LONG", policy=bl.Lazy(every=every))
        view.sink("out", bl.parquet(self._folder / "output", compression="snappy"))
        self._watch.running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._watch)
        return {"ready": True}

    def one_by_one(self, files: list[str]) -> Answer:
        """Feed files, each once the output of the one before is visible; return the milliseconds of each."""
        return {"ms": [self._fed_one(Path(file)) for file in files]}

    def answer(self, files: str) -> Answer:
        """Return how many rows of the sum of all changes differ from the components of the edges in a file."""
        import numpy as np
        import pyarrow.parquet as pq

        from benchmarks.harness.graphs import components_of

        vertices, least = components_of(pq.read_table(files))
        changes = pq.read_table(sorted((self._folder / "output").glob("*.parquet")))
        sums = changes.group_by(["v", "label"]).aggregate([("_weight", "sum")])
        held = sums.filter(sums["_weight_sum"].to_numpy() != 0).sort_by("v")
        same = len(held) == len(vertices) and bool((held["_weight_sum"].to_numpy() == 1).all())
        same = same and bool((held["v"].to_numpy() == vertices).all())
        return {
            "wrong": int((held["label"].to_numpy() != least).sum()) if same else abs(len(held) - len(vertices)) + 1,
            "components": len(np.unique(least)),
        }

    def _fed_one(self, file: Path) -> float:
        visible: list[Any] = self._watch.of("commit", "out")
        before, began = len(visible), time.monotonic()
        feed(self._folder / "input", self._fed, file)
        self._fed += 1
        self._watch.wait(lambda: len(visible) > before)
        return float(1000 * (visible[before].at - began))


def main() -> None:
    """Serve one dataflow."""
    side = Loop()
    serve({name: getattr(side, name) for name in ("prepare", "one_by_one", "answer")})


if __name__ == "__main__":
    main()
