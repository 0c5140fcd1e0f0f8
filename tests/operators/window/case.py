"""Windows in the laws of operators: those that change, and those that come once."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, changes_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def build(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    from pyspark.sql import functions as F

    timed = rows.transform("window-times", lambda df: df.selectExpr("k", "v", "timestamp_seconds(60 * v) AS at"))
    timely = timed.with_watermark("window-timely", "at", "1 hour")
    return timely.group_by(bl.window("at", "3 minutes"), "k").agg("window", F.count("*").alias("n"))


def expected(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    counts: dict[tuple[int, str], int] = defaultdict(int)
    for row in rows:
        counts[row["v"] // 3, row["k"]] += 1
    return Counter(
        as_row(
            {
                "window_start": EPOCH + timedelta(minutes=3 * number),
                "window_end": EPOCH + timedelta(minutes=3 * number + 3),
                "k": key,
                "n": n,
            }
        )
        for (number, key), n in counts.items()
    )


CASES = [OperatorCase("window", build, expected, changes_of)]
