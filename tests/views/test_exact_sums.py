"""Sums and averages of floating point are exact in views that Spark computes too: rounded once, whatever the order."""

from __future__ import annotations

import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from boatlift.views.aggregates import averages, sums
from views.judge import run_case, write
from views.random_queries import Generated, Table

STEPS = 3
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)

GENERAL = "percentile(v, 0.5) AS p"
QUERIES = [
    f"SELECT k, sum(x) AS s, avg(x) AS m, {GENERAL} FROM a GROUP BY k",
    f"SELECT cast(NULL AS STRING) AS k, sum(x) AS s, avg(x) AS m, {GENERAL} FROM a",
    "SELECT k, sum(x) AS s, avg(x) AS m FROM a GROUP BY k, session_window(t, '1 hour')",
    f"SELECT k, sum(if(v > 0, x, NULL)) AS s, avg(x) FILTER (WHERE v > 0) AS m, {GENERAL} FROM a GROUP BY k",
    f"SELECT k, sum(x) AS s, avg(x) AS m, {GENERAL} FROM a GROUP BY CUBE (k) HAVING grouping(k) = 0",
    "SELECT k, sum(cast(x AS FLOAT)) AS s, avg(cast(x AS FLOAT)) AS m, mode(v) AS p FROM a GROUP BY k",
]


def _steps() -> list[list[dict[str, Any]]]:
    chance = random.Random("exact sums")
    held: list[dict[str, Any]] = []
    steps = []
    for _ in range(STEPS):
        gone = [held.pop(chance.randrange(len(held))) for _ in range(4) if held]
        new = [
            {"k": chance.choice("pq"), "v": chance.randrange(3), "x": chance.uniform(-1, 1) * 10 ** chance.randrange(9),
             "t": BEGIN + timedelta(minutes=chance.randrange(60))}
            for _ in range(20)
        ]  # fmt: skip
        held += new
        steps.append([*new, *({**row, "_weight": -1} for row in gone)])
    return steps


def test_sums_are_rounded_once(interpreting: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    columns = {"k": "STRING", "v": "BIGINT", "x": "DOUBLE", "t": "TIMESTAMP"}
    case = Generated([Table("a", columns, _steps())], QUERIES)
    write(case)
    run_case(interpreting, case)
    held = case.tables[0].held(STEPS - 1)
    naive = 0
    for number, query in enumerate(QUERIES):
        there: Counter[tuple[Any, ...]] = Counter()
        for path in sorted(Path(f"out/{number}").glob("*.parquet")):
            for row in pq.read_table(path).to_pylist():
                there[row["k"], row["s"], row["m"]] += row["_weight"]
        expected = set()
        for key in [None] if "cast(NULL" in query else ["p", "q"]:
            rows = [row for row in held if key in (None, row["k"]) and (row["v"] > 0 or "v > 0" not in query)]
            values = [row["x"] for row in rows]
            if "FLOAT" in query:
                values = pa.array(values).cast(pa.float32(), safe=False).cast(pa.float64()).to_pylist()
            whole = math.fsum(values)
            expected.add((key, whole, whole / len(values)))
            naive += _in_order(values) != whole
        assert {row for row, weight in there.items() if weight} == expected, query
    assert naive > 3, "values whose sum in their order is the exact one prove nothing"


def _in_order(values: list[float]) -> float:
    total = 0.0
    for value in values:
        total += value
    return total


def test_sums_of_lists() -> None:
    nan, inf = float("nan"), float("inf")
    lists = pa.array(
        [[0.1] * 10, [1e300, 1.0, -1e300], [], None, [inf, 1.0], [inf, -inf], [nan, 1.0], [1e308, 1e308, -1e308],
         [-0.0], [5e-324, 5e-324]],
        pa.list_(pa.float64()),
    )  # fmt: skip
    wanted = [1.0, 1.0, None, None, inf, nan, nan, 1e308, 0.0, 1e-323]
    assert str(sums(lists).to_pylist()) == str(wanted)
    assert averages(lists[:4]).to_pylist() == [0.1, 1 / 3, None, None]
