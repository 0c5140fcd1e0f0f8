"""Final rows in the laws of operators: rows that may change for long are not given."""

from __future__ import annotations

from collections import Counter
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, rows_of


def build(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    timed = rows.transform("final-times", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    timely = timed.with_watermark("final-timely", "at", "1 hour")
    return timely.group_by(bl.window("at", "1 week"), "k").agg("final-weeks", _count()).final("final", "window_end")


def _count() -> Any:
    from pyspark.sql import functions as F

    return F.count("*").alias("n")


def expected(_rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter()


CASES = [OperatorCase("final", build, expected, rows_of, chosen=True)]
