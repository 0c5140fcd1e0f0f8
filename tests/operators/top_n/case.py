"""The first rows of each key in the laws of operators: over new rows, over changes, and with equal rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, changes_of


def over_rows(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    return rows.group_by("k").top_n("top-n", 3, order_by=["v DESC", "x"])


def over_changes(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    """The two least frequent numbers of each key: a number moves back as it comes more often."""
    from pyspark.sql import functions as F

    counts = rows.group_by("k", "v").agg("top-n-counts", F.count("*").alias("n"))
    return counts.group_by("k").top_n("top-n-changes", 2, order_by=["n", "v DESC"])


def expected_over_rows(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return first_of(rows, 3, lambda row: (-row["v"], row["x"]))


def expected_over_changes(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    counts = Counter((row["k"], row["v"]) for row in rows)
    return first_of([{"k": k, "v": v, "n": n} for (k, v), n in counts.items()], 2, lambda row: (row["n"], -row["v"]))


def first_of(rows: list[dict[str, Any]], count: int, place: Any) -> Rows:
    by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_key[row["k"]].append(row)
    return Counter(as_row(row) for each in by_key.values() for row in sorted(each, key=place)[:count])


CASES = [
    OperatorCase("top-n", over_rows, expected_over_rows, changes_of),
    OperatorCase("top-n-changes", over_changes, expected_over_changes, changes_of),
]
