"""Our side of TPC-H: the 22 queries as views of one dataflow, each with a sink of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.harness.side import Answer, feed, serve
from benchmarks.harness.tpch_data import CHANGING, queries, schema_of
from benchmarks.sides.boatlift_side import SETTINGS

QUIET = 1.5
"""Seconds without any progress, and as long as the step has taken, after which all sinks have a step."""


class Tpch:
    """One dataflow, fed file by file."""

    def __init__(self) -> None:
        self._fed: dict[str, int] = {}
        self._folder = Path()
        self._last = 0.0

    def prepare(self, folder: str, data: str, only: list[str] | None = None) -> Answer:
        """Make the session and start the dataflow.

        Args:
            folder: The folder of all files.
            data: The folder of the tables.
            only: The queries; by default all.
        """
        import boatlift as bl

        self._folder = Path(folder)
        spark = bl.session(master="local[2]", **SETTINGS)
        flow = bl.Dataflow("tpch")
        texts = {name: text for name, text in queries(Path(data)).items() if only is None or name in only}
        for file in sorted(Path(data).glob("*.parquet")):
            (self._folder / file.stem).mkdir()
            if not any(file.stem in text for text in texts.values()):
                continue
            self._fed[file.stem] = 0
            name = f"changes_of_{file.stem}" if file.stem in CHANGING else file.stem
            rows = flow.source(name, bl.files(self._folder / file.stem, format="parquet", schema=schema_of(file)))
            if file.stem in CHANGING:
                rows.changes(file.stem)
        for name, text in texts.items():
            view = flow.sql(name, text, policy=bl.Lazy(every=20))
            view.sink(f"out_{name}", bl.parquet(self._folder / "out" / name, compression="snappy"))
        self._running = bl.start(flow, self._folder / "store", spark=spark, on_progress=self._note)
        return {"views": len(texts)}

    def feed(self, files: dict[str, str]) -> Answer:
        """Give each table a file; return the seconds until all sinks have them."""
        began = time.monotonic()
        self._last = 0.0
        for table, file in files.items():
            if table in self._fed:
                feed(self._folder / table, self._fed[table], Path(file))
                self._fed[table] += 1
        while not self._last or time.monotonic() - self._last < max(QUIET, self._last - began):
            time.sleep(0.01)
            if not self._running.is_active:
                self._running.wait()
        return {"seconds": self._last - began}

    def stop(self) -> Answer:
        """Stop the dataflow."""
        self._running.stop()
        return {"out": str(self._folder / "out")}

    def _note(self, progress: Any) -> None:
        if progress.what == "commit":
            self._last = time.monotonic()


def main() -> None:
    """Serve one dataflow."""
    side = Tpch()
    serve({name: getattr(side, name) for name in ("prepare", "feed", "stop")})


if __name__ == "__main__":
    main()
