"""Duplicates in the laws of operators: for ever, and within a time that does not end."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, rows_of


def for_ever(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    return rows.transform("duplicates-pairs", lambda df: df.select("k", "v")).drop_duplicates("duplicates", ["v", "k"])


def within(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    timed = rows.transform("duplicates-times", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    timely = timed.with_watermark("duplicates-timely", "at", "1 hour")
    bare = timely.drop_duplicates("duplicates-1", ["k", "v"], within="1 hour")
    return bare.transform("duplicates-within", lambda df: df.select("k", "v"))


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter({as_row({"k": row["k"], "v": row["v"]}) for row in rows})


CASES = [
    OperatorCase("duplicates", for_ever, expected, rows_of),
    OperatorCase("duplicates-within", within, expected, rows_of),
]
