"""Transforms in the laws of operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, as_row, changes_of, rows_of


def of_rows(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    clean = rows.transform("positive", lambda df: df.where("v > 0"))
    return clean.transform("transform", lambda df: df.selectExpr("k", "v * 2 AS w"))


def of_changes(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    counts = rows.group_by("k").agg("transformed", F.sum("v").alias("v"))
    few = counts.transform("few", lambda df: df.where("v < 30"))
    return few.transform("transform-of-changes", lambda df: df.selectExpr("upper(k) AS k", "v + 1 AS v"))


def sums(rows: list[dict[str, Any]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for row in rows:
        totals[row["k"]] = totals.get(row["k"], 0) + row["v"]
    return totals


CASES = [
    OperatorCase(
        "transform",
        of_rows,
        lambda rows, _more: Counter(as_row({"k": row["k"], "w": row["v"] * 2}) for row in rows if row["v"] > 0),
        rows_of,
    ),
    OperatorCase(
        "transform-of-changes",
        of_changes,
        lambda rows, _more: Counter(
            as_row({"k": key.upper(), "v": total + 1}) for key, total in sums(rows).items() if total < 30
        ),
        changes_of,
    ),
]
