"""How a user writes a dataflow: sources, views and loops; the methods of streams add the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from inspect import signature
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from boatlift.api.graph import TICK, ProcessorGraph
from boatlift.api.known_columns import check_query
from boatlift.api.options import checked_name, lateness_of, loop_of, policy_of_state
from boatlift.api.sql_text import is_table_in, tables_in, views_of
from boatlift.api.streams import Stream
from boatlift.connectors.generator import TicksSource
from boatlift.connectors.kit import checked_methods
from boatlift.dataflow.advice import OF_DATAFLOW, advise
from boatlift.dataflow.contracts import Pushable, Receipt, Source
from boatlift.dataflow.groups import grown
from boatlift.dataflow.policies import CHECKPOINTED, Eager, Ephemeral, History, Keep, Lazy, depth_of, seconds_in
from boatlift.dataflow.processors import SourceSpec
from boatlift.errors import InvalidError
from boatlift.operators.bad_rows.operator import ValidRows
from boatlift.operators.view.mutual import mutual_bodies, rows_of
from boatlift.operators.view.operator import LoopRows, View, held_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@checked_methods
class Dataflow(ProcessorGraph):
    """A named graph of processors; nothing runs until it is given to `bl.run` or `boatlift run`.

        flow = bl.Dataflow("flights")
        flights = flow.source("flights", bl.files("data/*.csv", schema=SCHEMA))
        clean = flights.transform("clean", lambda df: df.where("arr_delay IS NOT NULL"))
        delays = clean.group_by("origin").agg("delays", F.count("*").alias("flights"), policy=bl.Lazy(every=20))
        delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin"]))

    `policy` is the cost that a crash may have (`docs/guide/policies.md`); of a view it is
    `Lazy(every=20, seconds=60)` if not given.

    Args:
        name: Letters, digits, `-` and `_`; every store and sink of the dataflow has it.
        tick: A period, such as `"1 second"`. The dataflow then has a source `tick` with a row a period: `number` (LONG)
            and `at` (TIMESTAMP), the begin of the period. So a view that reads it has steps when nothing else comes.
            Without a reader there are no ticks.
        keep: The restore points that a run keeps, such as `bl.Keep("7 days", every="1 hour")`. A policy: it is no part
            of the program, and may change at any time.
        was: Sources, streams and sinks that have another name than in an earlier version of the program, each with that
            name, as in `{"delays": "late_by_origin"}`. They keep states and rows. An entry may stay.
        determinants: When what was chosen counts, so that rows that rest on it may be seen: `"store"`, once it is in
            the store; `"peers:2"`, also once two standbys hold it in memory, which is quicker than a bucket. A map
            sets it for single sources, streams and sinks, as in `{"orders": "peers:1"}`; all others wait for the
            store. A policy, as `keep` (`docs/availability.md`).

    Raises:
        InvalidError: `[BAD_NAME]`; `[BAD_OPTION]` `tick` is no period, two names are to have been one, or
            `determinants` is none of these.
    """

    def __init__(
        self,
        name: str,
        *,
        tick: str | None = None,
        keep: Keep | None = None,
        was: Mapping[str, str] | None = None,
        determinants: str | Mapping[str, str] = "store",
    ) -> None:
        super().__init__(name)
        given = determinants if isinstance(determinants, Mapping) else {"": determinants}
        self.determinants = {checked: depth_of(each) for checked, each in given.items()}
        self._was = {checked_name(new): checked_name(old) for new, old in (was or {}).items()}
        twice = next((old for old, names in Counter(self._was.values()).items() if names > 1), None)
        if twice is not None:
            raise InvalidError("BAD_OPTION", f"was has {twice} twice: one processor alone had that name")
        if keep is not None and not isinstance(keep, Keep):
            raise InvalidError("BAD_OPTION", f"keep={keep!r}: write bl.Keep('7 days', every='1 hour')")
        self.keep = keep
        if tick is not None:
            self.source(TICK, TicksSource(round(seconds_in(tick, "tick") * 10**6)))

    @property
    def tick(self) -> Stream:
        """The stream of ticks.

        Raises:
            InvalidError: `[BAD_OPTION]` the dataflow has none.
        """
        if not self.has_ticks:
            raise InvalidError(
                "BAD_OPTION", f"{self.name} has no ticks: write bl.Dataflow({self.name!r}, tick='1 second')"
            )
        return Stream(self, TICK)

    def source(
        self,
        name: str,
        source: Source,
        *,
        retry_for: str = "1 minute",
        lateness: Mapping[str, str] | None = None,
        bad_rows: Literal["stop", "dead_letters"] = "stop",
    ) -> Stream:
        """Add a source, whose rows are new rows; of `bl.push(…, upsert=[…])` they are changes.

        Args:
            name: The name of the stream.
            source: The connector.
            retry_for: A period, such as `"10 minutes"`: the run ends with the cause once the source has been
                unreachable for so long. Other sources continue meanwhile.
            lateness: The allowed lateness, by the column with the time of a row, as in `{"at": "10 minutes"}`: the
                stream is then that of `Stream.with_watermark`, and the source itself is named `NAME_source`.
            bad_rows: The fate of a row that does not fit the declared columns: `stop` stops the dataflow;
                `dead_letters` moves it to the stream of `Stream.bad_rows`, and the source itself is named
                `NAME_source`.

        Raises:
            InvalidError: `[BAD_OPTION]` one `bl.push` stands for two sources; `retry_for` is no period; `lateness` is
                not one column and a period; `bad_rows` has another value, or the source has no bad rows to give.

        Examples:
            >>> schema = "origin STRING, arr_delay INT, at TIMESTAMP"
            >>> more = flow.source("more", bl.files("data/*.csv", schema=schema), lateness={"at": "10 minutes"})
        """
        if bad_rows not in ("stop", "dead_letters"):
            raise InvalidError("BAD_OPTION", f"{name}: bad_rows is {bad_rows!r}: choose 'stop' or 'dead_letters'")
        late = None if lateness is None else lateness_of(name, lateness)
        upserts = source.capabilities.upserts
        with self.adding(name):
            if bad_rows == "dead_letters":
                return self._valid_rows(checked_name(name), source, retry_for, late)
            if upserts is None:
                own = name if late is None else f"{checked_name(name)}_source"
                given = self._add_source(own, source, retry_for)
                return given if late is None else given.with_watermark(name, *late)
            if late is not None:
                raise InvalidError(
                    "BAD_OPTION", f"{name}: rows that replace one another have no lateness: leave it out, or upsert"
                )
            given = self._add_source(f"{checked_name(name)}_source", source, retry_for)
            self._upserted[name] = given.name, upserts
            query = held_rows(upserts.key, upserts.order, upserts.deletes)
            return self.add(View(name, (given.name,), CHECKPOINTED, query))

    def _add_source(self, name: str, source: Source, retry_for: str) -> Stream:
        others = [each for each in self._processors.values() if isinstance(each, SourceSpec)]
        pushable = source.capabilities.pushable
        if pushable is not None and any(each.source.capabilities.pushable is pushable for each in others):
            raise InvalidError("BAD_OPTION", f"{name} is a source under another name already: make another bl.push")
        return self.add(SourceSpec(checked_name(name), source, seconds_in(retry_for, "retry_for")))

    def _valid_rows(self, name: str, source: Source, retry_for: str, late: tuple[str, str] | None) -> Stream:
        """Add a source that emits bad rows too, and return the stream of its valid rows."""
        sorts = source.capabilities.bad_rows
        if sorts is None:
            raise InvalidError(
                "BAD_OPTION",
                f"{name} has no bad rows to give: bl.files of JSON has, and of CSV without multi_line, "
                "and bl.kafka.source with format='json'; bl.push refuses bad rows as they come in",
            )
        sorting = sorts.sorting_out()
        given = self._add_source(f"{name}_source", sorting, retry_for)
        assert sorting.capabilities.bad_rows is not None, "see SortsOutBadRows"
        own = name if late is None else checked_name(f"{name}_fitting")
        valid = self.add(ValidRows(own, (given.name,), Ephemeral(), sorting.capabilities.bad_rows))
        return valid if late is None else valid.with_watermark(name, *late)

    def sql(
        self,
        name: str,
        query: str,
        *,
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
        now: str | None = None,
    ) -> Stream:
        """Add a view: the result of a query, kept up to date; its rows are changes.

        Args:
            name: The view's name.
            query: Any deterministic query of Spark's; the streams of this dataflow are tables in it, by their names.
                Where a session is active, Spark analyses the query at once if it reads sources and such views.
            policy: The cost of a crash.
            deterministic: True: the Python functions that the query calls give the same value for the same arguments.
            now: A period, as in `"1 minute"`, for `now()` anywhere in the query: it is the time of the newest tick,
                rounded down to the period, and each row that it is in changes once a period. Conditions such as
                `at > now() - INTERVAL 1 HOUR` need none. The dataflow needs ticks (`bl.Dataflow(…, tick="1 second")`).

        Raises:
            InvalidError: `[BAD_VIEW]` the query reads no stream, `[BAD_NAME]`, `[BAD_POLICY]`, `[DUPLICATE_NAME]`;
                `[BAD_OPTION]` `now` is no period, is shorter than a tick, or there are no ticks.

        Examples:
            >>> late = flow.sql("late", "SELECT origin, max(arr_delay) AS worst FROM flights GROUP BY origin")
        """
        streams = tuple(each for each in self._processors if is_table_in(query, each))
        if not streams:
            near = [
                f"write {like[0]}, not {word}"
                for word in tables_in(query)
                if (like := get_close_matches(word, self._processors, 1))
            ]
            raise InvalidError(
                "BAD_VIEW", f"{name} reads no stream: {near[0] if near else f'{self.name} has {self._known()}'}"
            )
        return self.add_view(name, streams, query, policy, deterministic, now=now)

    def sql_file(
        self,
        path: str | PathLike[str],
        *,
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
        now: Mapping[str, str] | None = None,
    ) -> dict[str, Stream]:
        """Add the views of a file of `CREATE VIEW name AS query;` statements; return them by name.

        Args:
            path: The file, in UTF-8.
            policy, deterministic: Of each view; see `sql`.
            now: View to the period of its `now()`; see `sql`.

        Raises:
            InvalidError: `[BAD_VIEW]` the file cannot be read, or has another statement; `[BAD_OPTION]` `now` names a
                view that it does not have; else as `sql`.

        Examples:
            >>> Path("views.sql").write_text("CREATE VIEW late AS SELECT origin FROM flights WHERE arr_delay > 60;")
            68
            >>> late = flow.sql_file("views.sql")["late"]
        """
        queries, periods = views_of(path), now or {}
        if strange := sorted(set(periods) - set(queries)):
            raise InvalidError(
                "BAD_OPTION", f"now= names {', '.join(strange)}, where {path} has the views {', '.join(queries)}"
            )
        return {
            name: self.sql(name, query, policy=policy, deterministic=deterministic, now=periods.get(name))
            for name, query in queries.items()
        }

    def view(
        self,
        name: str | Callable[..., DataFrame] | None = None,
        query: Callable[..., DataFrame] | None = None,
        *,
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
        now: str | None = None,
    ) -> Any:
        """Add a view: the result of a function over DataFrames, kept up to date; its rows are changes.

        Each parameter of the function is the name of a stream. As a decorator, `@flow.view` names the view as the
        function, also with options: `@flow.view(deterministic=True)`. `flow.view("name", function)` names it otherwise.
        Options are those of `sql`.

        Raises:
            InvalidError: as `sql`.

        Examples:
            >>> @flow.view
            ... def late(flights):
            ...     return flights.where("arr_delay > 60").groupBy("origin").count()
        """
        if name is None:
            return lambda function: self.view(function, policy=policy, deterministic=deterministic, now=now)
        if not isinstance(name, str):
            return self.add_view(name.__name__, tuple(signature(name).parameters), name, policy, deterministic, now=now)
        if query is None:
            raise InvalidError("BAD_VIEW", f"{name} has no query: write flow.view({name!r}, function), or flow.sql")
        return self.add_view(name, tuple(signature(query).parameters), query, policy, deterministic, now=now)

    @overload
    def iterate(
        self,
        name: str,
        body: Callable[..., DataFrame],
        *,
        output: str,
        max_iterations: int = ...,
        keep_every: str = ...,
        policy: Lazy | Eager | History | None = ...,
        deterministic: bool | None = ...,
    ) -> Stream: ...

    @overload
    def iterate(
        self,
        name: str,
        body: Mapping[str, Callable[..., DataFrame]],
        *,
        output: Mapping[str, str],
        max_iterations: int = ...,
        keep_every: str = ...,
        policy: Lazy | Eager | History | None = ...,
        deterministic: bool | None = ...,
    ) -> dict[str, Stream]: ...

    def iterate(
        self,
        name: str,
        body: Callable[..., DataFrame] | Mapping[str, Callable[..., DataFrame]],
        *,
        output: str | Mapping[str, str],
        max_iterations: int = 1000,
        keep_every: str = "10 seconds",
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
    ) -> Stream | dict[str, Stream]:
        """Add a loop: the rows that a body makes of themselves, kept up to date; its rows are changes.

        The first iteration has no rows. The body makes the rows of each further iteration of those of the iteration
        before. The result is the fixed point: the rows that a further iteration does not change (`Falkirk Wheel §2.3`).

        Args:
            name: The name of the loop.
            body: A function over DataFrames. Its first parameter is the rows of the iteration before; each further one
                is named as a stream. Or several functions, by the names of the streams that they make: then a parameter
                is named as one of these streams, or as another one, in any order.
            output: The columns of the rows, such as `"a LONG, b LONG"`; of several streams by their names.
            max_iterations: A step with more iterations fails with `[LOOP_TOO_LONG]`.
            keep_every: The period between the loop checkpoints of a step: a killed step continues from its last one.
            policy: The cost of a crash.
            deterministic: True: the Python functions that the body calls give the same value for the same arguments.

        Returns:
            The stream of the rows; of several bodies the streams by name.

        Raises:
            InvalidError: as `sql`; `[BAD_OPTION]` `max_iterations` is less than 1; `[BAD_VIEW]` bodies and outputs have
                other names.

        Examples:
            >>> def pairs(reached, legs):
            ...     onward = reached.alias("r").join(legs.alias("l"), F.col("r.b") == F.col("l.a"))
            ...     return legs.union(onward.select("r.a", "l.b")).distinct()
            >>> reached = flow.iterate("reached", pairs, output="a STRING, b STRING")
        """
        loop = loop_of(name, output, max_iterations, keep_every)
        if not isinstance(body, Mapping):
            if not isinstance(output, str):
                raise InvalidError("BAD_VIEW", f"{name} has one body: declare its output as in output='a LONG, b LONG'")
            return self.add_view(name, tuple(signature(body).parameters)[1:], body, policy, deterministic, loop)
        if not isinstance(output, Mapping) or set(body) != set(output):
            raise InvalidError(
                "BAD_VIEW", f"{name} has bodies of {', '.join(body)}: declare an output for each of them"
            )
        for each in body:
            checked_name(each)
        bodies = mutual_bodies(body)
        combined = self.add_view(name, bodies.streams, bodies, policy, deterministic, loop)
        return {each: combined.transform(each, partial(rows_of, stream=each)) for each in body}

    def add_view(
        self,
        name: str,
        streams: tuple[str, ...],
        query: str | Callable[..., DataFrame],
        policy: Lazy | Eager | History | None,
        deterministic: bool | None,
        loop: LoopRows | None = None,
        now: str | None = None,
    ) -> Stream:
        """Add a view, and return the stream of its rows; `sql`, `view` and `iterate` call this.

        Raises:
            InvalidError: as `sql`.

        Examples:
            >>> late = flow.add_view("late", ("flights",), lambda df: df.where("arr_delay > 60"), bl.Lazy(), None)
        """
        missing = [each for each in streams if each not in self._processors]
        if missing or not streams:
            what = f"reads {', '.join(missing)}, which {self.name} does not have" if missing else "reads no stream"
            raise InvalidError("BAD_VIEW", f"{name} {what}: it has {self._known()}")
        chosen = policy_of_state(name, policy, "arrangements")
        period = None if now is None else self._period_of_now(name, now)
        made = View(checked_name(name), streams, chosen, query, deterministic, loop, period)
        check_query(made, self._processors)
        return self.add(made)

    def _period_of_now(self, name: str, now: str) -> int:
        """Return the period of a view's `now()` in microseconds."""
        period = round(seconds_in(now, f"{name}: now") * 10**6)
        tick = 0.0 if self.ticks is None else self.ticks.source.capabilities.period or 0.0
        if not tick or period < tick * 10**6:
            has = f"has a tick of {tick:g} seconds" if tick else "has no ticks"
            raise InvalidError(
                "BAD_OPTION",
                f"{name}: now={now!r}, and {self.name} {has}: write bl.Dataflow({self.name!r}, tick={now!r})",
            )
        return period

    def together(self, *sinks: str) -> None:
        """Show the steps of sinks together: a reader sees a step in all of them, or in none.

        The sinks are tables of one SQLite file, or of one database of PostgreSQL, MariaDB or MySQL, or topics of one
        Kafka cluster. A step of all of them is one transaction. It waits until each sink can have the step, so a sink
        that is stuck holds all of them (`docs/guide/together.md`). Sources behind them have common steps from then on,
        as before a union.

        Args:
            sinks: The names of two or more sinks of this dataflow, in any order.

        Raises:
            InvalidError: `[BAD_OPTION]` a name is no sink's, or the sinks have no transaction in common.

        Examples:
            >>> flights.sink("all", bl.sqlite("out.db", table="flights", key=["origin", "at"]))
            >>> counts = flights.group_by("origin").agg("counts", F.count("*").alias("flights"))
            >>> counts.sink("totals", bl.sqlite("out.db", table="totals", key=["origin"]))
            >>> flow.together("all", "totals")
        """
        self._groups = grown(self._groups, sinks, self._processors)

    def _repr_html_(self) -> str:
        from boatlift.api.notebook import flow_html

        return flow_html(self)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return what a notebook shows: the picture, and text where there is none."""
        del include, exclude  # IPython takes of it what it needs
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def _known(self) -> str:
        return ", ".join(self._processors) or "none yet"

    def push(self, source: str, rows: object, *, key: str | None = None, timeout: float = 30.0) -> Receipt:
        """Push rows to a source of `bl.push` while the dataflow runs in this process; see `Pushable.push`.

        Args:
            source: The source's name.
            rows: Rows as mappings, or a table of Arrow, pandas or Polars. The source takes all of them or none.
            key: A name of these rows: rows that are pushed again with the same key are taken once.
            timeout: Seconds to wait for the dataflow to begin, if it does not run yet.

        Returns:
            The receipt, once the rows are recorded: no crash can lose them any more.

        Examples:
            >>> running = bl.start(flow, "store")
            >>> flow.push("clicks", [{"user": "ann"}], key="batch-1").rows
            1
            >>> running.stop()
        """
        return self._pushes_to(source).push(rows, key, timeout)

    def pushed(self, source: str, key: str) -> Receipt | None:
        """Return the receipt of the rows that were pushed with a key; None if no such rows are recorded.

        Examples:
            >>> running = bl.start(flow, "store")
            >>> receipt = flow.push("clicks", [{"user": "ann"}], key="batch-1")
            >>> flow.pushed("clicks", "batch-1").rows
            1
            >>> running.stop()
        """
        return self._pushes_to(source).pushed(key)

    def _pushes_to(self, name: str) -> Pushable:
        own, _ = self._upserted.get(name, (name, None))
        if own in self.unused:
            raise InvalidError("BAD_OPTION", f"nothing reads {name}, so {self.name} runs without it: give it a sink")
        processor = self._processors.get(own)
        pushable = processor.source.capabilities.pushable if isinstance(processor, SourceSpec) else None
        if pushable is None:
            raise InvalidError(
                "BAD_OPTION", f"{name} is no source of {self.name} that rows can be pushed to: see bl.push"
            )
        return pushable

    if not TYPE_CHECKING:  # a type checker shall go on finding names that are not there

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name, OF_DATAFLOW, "flow")
