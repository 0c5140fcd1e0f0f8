"""At-least-once sinks: the external system remembers no steps, so the log alone records what was delivered.

`commit` delivers the rows of a step in tasks. A process that dies after the delivery and before the log's record of it
delivers the step once more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from boatlift.connectors.kit import SinkBase, read_pieces
from boatlift.connectors.kit.step_rows import ordered_part
from boatlift.connectors.kit.task_jobs import run_in_tasks, session_of_process
from boatlift.dataflow.contracts import Delivery, Json, Outcome, SinkCapabilities, SinkContext, Staged
from boatlift.errors import FLOW_AND_STORE, UnavailableError, from_text, to_text

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StepPart:
    """The rows of a step, or of one of its parts.

    A step that is delivered again has the same parts, with the same rows in the same order, as long as the number of
    parts stays.

    Attributes:
        key: The part's unique name: `DATAFLOW/STORE/SINK/STEP/PART`.
        step, part: The numbers of step and part.
        rows: The rows: the user's columns, then `_weight` if rows are changes.
        texts: A JSON object for each row.
    """

    sink: str
    key: str
    step: int
    part: int
    rows: pa.Table
    texts: pa.ChunkedArray


class Deliver(Protocol):
    """Sends the rows of a part to the external system. It runs in a task, and is pickled."""

    def __call__(self, part: StepPart) -> None:
        """Return once the external system has the rows.

        Raises:
            UnavailableError: `[SINK_FAILED]` it lacks some of them, and a retry may help; `[SINK_REFUSED]` it will
                never accept them.
        """


class DeliveringSink(SinkBase):
    """Delivers the rows of each step, at least once, in the order of steps.

    Args:
        deliver: Delivers a part.
        about: Kind, place and options, as `describe` returns them.
        parts: The number of parts of a step, which are delivered at the same time, each in a task of its own.
        functions: The user's functions that the sink calls.
    """

    delivery = Delivery.AT_LEAST_ONCE
    capabilities = SinkCapabilities(runs_jobs=True)

    def __init__(
        self, deliver: Deliver, about: Json, parts: int, functions: tuple[Callable[..., object], ...] = ()
    ) -> None:
        self._deliver, self._about, self._parts, self.functions = deliver, about, parts, functions

    def describe(self) -> Json:
        return self._about

    def open(self, context: SinkContext) -> None:
        self._context = context

    def commit(self, step: int, rows: int, _digest: str, staged: Sequence[Staged]) -> Outcome:
        context = self._opened
        if rows:
            work = _PartTask(self._deliver, context, step, rows, tuple(staged), self._parts)
            try:
                spark = session_of_process()
                if spark is not None:
                    results = run_in_tasks(spark, self._parts, work, f"sink {context.sink}")
                else:
                    results = [work(number) for number in range(self._parts)]
                for result in filter(None, results):
                    raise from_text(result.decode())
            except UnavailableError as error:
                if error.condition == "SINK_REFUSED":
                    error.remedy = f"boatlift run {FLOW_AND_STORE} --skip {context.sink}:{step} leaves the step out"
                raise
        return Outcome.APPENDED


@dataclass(frozen=True, slots=True)
class _PartTask:
    """Delivers the part with the given number; returns the text of the error if that is refused, otherwise nothing.

    A refusal by the external system is a result and not a failure of the task: the host decides about a retry, and
    Spark would retry a failed task at once.
    """

    deliver: Deliver
    context: SinkContext
    step: int
    rows: int
    staged: tuple[Staged, ...]
    parts: int

    def __call__(self, number: int) -> bytes:
        owner = self.context
        rows, texts = ordered_part(read_pieces(self.rows, self.staged), number, self.parts)
        if rows.num_rows:
            key = f"{owner.dataflow}/{owner.store}/{owner.sink}/{self.step}/{number}"
            try:
                self.deliver(StepPart(owner.sink, key, self.step, number, rows, texts))
            except UnavailableError as error:
                return to_text(error).encode()
        return b""
