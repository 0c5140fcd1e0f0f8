"""Writes the tables of TPC-H and the text of its queries: a script for the environment that has DuckDB's generator.

It imports nothing else: `benchmarks.harness.tpch_data` runs it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(scale: float, folder: Path) -> None:
    """Write a Parquet file for each table, and `queries.json`."""
    import duckdb
    import duckdb_extension_tpch

    extensions = Path(duckdb_extension_tpch.__file__).parent / "extensions"
    with duckdb.connect() as database:
        database.execute(f"LOAD '{extensions / f'v{duckdb.__version__}' / 'tpch.duckdb_extension'}'")
        database.execute(f"CALL dbgen(sf={scale})")
        for (table,) in database.execute("SHOW TABLES").fetchall():
            database.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
        queries = database.execute("SELECT query_nr, query FROM tpch_queries()").fetchall()
    (folder / "queries.json").write_text(json.dumps({f"q{number}": text.strip(" \n;") for number, text in queries}))


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
