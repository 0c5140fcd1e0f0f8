"""Lookups in the laws of operators: each row keeps its columns, and gets a count that was true at some time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, Steps, as_row


def build(rows: bl.Stream, more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    live = more.group_by("k").agg("looked-up", F.count("*").alias("n"))
    return rows.lookup("lookup", live=live.by("k"))


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(map(as_row, rows))


def without_count(steps: Steps) -> Rows:
    assert all(row["live_n"] is None or row["live_n"] > 0 for step in steps for row in step)
    return Counter(
        as_row({name: value for name, value in row.items() if name != "live_n"}) for step in steps for row in step
    )


CASES = [OperatorCase("lookup", build, expected, without_count, chosen=True)]
