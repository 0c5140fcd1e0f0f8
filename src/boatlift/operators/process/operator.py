"""The user's processor: a function of a key's rows, its state and its timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import KeyedOperator
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class ProcessForm(Enum):
    """The form of a processor's function."""

    BY_KEY = "by key"
    """A function of a key's rows, state and context."""
    ARROW = "arrow"
    """A function of all keys of a task's part of a step."""
    ROWS = "rows"
    """A `StatefulProcessor` over Rows."""
    PANDAS = "pandas"
    """A `StatefulProcessor` over pandas frames."""


class TimerTime(Enum):
    """The time by which the timers of a processor are due."""

    NONE = "no timers"
    CLOCK = "clock"
    """The recorded clock of steps."""
    EVENT = "event"
    """The watermark after the step before."""


@dataclass(frozen=True, slots=True)
class Process(KeyedOperator):
    """Calls a function by key, with state and timers: new rows in, new rows out.

        clicks.group_by("user").process("sessions", count, state="n LONG", output="user STRING, n LONG")

    A second input is the stream of ticks, if timers fire at its steps too.

    Attributes:
        function: The function, or the `StatefulProcessor`.
        state, output: The columns of the state and of new rows.
        order_by: The columns by which the rows of a key are sorted.
        timers: The time by which timers are due.
        defaults: The first values of columns of the state; other columns begin with NULL.
        initial_state: A DataFrame of rows that a `StatefulProcessor` takes before those of the first step, if any.
    """

    kind = "process"
    keys: tuple[str, ...]
    function: Any
    state: str | StructType
    output: str | StructType
    order_by: tuple[str, ...]
    form: ProcessForm
    timers: TimerTime
    defaults: tuple[tuple[str, Any], ...] = ()
    initial_state: DataFrame | None = None

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        function = self.function
        return (function,) if callable(function) else (type(function).handleInputRows,)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        taken = inputs[0]
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_PROCESSOR", not_all_new(self.name, taken, "process the rows before the aggregate or the view")
            )
        return Rows(self.name, source_times=taken.source_times)

    def describe(self) -> Json:
        described: dict[str, Any] = {"keys": list(self.keys), "timers": self.timers.value, "form": self.form.value}
        return described | ({"order_by": list(self.order_by)} if self.order_by else {})
