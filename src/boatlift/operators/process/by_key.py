"""Processors by key: the function takes the rows of one key, its state and a context."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.types import ArrayType, Row, StructType

from boatlift.errors import UserCodeError
from boatlift.operators.process.batch import KeyedBatch, Processed, Timers
from boatlift.operators.process.rows import microseconds, moment, rows_of, table_of
from boatlift.storage.records.payloads import NO_WATERMARK

_YEAR_1 = -62_135_596_800_000
"""The first time that Python has, in milliseconds since 1970."""


class KeyState:
    """The state of a key: an attribute for each column, None where it is NULL.

    A key whose attributes all have their first values has no state, and costs nothing.
    """

    __slots__: tuple[str, ...] = ()
    _first: tuple[Any, ...] = ()

    def clear(self) -> None:
        """Set all attributes to their first values (None, or `defaults`): the key has no state from now on."""
        for name, value in zip(self.__slots__, self._first, strict=True):
            setattr(self, name, copy.copy(value))


@dataclass(slots=True)
class Context:
    """The time, the timers, the random numbers and the recorded answers of a call; a replay sees the same."""

    _now: int
    _bound: int
    _seed: int
    timer: datetime | None = None
    """The timer that the function is called for; None if it is called for rows."""
    _timers: dict[int, bool] = field(default_factory=dict)
    _random: random.Random | None = None
    _ask: Callable[[Callable[[], Any]], Any] | None = None

    @property
    def now(self) -> datetime:
        """The step's time, in UTC without a zone, like all times of rows."""
        return moment(self._now)

    @property
    def bound(self) -> datetime | None:
        """The watermark: no row to come is earlier. None if no row had a time yet, or timers go by `now`.

        It is None before the year 1, and `datetime.max` after 9999: Python has no other years.
        """
        return None if self._bound < _YEAR_1 else moment(self._bound)

    @property
    def random(self) -> random.Random:
        """The key's random numbers in this step."""
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function that asks an external system, and return its answer.

        An answer is a number, text, None, or a list or dict of these. It is recorded before a sink sees the step. A
        replay returns the recorded answer, and does not call the function. A step that fails before that may call it
        again. A call that raises fails the step, which is tried again: an error that is an answer is caught within
        `function`.

        Raises:
            UserCodeError: `[USER_CODE]` the processor is not declared with `calls=True`; the answer is no JSON.
        """
        if self._ask is None:
            raise UserCodeError(
                "USER_CODE",
                "context.call takes answers that are recorded: say process(…, calls=True)",
                lasting=True,
            )
        return self._ask(lambda: function(*arguments, **named))

    def set_timer(self, at: datetime) -> None:
        """Set a timer of this key, for which the function is called; a key has one timer a time.

        Args:
            at: A time without a zone is in UTC.
        """
        self._timers[_milliseconds(at)] = True

    def clear_timer(self, at: datetime) -> None:
        """Drop a timer; nothing happens if there is none."""
        self._timers[_milliseconds(at)] = False


Function = Callable[[Row, Sequence[Row], Any, Context], Iterable[Any] | None]
"""A user's function: takes key, rows, state and context, and yields rows."""


