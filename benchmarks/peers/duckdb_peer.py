"""DuckDB's side of TPC-H: after each step it computes all queries anew, over tables in memory."""

from __future__ import annotations

import time
from pathlib import Path

import duckdb

from benchmarks.harness.side import Answer, serve
from benchmarks.harness.tpch_data import CHANGING, queries

THREADS = 2


class DuckDB:
    """One database in memory."""

    def prepare(self, folder: str, data: str) -> Answer:
        """Read the tables."""
        self._folder, self._queries = Path(folder), queries(Path(data))
        self._database = duckdb.connect(config={"threads": THREADS})
        for file in sorted(Path(data).glob("*.parquet")):
            columns = "* EXCLUDE (_weight)" if file.stem in CHANGING else "*"
            self._database.execute(f"CREATE TABLE {file.stem} AS SELECT {columns} FROM '{file}'")
        return {"ready": True}

    def feed(self, files: dict[str, str]) -> Answer:
        """Apply the changes of a step; return the seconds that all queries take after it."""
        for table, file in files.items():
            key = CHANGING[table]
            self._database.execute(f"DELETE FROM {table} WHERE {key} IN (SELECT {key} FROM '{file}')")
            self._database.execute(f"INSERT INTO {table} SELECT * EXCLUDE (_weight) FROM '{file}' WHERE _weight > 0")
        began = time.monotonic()
        for text in self._queries.values():
            self._database.execute(text).fetchall()
        return {"seconds": time.monotonic() - began}

    def answers(self) -> Answer:
        """Write the answer of each query now; return their files."""
        files = {}
        for name, text in self._queries.items():
            files[name] = str(self._folder / f"{name}.parquet")
            self._database.execute(f"COPY ({text}) TO '{files[name]}' (FORMAT parquet)")
        return files


def main() -> None:
    """Serve one database."""
    side = DuckDB()
    serve({name: getattr(side, name) for name in ("prepare", "feed", "answers")})


if __name__ == "__main__":
    main()
