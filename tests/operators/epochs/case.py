"""Gatherings in the laws of operators, and recomputations: from everything, and from the rows of an epoch."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from pyspark.sql import DataFrame

import boatlift as bl
from operators.laws import OperatorCase, Rows, Steps, as_row, rows_of


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy("k").count()


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    counts = Counter(row["k"] for row in rows)
    return Counter(as_row({"k": key, "count": count}) for key, count in counts.items())


def last_table(steps: Steps) -> Rows:
    return Counter(map(as_row, steps[-1]))


def added(steps: Steps) -> Rows:
    totals: dict[str, int] = defaultdict(int)
    for step in steps:
        for row in step:
            totals[row["k"]] += row["count"]
    return Counter(as_row({"k": key, "count": count}) for key, count in totals.items())


CASES = [
    OperatorCase(
        "gather",
        lambda rows, _more: rows.gather("gather", policy=bl.Batch(epochs=2)),
        lambda rows, _more: Counter(map(as_row, rows)),
        rows_of,
        chosen=True,
    ),
    OperatorCase(
        "gather-history",
        lambda rows, _more: rows.gather("gather-history", policy=bl.History(bl.Batch(epochs=2))),
        lambda rows, _more: Counter(map(as_row, rows)),
        rows_of,
        chosen=True,
    ),
    OperatorCase(
        "recompute", lambda rows, _more: rows.recompute("recompute", counted), expected, last_table, chosen=True
    ),
    OperatorCase(
        "recompute-batch",
        lambda rows, _more: rows.recompute("recompute-batch", counted, over="batch", policy=bl.Batch(epochs=2)),
        expected,
        added,
        chosen=True,
    ),
    OperatorCase(
        "recompute-history",
        lambda rows, _more: rows.recompute(
            "recompute-history", counted, over="batch", policy=bl.History(bl.Batch(epochs=2)), deterministic=True
        ),
        expected,
        added,
        chosen=True,
    ),
]
