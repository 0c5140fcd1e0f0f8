"""Sessions by timers, three times: as PySpark's `StatefulProcessor`, as a function by key, and over Arrow.

A session counts and sums the rows of a key; it ends after so long without rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    import boatlift as bl

__all__ = ["OUTPUT", "STATE", "Sessions", "over_arrow", "sessions"]

OUTPUT = "k LONG, n LONG, total DOUBLE"
STATE = "n LONG, total DOUBLE, ends TIMESTAMP"
SILENCE_MS = 10_000


class Sessions(StatefulProcessor):
    """The sessions as Structured Streaming runs them, over pandas frames."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self.handle = handle
        self.session = handle.getValueState("session", "n LONG, total DOUBLE, ends LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
        """Add the rows of a key, and put the end of its session off."""
        n, total, ends = self.session.get() or (0, 0.0, None)
        for frame in rows:
            n, total = n + len(frame), total + float(frame["v"].sum())
        if ends is not None:
            self.handle.deleteTimer(ends)
        ends = timerValues.getCurrentProcessingTimeInMs() + SILENCE_MS
        self.handle.registerTimer(ends)
        self.session.update((n, total, ends))
        return iter([])

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:  # noqa: ARG002, N802, N803
        """Give a session that has ended."""
        import pandas as pd  # type: ignore[import-untyped]

        n, total, _ = self.session.get()
        self.session.clear()
        yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})


def sessions() -> Callable[..., Any]:
    """Return the sessions as a function by key."""
    silence = SILENCE_MS

    def of_key(key: Any, rows: Any, state: Any, context: Any) -> Iterator[Any]:
        from datetime import timedelta

        if context.timer is not None:
            yield key.k, state.n, state.total
            state.clear()
        for row in rows:
            state.n = (state.n or 0) + 1
            state.total = (state.total or 0.0) + row.v
        if rows:
            if state.ends is not None:
                context.clear_timer(state.ends)
            state.ends = context.now + timedelta(milliseconds=silence)
            context.set_timer(state.ends)

    return of_key


def over_arrow() -> Callable[..., Any]:
    """Return the sessions over Arrow."""
    silence = SILENCE_MS

    def of_keys(batch: bl.KeyedBatch) -> bl.Processed:
        import numpy as np
        import pyarrow as pa

        import boatlift as bl

        moment = pa.timestamp("ms", tz="UTC")
        n = batch.state.column("n").fill_null(0).to_numpy()
        total = batch.state.column("total").fill_null(0.0).to_numpy()
        ends = batch.state.column("ends").cast(moment).cast(pa.int64()).fill_null(-1).to_numpy()
        rows = np.diff(batch.offsets)
        added = np.concatenate([[0.0], np.cumsum(batch.rows.column("v").to_numpy())])[batch.offsets]
        due = np.zeros(len(n), np.bool_)
        due[batch.due.key] = True
        over, live = np.flatnonzero(due), np.flatnonzero(rows)
        ended = pa.table({"k": batch.keys.column("k").take(pa.array(over)), "n": n[over], "total": total[over]})
        until = np.full(len(n), batch.now + silence)
        before = live[(ends[live] >= 0) & ~due[live]]
        state = pa.table(
            {
                "n": np.where(due, 0, n) + rows,
                "total": np.where(due, 0.0, total) + np.diff(added),
                "ends": pa.array(until).cast(moment),
            }
        )
        return bl.Processed(
            ended,
            state,
            keep=(rows > 0) | ~due,
            timers=bl.Timers(live, until[live]),
            cleared=bl.Timers(before, ends[before]),
        )

    return of_keys
