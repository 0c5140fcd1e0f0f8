"""The contract of a sink.

A step reaches a sink in two acts. `stage` runs in the tasks and has no visible effect. `commit` makes the whole step
visible at once, together with the step's number, row count and digest, in one atomic act.

The legal order of calls, by one owner:

    describe, capabilities, verify           at any time; `verify` also without an owner, and beside one
    open ─► stager ─► stage (tasks) ─┐
             ▲                       │
             └──────── commit ◄──────┘       stage of later steps may run while an earlier step is committed
    close                                    after `open`, also after a failed one

`commit` takes steps in order of their numbers, and takes some again after a recovery. After `commit` has raised an
error of the outside (`UnavailableError`) only `open` can tell what the sink holds: every `commit` before that raises,
too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from boatlift.dataflow.contracts.capabilities import SinkCapabilities
from boatlift.dataflow.contracts.values import Delivery, Json
from boatlift.errors import Finding

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Committed", "Outcome", "Sink", "SinkContext", "Staged", "Stager"]


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The owner of a sink, and the form of the rows that the owner writes.

    Attributes:
        dataflow: The dataflow's name; with `sink` it is the key of all that the sink records.
        sink: The sink's name.
        store: The id of the store that the dataflow runs from: another store's rows are not this sink's.
        token: The owner's number in that store; a newer owner has a larger one.
        schema: The schema of a step's batches: the user's columns; then `_weight` (int64) if `changes`.
        changes: Whether rows are changes (weight −1 and +1) or all appended (no `_weight`).
    """

    dataflow: str
    sink: str
    store: str
    token: int
    schema: pa.Schema
    changes: bool


@dataclass(frozen=True, slots=True)
class Committed:
    """A step that a sink holds: its number, rows and digest."""

    step: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Staged:
    """The receipt of one task that staged its part of a step; `commit` gets the receipts of all tasks that succeeded.

    Attributes:
        partition: The task's partition; `commit` gets a step's receipts in order of partition.
        rows: How many rows.
        place: Where the sink's own stager put the rows (a file, a transaction).
    """

    partition: int
    rows: int
    place: str


class Outcome(Enum):
    """What `commit` did with a step."""

    APPENDED = "appended"
    DROPPED = "compared and dropped"


class Stager(Protocol):
    """The part of a sink that runs in the tasks. It is pickled, and keeps nothing between steps."""

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Put a task's rows of one step where `commit` will find them; no reader can see them yet.

        Args:
            folder: A scratch folder that driver and tasks share.
            name: A fresh file name, unique to this attempt.
            partition: The task's partition.
            batches: The rows, in the schema of the sink's context.
        """


class Sink(Protocol):
    """Where results go.

    Laws (`commit` of step n while the sink holds steps 0…m):
        * n = m + 1: the whole step becomes visible at once, with its number and digest: `APPENDED`. A crash at any
          moment leaves all of it or nothing.
        * n ≤ m: nothing changes. Same rows and digest: `DROPPED`; else `DivergedError [DIVERGED]`.
          An account may forget old steps, so that it is bounded: these are `DROPPED` with a warning, not compared.
        * n > m + 1: `DataError [SINK_GAP]`.
        * once `open` was called with a larger token, an older owner's commit raises `FencedError [FENCED]`.
        * rows in the sink's place that another program wrote are refused, also rows under another key:
          `[SINK_OF_ANOTHER_DATAFLOW]`.
        * rows that this sink wrote for another store are refused: `[SINK_OF_ANOTHER_STORE]`. Tokens are numbers of one
          store, so the store is compared before any token. A refused owner has fenced no other.
        * NULL stays NULL, NaN stays NaN or is refused (`[NAN_REFUSED]`), −0.0 stays a zero.

    `connectors.kit.StepLedger` decides the first three, and has the words of their errors.

    Laws of a sink whose `delivery` is `AT_LEAST_ONCE`, in place of these:
        * `open` returns None. The log is the sink's account: the host records each step that has rows durably after its
          commit, and before the next step is committed.
        * `commit` of a step returns once the outside has all its rows: `APPENDED`. Steps come in order, without a gap.
        * After a crash, or an error of the outside, only the step under way comes again, with the same rows, and
          perhaps empty steps before it. The sink does not compare it.
        * No owner is fenced: a paused owner that goes on, or a task that outlives its process, may once more deliver
          the step that it had under way.
    """

    @property
    def delivery(self) -> Delivery:
        """The guarantee that the sink can give."""

    @property
    def key(self) -> Sequence[str] | None:
        """The key columns: then rows are upserts (`_weight` +1) and deletes (−1), and a step's deletes come first.

        None: rows are changes as they are.
        """

    @property
    def capabilities(self) -> SinkCapabilities:
        """The abilities that this sink has beyond this contract; constant."""

    def describe(self) -> Json:
        """Return kind, place and options, for `plan` and `status`."""

    def open(self, context: SinkContext) -> Committed | None:
        """Take the sink over: make its place if there is none, fence older owners, return the newest step.

        Returns:
            The newest step that is there as a whole; None if there is none, or if the sink keeps no account.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`.
            InvalidError: `[TYPE_REFUSED]` a column's type cannot be held.
            FencedError: a newer owner has the sink.
        """

    def stager(self) -> Stager:
        """Return the part that runs in the tasks; legal at any time after `open`, also while a step is committed.

        All stagers of one owner are equal, however often it opens the sink: the first may be used for all steps.
        """

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        """Make a step visible, atomically, under the laws above."""

    def verify(self) -> Iterator[Finding]:
        """Check what this sink wrote, as far as its place keeps checksums, and yield each fault.

        The check needs no `open`, no store and no JVM. It takes nothing over and writes nothing, and it may run beside
        the owner. A sink that was never written has no fault.

        Raises:
            UnavailableError: `[SINK_FAILED]` the place cannot be read.
        """

    def close(self) -> None:
        """Release connections; legal also when there are none."""
