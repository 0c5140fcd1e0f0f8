"""LATENESS in the laws of operators: with rows that are not late, all are handed on."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, rows_of


def build(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    timed = rows.transform("lateness-times", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    timely = timed.with_watermark("lateness-1", "at", "1 hour")
    return timely.transform("lateness", lambda df: df.select("k", "v"))


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"k": row["k"], "v": row["v"]}) for row in rows)


CASES = [OperatorCase("lateness", build, expected, rows_of)]