@dataclass(frozen=True, slots=True)
class ByKey:
    """A function of a batch of keys that calls the user's function of a key.

    Timers come first, in order of time, then of key; then the rows of each key.

    Attributes:
        columns, key, state, output: Spark's schemas of rows, keys, state and new rows.
        by_watermark: Whether timers go by event time.
        initial: The first value of each column of the state.
    """

    processor: str
    function: Function
    columns: StructType
    key: StructType
    state: StructType
    output: StructType
    by_watermark: bool
    initial: tuple[pa.Scalar, ...]

    def __call__(self, batch: KeyedBatch) -> Processed:
        keys = rows_of(batch.keys, self.key, self.processor)
        rows = rows_of(batch.rows, self.columns, self.processor)
        contexts: dict[int, Context] = {}
        states = _States(batch, self.state, self.initial, self.processor)
        bound = batch.passed if self.by_watermark else NO_WATERMARK
        made: list[Any] = []

        def call(number: int, of_key: Sequence[Row], timer: datetime | None) -> None:
            context = contexts.get(number)
            if context is None:
                ask = None if batch.ask is None else partial(batch.ask, number)
                context = contexts[number] = Context(batch.now, bound, int(batch.seed[number]), _ask=ask)
            context.timer = timer
            given = self.function(keys[number], of_key, states.of(number), context)
            if given is not None:
                made.extend(given)

        for number, at in zip(batch.due.key.tolist(), batch.due.at.tolist(), strict=True):
            known = contexts.get(number)
            if known is None or known._timers.get(at) is not False:  # noqa: SLF001 - an earlier timer may clear it
                call(number, (), moment(at))
        offsets = batch.offsets.tolist()
        for number in np.flatnonzero(np.diff(batch.offsets)).tolist():
            call(number, rows[offsets[number] : offsets[number + 1]], None)
        return self._processed(made, states, contexts)

    def _processed(self, made: list[Any], states: _States, contexts: dict[int, Context]) -> Processed:
        timers = [(n, at, on) for n, each in contexts.items() for at, on in each._timers.items()]  # noqa: SLF001
        after = states.after()
        return Processed(
            self._table(made, self.output, "a row") if made else None,
            None if after is None else self._table(after, self.state, "a state"),
            timers=_timers([(number, at) for number, at, on in timers if on]),
            cleared=_timers([(number, at) for number, at, on in timers if not on]),
        )

    def _table(self, rows: Sequence[Any], schema: StructType, what: str) -> pa.Table:
        try:
            return table_of(rows, schema)
        except ValueError as error:
            message = f"the function of {self.processor} gave {what} that does not fit {schema.simpleString()}: {error}"
            raise UserCodeError("USER_CODE", message, lasting=True) from error


class _States:
    """The states of the keys of a batch, as objects that are made at the first use."""

    def __init__(self, batch: KeyedBatch, schema: StructType, initial: Sequence[pa.Scalar], processor: str) -> None:
        self._batch, self._schema = batch, schema
        names = schema.fieldNames()
        first: tuple[Any, ...] = ()
        if names:
            table = pa.Table.from_arrays([pa.repeat(each, 1) for each in initial], schema=batch.state.schema)
            first = tuple(rows_of(table, schema, processor)[0])
        self._kind: type[KeyState] = type("State", (KeyState,), {"__slots__": tuple(names), "_first": first})
        self._before = rows_of(batch.state, schema, processor) if names else []
        # A list in a state may be changed in place, so that the old value changes with it.
        self._nested = any(isinstance(each.dataType, ArrayType | StructType) for each in schema.fields)
        self._has_state = batch.has_state.tolist()
        self._states: dict[int, KeyState] = {}

    def of(self, number: int) -> KeyState:
        state = self._states.get(number)
        if state is None:
            state = self._states[number] = self._kind()
            if self._has_state[number]:
                for name, value in zip(self._kind.__slots__, self._before[number], strict=True):
                    setattr(state, name, value)
            else:
                state.clear()
        return state

    def after(self) -> list[tuple[Any, ...]] | None:
        """Return the states from now on; None if no state has changed."""
        names = self._kind.__slots__
        if not names:
            return None
        values = {number: tuple(getattr(state, name) for name in names) for number, state in self._states.items()}
        if not self._nested and all(tuple(self._before[number]) == row for number, row in values.items()):
            return None
        return [values.get(number) or tuple(before) for number, before in enumerate(self._before)]


def _timers(timers: Sequence[tuple[int, int]]) -> Timers:
    pairs = np.array(timers, np.int64).reshape(-1, 2)
    return Timers(pairs[:, 0], pairs[:, 1])


def _milliseconds(at: datetime) -> int:
    """Return a time in milliseconds since 1970, rounded up: a timer is never early."""
    return -(-microseconds(at) // 1000)
