"""Optional abilities of connectors, as values.

A connector lists its abilities in `capabilities`. Each field has the object with the methods, usually the connector
itself, or None. So a wrapper that forwards `capabilities` is planned and run exactly like the wrapped connector. No
code tests for an ability with `isinstance`, which a wrapper would hide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.dataflow.contracts.durations import Durations
from boatlift.dataflow.contracts.pushed import Pushable, StoreBacked
from boatlift.dataflow.contracts.twins import BoundedInput, SinkTwin
from boatlift.dataflow.contracts.values import Json
from boatlift.dataflow.policies import Batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

    from boatlift.dataflow.contracts.joint import SharesTransaction
    from boatlift.dataflow.contracts.sink import SinkContext
    from boatlift.dataflow.contracts.source import Source


BAD_ROW = "_bad_row"  # the column of rows with bad ones among them that is NULL in good rows

FrameOfTask = Callable[[Any, Any], "DataFrame"]
"""Takes a function of Arrow batches and a `StructType`, and returns the function's rows in one partition as a frame."""


class ReadsManySteps(Protocol):
    """Reads several positions in one scan, so that small waiting steps run as one Spark job.

    Law: the rows of `load_together(spark, [p0, …, pn])` with `_ordinal` i are those of `load(spark, pi)`.
    """

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        """Read exactly the rows of some positions, lazily; `_ordinal` (int) is the index of a row's position."""


class NamesInput(Protocol):
    """Describes an input for people, so that an error shows the input of a step."""

    def names(self, position: Json) -> str:
        """Return a short description of a position."""


class CoalescesBacklog(Protocol):
    """Takes all input that has arrived into its next position.

    The engine polls such a source only when its next step can begin. Polled earlier, it would make many small steps,
    each waiting for all before it. After a full position the engine polls again at once.
    """

    def is_full(self, position: Json) -> bool:
        """Return whether a position is as large as a step may be."""


class SortsOutBadRows(Protocol):
    """Emits rows that do not fit the declared columns as bad rows, instead of stopping at the first.

    Laws:
        * `sorting_out()` has the positions and cursors of the source itself.
        * Its rows have one more column, the struct `_bad_row`. It is NULL in good rows, which are those that the source
          itself would emit without bad input; each bad row is one row in which it is not NULL.
        * A bad row is the same in each replay: `_bad_row` depends only on the raw input and its place.
        * `dead_letters` makes one row of each bad row, and of that row alone.
        * `places` identifies each row as an error of the source does, and no two rows alike.
    """

    def sorting_out(self) -> Source:
        """Return the same source with bad rows among its rows; it has this capability too."""

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        """Return the dead letters of bad rows: the raw input, its place, and the reason why it does not fit.

        Args:
            rows: Rows of `sorting_out()`, all of them bad.
        """

    def places(self, dead_letters: Sequence[Row]) -> list[str]:
        """Return the place in the input of each dead letter, such as `orders.csv:7` or `orders/0:511`."""


class AnnouncesInput(Protocol):
    """Announces new input, so that it need not be found by polling.

    Law: announcements are hints. The engine polls after each, and sometimes without one.
    """

    def announce_input(self, notify: Callable[[], None]) -> Callable[[], None]:
        """Call a function, from any thread, after input has arrived that the last `next` did not see.

        Returns:
            A function that ends the announcements; one in progress may still arrive.
        """


