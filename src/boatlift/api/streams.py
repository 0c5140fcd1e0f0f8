"""Streams: the outputs of processors, and the methods that add operators to a dataflow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Literal, NoReturn

from boatlift.api.event_time import StreamInTime
from boatlift.api.grouped import Grouped, aggregated, columns_named
from boatlift.api.known_columns import columns_of
from boatlift.api.options import checked_name, loop_of, policy_of_batch, policy_of_state, policy_without_state
from boatlift.connectors.kit import checked_methods
from boatlift.dataflow.advice import OF_STREAM, advise
from boatlift.dataflow.columns import quoted
from boatlift.dataflow.contracts import Sink
from boatlift.dataflow.policies import Batch, Eager, Ephemeral, History, Lazy, batch_of
from boatlift.dataflow.processors import SinkSpec
from boatlift.errors import BoatliftError, InvalidError
from boatlift.operators.changes.operator import Changes
from boatlift.operators.epochs.operator import Gather, Recompute
from boatlift.operators.lookup.operator import Lookup, Table
from boatlift.operators.materialize import Materialize
from boatlift.operators.transform.operator import Transform
from boatlift.operators.union import Merge, Union
from boatlift.operators.view.operator import View, newest_rows
from boatlift.operators.window.operator import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from boatlift.api.asked import QueryAnswer


@checked_methods
@dataclass(frozen=True, slots=True)
class Stream(StreamInTime):
    """The output of a processor: new rows, changes of rows, or whole tables.

    A method that adds a processor takes the processor's `name`, and often a `policy`: the cost that a crash may have
    (`docs/guide/policies.md`). Without state it is `Ephemeral()` if not given, with state
    `Lazy(every=20, seconds=60)`. Such a method
    raises `InvalidError`: `[BAD_NAME]`, `[DUPLICATE_NAME]`, `[BAD_POLICY]`, and `[BAD_OPTION]` of other arguments.
    """

    def _repr_html_(self) -> str:
        from boatlift.api.notebook import stream_html

        try:
            columns = self.columns()
        except BoatliftError:  # no session is active; or the program is wrong, and the picture says why
            columns = None
        return stream_html(self, columns)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: the part of the picture and the columns, and text where there is none."""
        del include, exclude  # IPython takes of it what it needs
        return {"text/plain": f"<stream {self.name} of {self.dataflow.name}>", "text/html": self._repr_html_()}

    def columns(self) -> dict[str, str]:
        """Return the names of the columns and their types, as Spark writes them, where a session is active.

        The processors before the stream are compiled for it, so that an error in them is raised here.

        Raises:
            InvalidError: `[NO_SESSION]`; or an error of the program, as `bl.run` raises it.
            UserCodeError: `[USER_CODE]` a function raised.

        Examples:
            >>> flights.columns()
            {'origin': 'string', 'arr_delay': 'int', 'at': 'timestamp'}
        """
        return columns_of(self.dataflow, self.name)

    def peek(self, rows: int = 20) -> QueryAnswer:
        """Return some of the rows that this stream keeps now, beside the run that `bl.start` began in this process.

        They are those of the newest checkpoint, as `running.sql` gives them; a notebook shows them as a table.

        Args:
            rows: The most rows.

        Raises:
            UnavailableError: `[NOT_RUNNING]` this process has not started the dataflow.
            InvalidError: `[NOT_KEPT]` the stream keeps no rows, or has no checkpoint yet.

        Examples:
            >>> kept = flights.materialize("kept")
            >>> running = bl.start(flow, "store", available_now=True)
            >>> running.wait()
            True
            >>> kept.peek().rows.num_rows
            3
        """
        from boatlift.api.background import started

        return started(self.dataflow).sql(f"SELECT * FROM {quoted(self.name)} LIMIT {int(rows)}")  # noqa: S608

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
            deterministic: True vouches that the Python UDFs in the function give the same value for the same arguments;
                Spark cannot check that. False: the function asks an external system (`bl.call`), or uses Spark's own
                clock and random numbers. Its rows are then durable before any of them is seen, and never made again.
            policy: `Eager()` makes the rows durable, so that they are never made again; every transform that is not
                deterministic has it. `History()` makes the input of the transform durable instead: the processors
                before it are not executed again for it.

        Examples:
            >>> late = flights.transform("late", lambda df: df.where("arr_delay > 60").select("origin"))
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
        vouched, repeats = deterministic is True, deterministic is not False
        made = Transform(checked_name(name), (self.name,), chosen, function, vouched, deterministic=repeats)
        return self.dataflow.add(made)

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

        Examples:
            >>> signed = flights.changes("signed", weight="CASE WHEN arr_delay < 0 THEN -1 ELSE 1 END")
        """
        chosen = policy_without_state(name, policy, Ephemeral())
        return self.dataflow.add(Changes(checked_name(name), (self.name,), chosen, weight))

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
            policy: The cost of a crash.

        Examples:
            >>> latest = flights.upserts("latest", key=["origin"], order="at", deletes="arr_delay IS NULL")
        """
        columns = columns_named(self.name, "upserts", tuple(key))
        query = newest_rows(columns, order, deletes)
        chosen = policy_of_state(name, policy, "rows")
        return self.dataflow.add(View(checked_name(name), (self.name,), chosen, query))

    def materialize(self, name: str, *, policy: Lazy | Eager | History | None = None) -> Stream:
        """Keep the rows of this stream that hold, as a table for `bl.sql`: of new rows all, of changes their sum.

        Nothing has to read it. The state is as large as the rows.

        Args:
            name: The processor's name, by which queries know the table.
            policy: The cost of a crash, and how old the rows of an answer may be.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` each message of this stream is a whole table.

        Examples:
            >>> jfk = flights.transform("jfk", lambda df: df.where("origin = 'JFK'").select("origin", "arr_delay"))
            >>> kept = jfk.materialize("kept")
            >>> bl.run(flow, "store", available_now=True)
            >>> bl.sql(flow, "store", "SELECT * FROM kept").rows.to_pylist()
            [{'origin': 'JFK', 'arr_delay': 61}]
        """
        chosen = policy_of_state(name, policy, "rows")
        return self.dataflow.add(Materialize(checked_name(name), (self.name,), chosen))

    def group_by(self, *keys: str | Window) -> Grouped:
        """Group by columns, and by windows of event time (`bl.window`). NULL is a key like any other.

        Examples:
            >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("arr_delay"))
        """
        windows = [key for key in keys if isinstance(key, Window)]
        if len(windows) > 1:
            raise InvalidError("BAD_WINDOW", f"{self.name}.group_by: give one window; a second grouping can follow")
        columns = tuple(key for key in keys if not isinstance(key, Window))
        named = columns_named(self.name, "group_by", columns) if columns or not windows else ()
        return Grouped(self, named, windows[0] if windows else None)

    def by(self, *keys: str) -> Keyed:
        """Name the columns by which a lookup finds the rows of this stream, which has one row of each key.

        Examples:
            >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("arr_delay"))
            >>> joined = flights.lookup("joined", worst=worst.by("origin"))
        """
        return Keyed(self, columns_named(self.name, "by", keys))

    def lookup(self, name: str, *, policy: Lazy | Eager | History | None = None, **tables: Keyed) -> Stream:
        """Look up the latest rows of other streams for each row of this one; no stream waits for another.

        The lookup takes its messages in arrival order. That order is recorded: a replay takes the same order.

        Args:
            name: The processor's name.
            policy: The cost of a crash.
            tables: The name of each table to the stream that is looked up, as in `live=delays.by("origin")`. A row gets
                the columns of the row of `delays` that holds now and has the same origin, without the key, as
                `live_delay`; NULLs if there is no such row. NULL equals no key.

        Examples:
            >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("arr_delay"))
            >>> flights.lookup("joined", so_far=worst.by("origin")).columns().keys()
            dict_keys(['origin', 'arr_delay', 'at', 'so_far_arr_delay'])
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
        return flow.add(Lookup(checked_name(name), tuple(reads), chosen, made))

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
            body: A function over DataFrames: the rows of the iteration before, and this stream, whatever the names of
                these two parameters are. Each further parameter is named as a stream.

        Raises:
            InvalidError: as `Dataflow.iterate`.

        Examples:
            >>> def pairs(reached, legs):
            ...     onward = reached.alias("r").join(legs.alias("l"), F.col("r.b") == F.col("l.a"))
            ...     return legs.union(onward.select("r.a", "l.b")).distinct()
            >>> reached = legs.iterate("reached", pairs, output="a STRING, b STRING")
        """
        if not callable(body):
            raise InvalidError("BAD_VIEW", f"{name} has several bodies: write flow.iterate({name!r}, …)")
        loop, streams = loop_of(name, output, max_iterations, keep_every), list(signature(body).parameters)[2:]
        return self.dataflow.add_view(name, (self.name, *streams), body, policy, deterministic, loop)

    def union(self, name: str, *others: Stream, policy: Ephemeral | Eager | History | None = None) -> Stream:
        """Unite this and other streams of the same columns, step by step.

        The sources of all streams have common steps: a step begins as soon as one of them has rows, and takes the rows
        that each has by then. `merge` is for streams of which none waits for another; a union is one if a stream has
        times of its own, as behind a lookup. The rows are changes if those of one stream are.

        Args:
            name: The processor's name.
            others: Streams of this dataflow.
            policy: As for `transform`.

        Examples:
            >>> late = flights.transform("late", lambda df: df.where("arr_delay > 60"))
            >>> twice = flights.union("twice", late)
        """
        streams = self._with(name, others)
        return self.dataflow.add(Union(checked_name(name), streams, policy_without_state(name, policy, Ephemeral())))

    def merge(self, name: str, *others: Stream, policy: Ephemeral | Eager | History | None = None) -> Stream:
        """Merge this and other streams of the same columns as they come; no stream waits for another.

        A step of the merge has all steps of the streams that have come. How far it reaches in each is recorded: a
        replay has the same steps. If something behind the merge minds order or steps (a window, `process`, a batch, a
        sink with the newest row of each key, a sink of rows that have an order), a step is one step of one stream, in
        the recorded order of arrival.

        Args:
            name: The processor's name.
            others: Streams of this dataflow.
            policy: As for `transform`.

        Examples:
            >>> late = flights.transform("late", lambda df: df.where("arr_delay > 60"))
            >>> twice = flights.merge("twice", late)
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
            function: Takes a DataFrame and returns a DataFrame: joins, aggregates, windows, all of Spark. It need not
                be deterministic: its table is durable before any of it is seen, and is then never computed again.
            policy: The end of an epoch. `Batch()` if not given: an epoch ends once the one before is done and new rows
                are there. `History(Batch(…))` makes its input durable instead of its table, so that a failure may cost
                the epochs that no reader has made durable.
            over: `everything`: the function takes all rows since the beginning, read again from the source; of
                `bl.push(…, upsert=[…])` those that hold. `batch`: it takes the rows of its epoch, of any stream of new
                rows.
            deterministic: True vouches that the function gives the same table for the same rows, in any order and any
                division. `History` needs that; another table stops the dataflow.

        Examples:
            >>> policy = bl.Batch(epochs=10)
            >>> model = flights.recompute("model", lambda df: df.groupBy("origin").avg("arr_delay"), policy=policy)
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
        made = Recompute(
            checked_name(name), (source,), chosen, function, marks, deterministic=vouched, rereads_source=everything
        )
        return self.dataflow.add(made)

    def gather(self, name: str, *, policy: Batch | History | None = None) -> Stream:
        """Gather the rows of several steps into one step, which ends by the clock for instance.

        Behind a lookup or a merge it leads back from steps of single messages to steps that many rows share.

        Args:
            name: The processor's name.
            policy: The end of an epoch, as in `Batch(seconds=60)`. The rows of the epoch are durable by then.
                `History(Batch(seconds=60))` makes each step's rows durable as they come, in place of the epoch's.

        Examples:
            >>> minutes = flights.gather("minutes", policy=bl.Batch(seconds=60))
        """
        chosen = policy_of_batch(name, policy, Batch())
        if batch_of(chosen) == Batch():
            raise InvalidError(
                "BAD_POLICY", f"{name} gathers until an epoch is over: say when, as in Batch(seconds=60)"
            )
        return self.dataflow.add(Gather(checked_name(name), (self.name,), chosen))

    def agg(
        self, name: str, *columns: Column, partials: bool = False, policy: Lazy | Eager | History | None = None
    ) -> Stream:
        """Keep aggregates of all rows, as `group_by(…).agg` keeps them by key.

        There is no row of results before the first row of input, as in Spark's streaming aggregations.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            partials: As for `group_by(…).agg`.
            policy: The cost of a crash.

        Examples:
            >>> total = flights.agg("total", F.count("*").alias("flights"), F.max("arr_delay").alias("worst"))
        """
        return aggregated(self, (), name, columns, policy, partials=partials)

    def sink(self, name: str, sink: Sink) -> None:
        """Write every step to an external system; all of Boatlift's own sinks do so exactly once.

        A sink that takes the rows of many steps as one, as `bl.parquet(…, every="1 minute")`, stands behind a
        gathering named `NAME_gathered`.

        Examples:
            >>> flights.sink("copy", bl.parquet("copy"))
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
