"""Recent rows in the laws of operators: within a period that does not end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, changes_of


def build(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    timed = rows.transform("recent-times", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    return timed.recent("recent-1", "at", "10000 weeks").transform("recent", lambda df: df.select("k", "v"))


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"k": row["k"], "v": row["v"]}) for row in rows)


CASES = [OperatorCase("recent", build, expected, changes_of)]
