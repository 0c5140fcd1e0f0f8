"""How a user writes a dataflow.

flow = bl.Dataflow("flights")
flights = flow.source("flights", bl.files("data/*.csv", schema=SCHEMA))
clean = flights.transform("clean", lambda df: df.where("arr_delay IS NOT NULL"))
delays = clean.group_by("origin").agg("delays", F.count("*").alias("flights"), policy=bl.Lazy(every=20))
delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin"]))
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from inspect import signature
from os import PathLike
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from boatlift.api.captured import refuse_captured_streams
from boatlift.api.grouped import Grouped
from boatlift.api.known_columns import check_query
from boatlift.api.options import checked_name, lateness_of, loop_of, policy_of_state, renamed
from boatlift.api.sql_text import is_table_in, views_of
from boatlift.api.streams import Keyed, Stream
from boatlift.connectors.ticks import TicksSource
from boatlift.dataflow.advice import OF_DATAFLOW, advise
from boatlift.dataflow.contracts import Pushable, Receipt, Source, Upserts
from boatlift.dataflow.period import seconds_in
from boatlift.dataflow.policies import Eager, Ephemeral, History, Lazy
from boatlift.dataflow.processors import Processor, SourceSpec
from boatlift.errors import InvalidError
from boatlift.operators.bad_rows.operator import BadRows
from boatlift.operators.view.mutual import mutual_bodies, rows_of
from boatlift.operators.view.operator import LoopRows, View
from boatlift.operators.view.upserts import held_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Dataflow"]

logger = logging.getLogger(__name__)

TICK = "tick"
"""The name of the source of ticks."""


class Dataflow:
    """A named graph of processors; nothing runs until it is given to `bl.run` or `boatlift run`.

    Args:
        name: Letters, digits, `-` and `_`; it stands in every store and sink that the dataflow writes.
        tick: A period, such as `"1 second"`. The dataflow then has a source `tick`, with a row a period: `number`
            (LONG) and `at` (TIMESTAMP), the time at which the period began. So a view that reads it has steps when
            nothing else comes. Without a reader there are no ticks.

    Raises:
        InvalidError: `[BAD_NAME]`; `[BAD_OPTION]` `tick` is no period.
    """

    def __init__(self, name: str, *, tick: str | None = None) -> None:
        self.name = checked_name(name)
        self._processors: dict[str, Processor] = {}
        self._upserted: dict[str, tuple[str, Upserts]] = {}
        self._added: dict[str, frozenset[str]] = {}  # what `source` and `sink` have added, by the name that they took
        self._beside: dict[str, str] = {}  # what is made from the options of a stream that it does not read
        self._told: set[str] = set()
        if tick is not None:
            self.source(TICK, TicksSource(round(seconds_in(tick, "tick") * 10**6)))

    @property
    def processors(self) -> Mapping[str, Processor]:
        """All processors by name, each after those that it reads.

        Without the ticks that nobody reads, and without the changes of rows that replace one another if only their
        source is read, by a batch.
        """
        read = {name for each in self._processors.values() for name in each.reads}
        unread = {stream for stream in self._upserted if stream not in read and self._is_read_beside(stream)}
        if self.has_ticks and TICK not in read:
            unread.add(TICK)
        return MappingProxyType({name: each for name, each in self._processors.items() if name not in unread})

    @property
    def unused(self) -> frozenset[str]:
        """The sources that nothing reads, each with what `source` has put behind it; ticks are none of them."""
        unused: set[str] = set()
        for name, parts in self._added.items():
            others = [each for own, each in self._processors.items() if own not in parts]
            has_source = any(isinstance(self._processors.get(part), SourceSpec) for part in parts)
            if has_source and name != TICK and all(parts.isdisjoint(each.reads) for each in others):
                unused |= parts
        return frozenset(unused)

    @property
    def ticks(self) -> SourceSpec | None:
        """The source of ticks; None if the dataflow has none."""
        ticks = self._processors.get(TICK)
        return ticks if isinstance(ticks, SourceSpec) and isinstance(ticks.source, TicksSource) else None

    @property
    def has_ticks(self) -> bool:
        """Whether the dataflow has a stream of ticks."""
        return self.ticks is not None

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

    def check(self) -> None:
        """Refuse functions of the program that use a stream as if it were a DataFrame, and bad rows without a reader.

        A warning tells, once, which sources nothing reads.

        Raises:
            InvalidError: `[NOT_ON_A_STREAM]`, `[EMPTY_DATAFLOW]`.
        """
        refuse_captured_streams(self._processors.values(), _stream_of)
        unused = self.unused
        for name in (name for name, parts in self._added.items() if parts & unused and name not in self._told):
            self._told.add(name)
            logger.warning("nothing reads %s: %s runs without it", name, self.name)
        judges = [each for name, each in self._processors.items() if isinstance(each, BadRows) and name not in unused]
        for fitting in judges:
            if not any(each.gives_dead_letters and each.upstream == fitting.upstream for each in judges):
                raise InvalidError(
                    "EMPTY_DATAFLOW",
                    f"nothing reads the bad rows of {fitting.upstream}: give them to a sink, as in "
                    f"{fitting.name}.bad_rows('bad').sink('bad_out', bl.parquet('bad'))",
                )

    @renamed(patience="retry_for")
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
            source: Where the rows come from.
            retry_for: A period, such as `"10 minutes"`: so long the source may be unreachable while the dataflow runs.
                Other sources go on meanwhile. Then the run ends with the cause.
            lateness: How late rows can be, by the column with their time, as in `{"at": "10 minutes"}`: the stream is
                then that of `Stream.with_watermark`, and the source itself has the name with `_source` behind it.
            bad_rows: The fate of a row that does not fit the declared columns: `stop` stops the dataflow;
                `dead_letters` takes it out of the stream, and `Stream.bad_rows` gives it to another one. The source
                itself then has the name with `_source` behind it.

        Raises:
            InvalidError: `[BAD_OPTION]` one `bl.push` stands for two sources; `retry_for` is no period; `lateness` is
                not one column and a period; `bad_rows` is none of both, or the source has no bad rows to give.
        """
        if bad_rows not in ("stop", "dead_letters"):
            raise InvalidError("BAD_OPTION", f"{name}: bad_rows is {bad_rows!r}: choose 'stop' or 'dead_letters'")
        with self.adding(name):
            return self._source(name, source, retry_for, lateness, bad_rows)

    def _source(
        self, name: str, source: Source, retry_for: str, lateness: Mapping[str, str] | None, bad_rows: str
    ) -> Stream:
        if bad_rows == "dead_letters":
            return self._sorted_out(checked_name(name), source, retry_for, lateness)
        if (upserts := source.capabilities.upserts) is not None:
            if lateness is not None:
                raise InvalidError(
                    "BAD_OPTION", f"{name}: rows that replace one another have no lateness: leave it out, or upsert"
                )
            given = self._add_source(f"{checked_name(name)}_source", source, retry_for)
            self._upserted[name] = given.name, upserts
            query = held_rows(upserts.key, upserts.order, upserts.deletes)
            return self.add(View(name, (given.name,), query, Lazy()))
        if lateness is not None:
            column, late_by = lateness_of(name, lateness)
            given = self._add_source(f"{checked_name(name)}_source", source, retry_for)
            return given.with_watermark(name, column, late_by)
        return self._add_source(name, source, retry_for)

    def _add_source(self, name: str, source: Source, retry_for: str) -> Stream:
        others = [each for each in self._processors.values() if isinstance(each, SourceSpec)]
        pushable = source.capabilities.pushable
        if pushable is not None and any(each.source.capabilities.pushable is pushable for each in others):
            raise InvalidError("BAD_OPTION", f"{name} is a source under another name already: make another bl.push")
        return self.add(SourceSpec(checked_name(name), source, seconds_in(retry_for, "retry_for")))

    def _sorted_out(self, name: str, source: Source, retry_for: str, lateness: Mapping[str, str] | None) -> Stream:
        """Add a source that hands on bad rows, and return the stream of its other rows."""
        sorts = source.capabilities.bad_rows
        if sorts is None:
            raise InvalidError(
                "BAD_OPTION",
                f"{name} has no bad rows to give: bl.files of JSON has, and of CSV without multi_line, "
                "and bl.kafka.source with format='json'; bl.push refuses bad rows as they come in",
            )
        late = None if lateness is None else lateness_of(name, lateness)
        sorting = sorts.sorting_out()
        given = self._add_source(f"{name}_source", sorting, retry_for)
        assert sorting.capabilities.bad_rows is not None, "see SortsOutBadRows"
        own = name if late is None else checked_name(f"{name}_fitting")
        made = BadRows(own, given.name, sorting.capabilities.bad_rows, gives_dead_letters=False, policy=Ephemeral())
        fitting = self.add(made)
        return fitting if late is None else fitting.with_watermark(name, *late)

    def sql(
        self, name: str, query: str, *, policy: Lazy | Eager | History | None = None, deterministic: bool | None = None
    ) -> Stream:
        """Add a view: the result of a query, kept up to date; its rows are changes.

        Args:
            name: The view's name.
            query: Any deterministic query of Spark's; the streams of this dataflow are tables in it, by their names.
                Where a session is active, Spark analyses the query at once if it reads sources and such views.
            policy: What a crash may cost.
            deterministic: True: the Python functions that the query calls give the same value for the same arguments.

        Raises:
            InvalidError: `[BAD_VIEW]` the query reads no stream, `[BAD_NAME]`, `[BAD_POLICY]`, `[DUPLICATE_NAME]`.
        """
        streams = tuple(each for each in self._processors if is_table_in(query, each))
        return self.add_view(name, streams, query, policy, deterministic)

    def sql_file(
        self,
        path: str | PathLike[str],
        *,
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
    ) -> dict[str, Stream]:
        """Add the views of a file of `CREATE VIEW name AS query;` statements; return them by name.

        Args:
            path: The file, in UTF-8.
            policy: Of each view; see `sql`.
            deterministic: Of each view; see `sql`.

        Raises:
            InvalidError: `[BAD_VIEW]` the file cannot be read, or has another statement; else as `sql`.
        """
        return {
            name: self.sql(name, query, policy=policy, deterministic=deterministic)
            for name, query in views_of(path).items()
        }

    def view(
        self,
        name: str | Callable[..., DataFrame] | None = None,
        query: Callable[..., DataFrame] | None = None,
        *,
        policy: Lazy | Eager | History | None = None,
        deterministic: bool | None = None,
    ) -> Any:
        """Add a view: the result of a function over DataFrames, kept up to date; its rows are changes.

        Each parameter of the function is the name of a stream. As a decorator, `@flow.view` names the view as the
        function, also with options: `@flow.view(deterministic=True)`. `flow.view("name", function)` names it otherwise.

        Raises:
            InvalidError: as `sql`.
        """
        if name is None:
            return lambda function: self.view(function, policy=policy, deterministic=deterministic)
        if not isinstance(name, str):
            return self.add_view(name.__name__, tuple(signature(name).parameters), name, policy, deterministic)
        if query is None:
            raise InvalidError("BAD_VIEW", f"{name} has no query: write flow.view({name!r}, function), or flow.sql")
        return self.add_view(name, tuple(signature(query).parameters), query, policy, deterministic)

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

    @renamed(max_rounds="max_iterations")
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

        Round 0 has no rows. The rows of each further round are what the body makes of those of the round before. The
        result is the rows of the round after which no round changes any: the fixed point (`Falkirk Wheel §2.3`).

        Args:
            name: The name of the loop.
            body: A function over DataFrames. Its first parameter is the rows of the round before; each further one is
                the name of a stream. Or several functions, by the names of the streams that they make: then a parameter
                is the name of one of these streams, or of one outside, in any order.
            output: The columns of the rows, such as `"a LONG, b LONG"`; of several streams by their names.
            max_iterations: A step that takes more rounds fails with `[LOOP_TOO_LONG]`.
            keep_every: A period: so long after a step began its rounds so far are kept, and then again. A step that is
                killed after that goes on from there.
            policy: What a crash may cost.
            deterministic: True: the Python functions that the body calls give the same value for the same arguments.

        Returns:
            The stream of the rows; of several bodies the streams by name.

        Raises:
            InvalidError: as `sql`; `[BAD_OPTION]` `max_iterations` is less than 1; `[BAD_VIEW]` bodies and outputs have
                other names.
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
    ) -> Stream:
        """Add a view, and return the stream of its rows; `sql`, `view` and `iterate` call this.

        Raises:
            InvalidError: as `sql`.
        """
        missing = [each for each in streams if each not in self._processors]
        if missing or not streams:
            known = ", ".join(self._processors)
            what = f"reads {', '.join(missing)}, which {self.name} does not have" if missing else "reads no stream"
            raise InvalidError("BAD_VIEW", f"{name} {what}: it has {known or 'none yet'}")
        chosen = policy_of_state(name, policy, "arrangements")
        made = View(checked_name(name), streams, query, chosen, deterministic, loop)
        check_query(made, self._processors)
        return self.add(made)

    def push(self, source: str, rows: object, *, key: str | None = None, timeout: float = 30.0) -> Receipt:
        """Push rows to a source of `bl.push` while the dataflow runs in this process; see `Pushable.push`.

        Args:
            source: The source's name.
            rows: Rows as mappings, or a table of Arrow, pandas or Polars. The source takes all of them or none.
            key: A name of these rows: rows that are pushed again with the same key are taken once.
            timeout: Seconds to wait for the dataflow to begin, if it does not run yet.

        Returns:
            The receipt, once the rows are recorded: no crash can lose them any more.
        """
        return self._pushes_to(source).push(rows, key, timeout)

    def pushed(self, source: str, key: str) -> Receipt | None:
        """Return the receipt of the rows that were pushed with a key; None if no such rows are recorded."""
        return self._pushes_to(source).pushed(key)

    def drop(self, name: str) -> list[str]:
        """Take a source, a processor or a sink out again, with all that reads it; for a cell that may run again.

        What reads it goes too, and its late or bad rows: no stream goes on with what an earlier version gave or said.
        So the cells that defined these run again too. Nothing happens if there is no such name, as at the first run:

            flow.drop("clean")
            clean = flights.transform("clean", lambda df: df.where("arr_delay IS NOT NULL"))

        Args:
            name: Its name.

        Returns:
            The names of all that is gone, in their order.
        """
        parts = self._added.get(name, {name})
        gone: list[str] = []
        for each, processor in self._processors.items():  # each comes after those that it reads
            if each in parts or not {*processor.reads, self._beside.get(each)}.isdisjoint(gone):
                gone.append(each)
        for known in (self._processors, self._upserted, self._beside):
            for each in gone:
                known.pop(each, None)
        self._added = {each: parts for each, parts in self._added.items() if not parts.isdisjoint(self._processors)}
        self._told -= {name, *gone}
        return gone

    @contextmanager
    def adding(self, name: str) -> Iterator[None]:
        """Take the processors that are added in this block for parts of one; nothing is left of it if it is refused."""
        before = self._processors.copy()
        try:
            yield
        except InvalidError:
            self._processors = before
            raise
        self._added[name] = frozenset(self._processors.keys() - before.keys())

    def _is_read_beside(self, stream: str) -> bool:
        source, _ = self._upserted[stream]
        return any(source in each.reads for name, each in self._processors.items() if name != stream)

    def upserts_of(self, stream: str) -> tuple[str, Upserts] | None:
        """Return the source whose rows replace one another in a stream, and how; None of any other stream."""
        return self._upserted.get(stream)

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

    def add(self, processor: Processor, beside: str | None = None) -> Stream:
        """Add a processor, and return the stream of its rows; the methods of streams call this.

        Args:
            processor: The processor.
            beside: The stream whose options it has, if that is none that it reads: it is dropped with it.

        Raises:
            InvalidError: `[DUPLICATE_NAME]`; `[BAD_OPTION]` it reads a stream that was dropped.
        """
        name = processor.name
        if name in self._processors:
            raise InvalidError(
                "DUPLICATE_NAME",
                f"{self.name} has two processors named {name}: rename one, or write flow.drop({name!r}) before what "
                "replaces it",
            )
        for read in processor.reads:
            if read not in self._processors:
                raise InvalidError("BAD_OPTION", f"{name} reads {read}, which {self.name} has no more: define it again")
        self._processors[name] = processor
        if beside is not None:
            self._beside[name] = beside
        return Stream(self, name)

    if not TYPE_CHECKING:  # a type checker shall go on finding names that are not there

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name, OF_DATAFLOW, "flow")

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self._processors)} processors)"


def _stream_of(value: object) -> str | None:
    stream = value.stream if isinstance(value, Grouped | Keyed) else value
    return stream.name if isinstance(stream, Stream) else None
