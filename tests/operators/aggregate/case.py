"""Aggregates in the laws of operators: by key, of all rows, over changes, and of each step alone."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, Steps, as_row, changes_of


def by_key(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.group_by("k").agg("aggregate", F.count("*").alias("n"), F.avg("x").alias("x"), F.max("v").alias("v"))


def of_all_rows(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.agg("aggregate-of-all", F.count("*").alias("n"), F.sum("v").alias("v"))


def over_changes(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    """How many keys have each sum modulo 4: a group ends when its last key leaves it."""
    from pyspark.sql import functions as F

    sums = rows.group_by("k").agg("summed", F.sum("v").alias("v"))
    groups = sums.transform("grouped", lambda df: df.selectExpr("pmod(v, 4) AS g", "v", "k"))
    return groups.group_by("g").agg("aggregate-over-changes", F.count("*").alias("n"), F.stddev("v").alias("v"))


def sums(rows: list[dict[str, Any]]) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        totals[row["k"]] += row["v"]
    return totals


def expected_by_key(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[row["k"]].append(row)
    return Counter(
        as_row(
            {
                "k": key,
                "n": len(group),
                "x": float(sum(Fraction(row["x"]) for row in group) / len(group)),
                "v": max(row["v"] for row in group),
            }
        )
        for key, group in groups.items()
    )


def of_partials(rows: bl.Stream, more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    both = rows.union("both-in-parts", more).group_by("k")
    columns = (F.count("*").alias("n"), F.avg("x").alias("x"), F.max("v").alias("v"))
    return both.agg("aggregate-of-partials", *columns, partials=True)


def expected_of_all(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter([as_row({"n": len(rows), "v": sum(row["v"] for row in rows)})])


def expected_over_changes(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    groups: dict[int, list[int]] = defaultdict(list)
    for total in sums(rows).values():
        groups[total % 4].append(total)
    return Counter(as_row({"g": group, "n": len(totals), "v": deviation(totals)}) for group, totals in groups.items())


def deviation(values: list[int]) -> float | None:
    """Return the sample deviation: the sum of squares is rounded once, then divided."""
    if len(values) < 2:
        return None
    squares = sum(value * value for value in values) - Fraction(sum(values) ** 2, len(values))
    return math.sqrt(float(squares) / (len(values) - 1))


def reduced(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.group_by("k").reduce("reduce", F.count("*").alias("n"), F.sum("v").alias("v"))


def added(parts: Sequence[tuple[str, int, int]]) -> Rows:
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for key, count, total in parts:
        totals[key][0] += count
        totals[key][1] += total
    return Counter(as_row({"k": key, "n": n, "v": v}) for key, (n, v) in totals.items())


def expected_by_step(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return added([(row["k"], 1, row["v"]) for row in rows])


def result_of_steps(steps: Steps) -> Rows:
    for step in steps:
        assert len({row["k"] for row in step}) == len(step), "a step has one row a key"
    return added([(row["k"], row["n"], row["v"]) for step in steps for row in step])


CASES = [
    OperatorCase("aggregate", by_key, expected_by_key, changes_of),
    OperatorCase("aggregate-of-all", of_all_rows, expected_of_all, changes_of),
    OperatorCase("aggregate-over-changes", over_changes, expected_over_changes, changes_of),
    OperatorCase(
        "aggregate-of-partials", of_partials, lambda rows, more: expected_by_key([*rows, *more], []), changes_of
    ),
    OperatorCase("reduce", reduced, expected_by_step, result_of_steps),
]
