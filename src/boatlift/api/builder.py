"""How a user writes a dataflow.

flow = bl.Dataflow("flights")
flights = flow.source("flights", bl.files("data/*.csv", schema=SCHEMA))
clean = flights.transform("clean", lambda df: df.where("arr_delay IS NOT NULL"))
delays = clean.group_by("origin").agg("delays", F.count("*").alias("flights"), policy=bl.Lazy(every=20))
delays.sink("answers", bl.sqlite("answers.db", table="delays", key=["origin"]))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NoReturn

from boatlift.api.captured import refuse_captured_streams
from boatlift.dataflow.advice import OF_DATAFLOW, OF_GROUPED, OF_STREAM, advise, column_advice
from boatlift.dataflow.contracts import Pushable, Receipt, Sink, Source
from boatlift.dataflow.policies import Batch, Eager, Ephemeral, History, Lazy, Policy
from boatlift.dataflow.processors import Processor, SinkProcessor, SourceProcessor
from boatlift.errors import InvalidError
from boatlift.operators.aggregate.node import Aggregate
from boatlift.operators.gather.node import Gather
from boatlift.operators.lookup.node import Lookup, Table
from boatlift.operators.merge.node import Merge
from boatlift.operators.recompute.node import Recompute
from boatlift.operators.reduce.node import Reduce
from boatlift.operators.transform.node import Transform
from boatlift.operators.union.node import Union

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Dataflow", "Grouped", "Keyed", "Stream"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Dataflow:
    """A named graph of processors; nothing runs until it is given to `bl.run` or `boatlift run`.

    Args:
        name: Letters, digits, `-` and `_`; it stands in every store and sink that the dataflow writes.
    """

    def __init__(self, name: str) -> None:
        self.name = _checked(name)
        self._processors: dict[str, Processor] = {}

    @property
    def processors(self) -> Mapping[str, Processor]:
        """All processors by name, each after those that it reads."""
        return MappingProxyType(self._processors)

    def check(self) -> None:
        """Refuse functions of the program that use a stream as if it were a DataFrame.

        Raises:
            InvalidError: `[NOT_ON_A_STREAM]`.
        """
        refuse_captured_streams(self._processors.values(), _stream_of)

    def source(self, name: str, source: Source) -> Stream:
        """Add a source, whose rows are new rows.

        Raises:
            InvalidError: `[BAD_OPTION]` one `bl.push` stands for two sources.
        """
        others = [each for each in self._processors.values() if isinstance(each, SourceProcessor)]
        pushable = source.capabilities.pushable
        if pushable is not None and any(each.source.capabilities.pushable is pushable for each in others):
            raise InvalidError("BAD_OPTION", f"{name} is a source under another name already: make another bl.push")
        return self._add(SourceProcessor(_checked(name), source))

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

    def _pushes_to(self, name: str) -> Pushable:
        processor = self._processors.get(name)
        pushable = processor.source.capabilities.pushable if isinstance(processor, SourceProcessor) else None
        if pushable is None:
            raise InvalidError(
                "BAD_OPTION", f"{name} is no source of {self.name} that rows can be pushed to: see bl.push"
            )
        return pushable

    def _add(self, processor: Processor) -> Stream:
        if processor.name in self._processors:
            raise InvalidError("DUPLICATE_NAME", f"{self.name} has two processors named {processor.name}: rename one")
        self._processors[processor.name] = processor
        return Stream(self, processor.name)

    if not TYPE_CHECKING:  # a type checker shall go on finding names that are not there

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name, OF_DATAFLOW, "flow")

    def __repr__(self) -> str:
        return f"Dataflow({self.name!r}, {len(self._processors)} processors)"


@dataclass(frozen=True, slots=True)
class Stream:
    """The output of a processor: new rows, changes of rows, or whole tables."""

    dataflow: Dataflow
    name: str

    def transform(
        self,
        name: str,
        function: Callable[[DataFrame], DataFrame],
        *,
        deterministic: bool | None = None,
        policy: Ephemeral | Eager | None = None,
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
                are never made again; it is the policy of every transform that is not deterministic.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        if not (deterministic is None or deterministic is True or deterministic is False):
            raise InvalidError("BAD_OPTION", f"{name}: deterministic is {deterministic!r}: choose True or False")
        if deterministic is False and isinstance(policy, Ephemeral):
            raise InvalidError(
                "BAD_POLICY",
                f"{name} is not deterministic, so that its rows could not be made again: leave the policy out, or "
                "use Eager()",
            )
        chosen = _policy_without_state(name, policy, Eager() if deterministic is False else Ephemeral())
        return self.dataflow._add(Transform(_checked(name), self.name, function, deterministic, chosen))

    def group_by(self, *keys: str) -> Grouped:
        """Group by columns, for `agg`. NULL is a key like any other."""
        return Grouped(self, _columns(self, "group_by", keys))

    def by(self, *keys: str) -> Keyed:
        """Name the columns by which a lookup finds the rows of this stream: an aggregate's or a recomputation's."""
        return Keyed(self, _columns(self, "by", keys))

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
        chosen = _policy_of_state(name, policy, "tables")
        made = tuple(Table(_checked(table), keyed.stream.name, keyed.keys) for table, keyed in tables.items())
        return flow._add(Lookup(_checked(name), self.name, made, chosen))

    def union(self, name: str, *others: Stream, policy: Ephemeral | Eager | None = None) -> Stream:
        """Unite this and other streams of the same columns, step by step.

        Step n of the union has the rows of step n of each stream, and waits for the last of them. The transforms of
        each stream before the union do not wait. `merge` is for streams that shall not wait for each other.

        Args:
            name: The processor's name.
            others: Streams of this dataflow.
            policy: As for `transform`.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        streams = self._with(name, others)
        return self.dataflow._add(Union(_checked(name), streams, _policy_without_state(name, policy, Ephemeral())))

    def merge(self, name: str, *others: Stream, policy: Ephemeral | Eager | None = None) -> Stream:
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
        return self.dataflow._add(Merge(_checked(name), streams, _policy_without_state(name, policy, Ephemeral())))

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
        policy: Batch | None = None,
        over: Literal["everything", "batch"] = "everything",
    ) -> Stream:
        """Compute a table anew every now and then, beside everything else that runs: a batch.

        Args:
            name: The processor's name.
            function: Takes a DataFrame and returns a DataFrame: joins, aggregates, windows, all that Spark has. It need
                not be deterministic: its table is durable before any of it is seen, and is then never computed again.
            policy: The end of an epoch. `Batch()` if not given: an epoch ends once the one before is done and new rows
                are there.
            over: `everything`: the function takes all rows since the beginning, read again from the source. `batch`: it
                takes the rows of its epoch, of any stream of new rows.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        if over not in ("everything", "batch"):
            raise InvalidError("BAD_OPTION", f"{name}: over is {over!r}: choose 'everything' or 'batch'")
        if policy is not None and not isinstance(policy, Batch):
            raise InvalidError(
                "BAD_POLICY", f"{name} is recomputed, which {type(policy).__name__} cannot: use Batch(…)"
            )
        made = Recompute(_checked(name), self.name, function, over == "everything", policy or Batch())
        return self.dataflow._add(made)

    def gather(self, name: str, *, policy: Batch | None = None) -> Stream:
        """Gather the rows of several steps into one step, which ends by the clock for instance.

        Behind a lookup or a merge it leads back from steps of single messages to steps that many rows share.

        Args:
            name: The processor's name.
            policy: The end of an epoch, as in `Batch(seconds=60)`. The rows of the epoch are durable by then.

        Raises:
            InvalidError: `[BAD_POLICY]`.
        """
        if not isinstance(policy, Batch) or policy == Batch():
            raise InvalidError(
                "BAD_POLICY", f"{name} gathers until an epoch is over: say when, as in Batch(seconds=60)"
            )
        return self.dataflow._add(Gather(_checked(name), self.name, policy))

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
        return _aggregate(self, (), name, columns, policy)

    def sink(self, name: str, sink: Sink) -> None:
        """Hand every step to the outside, as the sink promises: all of Boatlift's own exactly once."""
        self.dataflow._add(SinkProcessor(_checked(name), self.name, sink))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            advise(self, name, OF_STREAM, "" if name == "name" else self.name)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A stream whose rows are found by key columns."""

    stream: Stream
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grouped:
    """A stream grouped by key columns."""

    stream: Stream
    keys: tuple[str, ...]

    def agg(self, name: str, *columns: Column, policy: Lazy | Eager | History | None = None) -> Stream:
        """Keep aggregates by key, and give one change for each change of the input.

        The stream may itself give changes, as another aggregate does: then a key ends when its last row is taken back,
        and `count`, `sum` and `avg` can be kept.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            policy: What a crash may cost; `Lazy()` if not given.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        return _aggregate(self.stream, self.keys, name, columns, policy)

    def reduce(self, name: str, *columns: Column, policy: Ephemeral | Eager | None = None) -> Stream:
        """Aggregate the rows of each step by themselves: new rows, one for each key of the step, and no state.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            policy: As for `transform`.

        Raises:
            InvalidError: `[BAD_OPTION]`, `[BAD_POLICY]`.
        """
        _check_aggregates(name, "reduce", columns)
        chosen = _policy_without_state(name, policy, Ephemeral())
        return self.stream.dataflow._add(Reduce(_checked(name), self.stream.name, self.keys, columns, chosen))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            bare = name in ("stream", "keys")  # not set yet, as in a copy under way
            advise(self, name, OF_GROUPED, "" if bare else self.stream.name, () if bare else self.keys)


