"""A process of its own that runs window functions as views, and compiles many queries several times.

Usage: `python -m support.rows.compiled_views FOLDER TURN OF_CHANCE OF_OTHERS`, which prints queries and identities
as JSON lines.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import boatlift as bl
from benchmarks.cases.nexmark_queries import QUERIES, SIDE_INPUT
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.spark.compile.program import compile_program
from views import test_shapes as shapes
from views.judge import QUICK, flow_of, judge
from views.random_queries import Generated, Table, random_case
from views.test_exact_sums import QUERIES as SUMS
from views.test_nexmark import tables as nexmark_tables
from views.test_recursion import RECURSIVE

__all__ = ["CHANCE", "WINDOWS", "cases"]

WINDOWS = [
    "SELECT g, v, ntile(3) OVER (ORDER BY g, v) AS r FROM o",
    "SELECT g, v, percent_rank() OVER (PARTITION BY g ORDER BY v) AS r FROM o",
    "SELECT g, v, cume_dist() OVER (PARTITION BY g ORDER BY v) AS r FROM o",
    "SELECT * FROM (SELECT g, v, ntile(2) OVER (PARTITION BY g ORDER BY v) AS r FROM o) WHERE r = 1",
]
"""Window functions of the size of their partition, for which Catalyst has an attribute that it makes once in a JVM."""

CHANCE = [
    "SELECT v FROM a WHERE v > (SELECT avg(v) FROM a)",
    "SELECT v FROM a WHERE (k = 'x' AND v > 1 AND x > 2) OR (k = 'y' AND v > 7 AND x > 3)",
    "SELECT v FROM a WHERE v + v * 2 + length(k) > 5",
    "SELECT (SELECT max(v) FROM b) + v + (SELECT min(v) FROM b) AS s FROM a",
    "SELECT v FROM a WHERE v IN (1, 2, 3) OR v > (SELECT avg(v) FROM b) OR length(k) > 3 OR x < d",
    "SELECT sum(v * 2 * length(k)) AS s FROM a GROUP BY v + 1 + length(k)",
    "SELECT count(DISTINCT v + 1 + length(k)) c, count(DISTINCT x) e, count(DISTINCT k, d) f, sum(DISTINCT v) g FROM a",
    "SELECT a.v FROM a JOIN b ON a.v + 1 + length(a.k) = b.v + 2 + length(b.k) AND (a.x > 1 OR b.x > 2 OR a.k = 'x')",
    "SELECT a.v FROM a LEFT JOIN b ON a.k = b.k AND (a.v & 1 & b.v) = 1 AND least(a.v, b.v, 3) < 2",
    "SELECT array(X'61', X'FF') AS x, count(*) AS n FROM a WHERE to_binary(k, 'utf-8') IN (X'61', X'62') GROUP BY v",
    "SELECT * FROM (SELECT to_binary(k, 'utf-8') AS y, v FROM a) PIVOT (sum(v) FOR y IN (X'78', X'79'))",
    "WITH s AS (SELECT k, v FROM a), t AS (SELECT k, max(v) m FROM s GROUP BY k) SELECT * FROM s NATURAL JOIN t",
]  # fmt: skip
"""Queries of which Catalyst orders operands by hashes of objects."""


def cases() -> list[Generated]:
    """Return queries that a view can be, over tables without rows; the first one has the queries of chance."""
    chance = Generated(shapes.tables(1), CHANCE)
    lists = (shapes.JOINS, shapes.AGGREGATES, shapes.OTHERS, shapes.OF_SUBQUERIES, shapes.NEVER_NULL, SUMS)
    written = Generated(shapes.tables(1), [query for queries in lists for query in queries] + RECURSIVE.split(";"))
    nexmark = Generated(nexmark_tables(1, 1), list(QUERIES.values()))
    return [chance, written, nexmark, random_case(1003, queries=15, steps=1, rows=1)]


def _window_functions(spark: SparkSession, folder: Path, turn: int) -> None:
    rows = [{"g": g, "v": v} for g, v in (("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3), ("b", 4))]
    table = Table("o", {"g": "STRING", "v": "INT"}, [rows])
    judge(spark, Generated([table], WINDOWS[turn:] + WINDOWS[:turn]), folder)


def main(folder: str, turn: str, of_chance: str, of_others: str) -> None:
    """Judge the window functions, the one at a turn first; then print the identities of the views of each case.

    The first case is compiled `of_chance` times, each other one `of_others` times.
    """
    spark = bl.session(**QUICK)
    _window_functions(spark, Path(folder), int(turn))
    spark.sql(SIDE_INPUT)
    chance, *others = cases()
    for case in [chance] * int(of_chance) + others * int(of_others):
        spark.range(int(turn) + 1).select("id").schema  # noqa: B018 moves the counters of the JVM
        program = compile_program(spark, plan(flow_of(case)), ON_SPARK)
        identities = {name: each for name, each in program.identity.items() if name.startswith("processor v")}
        print(json.dumps([case.queries, identities]), flush=True)
        program.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
