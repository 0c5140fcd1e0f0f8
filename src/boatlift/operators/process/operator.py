"""The processor of the user's own: a function of a key's rows, its state and its timers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows, not_all_new
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

__all__ = ["Process", "ProcessForm", "TimerTime"]


class ProcessForm(Enum):
    """What the function of a processor is."""

    BY_KEY = "by key"
    """A function of a key's rows, state and context."""
    ARROW = "arrow"
    """A function of all keys of a task's part of a step."""
    ROWS = "rows"
    """A `StatefulProcessor` that takes and gives Rows."""
    PANDAS = "pandas"
    """A `StatefulProcessor` that takes and gives pandas frames."""


class TimerTime(Enum):
    """The time by which the timers of a processor are due."""

    NONE = "no timers"
    CLOCK = "clock"
    """The recorded clock of steps."""
    EVENT = "event"
    """The bound of event time after the step before."""


@dataclass(frozen=True, slots=True)
class Process(Operator):
    """A function by key, with state and timers: new rows in, new rows out.

    Attributes:
        keys: The columns that it groups by.
        function: The function, or the `StatefulProcessor`.
        state, output: The columns of the state and of new rows.
        order_by: The columns by which the rows of a key are sorted.
        form: What the function is.
        timers: The time by which timers are due.
        ticks: The stream of ticks, if timers fire by them; None: they fire at steps with rows.
        repeats: Whether the function gives the same when it is executed again.
        defaults: Columns of the state to the values that they have at first; others are NULL.
        calls: Whether the function asks the outside by `context.call`: the answers are recorded.
        initial_state: A DataFrame of rows that a `StatefulProcessor` takes before those of the first step; None: none.
    """

    kind: ClassVar[str] = "process"

    name: str
    upstream: str
    keys: tuple[str, ...]
    function: Any
    state: str | StructType
    output: str | StructType
    order_by: tuple[str, ...]
    form: ProcessForm
    timers: TimerTime
    ticks: str | None
    policy: Policy
    repeats: bool = True
    defaults: tuple[tuple[str, Any], ...] = ()
    initial_state: DataFrame | None = None
    calls: bool = False

    @property
    def reads(self) -> tuple[str, ...]:
        """The processor whose rows it takes; and the ticks."""
        return (self.upstream,) if self.ticks is None else (self.upstream, self.ticks)

    @property
    def keeps_state(self) -> bool:
        """It keeps a state for each key."""
        return True

    @property
    def deterministic(self) -> bool:
        """Whether the function gives the same when it is executed again."""
        return self.repeats

    @property
    def records_answers(self) -> bool:
        """Whether the function asks the outside by `context.call`."""
        return self.calls

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The function."""
        function = self.function
        return (function,) if callable(function) else (type(function).handleInputRows,)

    @property
    def ends_job(self) -> bool:
        """The tasks of the last stage call the function."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows.

        Raises:
            InvalidError: `[BAD_PROCESSOR]` the rows are not all new.
        """
        taken = inputs[0]
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_PROCESSOR",
                not_all_new(self.name, taken, "process the rows before the aggregate or the view"),
            )
        return Rows(self.name, source_times=taken.source_times)

    def describe(self) -> Json:
        """Return keys, order, and whether there are timers."""
        described: dict[str, Any] = {"keys": list(self.keys), "timers": self.timers.value, "form": self.form.value}
        return described | ({"order_by": list(self.order_by)} if self.order_by else {})