def _aggregate(
    stream: Stream, keys: tuple[str, ...], name: str, columns: tuple[Column, ...], policy: Lazy | Eager | History | None
) -> Stream:
    _check_aggregates(name, "agg", columns)
    chosen = _policy_of_state(name, policy, "state")
    return stream.dataflow._add(Aggregate(_checked(name), stream.name, keys, columns, chosen))


def _check_aggregates(name: str, call: str, columns: tuple[Column, ...]) -> None:
    if not columns:
        raise InvalidError("BAD_OPTION", f"{name}: {call} needs at least one aggregate")


def _columns(stream: Stream, call: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    offered: tuple[object, ...] = keys
    for key in offered:
        if not isinstance(key, str):
            raise column_advice(call, key, stream.name)
    if not keys or len(set(keys)) != len(keys):
        raise InvalidError("BAD_OPTION", f"{call}{keys}: name at least one column, and each only once")
    return keys


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidError("BAD_NAME", f"{name!r} is no name: use up to 64 letters, digits, - and _, a letter first")
    return name


def _stream_of(value: object) -> str | None:
    stream = value.stream if isinstance(value, Grouped | Keyed) else value
    return stream.name if isinstance(stream, Stream) else None


def _policy_without_state(name: str, policy: object, default: Policy) -> Policy:
    """Return the policy of a processor that keeps no state.

    Raises:
        InvalidError: `[BAD_POLICY]`.
    """
    if policy is None:
        return default
    if not isinstance(policy, Ephemeral | Eager):
        raise InvalidError(
            "BAD_POLICY",
            f"{name} keeps no state that {type(policy).__name__} could save: use Ephemeral() or Eager()",
        )
    return policy


def _policy_of_state(name: str, policy: object, kept: str) -> Policy:
    """Return the policy of a processor with state; `Lazy()` if none is given.

    Raises:
        InvalidError: `[BAD_POLICY]`.
    """
    if policy is None:
        return Lazy()
    if not isinstance(policy, Lazy | Eager | History):
        raise InvalidError(
            "BAD_POLICY",
            f"{name} keeps {kept}, which {type(policy).__name__} cannot: use Lazy(…), Eager() or History()",
        )
    return policy
