"""What the runtime needs of an engine: the contract between the state machine's shell and Spark.

An engine executes; it decides nothing. Every method may be called from a worker thread; methods about one unit or one
sink are never called concurrently.

**Contents.** What goes along an edge, and what a unit keeps, is a *content*: JSON that names immutable runs (`storage/records/payloads.py`).
The machine hands contents on without looking into them. A run is a file in scratch, and in the store once it was kept.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from boatlift.dataflow import Committed, Json, Outcome, Plan, Reading
from boatlift.runtime.machine.instructions import Execute, Message, Prepare, StepInput
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.store import Store

__all__ = ["Beginning", "Engine", "StepResult"]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a unit made of a time.

    Attributes:
        sent: Edge to content.
        state: What it keeps for the times to come; None if it keeps nothing.
        rows, digest: Of all output rows; the digest does not depend on how they were divided.
        rows_in: Rows taken.
        seconds: How long it took, for people; of a job over several times its share.
    """

    rows: int
    digest: str
    sent: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    rows_in: int = 0
    seconds: float = 0.0

    def runs(self) -> Iterator[RunRef]:
        """Gives the runs that it names."""
        for content in (self.state, *self.sent.values()):
            yield from runs_of(content)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What an engine learns before its first step.

    Attributes:
        store, scratch, store_id, token: As the names say.
        recorded: Source to the last time that was closed before this process began: its input must be proved unchanged.
        read: Source and time to what was read of it before, where that is known.
        cursors: Source to the cursors after what no failure needs any more, and after all that it gave.
    """

    store: Store
    scratch: Path
    store_id: str
    token: int
    recorded: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[tuple[str, int], Reading] = field(default_factory=dict)
    cursors: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)


class Engine(Protocol):
    """Executes the steps of one dataflow.

    Attributes:
        plan: The dataflow, in units.
        cancelled: Whether `cancel` was called.
    """

    plan: Plan
    cancelled: bool

    def program(self) -> dict[str, Any]:
        """Tells the program's identity: a store written by another one is refused."""

    def environment(self) -> dict[str, Any]:
        """Tells versions and settings that results depend on: a replay under others is refused."""

    def reserve(self) -> None:
        """Takes what only one process can have, before any other is fenced.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """

    def listening(self) -> Mapping[str, str]:
        """Return the URL of each source that takes rows over HTTP now."""

    def awaited(self) -> bool:
        """Tells whether somebody waits until what sources gave is stable; at once."""

    def start(self, beginning: Beginning) -> None:
        """Learns where runs are, where files that need not survive go, and as whom it writes to sinks and takes what is pushed."""

    def skip(self, steps: AbstractSet[tuple[str, int]], messages: AbstractSet[tuple[str, str, Any]]) -> None:
        """Learns of steps, each with its unit, that give nothing and leave the state as it is.

        Args:
            steps: Those that are known by their number.
            messages: Unit, edge and sender's time: whenever the unit takes such a message, nothing was sent.
        """

    def open_sink(self, sink: str) -> Committed | None:
        """Takes a sink over, fencing older owners, and tells what it holds."""

    def first_cursor(self, source: str) -> Json:
        """Gives a source's cursor before it took anything."""

    def poll(self, source: str, cursor: Json) -> Json | None:
        """Closes a step at a source: its position, or None if there is nothing new."""

    def gathers(self, source: str, position: Json) -> bool:
        """Tells whether a source gave all that it had, and will give all that comes meanwhile."""

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        """Gives the cursor after a position; pure."""

    def together(self, unit: str, takes: Sequence[StepInput]) -> int:
        """Tells how many of these steps, from the first on, are better run as one job: 1 or more; at once."""

    def prepare(self, order: Prepare) -> None:
        """Learns of steps before their turn comes; may get ready; returns at once."""

    def run(self, order: Execute, cursor: Json | None = None) -> tuple[StepResult, ...]:
        """Executes steps, in order, each over the state that the one before left.

        Args:
            order: Which.
            cursor: Of a unit that is recomputed from everything: what that is.

        Returns:
            A result for each step; if one fails, for those before it, and the error when it is ordered again.

        Raises:
            DataError: the input is not what its position names.
            UserCodeError: a function of the program raised.
            UnavailableError: `[STEP_FAILED]` Spark could not run it.
        """

    def mark(self, batch: str, message: Message) -> Mapping[str, Any]:
        """Asks the rows of a step what its batch's policy asks of them.

        It need not say the same another time. May be called while the batch is executed.

        Returns:
            `period`: the number of the last period of event time that they reach, if they are asked and any does; `ends`: whether the
            condition holds.

        Raises:
            As `run`.
        """

    def path(self, run: RunRef) -> Path:
        """Tells where a run can be read."""

    def delivered(self, results: Iterable[StepResult]) -> None:
        """Learns that results were taken: from now on `discard` decides about their files."""

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        """Learns that these runs of a unit are durable."""

    def holds(self) -> AbstractSet[str]:
        """Names the runs that it uses, or will hand over, though nobody names them yet."""

    def discard(self, live: Collection[str]) -> None:
        """Drops the files of all runs that are not among these, nor among those that it holds itself by now."""

    def commit(self, sink: str, time: int, content: Any) -> Outcome:
        """Hands a step to its sink."""

    def read(self) -> Sequence[tuple[str, int, Reading]]:
        """Tells source and time of what was read for the first time since this was last asked, and what it was."""

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        """Learns that no failure can make anyone read a position again, and tells the source, if nobody else does."""

    def hasten(self) -> None:
        """Learns that a clean stop was asked for: a run of several steps may end after the one under way."""

    def call_off(self, unit: str) -> None:
        """Makes a unit's run end soon, with an error that nobody hears; it may have ended already."""

    def cancel(self) -> None:
        """Makes running jobs end soon, with an error, and lets none begin."""

    def close(self) -> None:
        """Lets go of sinks and files."""
