"""Processors in the laws of operators: running counts by key, over rows and over Arrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, Steps, as_row, rows_of


def by_key(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    """Number the rows of a key, and hand on every third number."""

    def number_rows(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        del context
        for row in rows:
            state.n = (state.n or 0) + 1
            state.last = row.v
            if state.n % 3 == 0:
                yield key.k, state.n

    grouped = rows.group_by("k")
    return grouped.process("process", number_rows, state="n LONG, last LONG", output="k STRING, n LONG")


def over_arrow(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    """Count the rows of each key, and hand on how many times four more have come."""

    def count_all(batch: bl.KeyedBatch) -> bl.Processed:
        import numpy as np
        import pyarrow as pa

        before = batch.state.column("n").fill_null(0).to_numpy()
        counts = before + np.diff(batch.offsets)
        crossed = np.flatnonzero(counts // 4 > before // 4)
        keys = batch.keys.column("k").take(pa.array(crossed))
        rows = pa.table({"k": keys, "n": counts[crossed] // 4 - before[crossed] // 4})
        return bl.Processed(rows, pa.table({"n": counts}))

    return rows.group_by("k").process_arrow("process-arrow", count_all, state="n LONG", output="k STRING, n LONG")


def with_timers(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    """Set a timer at each row, which is due at the next step; it counts the rows up to then."""

    def remind(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        from datetime import timedelta

        if context.timer is not None:
            yield key.k, "timer", state.n
        for row in rows:
            state.n = (state.n or 0) + 1
            context.set_timer(context.now + timedelta(milliseconds=row.v))
            yield key.k, "row", state.n

    return rows.group_by("k").process(
        "process-timers", remind, state="n LONG", output="k STRING, what STRING, n LONG", timers=True
    )


def rows_alone(steps: Steps) -> Rows:
    """Return the rows that timers have not given: when these are due depends on the steps."""
    return rows_of([[row for row in step if row["what"] == "row"] for step in steps])


def each_numbered(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(
        as_row({"k": k, "what": "row", "n": n + 1}) for k, count in counts_of(rows).items() for n in range(count)
    )


def counts_of(rows: list[dict[str, Any]]) -> Counter[str]:
    return Counter(row["k"] for row in rows)


def numbered(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"k": k, "n": n}) for k, count in counts_of(rows).items() for n in range(3, count + 1, 3))


def in_fours(rows: list[dict[str, Any]], _more: list[dict[str, Any]]) -> Rows:
    return Counter(as_row({"k": key, "fours": count // 4}) for key, count in counts_of(rows).items() if count >= 4)


def fours(steps: Steps) -> Rows:
    """Return how often each key has come four times, whatever the steps."""
    total: Counter[str] = Counter()
    for step in steps:
        for row in step:
            total[row["k"]] += row["n"]
    return Counter(as_row({"k": key, "fours": count}) for key, count in total.items())


CASES = [
    OperatorCase("process", by_key, numbered, rows_of),
    OperatorCase("process-timers", with_timers, each_numbered, rows_alone, chosen=True),
    OperatorCase("process-arrow", over_arrow, in_fours, fours),
]
