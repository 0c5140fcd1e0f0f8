"""The contract of a sink.

A step reaches a sink in two phases. `stage` runs in the tasks and has no visible effect. `commit` atomically makes the
whole step visible, together with the step's number, row count and digest.

The legal order of calls, by one owner:

    describe, capabilities, verify           at any time; `verify` also without an owner, and beside one
    open ─► stager ─► stage (tasks) ─┐
             ▲                       │
             └──────── commit ◄──────┘       later steps may be staged while an earlier step is committed
    close                                    after `open`, even a failed one

Steps are committed in order of their numbers, and some again after a recovery. After `commit` has raised an
`UnavailableError` only `open` can tell which steps the sink holds: until then every `commit` raises, too.
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


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The owner of a sink, and the schema of its rows.

    Attributes:
        dataflow, sink: The names of both: together the key of all records of the sink.
        store: The id of the dataflow's store: rows from another store are not this sink's.
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
    """The receipt of a task that staged its rows of a step. `commit` receives those of all successful tasks.

    Attributes:
        partition: The task's partition; `commit` receives the receipts in this order.
        rows: Number of rows.
        place: Where the stager put the rows: a file, a transaction.
    """

    partition: int
    rows: int
    place: str


class Outcome(Enum):
    """The result of `commit`."""

    APPENDED = "appended"
    DROPPED = "compared and dropped"


class Stager(Protocol):
    """The side of a sink that runs in the tasks. It is pickled, and has no state between steps."""

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Write a task's rows of one step for `commit`, invisible to readers.

        Args:
            folder: A scratch folder shared by driver and tasks.
            name: A new file name, unique to this attempt.
            partition: The task's partition.
            batches: The rows, in the schema of the sink's context.
        """


class Sink(Protocol):
    """Writes results to an external system.

    Laws (`commit` of step n while the sink holds steps 0…m):
        * n = m + 1: the whole step becomes visible at once, with its number and digest: `APPENDED`. A crash at any
          moment leaves all of it or nothing.
        * n ≤ m: nothing changes. Same rows and digest: `DROPPED`; else `DivergedError [DIVERGED]`.
          A ledger may be bounded and drop old steps: these are `DROPPED` with a warning, not compared.
        * n > m + 1: `DataError [SINK_GAP]`, but for the step after one that is there in part (`begun`).
        * Once `open` was called with a larger token, an older owner's commit raises `FencedError [FENCED]`.
        * Rows of another program in the sink's place are refused, and so are rows under another key:
          `[SINK_OF_ANOTHER_DATAFLOW]`.
        * Rows that this sink wrote for another store are refused: `[SINK_OF_ANOTHER_STORE]`. Tokens are numbers of one
          store, so the store is compared before any token. A refused owner has fenced no other.
        * NULL stays NULL, NaN stays NaN or is refused (`[NAN_REFUSED]`), −0.0 stays a zero.

    `connectors.kit.StepLedger` implements the first three, with their error messages.

    Laws of a sink whose `delivery` is `AT_LEAST_ONCE`, in place of these:
        * `open` returns None. The log is the sink's ledger: after the commit of a step with rows, the host records it
          durably before it commits the next step.
        * `commit` returns once the external system has all rows: `APPENDED`. Steps come in order, without a gap.
        * After a crash, or an error of the external system, only the step in progress is committed again, with the same
          rows, and perhaps empty steps before it. The sink does not compare it.
        * No owner is fenced: a paused owner that resumes, or a task that outlives its process, may deliver its step in
          progress again.
    """

    @property
    def delivery(self) -> Delivery:
        """The guarantee of the sink."""

    @property
    def key(self) -> Sequence[str] | None:
        """The key columns: rows are then upserts (`_weight` +1) and deletes (−1), a step's deletes first.

        None: rows are plain changes.
        """

    @property
    def capabilities(self) -> SinkCapabilities:
        """The optional abilities; constant."""

    def describe(self) -> Json:
        """Return kind, place and options, for `plan` and `status`."""

    def open(self, context: SinkContext) -> Committed | None:
        """Take the sink over: create its place if absent, fence older owners, return the newest step.

        Returns:
            The newest complete step; None if there is none, or if the sink has no ledger.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`.
            InvalidError: `[TYPE_REFUSED]` a column's type cannot be held.
            FencedError: `[FENCED]` a newer owner has the sink; `newest` is its token.
        """

    def stager(self) -> Stager:
        """Return the side that runs in the tasks; legal at any time after `open`, even while a step is committed.

        All stagers of one owner are equal, however often it opens the sink: the first may serve all steps.
        """

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        """Make a step visible, atomically, under the laws above."""

    def verify(self) -> Iterator[Finding]:
        """Check the written data, as far as its place has checksums, and yield each fault.

        The check needs no `open`, no store and no JVM. It writes nothing, and may run beside the owner. A sink that was
        never written has no fault.

        Raises:
            UnavailableError: `[SINK_FAILED]` the place cannot be read.
        """

    def close(self) -> None:
        """Release connections, if any."""
