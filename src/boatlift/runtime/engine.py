"""The contract between a host and an engine, which executes its steps: Spark, or an engine in memory.

An engine executes; it decides nothing. Any worker thread may call any method. Two runs of one unit, and two commits of
one sink, are never under way at the same time. `prepare`, `cancel_steps`, `kept` and `probe` may be called during a run
of the same unit.

**Payloads.** Messages and states are *payloads*: JSON that names immutable runs (`storage/records/payloads.py`).
Payloads are opaque to the machine. A run is a file in scratch; a durable run is an object in the store, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step.

    Attributes:
        rows, digest: Of all output rows; the digest does not depend on how the rows were divided among tasks.
        state: The unit's state after the step; None if the unit keeps none.
        seconds: The duration, for people; of a job over several steps its share.
        determinant: The answers of external systems, as JSON, if the unit records them; else None.
        tasks: The tasks that made it; 0 if there were none, or if that is unknown.
    """

    rows: int
    digest: str
    sent: Mapping[str, Any] = field(default_factory=dict)
    state: Any = None
    rows_in: int = 0
    seconds: float = 0.0
    determinant: Any = None
    tasks: int = 0

    def runs(self) -> Iterator[RunRef]:
        for payload in (self.state, *self.sent.values()):
            yield from runs_of(payload)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state of a dataflow at the start of an engine.

    Attributes:
        scratch: A folder for files that need not survive the process.
        token: Identifies this owner to sinks and sources; a newer owner has a larger token.
        recorded: Source to the last epoch that earlier processes closed: its input must be proved unchanged.
        read: Source and epoch to the rows that were read before, where these are recorded.
        cursors: Source to the cursor after the positions that no recovery needs, and to the cursor after all positions.
        files: The names of runs in scratch that were adopted from an earlier owner.
        executed: Unit to the last step that an earlier owner has executed, if it did not stop cleanly.
        in_memory: Whether states may be in memory as their policies say; else all are in place.
    """

    store: Store
    scratch: Path
    store_id: str
    token: int
    recorded: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[tuple[str, int], Reading] = field(default_factory=dict)
    cursors: Mapping[str, tuple[Json, Json]] = field(default_factory=dict)
    files: AbstractSet[str] = frozenset()
    executed: Mapping[str, int] = field(default_factory=dict)
    in_memory: bool = False


class Skips(NamedTuple):
    """The input that steps skip, as the user decided.

    Attributes:
        steps: Units and numbers of steps that take no rows.
        messages: Unit, edge and sender's time: the unit takes an empty message in place of this one.
        rows: Source to the places of the bad rows that are set aside; None if all are.
    """

    steps: AbstractSet[tuple[str, int]] = frozenset()
    messages: AbstractSet[tuple[str, str, Any]] = frozenset()
    rows: Mapping[str, AbstractSet[str] | None] = {}


@dataclass(frozen=True, slots=True)
class Past:
    """The past that a transition computes.

    Attributes:
        scratch, store, store_id, token: As of `Beginning`.
        time: Unit to the number of the step that stands for its whole past; of several steps the last.
        cursors: Source to the cursor up to which its rows count; a source without one has no rows.
        sinks: Sink to whether it gets only rows that come, and not those that go. All were opened.
        clock: Milliseconds since 1970.
        stepwise: Whether units execute the past in steps, as sources divide it anew, and not in one step.
        undone: Sinks whose difference takes back their own steps after this one, whatever the past; None: the
            difference has no row. They are among `sinks`.
        kept: Unit to its recorded state, which gives its past rows: it is not executed. They are among `time`.
        known: Sink to the state of its unit whose rows it holds, if it proves that nobody else has changed them; None
            for no rows. They are among `sinks`; one of `undone` got what lies between the kept state and this one.
    """

    store: Store
    scratch: Path
    store_id: str
    token: int
    time: Mapping[str, int]
    cursors: Mapping[str, Json]
    sinks: Mapping[str, bool]
    clock: int
    stepwise: bool = False
    undone: Mapping[str, int | None] = field(default_factory=dict)
    kept: Mapping[str, Any] = field(default_factory=dict)
    known: Mapping[str, Any] = field(default_factory=dict)


class FromPast(NamedTuple):
    """The result of a past: unit to the state after it, and sink to the difference between what it holds and that."""

    states: Mapping[str, Any]
    differences: Mapping[str, Any]


class Activity(NamedTuple):
    """The progress of the calls of a processor.

    Attributes:
        mark: Equal to that of an earlier call only if no task has begun, ended or moved rows in between; not None.
        tasks: The running tasks in words, each with job and machine; empty if none is running.
    """

    mark: Hashable
    tasks: str


class Engine(Protocol):
    """Executes the steps of one dataflow."""

    plan: Plan

    @property
    def cancelled(self) -> bool:
        """True once `cancel` was called."""

    def program(self) -> dict[str, Any]:
        """Return the identity of the program: a store of another program is refused."""

    def not_at_once(self, unit: str) -> str:
        """Return why a unit cannot be executed over its whole past in one step; empty if it can.

        Law: if it can, the rows of that step from no state are the sum of the rows of all steps, and the state is the
        one after all steps, however they were divided.
        """

    def not_again(self, unit: str) -> str:
        """Return why the steps of a unit cannot be executed again, divided in another way; empty if they can."""

    def by_place(self, unit: str) -> str:
        """Return why rows of a unit depend on their places in a step's input; empty if they do not."""

    def gives_rows(self, unit: str, program: Mapping[str, Any]) -> bool:
        """Return whether a state of a unit that another program has recorded gives all rows of the unit then.

        Args:
            program: The identity of that program.
        """

    def from_past(self, past: Past) -> FromPast:
        """Execute units over the whole past, before `start`, and compare the result with what sinks hold.

        The files of all runs are in scratch afterwards.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]` the past is not what was taken; `[CANNOT_TAKE_BACK]` rows
                would go from a sink that can only add rows.
            BoatliftError: a step failed.
        """

    def environment(self) -> dict[str, Any]:
        """Return the versions and settings that results depend on: a replay under others is refused."""

    def reserve(self) -> None:
        """Take the resources that only one process can have, before this process fences any other.

        Raises:
            UnavailableError: `[LISTEN_FAILED]`.
        """

    def redirect(self, owner: Mapping[str, str] | None) -> None:
        """Answer the clients of sources in the place of another process, the owner; before `reserve`.

        Args:
            owner: Source to the URL that the owner advertises. Empty: nobody owns the dataflow, and clients that are
                answered already try again. None: answer nothing, and hold no port.
        """

    def advertised(self) -> Mapping[str, str]:
        """Return the URL of each source at which clients of other hosts reach this process, once it has reserved it."""

    def listening(self) -> Mapping[str, str]:
        """Return the URL of each source that takes rows over HTTP now."""

    def awaited(self) -> bool:
        """Return, at once, whether a client waits until its rows are stable."""

    def start(self, beginning: Beginning) -> None:
        """Begin as a new owner, which writes to sinks and takes pushed rows."""

    def skip(self, skips: Skips) -> None:
        """Skip steps, which then yield nothing and leave their state; set bad rows aside in the store."""

    def open_sink(self, sink: str, name: str, store: str, token: int) -> Committed | None:
        """Take a sink over, which fences older owners, and return its last step; None if it holds none.

        It may be called before `start`, and beside it.

        Args:
            name: The sink's name in its place: the one that it had first, if it was renamed.
            store: The id of the store.
            token: Of the owner.
        """

    def first_cursor(self, source: str) -> Json:
        """Return a source's cursor before its first position."""

    def prove(self, source: str, messages: Sequence[tuple[tuple[str, str, int], Json]]) -> None:
        """Prove that the input of recorded messages is unchanged: unit, edge and time of each, and its position.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """

    def poll(self, source: str, cursor: Json) -> Json | None:
        """Close a step at a source, and return its position; None if there is no new input."""

    def announce(self, callback: Callable[[str], None]) -> Collection[str]:
        """Call a function, until `close`, with the name of a source soon after it has new input.

        Return the sources that announce new input.
        """

    def gathers(self, source: str, position: Json) -> bool:
        """Return whether a position holds a source's whole backlog, so that new input gathers for the next position."""

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        """Return the cursor after a position; pure."""

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        """Return, at once, how many of these steps, from the first on, are better executed as one job: 1 or more."""

    def prepare(self, order: Prepare) -> None:
        """Get ready for steps that may come next; returns at once."""

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        """Execute steps in order, each over the state that the one before left.

        Returns:
            A result for each step. If a step fails, only the results before it; its error is raised when the step is
            ordered again.

        Raises:
            DataError: the input has changed since its position was recorded.
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
        """Raise if the engine's process is gone, also while there is no step; called every few seconds.

        Raises:
            UnavailableError: `[JVM_DIED]`.
        """

    def bytes_in_memory(self) -> int:
        """Return the bytes of states that are in a memory file system; from any thread."""

    def resident_bytes(self) -> Mapping[str, int]:
        """Return the memory of the engine's other processes on this computer, by what they are; from any thread."""

    def page(self) -> str:
        """Return the address of the engine's own page; empty if it has none."""

    def path(self, run: RunRef) -> Path:
        """Return where a run can be read."""

    def delivered(self, results: Iterable[StepResult]) -> None:
        """The host has these results: from now on `discard` decides about their files."""

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        """These runs of a unit are durable."""

    def holds(self) -> AbstractSet[str]:
        """Return the runs that the engine uses, or will hand over, though no payload names them yet."""

    def discard(self, live: Collection[str]) -> None:
        """Drop the files of all runs that are neither live nor held by the engine itself by now."""

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        """Hand a step to its sink."""

    def commit_together(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        """Hand a step to each of some sinks, in one act of their place: all are visible then, or none.

        Args:
            steps: Sink, number of the step, and its payload; different owners have the sinks in the same order.
        """

    def read(self) -> Sequence[tuple[str, int, Reading]]:
        """Return source, epoch and rows of the input that was read for the first time since the last call."""

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        """No recovery reads this position again; the source is informed once no reader does."""

    def hasten(self) -> None:
        """A clean stop was requested; `run` may return after the current step."""

    def activity(self, processor: str) -> Activity:
        """Return the progress of a unit's run, or of a sink's commit."""

    def cancel_steps(self, processor: str) -> None:
        """End a unit's run, or a sink's commit, soon and with an error; it may have ended already."""

    def cancel(self) -> None:
        """End running jobs soon, with an error, and start no more."""

    def close(self) -> None:
        """Close sinks and files."""
