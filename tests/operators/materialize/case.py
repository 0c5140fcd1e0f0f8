"""Materialized streams in the laws of operators: new rows, of which some come several times, and changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, changes_of


def of_rows(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    few = rows.transform("materialized-few", lambda df: df.select("k", "x"))
    return few.materialize("materialized")


def of_changes(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    totals = rows.group_by("k").agg("materialized-totals", F.sum("v").alias("v"))
    return totals.materialize("materialized-changes")


def expected_of_rows(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"k": row["k"], "x": row["x"]}) for row in rows)


def expected_of_changes(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["k"]] += row["v"]
    return Counter(as_row({"k": k, "v": v}) for k, v in totals.items())


CASES = [
    OperatorCase("materialized", of_rows, expected_of_rows, changes_of),
    OperatorCase("materialized-changes", of_changes, expected_of_changes, changes_of),
]
