"""The tables of TPC-H by DuckDB's generator, and steps of ten changed orders.

PyPI has the generator for one version of DuckDB alone, so it has an environment of its own in `artifacts/`
(`requirements/tpch.txt`). An order changes as a whole: its price, its date and its priority, and the quantity and the
date of shipment of each of its items. No order changes twice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness.data import ARTIFACTS

__all__ = ["CHANGING", "changed_orders", "queries", "schema_of", "tables"]

CHANGING = {"orders": "o_orderkey", "lineitem": "l_orderkey"}
"""The tables that change, and their columns with the order."""

ORDERS = 10
"""Changed orders in a step."""

_ROOT = Path(__file__).resolve().parents[2]
_DAY = 24 * 3600


def tables(scale: float) -> Path:
    """Return the folder with a Parquet file for each table; the rows of changing tables have a weight of one."""
    folder = ARTIFACTS / "data" / f"tpch-{scale:g}"
    if not folder.exists():
        unfinished = folder.with_name(folder.name + ".tmp")
        unfinished.mkdir(parents=True, exist_ok=True)
        script = str(_ROOT / "benchmarks" / "harness" / "dbgen.py")
        subprocess.run([_python(), script, str(scale), str(unfinished)], check=True, stdout=sys.stderr)
        for table in CHANGING:
            file = unfinished / f"{table}.parquet"
            pq.write_table(_weighted(pq.read_table(file), 1), file)
        unfinished.rename(folder)
    return folder


def queries(folder: Path) -> dict[str, str]:
    """Return the text of each query by its name, `q1` to `q22`."""
    texts: dict[str, str] = json.loads((folder / "queries.json").read_text())
    return texts


def schema_of(file: Path) -> str:
    """Return the columns of a table in SQL."""
    return ", ".join(f"{column.name} {_in_sql(column.type)}" for column in pq.read_schema(file))


def changed_orders(folder: Path, steps: int) -> list[dict[str, str]]:
    """Return for each step the file of changes of each table that changes."""
    changes = folder.with_name(f"{folder.name}-changes")
    changes.mkdir(exist_ok=True)
    every = pq.read_table(folder / "orders.parquet", columns=["o_orderkey"])["o_orderkey"].to_numpy()
    drawn = np.random.default_rng(7).permutation(every)[: steps * ORDERS].reshape(steps, ORDERS)
    made = []
    for number, orders in enumerate(drawn):
        files = {table: changes / f"{table}-{number:04}.parquet" for table in CHANGING}
        for table, file in files.items():
            if not file.exists():
                _write_changes(folder / f"{table}.parquet", CHANGING[table], orders, file)
        made.append({table: str(file) for table, file in files.items()})
    return made


def _write_changes(table: Path, key: str, orders: np.typing.NDArray[np.int64], file: Path) -> None:
    rows = _whole(table)
    before = rows.filter(pc.is_in(rows[key], pa.array(orders, rows[key].type)))
    after = before
    for place, column in enumerate(before.schema):
        changed = _changed(before[column.name], column.name)
        after = after.set_column(place, column, changed.cast(column.type))
    pq.write_table(pa.concat_tables([_weighted(before, -1), _weighted(after, 1)]), file)


@cache
def _whole(table: Path) -> pa.Table:
    return pq.read_table(table).drop_columns("_weight")


def _changed(values: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    if name in {"o_totalprice", "l_quantity"}:
        return pc.add(values, pa.scalar(1, values.type))
    if name in {"o_orderdate", "l_shipdate"}:
        return pc.add(values, pa.scalar(_DAY, pa.duration("s")))
    if name == "o_orderpriority":
        return pa.chunked_array([pa.array(["1-URGENT"] * len(values))])
    return values


def _weighted(rows: pa.Table, weight: int) -> pa.Table:
    return rows.append_column("_weight", pa.array([weight] * rows.num_rows, pa.int64()))


def _in_sql(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return {"int64": "BIGINT", "int32": "INT", "date32[day]": "DATE", "string": "STRING"}[str(kind)]


@cache
def _python() -> str:
    """Return the Python of the environment with the generator, which is made at the first call."""
    environment = ARTIFACTS.parent / "tpch-environment"
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes"]
        subprocess.run([*pip, "-r", str(_ROOT / "requirements" / "tpch.txt")], check=True, stdout=sys.stderr)
    return str(python)
