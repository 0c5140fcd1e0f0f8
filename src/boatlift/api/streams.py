"""Streams: the outputs of processors, and the methods that add operators to a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import TYPE_CHECKING, Literal, NoReturn

from boatlift.api.grouped import Grouped, aggregated, columns_named
from boatlift.api.known_columns import columns_of
from boatlift.api.options import checked_name, loop_of, policy_of_batch, policy_of_state, policy_without_state, renamed
from boatlift.dataflow.advice import OF_STREAM, advise
from boatlift.dataflow.contracts import Sink
from boatlift.dataflow.period import lateness_in, seconds_in
from boatlift.dataflow.policies import Batch, Eager, Ephemeral, History, Lazy, batch_of
from boatlift.dataflow.processors import SinkSpec
from boatlift.errors import InvalidError
from boatlift.operators.bad_rows.operator import BadRows
from boatlift.operators.changes.operator import Changes
from boatlift.operators.duplicates.operator import Duplicates
from boatlift.operators.final.operator import Final
from boatlift.operators.gather.operator import Gather
from boatlift.operators.lateness.operator import Watermark
from boatlift.operators.lookup.operator import Lookup, Table
from boatlift.operators.merge.operator import Merge
from boatlift.operators.recent.operator import Recent
from boatlift.operators.recompute.operator import Recompute
from boatlift.operators.transform.operator import Transform
from boatlift.operators.union.operator import Union
from boatlift.operators.view.operator import View
from boatlift.operators.view.upserts import newest_rows
from boatlift.operators.window.operator import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from boatlift.api.dataflow import Dataflow

__all__ = ["Keyed", "Stream"]


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a processor: new rows, changes of rows, or whole tables."""

    dataflow: Dataflow
    name: str

    def columns(self) -> dict[str, str]:
        """Return the names of the columns and their types, as Spark writes them, where a session is active.

        What comes before the stream is compiled for it, so that a mistake there is told here.

        Raises:
            InvalidError: `[NO_SESSION]`; or what is wrong with the program, as `bl.run` raises it.
            UserCodeError: `[USER_CODE]` a function raised.
        """
        return columns_of(self.dataflow, self.name)

    def transform(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame],
        *,
        deterministic: bool | None = None,
        policy: Ephemeral | Eager | History | None = None,
    ) -> Stream:
        """Apply a row-wise function: projections, filters, `explode`, joins with a static table.

        Args:
            name: The processor's name.
            function: Takes the DataFrame of a step and returns another one. It is called for every step, so it must
                build the same plan each time; `bl.now()`, `bl.rand()` and `bl.uuid()` may be called inside it.
            deterministic: True vouches that the Python UDFs in the function give the same value for the same arguments:
                Spark takes that for granted of every UDF, so it cannot be checked. False says that the function asks
                the outside (`bl.call`), or draws from Spark's own clock and chance: its rows are then made durable
                before any of them is seen, and are never made again.
            policy: What a crash may cost. `Ephemeral()` if not given. `Eager()` makes the rows durable, so that they
                are never made again; it is the policy of every transform that is not deterministic. `History()` makes
                the rows that the transform takes durable instead: what comes before it is not executed again for it.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        if not (deterministic is None or deterministic is True or deterministic is False):
            raise InvalidError("BAD_OPTION", f"{name}: deterministic is {deterministic!r}: choose True or False")
        if deterministic is False and isinstance(policy, Ephemeral | History):
            raise InvalidError(
                "BAD_POLICY",
                f"{name} is not deterministic, so that its rows could not be made again: leave the policy out, or "
                "use Eager()",
            )
        chosen = policy_without_state(name, policy, Eager() if deterministic is False else Ephemeral())
        return self.dataflow.add(Transform(checked_name(name), self.name, function, deterministic, chosen))

    def changes(
        self, name: str, *, weight: str = "_weight", policy: Ephemeral | Eager | History | None = None
    ) -> Stream:
        """Take rows that carry weights as changes: 1 for a row that comes, −1 for one that goes.

        Args:
            name: The processor's name.
            weight: The weight of a row, a whole number in SQL over its columns, such as
                `"CASE WHEN op = 'D' THEN -1 ELSE 1 END"`; a row of weight n counts n times. A column of this name, as
                sinks of changes write it, is not passed on.
            policy: As for `transform`.

        Raises:
            InvalidError: `[BAD_POLICY]`.
        """
        chosen = policy_without_state(name, policy, Ephemeral())
        return self.dataflow.add(Changes(checked_name(name), self.name, weight, chosen))

    def upserts(
        self,
        name: str,
        *,
        key: Sequence[str],
        order: str,
        deletes: str | None = None,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Take rows as upserts: of each key the row that is last in an order holds; its rows are changes.

        Args:
            name: The processor's name.
            key: The columns of the key.
            order: The order, in SQL over the columns, such as `"offset"` or `"updated_at"`. Rows may come in any order;
                of rows that are last together, one is chosen by its content.
            deletes: In SQL, whether a row deletes its key, such as `"op = 'D'"` or `"value IS NULL"`.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]` the key has no columns, `[BAD_NAME]`, `[BAD_POLICY]`.
        """
        columns = columns_named(self, "upserts", tuple(key))
        query = newest_rows(columns, order, deletes)
        chosen = policy_of_state(name, policy, "rows")
        return self.dataflow.add(View(checked_name(name), (self.name,), query, chosen))

    def with_watermark(
        self, name: str, column: str, late_by: str, *, policy: Lazy | Eager | History | None = None
    ) -> Stream:
        """Say how late rows can be; later ones are dropped and counted, and event time passes for what comes after.

        The watermark after a step is the latest time of all rows so far, less `late_by`. A row is late if it is before
        the watermark after the step before. Rows without a time are never late. Windows close, timers in event time
        fire and state expires by the watermark.

        Args:
            name: The processor's name.
            column: The column with the time of a row, a timestamp.
            late_by: How late a row can be, as in `"10 minutes"`; `"0 seconds"` if rows come in order.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        columns_named(self, "with_watermark", (column,))
        milliseconds = lateness_in(late_by, f"{name}: late_by")
        chosen = policy_of_state(name, policy, "the bound of event time")
        made = Watermark(checked_name(name), self.name, column, milliseconds, gives_late=False, policy=chosen)
        return self.dataflow.add(made)

    def lateness(self, name: str, column: str, late_by: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Return `with_watermark`, of which this is the old name."""
        return self.with_watermark(name, column, late_by, policy=policy)

    def late_rows(self, name: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Return the rows that a stream with a watermark drops: for a sink that keeps them, or a look at them.

        Args:
            name: The processor's name.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]` the stream is not that of `with_watermark`; `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        timely = self.dataflow.processors.get(self.name)
        if not isinstance(timely, Watermark) or timely.gives_late:
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: {self.name} drops no late rows: call late_rows on what with_watermark(…) returns",
            )
        chosen = policy_of_state(name, policy, "the bound of event time")
        return self.dataflow.add(replace(timely, name=checked_name(name), gives_late=True, policy=chosen), self.name)

    def bad_rows(self, name: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Return the dead letters of a source: its rows that do not fit, each with its place and the reason.

        Letters of files have the columns `file`, `offset`, `text` and `reason`; those of Kafka `topic`, `partition`,
        `offset`, `timestamp`, `key`, `value` and `reason`.

        Args:
            name: The processor's name.
            policy: What a crash may cost; `Lazy()` if not given. Letters are counted, and the number is state.

        Raises:
            InvalidError: `[BAD_OPTION]` the stream is not that of a source with `bad_rows="dead_letters"`;
                `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        processors = self.dataflow.processors
        fitting = processors.get(self.name)
        if isinstance(fitting, Watermark) and not fitting.gives_late:
            fitting = processors.get(fitting.upstream)
        if not isinstance(fitting, BadRows) or fitting.gives_dead_letters:
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: {self.name} is no source that sorts out bad rows: call bad_rows on what "
                "flow.source(…, bad_rows='dead_letters') returns",
            )
        chosen = policy_of_state(name, policy, "the number of letters")
        dead_letters = replace(fitting, name=checked_name(name), gives_dead_letters=True, policy=chosen)
        return self.dataflow.add(dead_letters, self.name)

    def final(self, name: str, at: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Hand on the rows of changes that can change no more, each once: new rows, for a sink that appends.

        The stream is a view, an aggregate or windows over rows with a lateness. A row is final when the bound of event
        time has reached its time, as the end of its window or of its session.

        Args:
            name: The processor's name.
            at: The column with that time, a timestamp. A row without a time is never final.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        columns_named(self, "final", (at,))
        chosen = policy_of_state(name, policy, "rows")
        return self.dataflow.add(Final(checked_name(name), self.name, at, chosen))

    def recent(self, name: str, column: str, period: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Keep rows for as long as their time is less than a period ago: `WHERE column > now() - INTERVAL period`.

        The rows are changes: a row comes with weight 1, and goes with weight −1 as the recorded clock of steps passes.
        It goes also when nothing comes, if the dataflow has ticks (`bl.Dataflow(…, tick="1 second")`).

        Args:
            name: The processor's name.
            column: The column with the time of a row, a timestamp. A row without a time never holds.
            period: For how long a row is recent, as in `"1 hour"`.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        columns_named(self, "recent", (column,))
        milliseconds = round(seconds_in(period, f"{name}: period") * 1000)
        chosen, flow = policy_of_state(name, policy, "rows"), self.dataflow
        ticks = flow.tick.name if flow.has_ticks else None
        return flow.add(Recent(checked_name(name), self.name, column, milliseconds, ticks, chosen))

    def drop_duplicates(
        self,
        name: str,
        keys: Sequence[str],
        *,
        within: str | None = None,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Hand on, of rows with equal keys, the first.

        Args:
            name: The processor's name.
            keys: The columns in which duplicates are equal. NULL equals NULL.
            within: How far the bound of event time must be beyond a row before another of its key is no duplicate, as
                in `"10 minutes"`: the stream must say how late rows can be (`lateness`), and state goes as time passes.
                Without it rows are duplicates for ever, and every key is kept.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        columns = columns_named(self, "drop_duplicates", tuple(keys))
        time = None if within is None else lateness_in(within, f"{name}: within")
        chosen = policy_of_state(name, policy, "keys")
        return self.dataflow.add(Duplicates(checked_name(name), self.name, columns, time, chosen))

    def group_by(self, *keys: str | Window) -> Grouped:
        """Group by columns, and by windows of event time (`bl.window`). NULL is a key like any other."""
        windows = [key for key in keys if isinstance(key, Window)]
        if len(windows) > 1:
            raise InvalidError("BAD_WINDOW", f"{self.name}.group_by: give one window; a second grouping can follow")
        columns = tuple(key for key in keys if not isinstance(key, Window))
        named = columns_named(self, "group_by", columns) if columns or not windows else ()
        return Grouped(self, named, windows[0] if windows else None)

    def by(self, *keys: str) -> Keyed:
        """Name the columns by which a lookup finds the rows of this stream, which holds one row of each key."""
        return Keyed(self, columns_named(self, "by", keys))

    def lookup(self, name: str, *, policy: Lazy | Eager | History | None = None, **tables: Keyed) -> Stream:
        """Look up the newest rows of other streams for each row of this one; no stream waits for another.

        The lookup takes its messages in arrival order. That order is recorded: after a crash it takes the same again.

        Args:
            name: The processor's name.
            policy: What a crash may cost; `Lazy()` if not given.
            tables: The name of each table to the stream that is looked up, as in `live=delays.by("origin")`. A row gets
                the columns of the row of `delays` that holds now and has the same origin, without the key, as
                `live_delay`; NULLs if there is no such row. NULL equals no key.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`, `[BAD_NAME]`.
        """
        flow = self.dataflow
        offered: Mapping[str, object] = tables
        for table, keyed in offered.items():
            if not isinstance(keyed, Keyed) or keyed.stream.dataflow is not flow:
                raise InvalidError(
                    "BAD_OPTION", f"{name}: give {table} as in {table}=stream.by('column'), of {flow.name}"
                )
        reads = [self.name, *(keyed.stream.name for keyed in tables.values())]
        if not tables or len(set(reads)) < len(reads):
            raise InvalidError(
                "BAD_OPTION", f"{name} reads {', '.join(reads)}: give it tables, each of a stream of its own"
            )
        chosen = policy_of_state(name, policy, "tables")
        made = tuple(Table(checked_name(table), keyed.stream.name, keyed.keys) for table, keyed in tables.items())
        return flow.add(Lookup(checked_name(name), self.name, made, chosen))

    @renamed(max_rounds="max_iterations")
    def iterate(
        self,
        name: str,
        body: Callable[..., DataFrame],
        *,
        output: str,
        max_iterations: int = 1000,
        keep_every: str = "10 seconds",
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
    ) -> Stream:
        """Add a loop over this stream; see `Dataflow.iterate`, also for the other arguments.

        Args:
            name: The name of the loop.
            body: A function over DataFrames: the rows of the round before, and this stream, whatever the names of
                these two parameters are. Each further parameter is the name of a stream.

        Raises:
            InvalidError: as `Dataflow.iterate`.
        """
        if not callable(body):
            raise InvalidError("BAD_VIEW", f"{name} has several bodies: write flow.iterate({name!r}, …)")
        loop, streams = loop_of(name, output, max_iterations, keep_every), list(signature(body).parameters)[2:]
        return self.dataflow.add_view(name, (self.name, *streams), body, policy, deterministic, loop)

    def union(self, name: str, *others: Stream, policy: Ephemeral | Eager | History | None = None) -> Stream:
        """Unite this and other streams of the same columns, step by step.

        The sources of all streams have common steps: a step begins as soon as one of them has rows, and takes what each
        has, also nothing. `merge` is for streams whose arrival order matters.

        Args:
            name: The processor's name.
            others: Streams of this dataflow.
            policy: As for `transform`.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        streams = self._with(name, others)
        return self.dataflow.add(Union(checked_name(name), streams, policy_without_state(name, policy, Ephemeral())))

    def merge(self, name: str, *others: Stream, policy: Ephemeral | Eager | History | None = None) -> Stream:
        """Merge this and other streams of the same columns in arrival order; no stream waits for another.

        A step of the merge has the rows of one step of one stream. The order of these steps is recorded: after a crash
        the merge takes the same again.

        Args:
            name: The processor's name.
            others: Streams of this dataflow.
            policy: As for `transform`.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        streams = self._with(name, others)
        return self.dataflow.add(Merge(checked_name(name), streams, policy_without_state(name, policy, Ephemeral())))

    def _with(self, name: str, others: tuple[Stream, ...]) -> tuple[str, ...]:
        flow, offered = self.dataflow, tuple[object, ...](others)
        if any(not isinstance(other, Stream) or other.dataflow is not flow for other in offered):
            raise InvalidError("BAD_OPTION", f"{name}: give streams of {flow.name}")
        reads = (self.name, *(other.name for other in others))
        if not others or len(set(reads)) < len(reads):
            raise InvalidError("BAD_OPTION", f"{name} reads {', '.join(reads)}: give it streams, each only once")
        return reads

    def recompute(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame],
        *,
        policy: Batch | History | None = None,
        over: Literal["everything", "batch"] = "everything",
        deterministic: bool | None = None,
    ) -> Stream:
        """Compute a table anew every now and then, beside everything else that runs: a batch.

        Args:
            name: The processor's name.
            function: Takes a DataFrame and returns a DataFrame: joins, aggregates, windows, all that Spark has. It need
                not be deterministic: its table is durable before any of it is seen, and is then never computed again.
            policy: The end of an epoch. `Batch()` if not given: an epoch ends once the one before is done and new rows
                are there. `History(Batch(…))` makes the rows that it takes durable instead of its table, so that a
                failure may cost the epochs that no reader has made durable.
            over: `everything`: the function takes all rows since the beginning, read again from the source; of
                `bl.push(…, upsert=[…])` those that hold. `batch`: it takes the rows of its epoch, of any stream of new
                rows.
            deterministic: True vouches that the function gives the same table for the same rows, in whatever order and
                parts they come. `History` needs that; a table that comes out otherwise stops the dataflow.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        if over not in ("everything", "batch"):
            raise InvalidError("BAD_OPTION", f"{name}: over is {over!r}: choose 'everything' or 'batch'")
        if not (deterministic is None or deterministic is True or deterministic is False):
            raise InvalidError("BAD_OPTION", f"{name}: deterministic is {deterministic!r}: choose True or False")
        chosen = policy_of_batch(name, policy, Batch())
        if isinstance(chosen, History) and not deterministic:
            raise InvalidError(
                "BAD_POLICY",
                f"{name} may give another table when it is computed again, which History() would do: vouch for its "
                "function with deterministic=True, or use Batch(…)",
            )
        upserted = self.dataflow.upserts_of(self.name) if over == "everything" else None
        source, marks = (self.name, ()) if upserted is None else (upserted[0], (upserted[1].order, upserted[1].deletes))
        everything, vouched = over == "everything", deterministic is True
        made = Recompute(checked_name(name), source, function, everything, chosen, marks=marks, vouched=vouched)
        return self.dataflow.add(made)

    def gather(self, name: str, *, policy: Batch | History | None = None) -> Stream:
        """Gather the rows of several steps into one step, which ends by the clock for instance.

        Behind a lookup or a merge it leads back from steps of single messages to steps that many rows share.

        Args:
            name: The processor's name.
            policy: The end of an epoch, as in `Batch(seconds=60)`. The rows of the epoch are durable by then.
                `History(Batch(seconds=60))` makes each step's rows durable as they come, in place of the epoch's.

        Raises:
            InvalidError: `[BAD_POLICY]`.
        """
        chosen = policy_of_batch(name, policy, Batch())
        if batch_of(chosen) == Batch():
            raise InvalidError(
                "BAD_POLICY", f"{name} gathers until an epoch is over: say when, as in Batch(seconds=60)"
            )
        return self.dataflow.add(Gather(checked_name(name), self.name, chosen))

    def agg(self, name: str, *columns: Column, policy: Lazy | Eager | History | None = None) -> Stream:
        """Keep aggregates of all rows, as `group_by(…).agg` keeps them by key.

        There is no row of results before the first row of input, as in Spark's streaming aggregations.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        return aggregated(self, (), name, columns, policy)

    def sink(self, name: str, sink: Sink) -> None:
        """Hand every step to the outside, as the sink promises: all of Boatlift's own exactly once.

        A sink that takes the rows of many steps as one, as `bl.parquet(…, every="1 minute")`, stands behind a
        gathering, which has the sink's name with `_gathered` behind it.
        """
        policy, before = sink.capabilities.gathers, self.name
        with self.dataflow.adding(name):
            if policy is not None:
                before = self.gather(checked_name(f"{checked_name(name)}_gathered"), policy=policy).name
            self.dataflow.add(SinkSpec(checked_name(name), before, sink))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name, OF_STREAM, "" if name == "name" else self.name)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A stream whose rows are found by key columns."""

    stream: Stream
    keys: tuple[str, ...]
