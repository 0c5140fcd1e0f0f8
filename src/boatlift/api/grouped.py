"""Grouped streams: what is kept, or computed, by key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from boatlift.api.options import checked_name, policy_of_state, policy_without_state
from boatlift.connectors.kit import checked_methods
from boatlift.dataflow.advice import OF_GROUPED, advise, column_advice
from boatlift.dataflow.policies import Eager, Ephemeral, History, Lazy, Policy
from boatlift.errors import InvalidError
from boatlift.operators.aggregate import Aggregate, Reduce
from boatlift.operators.custom.operator import Custom, StatefulOperator
from boatlift.operators.process.operator import Process, ProcessForm, TimerTime
from boatlift.operators.top_n.operator import TopN
from boatlift.operators.window.operator import Window, WindowAggregate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import StructType

    from boatlift.api.streams import Stream
    from boatlift.operators.process.batch import KeyedBatch, Processed


@checked_methods
@dataclass(frozen=True, slots=True)
class Grouped:
    """A stream grouped by key columns. Names, policies and errors are as for the methods of `Stream`."""

    stream: Stream
    keys: tuple[str, ...]
    window: Window | None = None

    def agg(
        self,
        name: str,
        *columns: Column,
        emit: Literal["changes", "final"] = "changes",
        partials: bool = False,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Keep aggregates by key, and give one change for each change of the input.

        The stream may itself give changes, as another aggregate does: then a key ends when its last row is taken back,
        and `count`, `sum` and `avg` can be kept.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            emit: `"final"`: of windows (`group_by(bl.window(…))`) each row comes once, when its window has ended by the
                watermark of the stream (`Stream.with_watermark`): new rows, for a sink that appends.
            partials: Whether the stream is a union whose streams are aggregated one by one, as the steps of each come
                (`docs/guide/aggregates.md`): a slow or failed stream neither delays nor undoes the work for the others.
            policy: The cost of a crash.

        Raises:
            InvalidError: `[BAD_WINDOW]` and as for `Stream`.

        Examples:
            >>> delays = flights.group_by("origin").agg("delays", F.avg("arr_delay").alias("delay"))
        """
        if emit not in ("changes", "final"):
            raise InvalidError("BAD_OPTION", f"{name}: emit is {emit!r}: choose 'changes' or 'final'")
        if self.window is None:
            if emit == "final":
                raise InvalidError(
                    "BAD_WINDOW", f"{name}: a row is final when its window has ended: group by bl.window('COLUMN', …)"
                )
            return aggregated(self.stream, self.keys, name, columns, policy, partials=partials)
        if partials:
            raise InvalidError("BAD_OPTION", f"{name}: windows go by all streams' watermarks: leave partials out")
        _check_aggregates(name, "agg", columns)
        chosen = policy_of_state(name, policy, "state")
        made = WindowAggregate(
            checked_name(name), (self.stream.name,), chosen, self.window, self.keys, columns, emit == "final"
        )
        return self.stream.dataflow.add(made)

    def reduce(self, name: str, *columns: Column, policy: Ephemeral | Eager | History | None = None) -> Stream:
        """Aggregate the rows of each step by themselves: new rows, one for each key of the step, and no state.

        Args:
            name: The processor's name.
            columns: Spark's `count`, `sum`, `avg`, `min` and `max`, each with an `alias`.
            policy: As for `transform`.

        Examples:
            >>> batches = flights.group_by("origin").reduce("batches", F.count("*").alias("n"))
        """
        self._without_window(name, "reduce")
        _check_aggregates(name, "reduce", columns)
        chosen = policy_without_state(name, policy, Ephemeral())
        return self.stream.dataflow.add(Reduce(checked_name(name), (self.stream.name,), chosen, self.keys, columns))

    def top_n(
        self, name: str, n: int, *, order_by: Sequence[str], policy: Lazy | Eager | History | None = None
    ) -> Stream:
        """Keep the first rows of each key in an order, as changes.

        Of new rows the state is the first rows alone; of changes it is all rows, because a row behind may move up.
        `boatlift status` shows how many rows were pushed out by others.

        Args:
            name: The processor's name.
            n: The number of rows of each key.
            order_by: The columns of the order, each with `ASC` or `DESC` behind it or neither, as in
                `["arr_delay DESC", "at"]`. NULL comes first in ascending order, and last in descending order. Rows that
                are equal in all of them are ordered by their content.
            policy: The cost of a crash.

        Raises:
            InvalidError: `[BAD_WINDOW]` and as for `Stream`.

        Examples:
            >>> worst = flights.group_by("origin").top_n("worst", 3, order_by=["arr_delay DESC", "at"])
        """
        self._without_window(name, "top_n")
        offered: object = n
        if not isinstance(offered, int) or isinstance(offered, bool) or n < 1:
            raise InvalidError("BAD_OPTION", f"{name}: n is {n!r}: write a whole number from 1 on")
        order = columns_named(self.stream.name, "order_by", tuple(order_by))
        chosen = policy_of_state(name, policy, "rows")
        return self.stream.dataflow.add(TopN(checked_name(name), (self.stream.name,), chosen, self.keys, n, order))

    def process(
        self,
        name: str,
        function: Callable[..., Iterable[Any] | None],
        *,
        output: str | StructType,
        state: str | StructType = "",
        defaults: Mapping[str, Any] = MappingProxyType({}),
        order_by: Sequence[str] = (),
        timers: bool | Literal["event"] = False,
        calls: bool = False,
        deterministic: bool = True,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Call a function for each key of a step: with the key's rows, its state and a context.

        Args:
            name: The processor's name.
            function: Takes `key` (a Row), `rows` (Rows in the order of `order_by`), `state` and `context`, and yields
                new rows as tuples, dicts or Rows. `state` has an attribute for each column, which the function may set.
                `context` has the step's `now`, `random`, `set_timer(at)`, `clear_timer(at)`, and `timer`: the time of
                the timer for which the function is called, without rows; None for rows. The function must depend on
                these alone, so that a replay has the same result.
            output: The columns of new rows, as in `"user STRING, n LONG"`.
            state: The columns of the state, alike; empty: there is none. A later version of the program may have
                further ones.
            defaults: The first values of columns of the state, which states written before the columns were declared
                have too; None for others.
            order_by: The columns by which the rows of a key are sorted. Rows that are equal in them, and all rows if
                none are named, are ordered by their content.
            timers: Whether the function sets timers. A timer fires at the first step whose time has passed its own,
                also at a tick, if the dataflow has them (`bl.Dataflow(…, tick="1 second")`). `"event"`: a timer fires
                when the watermark (`Stream.with_watermark`) has passed its time, and `context.bound` is the watermark.
            calls: Whether the function asks external systems by `context.call(function, …)`. The answers are recorded
                before a sink sees the step, and a replay has them again.
            deterministic: False: the function asks external systems otherwise, or has a clock or random numbers of its
                own. Its rows are never made again: they become durable together with a checkpoint of the state, and no
                sink sees them before. `Eager()` does that at each step.
            policy: The cost of a crash.

        Examples:
            >>> def number(key, rows, state, context):
            ...     state.n = (state.n or 0) + len(rows)
            ...     yield key.origin, state.n
            >>> output = "origin STRING, n INT"
            >>> counts = flights.group_by("origin").process("counts", number, state="n INT", output=output)
        """
        repeats = _repeats(name, deterministic)
        kind = _Kind(ProcessForm.BY_KEY, _timers(name, timers), repeats, _calls(name, calls, repeats=repeats))
        return self._process(name, function, (output, state), order_by, policy, kind, defaults)

    def process_arrow(
        self,
        name: str,
        function: Callable[[KeyedBatch], Processed | None],
        *,
        output: str | StructType,
        state: str | StructType = "",
        defaults: Mapping[str, Any] = MappingProxyType({}),
        order_by: Sequence[str] = (),
        timers: bool | Literal["event"] = False,
        calls: bool = False,
        deterministic: bool = True,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Call a function for all keys of a task's part of a step at once, over Arrow: `process` for many keys.

        Args:
            name: The processor's name.
            function: Takes a `bl.KeyedBatch` and returns a `bl.Processed`. The result for a key must depend on that
                key's rows, state and timers alone.
            output, state, defaults, order_by, timers, calls, deterministic, policy: As for `process`.

        Examples:
            >>> def size(batch: bl.KeyedBatch) -> bl.Processed:
            ...     return bl.Processed(pa.table({"n": np.diff(batch.offsets)}))
            >>> sizes = flights.group_by("origin").process_arrow("sizes", size, output="n LONG")
        """
        repeats = _repeats(name, deterministic)
        kind = _Kind(ProcessForm.ARROW, _timers(name, timers), repeats, _calls(name, calls, repeats=repeats))
        return self._process(name, function, (output, state), order_by, policy, kind, defaults)

    def transform_with_state(
        self,
        name: str,
        processor: StatefulProcessor,
        output: str | StructType,
        time_mode: str = "None",
        *,
        initial_state: DataFrame | GroupedData | None = None,
        order_by: Sequence[str] = (),
        deterministic: bool = True,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Run PySpark's `StatefulProcessor` over Rows, as `transformWithState` of Structured Streaming does.

        Its calls have the same order: the rows of each key, then the timers that are due, then `close`.
        `docs/processors.md` lists the differences.

        Args:
            name: The processor's name.
            processor: An object of a class that derives from `pyspark.sql.streaming.StatefulProcessor`.
            output: The columns of new rows.
            time_mode: `"None"`; `"ProcessingTime"`, with timers and times to live by the recorded clock of steps; or
                `"EventTime"`, with timers by the watermark (`Stream.with_watermark`).
            initial_state: Rows that `handleInitialState` takes before the rows of the first step: a DataFrame with the
                columns of the key among its own, which may be grouped by them, as in Spark.
            order_by, deterministic, policy: As for `process`.

        Examples:
            >>> class Sizes(StatefulProcessor):
            ...     def init(self, handle): pass
            ...     def handleInputRows(self, key, rows, timers): yield Row(n=sum(1 for _ in rows))
            ...     def close(self): pass
            >>> sizes = flights.group_by("origin").transform_with_state("sizes", Sizes(), output="n INT")
        """
        kind = _Kind(ProcessForm.ROWS, _time_mode(name, time_mode), _repeats(name, deterministic))
        begin = _frame_of(name, initial_state)
        return self._process(name, processor, (output, ""), order_by, policy, kind, begin=begin)

    def transform_with_state_in_pandas(
        self,
        name: str,
        processor: StatefulProcessor,
        output: str | StructType,
        time_mode: str = "None",
        *,
        initial_state: DataFrame | GroupedData | None = None,
        order_by: Sequence[str] = (),
        deterministic: bool = True,
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Run PySpark's `StatefulProcessor` over pandas frames, as `transformWithStateInPandas` does.

        Arguments and errors as for `transform_with_state`.

        Examples:
            >>> class Sizes(StatefulProcessor):
            ...     def init(self, handle): pass
            ...     def handleInputRows(self, key, frames, timers): yield from frames
            ...     def close(self): pass
            >>> schema = "origin STRING, arr_delay INT, at TIMESTAMP"
            >>> same = flights.group_by("origin").transform_with_state_in_pandas("same", Sizes(), output=schema)
        """
        kind = _Kind(ProcessForm.PANDAS, _time_mode(name, time_mode), _repeats(name, deterministic))
        begin = _frame_of(name, initial_state)
        return self._process(name, processor, (output, ""), order_by, policy, kind, begin=begin)

    def custom(
        self,
        name: str,
        operator: StatefulOperator,
        *,
        output: str | StructType,
        order_by: Sequence[str] = (),
        policy: Lazy | Eager | History | None = None,
    ) -> Stream:
        """Run an operator with a data structure of its own: an index, a sketch, a model.

        Args:
            name: The processor's name.
            operator: An object of a class that derives from `bl.StatefulOperator`. Each key group begins with a copy of
                it.
            output: The columns of new rows.
            order_by: The columns by which the rows of a key are sorted.
            policy: The cost of a crash.

        Raises:
            InvalidError: `[BAD_PROCESSOR]`, `[BAD_WINDOW]` and as for `Stream`.

        Examples:
            >>> class Total(bl.StatefulOperator):
            ...     total = 0
            ...     def process(self, rows): self.total += rows.num_rows; return pa.table({"n": [self.total]})
            ...     def get_state(self): return b"%d" % self.total
            ...     def set_state(self, state): self.total = int(state)
            ...     get_delta, apply_delta = get_state, set_state
            >>> totals = flights.group_by("origin").custom("totals", Total(), output="n LONG")
        """
        self._without_window(name, "custom")
        offered: object = operator
        if not isinstance(offered, StatefulOperator):
            raise InvalidError(
                "BAD_PROCESSOR",
                f"the operator of {name} is {operator!r}: give an object of a class that derives from "
                "bl.StatefulOperator",
            )
        order = columns_named(self.stream.name, "order_by", tuple(order_by)) if order_by else ()
        chosen = policy_of_state(name, policy, "state")
        made = Custom(checked_name(name), (self.stream.name,), chosen, self.keys, operator, output, order)
        return self.stream.dataflow.add(made)

    def _process(
        self,
        name: str,
        function: Any,
        declared: tuple[str | StructType, str | StructType],
        order_by: Sequence[str],
        policy: object,
        kind: _Kind,
        defaults: Mapping[str, Any] = MappingProxyType({}),
        begin: DataFrame | None = None,
    ) -> Stream:
        self._without_window(name, "process")
        if kind.form in (ProcessForm.BY_KEY, ProcessForm.ARROW) and not callable(function):
            raise InvalidError("BAD_OPTION", f"{name}: {function!r} is no function")
        flow, (output, state) = self.stream.dataflow, declared
        ticks = (flow.tick.name,) if kind.timers is not TimerTime.NONE and flow.has_ticks else ()
        return flow.add(
            Process(
                name=checked_name(name),
                reads=(self.stream.name, *ticks),
                policy=_policy(name, policy, kind),
                keys=self.keys,
                function=function,
                state=state,
                output=output,
                order_by=columns_named(self.stream.name, "order_by", tuple(order_by)) if order_by else (),
                form=kind.form,
                timers=kind.timers,
                defaults=_defaults(name, defaults),
                initial_state=begin,
                deterministic=kind.repeats,
                records_answers=kind.calls,
            )
        )

    def _without_window(self, name: str, call: str) -> None:
        if self.window is not None:
            raise InvalidError(
                "BAD_WINDOW", f"{name}: windows go with agg(…), not with {call}: group by columns alone for {call}"
            )

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            bare = name in ("stream", "keys", "window")  # not set yet, as in a copy under way
            advise(self, name, OF_GROUPED, "" if bare else self.stream.name, () if bare else self.keys)


class _Kind(NamedTuple):
    """The options of a processor that its policy depends on."""

    form: ProcessForm
    timers: TimerTime
    repeats: bool
    calls: bool = False


def _repeats(name: str, deterministic: object) -> bool:
    if not isinstance(deterministic, bool):
        raise InvalidError("BAD_OPTION", f"{name}: deterministic is {deterministic!r}: choose True or False")
    return deterministic


def _calls(name: str, calls: object, *, repeats: bool) -> bool:
    if not isinstance(calls, bool):
        raise InvalidError("BAD_OPTION", f"{name}: calls is {calls!r}: choose True or False")
    if calls and not repeats:
        raise InvalidError(
            "BAD_OPTION",
            f"{name}: calls=True records answers so that the function repeats with them, and deterministic=False says "
            "that it does not: leave one of them out",
        )
    return calls


def _defaults(name: str, defaults: object) -> tuple[tuple[str, Any], ...]:
    if not isinstance(defaults, Mapping) or not all(isinstance(each, str) for each in defaults):
        raise InvalidError(
            "BAD_OPTION", f"{name}: defaults is {defaults!r}: write columns and values, as in {{'n': 0}}"
        )
    return tuple(sorted(defaults.items()))


def _policy(name: str, policy: object, kind: _Kind) -> Policy:
    if not kind.repeats and isinstance(policy, History):
        raise InvalidError(
            "BAD_POLICY",
            f"{name} is not deterministic, so that its inputs would not lead to the same state again: use Lazy(…) or "
            "Eager()",
        )
    chosen = policy_of_state(name, policy, "state")
    if not kind.repeats and isinstance(chosen, Lazy) and not chosen.has_checkpoints:
        raise InvalidError(
            "BAD_POLICY",
            f"{name} is not deterministic, so that a checkpoint alone lets its rows be seen, and {chosen} makes none: "
            "use Lazy(every=20) or Eager()",
        )
    return chosen


def _frame_of(name: str, initial_state: object) -> DataFrame | None:
    """Return the rows of an initial state, which may be grouped."""
    from pyspark.sql import DataFrame

    frame = getattr(initial_state, "_df", initial_state)
    if frame is not None and not isinstance(frame, DataFrame):
        raise InvalidError(
            "BAD_OPTION", f"{name}: initial_state is {initial_state!r}: give a DataFrame with the columns of the key"
        )
    return frame


def _time_mode(name: str, time_mode: object) -> TimerTime:
    """Return the time by which the timers of a `StatefulProcessor` are due."""
    modes = {"none": TimerTime.NONE, "processingtime": TimerTime.CLOCK, "eventtime": TimerTime.EVENT}
    chosen = modes.get(time_mode.lower()) if isinstance(time_mode, str) else None
    if chosen is None:
        raise InvalidError(
            "BAD_OPTION", f"{name}: time_mode is {time_mode!r}: choose 'None', 'ProcessingTime' or 'EventTime'"
        )
    return chosen


def _timers(name: str, timers: object) -> TimerTime:
    """Return the time by which the timers of a function are due."""
    choices = {False: TimerTime.NONE, True: TimerTime.CLOCK, "event": TimerTime.EVENT}
    if not isinstance(timers, bool | str) or timers not in choices:
        raise InvalidError("BAD_OPTION", f"{name}: timers is {timers!r}: choose False, True or 'event'")
    return choices[timers]


def aggregated(
    stream: Stream,
    keys: tuple[str, ...],
    name: str,
    columns: tuple[Column, ...],
    policy: Lazy | Eager | History | None,
    *,
    partials: bool = False,
) -> Stream:
    """Return the aggregates of a stream; without keys those of all rows."""
    _check_aggregates(name, "agg", columns)
    chosen = policy_of_state(name, policy, "state")
    return stream.dataflow.add(Aggregate(checked_name(name), (stream.name,), chosen, keys, columns, partials))


def _check_aggregates(name: str, call: str, columns: tuple[Column, ...]) -> None:
    if not columns:
        raise InvalidError("BAD_OPTION", f"{name}: {call} needs at least one aggregate")


def columns_named(stream: str, call: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the columns that a call names.

    Raises:
        InvalidError: `[BAD_OPTION]` there are none, one is there twice, or one is no name.
    """
    offered: tuple[object, ...] = keys
    for key in offered:
        if not isinstance(key, str):
            raise column_advice(call, key, stream)
    if not keys or len(set(keys)) != len(keys):
        raise InvalidError("BAD_OPTION", f"{call}{keys}: name at least one column, and each only once")
    return keys
