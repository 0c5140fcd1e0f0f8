"""The methods of streams that go by time, and the streams of rows that do not fit or come late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.api.grouped import columns_named
from boatlift.api.options import checked_name, policy_of_state
from boatlift.dataflow.policies import Eager, History, Lazy, lateness_in, seconds_in
from boatlift.errors import InvalidError
from boatlift.operators.bad_rows.operator import DeadLetters, ValidRows
from boatlift.operators.duplicates import Duplicates
from boatlift.operators.final import Final
from boatlift.operators.recent import Recent
from boatlift.operators.watermark.operator import LateRows, Watermark

if TYPE_CHECKING:
    from boatlift.api.dataflow import Dataflow
    from boatlift.api.streams import Stream


@dataclass(frozen=True, slots=True)
class StreamInTime:
    """The part of `Stream` that goes by time."""

    dataflow: Dataflow
    name: str

    def with_watermark(
        self,
        name: str,
        column: str,
        late_by: str,
        *,
        max_ahead: str | None = None,
        idle_after: str | None = None,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Declare how late rows can be: later rows are dropped and counted, and event time passes for what follows.

        The watermark after a step is the latest time of all rows so far, less `late_by`. A row is late if it is before
        the watermark after the step before. Rows without a time are never late. Windows close, timers in event time
        fire and state expires by the watermark. Where streams meet, the least of their watermarks holds.

        Args:
            name: The processor's name.
            column: The column with the time of a row, a timestamp.
            late_by: The allowed lateness, as in `"10 minutes"`; `"0 seconds"` if rows come in order.
            max_ahead: A period, as in `"1 hour"`: a row whose time is further ahead of the recorded clock moves no
                watermark, so that one wrong clock closes no windows.
            idle_after: A period, as in `"5 minutes"`: if no row has come for so long, the watermark goes on with the
                recorded clock, so that an idle stream holds up no other. The dataflow needs ticks for it
                (`bl.Dataflow(…, tick="1 second")`).
            policy: The cost of a crash.

        Raises:
            InvalidError: `[BAD_OPTION]` a period is none; `idle_after` without ticks.

        Examples:
            >>> timely = flights.with_watermark("timely", "at", "10 minutes", max_ahead="1 day")
        """
        columns_named(self.name, "with_watermark", (column,))
        flow, milliseconds = self.dataflow, lateness_in(late_by, f"{name}: late_by")
        ahead = None if max_ahead is None else lateness_in(max_ahead, f"{name}: max_ahead")
        idle = None if idle_after is None else lateness_in(idle_after, f"{name}: idle_after")
        reads = (self.name,) if idle is None else (self.name, flow.tick.name)
        if idle is not None and self.name == flow.tick.name:
            raise InvalidError("BAD_OPTION", f"{name}: ticks are never idle: leave idle_after out")
        period = 0.0 if idle is None or flow.ticks is None else flow.ticks.source.capabilities.period or 0.0
        if idle is not None and 1000 * period > idle:
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: idle_after={idle_after!r} is less than the {period:g} seconds of a tick: give a longer time, "
                "or let the dataflow tick more often",
            )
        chosen = policy_of_state(name, policy, "the watermark")
        return flow.add(Watermark(checked_name(name), reads, chosen, column, milliseconds, ahead, idle))

    def lateness(self, name: str, column: str, late_by: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Return `with_watermark`, of which this is the old name.

        Examples:
            >>> timely = flights.lateness("timely", "at", "10 minutes")
        """
        return self.with_watermark(name, column, late_by, policy=policy)

    def late_rows(self, name: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Return the rows that a stream with a watermark drops.

        Raises:
            InvalidError: `[BAD_OPTION]` the stream is not that of `with_watermark`.

        Examples:
            >>> timely = flights.with_watermark("timely", "at", "10 minutes")
            >>> timely.late_rows("late").sink("late_out", bl.parquet("late"))
        """
        timely = self.dataflow.processors.get(self.name)
        if not isinstance(timely, Watermark):
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: {self.name} drops no late rows: call late_rows on what with_watermark(…) returns",
            )
        chosen = policy_of_state(name, policy, "the watermark")
        late = LateRows(
            checked_name(name),
            timely.reads,
            chosen,
            timely.column,
            timely.lateness_ms,
            timely.max_ahead_ms,
            timely.idle_ms,
        )
        return self.dataflow.add(late, self.name)

    def bad_rows(self, name: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Return the dead letters of a source: its rows that do not fit, each with its place and the reason.

        Dead letters of files have the columns `file`, `offset`, `text` and `reason`; those of Kafka `topic`,
        `partition`, `offset`, `timestamp`, `key`, `value` and `reason`. Their number is state.

        Raises:
            InvalidError: `[BAD_OPTION]` the stream is not that of a source with `bad_rows="dead_letters"`.

        Examples:
            >>> lines = flow.source("lines", bl.files("data/*.csv", schema="n INT"), bad_rows="dead_letters")
            >>> lines.bad_rows("bad").sink("bad_out", bl.parquet("bad"))
        """
        processors = self.dataflow.processors
        valid = processors.get(self.name)
        if isinstance(valid, Watermark):
            valid = processors.get(valid.upstream)
        if not isinstance(valid, ValidRows):
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: {self.name} is no source that sorts out bad rows: call bad_rows on what "
                "flow.source(…, bad_rows='dead_letters') returns",
            )
        chosen = policy_of_state(name, policy, "the number of dead letters")
        return self.dataflow.add(DeadLetters(checked_name(name), valid.reads, chosen, valid.source), self.name)

    def final(self, name: str, at: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Emit the rows of changes that can change no more, each once: new rows, for a sink that appends.

        The stream is a view, an aggregate or windows over rows with a watermark. A row is final when the watermark has
        reached its time, such as the end of its window or of its session.

        Args:
            name: The processor's name.
            at: The column with that time, a timestamp. A row without a time is never final.
            policy: The cost of a crash.

        Examples:
            >>> timely = flights.with_watermark("timely", "at", "10 minutes")
            >>> hours = timely.group_by(bl.window("at", "1 hour")).agg("hours", F.count("*").alias("n"))
            >>> closed = hours.final("closed", at="window_end")
        """
        columns_named(self.name, "final", (at,))
        chosen = policy_of_state(name, policy, "rows")
        return self.dataflow.add(Final(checked_name(name), (self.name,), chosen, at))

    def recent(self, name: str, column: str, period: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Keep rows for as long as their time is less than a period ago: `WHERE column > now() - INTERVAL period`.

        The rows are changes: a row comes with weight 1, and goes with weight −1 as the recorded clock of steps passes.
        It goes without further input too, if the dataflow has ticks (`bl.Dataflow(…, tick="1 second")`).

        Args:
            name: The processor's name.
            column: The column with the time of a row, a timestamp. A row without a time never holds.
            period: The age at which a row goes, as in `"1 hour"`.
            policy: The cost of a crash.

        Examples:
            >>> last_day = flights.recent("last_day", "at", "1 day")
        """
        columns_named(self.name, "recent", (column,))
        milliseconds = round(seconds_in(period, f"{name}: period") * 1000)
        chosen, flow = policy_of_state(name, policy, "rows"), self.dataflow
        reads = (self.name, flow.tick.name) if flow.has_ticks else (self.name,)
        return flow.add(Recent(checked_name(name), reads, chosen, column, milliseconds))

    def drop_duplicates(
        self, name: str, keys: Sequence[str], *, within: str | None = None, policy: Lazy | Eager | History | None = None
    ) -> Stream:
        """Emit, of rows with equal keys, the first.

        Args:
            name: The processor's name.
            keys: The columns in which duplicates are equal. NULL equals NULL.
            within: A period, as in `"10 minutes"`: another row of a key is no duplicate once the watermark is so far
                beyond the first, and then the key's state expires. The stream must have a watermark. Without it rows
                are duplicates for ever, and every key is kept.
            policy: The cost of a crash.

        Examples:
            >>> first = flights.drop_duplicates("first", ["origin"])
        """
        columns = columns_named(self.name, "drop_duplicates", tuple(keys))
        time = None if within is None else lateness_in(within, f"{name}: within")
        chosen = policy_of_state(name, policy, "keys")
        return self.dataflow.add(Duplicates(checked_name(name), (self.name,), chosen, columns, time))
