"""Unions and merges in the laws of operators."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, changes_of, rows_of


def gathered(rows: bl.Stream, more: bl.Stream) -> bl.Stream:
    """An aggregate minds no order, so that the merge before it gathers."""
    from pyspark.sql import functions as F

    return rows.merge("gathers", more).group_by("k").agg("gathered", F.sum("v").alias("v"))


def sums(rows: list[dict[str, Any]], more: list[dict[str, Any]]) -> Rows:
    totals: dict[str, int] = defaultdict(int)
    for row in [*rows, *more]:
        totals[row["k"]] += row["v"]
    return Counter(as_row({"k": key, "v": total}) for key, total in totals.items())


def of_changes(rows: bl.Stream, more: bl.Stream) -> bl.Stream:
    """Changes of one stream, and new rows of another."""
    from pyspark.sql import functions as F

    newest = more.group_by("k").agg("union-newest", F.max("v").alias("v"))
    return rows.transform("union-plain", lambda df: df.select("k", "v")).union("united", newest)


def all_and_newest(rows: list[dict[str, Any]], more: list[dict[str, Any]]) -> Rows:
    newest = {row["k"]: max(each["v"] for each in more if each["k"] == row["k"]) for row in more}
    every = [*((row["k"], row["v"]) for row in rows), *newest.items()]
    return Counter(as_row({"k": key, "v": value}) for key, value in every)


CASES = [
    OperatorCase("united", of_changes, all_and_newest, changes_of),
    OperatorCase(
        "union",
        lambda rows, more: rows.union("union", more),
        lambda rows, more: Counter(map(as_row, [*rows, *more])),
        rows_of,
        chosen=False,
    ),
    OperatorCase(
        "merge",
        lambda rows, more: rows.merge("merge", more),
        lambda rows, more: Counter(map(as_row, [*rows, *more])),
        rows_of,
        chosen=True,
    ),
    OperatorCase("gathered", gathered, sums, changes_of, chosen=True),
]
