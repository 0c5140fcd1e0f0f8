"""The contract between a host and what executes its steps: Spark, or an engine in memory.

An engine executes; it decides nothing. Any worker thread may call any method. Two runs of one unit, and two commits of
one sink, are never under way at the same time. `prepare`, `cancel_steps`, `kept` and `probe` may be called while a run
of the same unit is under way.

**Payloads.** Messages and states are *payloads*: JSON that names immutable runs (`storage/records/payloads.py`). The
machine passes payloads on without looking into them. A run is a file in scratch, and one in the store, too, once the
run is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from boatlift.dataflow import Committed, Json, Outcome, Plan, Reading
from boatlift.runtime.machine.events import RowProbe
from boatlift.runtime.machine.instructions import Execute, Message, Prepare, StepInput
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.store import Store

__all__ = ["Beginning", "Engine", "StepResult"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step.

    Attributes:
        rows, digest: Of all output rows; the digest does not depend on how the rows were divided among tasks.
        sent: Edge to payload.
        state: The unit's state after the step; None if the unit keeps none.
        rows_in: The number of input rows.
        seconds: The duration, for people; of a job over several steps its share.
        determinant: The answers of the outside, as JSON, of a unit that records them; else None.
    """

    rows: int
    digest: str
    sent: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    rows_in: int = 0
    seconds: float = 0.0
    determinant: Any = None

    def runs(self) -> Iterator[RunRef]:
        """Return the runs that the result names."""
        for payload in (self.state, *self.sent.values()):
            yield from runs_of(payload)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What an engine needs to know before its first step.

    Attributes:
        store: Has the durable runs.
        scratch: A folder for files that need not survive the process.
        store_id: Identifies the store to sinks.
        token: Identifies this owner to sinks and sources; a newer owner has a larger token.
        recorded: Source to the last epoch that was closed before this process began: its input must be proved
            unchanged.
        read: Source and epoch to the rows that were read of it before, where these are recorded.
        cursors: Source to the cursor after the positions that no recovery needs, and to the cursor after all positions.
    """

    store: Store
    scratch: Path
    store_id: str
    token: int
    recorded: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[tuple[str, int], Reading] = field(default_factory=dict)
    cursors: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)


class Skips(NamedTuple):
    """What steps take no rows of, as the user decided.

    Attributes:
        steps: The steps that are known by their number, each with its unit.
        messages: Unit, edge and sender's time: whenever the unit takes such a message, it takes an empty one instead.
        rows: Source to the places of the bad rows that are set aside; to None: all of them are.
    """

    steps: AbstractSet[tuple[str, int]] = frozenset()
    messages: AbstractSet[tuple[str, str, Any]] = frozenset()
    rows: Mapping[str, AbstractSet[str] | None] = {}


class Engine(Protocol):
    """Executes the steps of one dataflow.

    Attributes:
        plan: The dataflow, in units.
    """

    plan: Plan

    @property
    def cancelled(self) -> bool:
        """True once `cancel` was called."""

    def program(self) -> dict[str, Any]:
        """Return the identity of the program: a store of another program is refused."""

    def environment(self) -> dict[str, Any]:
        """Return the versions and settings that results depend on: a replay under others is refused."""

    def reserve(self) -> None:
        """Take the resources that only one process can have, before this process fences any other.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """

    def listening(self) -> Mapping[str, str]:
        """Return the URL of each source that takes rows over HTTP now."""

    def awaited(self) -> bool:
        """Return, at once, whether a client waits until its rows are stable."""

    def start(self, beginning: Beginning) -> None:
        """Begin as a new owner, which writes to sinks and takes pushed rows."""

    def skip(self, skips: Skips) -> None:
        """Let steps yield nothing and leave their state; let no step take a bad row, but keep it in the store."""

    def open_sink(self, sink: str) -> Committed | None:
        """Take a sink over, which fences older owners, and return its last step; None if it holds none."""

    def first_cursor(self, source: str) -> Json:
        """Return a source's cursor before its first position."""

    def prove(self, source: str, messages: Sequence[tuple[tuple[str, str, int], Json]]) -> None:
        """Prove that the input of recorded messages is what it was: unit, edge and time of each, and its position.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """

    def poll(self, source: str, cursor: Json) -> Json | None:
        """Close a step at a source, and return its position; None if there is no new input."""

    def announce(self, told: Callable[[str], None]) -> Collection[str]:
        """Call a function, until `close`, with the name of a source soon after new input has come there.

        Returns:
            The sources of which this is told.
        """

    def gathers(self, source: str, position: Json) -> bool:
        """Return whether a position has the whole backlog of a source that gathers new input for its next position."""

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        """Return the cursor after a position; pure."""

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        """Return, at once, how many of these steps, from the first on, are better executed as one job: 1 or more."""

    def prepare(self, order: Prepare) -> None:
        """Get ready for steps that may come next; returns at once."""

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        """Execute steps in order, each over the state that the one before left.

        Returns:
            A result for each step. If a step fails, results for those before it; its error is raised when the step is
            ordered again.

        Raises:
            DataError: the input is not the input that its position names.
            UserCodeError: a function of the program raised.
            UnavailableError: `[STEP_FAILED]` Spark could not run the step.
        """

    def probe(self, batch: str, message: Message) -> RowProbe:
        """Evaluate the row conditions of a batch's policy over one message.

        The result may differ from call to call. The batch may be executing a step meanwhile.

        Raises:
            As `run`.
        """

    def check(self) -> None:
        """Raise if what executes steps is gone, also while there is no step; called every few seconds.

        Raises:
            UnavailableError: `[JVM_DIED]`.
        """

    def path(self, run: RunRef) -> Path:
        """Return where a run can be read."""

    def delivered(self, results: Iterable[StepResult]) -> None:
        """Take note that the host has results: from now on `discard` decides about their files."""

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        """Take note that these runs of a unit are durable."""

    def holds(self) -> AbstractSet[str]:
        """Return the runs that the engine uses, or will hand over, though no payload names them yet."""

    def discard(self, live: Collection[str]) -> None:
        """Drop the files of all runs that are neither among these nor held by the engine itself by now."""

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        """Hand a step to its sink."""

    def read(self) -> Sequence[tuple[str, int, Reading]]:
        """Return source, epoch and rows of the input that was read for the first time since the last call."""

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        """Take note that no recovery can read a position again; the source is informed once no reader of it can."""

    def hasten(self) -> None:
        """Take note of a clean stop: a run of several steps may end after the step under way."""

    def cancel_steps(self, unit: str) -> None:
        """Make a unit's run end soon, with an error that the host drops; the run may have ended already."""

    def cancel(self) -> None:
        """Make running jobs end soon, with an error, and let none begin."""

    def close(self) -> None:
        """Close sinks and files."""