class Rescannable(Protocol):
    """Reads all past input again, for `recompute` over everything and for a changed program.

    Law: the rows of `load_everything(spark, c)`, in any order, are those of `load` for all positions up to the cursor
    c, or `verify_everything(c)` raises. If rows replace one another (`Upserts`), they are the current ones.
    """

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Read exactly the rows of all positions up to a cursor, lazily."""

    def verify_everything(self, cursor: Json) -> None:
        """Check that all input up to a cursor exists unchanged.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`; `[HISTORY_GONE]` for input that its system keeps only for
                a time, and has deleted.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """The number of rows that tasks have read of a position, and their digest."""

    rows: int
    digest: str


class DigestsOnRead(Protocol):
    """Counts and digests rows in the tasks that read them, for sources where `verify` cannot detect a changed row.

    Laws:
        * The rows are those of `load_together`; without ordinals, those of `load` of one position.
        * `reading(folder)` after a read is the same for the same rows, however Spark divides them or repeats a task,
          and different for different rows.
    """

    def load_digested(
        self, spark: SparkSession, positions: Sequence[Json], folders: Sequence[str], *, ordinals: bool
    ) -> DataFrame:
        """Read exactly the rows of some positions, lazily; tasks record in folders what they have read.

        Args:
            positions: The input to read.
            folders: One folder for each position; an empty name for no record.
            ordinals: Whether to add `_ordinal`, the index of a row's position.
        """

    def reading(self, folder: str) -> Reading | None:
        """Return the tasks' record in a folder; None if no task has read anything."""


class ParameterizedRead(Protocol):
    """Reads rows named by job parameters, in one task, so that one cached Spark plan serves many small steps.

    Planning a small step takes Spark as long as running it.

    Law: with `parameters_for(p, f)` as its job's parameter, `load_parameterized` returns the rows of `load(spark, p)`,
    and records in folder f what `load_digested` records. `load_parameterized` is called before `parameters_for`.
    """

    def load_parameterized(self, spark: SparkSession, frame_of: FrameOfTask | None = None) -> DataFrame:
        """Read the rows named by the job's parameters (`connectors.kit.job_parameters`), lazily, in one partition.

        Args:
            frame_of: Makes the frame of the reading task's rows. It may add one column, which the source's expressions
                may drop. None for a frame with the columns of the task.
        """

    def parameters_for(self, position: Json, folder: str) -> bytes | None:
        """Return the parameters of a job: the rows to read, and the folder for the record of the read.

        Returns:
            None if several tasks read the position better.
        """


class LeavesOutColumns(Protocol):
    """A reading task, as `FrameOfTask` takes it, that can leave columns out: it has a method `narrowed`.

    Law: the rows are those of the task itself, without the other columns.
    """

    def narrowed(self, names: Collection[str]) -> Any:
        """Return the task that reads these of its columns, in the order that they have."""


class RecordsInput(Protocol):
    """Records in the store what it fetches, before a step takes it.

    Laws:
        * What a position names was durable before `next` returned the position.
        * Without `attach` the source has the input that it would have without recordings.
    """

    def attach(self, store: Any, scratch: Path, source: str) -> None:
        """Record in a store from now on; called once a run owns the dataflow, before its first `next`.

        Args:
            store: The store of the dataflow.
            scratch: A folder for files that are not whole yet.
            source: The name of the source.
        """


@dataclass(frozen=True, slots=True)
class WaitingInput:
    """Available input that no step has taken yet.

    Attributes:
        count, unit: The amount, such as 3 `files`.
        bytes: Its bytes, if known.
        oldest_at: The arrival of the oldest of it, in milliseconds since 1970, if known.
    """

    count: int
    unit: str
    bytes: int | None = None
    oldest_at: int | None = None


class CrashPoints(Protocol):
    """Announces the moments between the external actions of one `commit`, at which tests kill the process."""

    def announce(self, moment: Callable[[str], None]) -> None:
        """Call a function with the name of each moment from now on."""


@dataclass(frozen=True, slots=True)
class Upserts:
    """How the rows of a source replace one another.

    Laws:
        * For each key the row with the greatest `order` is current. If that row is a delete, the key has no row.
        * No two rows have the same order; rows of later positions have a greater one.

    Attributes:
        key: The columns of the key, never NULL.
        order, deletes: Columns that the source adds: the order, and whether a row deletes its key.
    """

    key: tuple[str, ...]
    order: str
    deletes: str


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    """Optional abilities of a source; None for those it lacks.

    Attributes:
        ordered_within: The part of the input whose rows `load` returns in order, such as `file`. Law: partitions
            concatenated by number have the rows of each part in the source's order, whatever their number.
        period: The seconds from one step to the next, for a source whose steps follow the clock.
        upserts: How rows replace one another: the source's stream is then the changes of the current rows. None: all
            rows are new.
        preflight: Raises the error of `next` for an input that can never have a row, such as `[NO_INPUT]`. It needs no
            session and has no effect.
        waiting: Returns the input after a cursor that is available now, informative. The engine calls it sometimes,
            from any thread.
        answered: Returns, by the status of HTTP, in what time requests with rows were answered; informative. From any
            thread.
        gone: Returns in words which input after a cursor, up to a later one, is gone; empty if `next` would find all of
            it again. None: input stays for ever.
        bytes_up_to: Estimates the bytes of `load_everything`, or raises `[INPUT_MISSING]` if it sees at once that some
            of them are gone; None: Spark estimates them.
        divided_anew: Returns positions with the rows of `load_everything`, in an order in which `next` could have taken
            them: no more positions than so many, each within the limits of a step today if that number allows it. Only
            `load` is asked about them. None: no such order is known.
        contains: Returns whether a position ends an item of the input, or a cursor has all of it: a file by its name, a
            message as `topic/partition:offset`, a push by its key. None: items have no names.
        bounded: Bounds the source to what is there now, for crash tests; None: a dataflow with the source has none.
    """

    announces_input: AnnouncesInput | None = None
    reads_many_steps: ReadsManySteps | None = None
    coalesces_backlog: CoalescesBacklog | None = None
    rescannable: Rescannable | None = None
    digests_on_read: DigestsOnRead | None = None
    parameterized_read: ParameterizedRead | None = None
    names_input: NamesInput | None = None
    bad_rows: SortsOutBadRows | None = None
    store_backed: StoreBacked[Any] | None = None
    records_input: RecordsInput | None = None
    pushable: Pushable | None = None
    ordered_within: str | None = None
    period: float | None = None
    upserts: Upserts | None = None
    preflight: Callable[[], None] | None = None
    waiting: Callable[[Json], WaitingInput] | None = None
    answered: Callable[[], dict[str, Durations]] | None = None
    gone: Callable[[Json, Json], str] | None = None
    bytes_up_to: Callable[[Json], int] | None = None
    divided_anew: Callable[[Json, int], Sequence[Json]] | None = None
    contains: Callable[[Json, str], bool] | None = None
    bounded: BoundedInput | None = None


class ReadsBack(Protocol):
    """Reads back the rows that a sink holds, so that a changed program corrects them.

    Law: after `open`, the rows are those that readers see: for a sink with a key the current row of each key, else the
    sum of all changes. No older owner changes them any more. Of a step that is there in part, the part counts.
    """

    def held(self, spark: SparkSession) -> DataFrame | None:
        """Return the rows, lazily: the columns that the place has, and `_weight`; None if it holds nothing.

        Raises:
            InvalidError: `[SINK_NOT_READABLE]` rows are gone, or cannot be read with their values; also from the tasks
                that read the rows.
        """


class ReadsBackSteps(Protocol):
    """Reads back the changes of the newest steps, so that going back needs no computation.

    Law: the sum of `held_since(spark, n)` and of the rows that readers saw after step n is `ReadsBack.held`.
    """

    def held_since(self, spark: SparkSession, step: int) -> DataFrame | None:
        """Return the changes after one of the sink's own steps, lazily, as `held`; None if there are none."""


class TakesBack(Protocol):
    """Takes back whole steps, for rows that no later row can take back.

    Laws, after `open`:
        * Readers then see what they saw after that step. They see the steps after it go one by one, the newest first.
        * The numbers of the steps stay used; a repeated call changes nothing.
        * If an owner has emptied rows of steps up to n, `newest_owner(n)` is at least its token.
    """

    def newest_owner(self, step: int) -> int:
        """Return the largest token of the owners that gave, or emptied, steps up to this one; 0 if there are none.

        Steps before the newest one that has rows need not count.
        """

    def take_back(self, step: int) -> None:
        """Empty all of the sink's own steps after one.

        Raises:
            FencedError: `[FENCED]`.
            UnavailableError: `[SINK_FAILED]`.
        """


class KeepsNote(Protocol):
    """A sink that keeps bytes of its owner beside its steps (`storage/records/stream.py`).

    Laws:
        * The note becomes durable in the very act that makes the step visible; of a step in several acts, in each.
        * A step that the sink drops leaves no note, and neither does an act behind a newer owner's `open`.
        * After `open` the note of the newest act of each part of the sink is there. A sink may drop a note once a later
          act of the same part had none.
    """

    @property
    def note_bytes(self) -> int:
        """The size of the largest note; 0 if notes are only read."""

    def note(self, content: bytes) -> None:
        """Give the note of the next `commit`, and of no other."""

    def notes(self) -> Sequence[bytes]:
        """Return, after `open`, the newest note of each part of the sink, if it is there."""


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """Optional abilities of a sink.

    Attributes:
        parts: The number of parts in which a step becomes visible, each atomically. After a crash a sink of several
            parts may show some of a step, so the same rows must come again.
        runs_jobs: Whether `commit` runs Spark jobs. The engine keeps them apart from the unit's, so that cancelling the
            unit's jobs does not cancel them.
        crash_points: Announces the moments inside `commit`; None if `commit` is a single external action.
        places: The places that belong to the sink alone, such as `folder /out`. A program with two sinks for one place
            is refused. Law: two sinks that exclude each other, whatever their options, have a common place.
        gathers: The sink takes many steps as one, which ends by this policy: a `gather` precedes it. None for no
            gathering.
        leaves_files: Whether each step leaves a file of its own; `boatlift plan` warns if there will be many.
        preflight: Raises the error of `open` for a place of another sink, or one that can never exist. It needs no
            session and has no effect. In its context token and schema are undefined, and the store is "" if there is
            none yet.
        refuses_duplicates: The sink itself enforces unique keys, so any key is allowed. Law: `commit` of a step with a
            row whose key another row has raises `[DUPLICATE_KEY]`, and nothing of the step is visible.
        reads_back: Reads back what the sink holds; None if the sink cannot be asked.
        untouched: Proves, after `open`, that of its own steps after one the place holds what they gave it; None if it
            cannot without reading all rows. Law: if `untouched(-1)` is True, `reads_back` has the sum of all steps.
        reads_back_steps: Reads back the changes of its newest steps; None if the sink does not keep them apart.
        takes_back: Takes back whole steps, of rows that are no changes; None if nothing can.
        begun: Returns, after `open`, the newest step of which the place has a part or all; -1 for none. None if no
            step is ever there in part. Law: `commit` of the step after it appends: the part stays as it is.
        keeps_note: Keeps a note of the owner in the atomic act of a step; None if the sink cannot.
        shares_transaction: Writes steps in one transaction with other sinks of its place; None if it cannot.
        twin: Makes the sink's twin below a folder, under a name of its own, for crash tests; None if it has none.
        identified_by: The columns that identify a row at the receiver of an at-least-once sink; empty if a step's
            number identifies its rows. Law: a row that comes again, in whatever step, comes with the same identity.
        named_by_row: Whether each request has one row, and the identity of that row as its name.
    """

    parts: int = 1
    runs_jobs: bool = False
    crash_points: CrashPoints | None = None
    places: tuple[str, ...] = ()
    gathers: Batch | None = None
    leaves_files: bool = False
    preflight: Callable[[SinkContext], None] | None = None
    refuses_duplicates: bool = False
    reads_back: ReadsBack | None = None
    untouched: Callable[[int], bool] | None = None
    reads_back_steps: ReadsBackSteps | None = None
    takes_back: TakesBack | None = None
    begun: Callable[[], int] | None = None
    keeps_note: KeepsNote | None = None
    shares_transaction: SharesTransaction | None = None
    twin: Callable[[Path, str], SinkTwin] | None = None
    identified_by: tuple[str, ...] = ()
    named_by_row: bool = False
