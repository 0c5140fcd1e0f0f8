"""Abilities that only some connectors have, as values.

A connector says in `capabilities` which of them it has. Each field holds the object with the methods, mostly the
connector itself, or None. A wrapper that passes `capabilities` on is therefore planned and run exactly as the connector
that it wraps. No code asks for an ability with `isinstance`: a wrapper would hide it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.dataflow.contracts.pushed import Pushable, StoreBacked
from boatlift.dataflow.contracts.values import Json
from boatlift.dataflow.policies import Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from boatlift.dataflow.contracts.sink import SinkContext
    from boatlift.dataflow.contracts.source import Source

__all__ = [
    "BAD_ROW",
    "AnnouncesInput",
    "CoalescesBacklog",
    "CrashPoints",
    "DigestsOnRead",
    "FrameOfTask",
    "NamesInput",
    "ParameterizedRead",
    "Reading",
    "ReadsManySteps",
    "Rescannable",
    "SinkCapabilities",
    "SortsOutBadRows",
    "SourceCapabilities",
    "Upserts",
    "WaitingInput",
]

BAD_ROW = "_bad_row"
"""Where a source sorts out bad rows: the column that is NULL in rows that fit."""


FrameOfTask = Callable[[Any, Any], "DataFrame"]
"""Returns the frame of the rows that a function of Arrow batches makes in one partition, with the columns of a
`StructType`."""


class ReadsManySteps(Protocol):
    """Reads several positions in one scan: small steps that wait are then run as one Spark job.

    Law: the rows of `load_together(spark, [p0, …, pn])` with `_ordinal` i are those of `load(spark, pi)`.
    """

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        """Read exactly the rows that positions name, lazily; `_ordinal` (int) is the index of a row's position."""


class NamesInput(Protocol):
    """Names an input in words for people, so that an error can say which input a step takes."""

    def names(self, position: Json) -> str:
        """Return what a position names, in few words."""


class CoalescesBacklog(Protocol):
    """Takes in its next position all input that has come meanwhile.

    The engine polls such a source only when its next step can begin. Polled ahead, it would make many small steps, and
    each step would wait for all before it. After a full position the engine polls again at once, because more input is
    likely to be there.
    """

    def is_full(self, position: Json) -> bool:
        """Return whether a position took as much as a step may take."""


class SortsOutBadRows(Protocol):
    """Hands on rows that do not fit the declared columns, in place of stopping at the first.

    Laws:
        * `sorting_out()` takes the positions that the source itself takes, and its cursors are the same.
        * Its rows have one more column, `_bad_row`, a struct. Those in which it is NULL are the rows that the source
          itself gives, if there are no bad rows among its input; each bad row is one row in which it is not NULL.
        * A bad row is the same in each replay: `_bad_row` has what was to be read, and its place in the input, and
          depends on nothing else.
        * `dead_letters` makes one row of each bad row, and of that row alone.
        * `places` names each letter's row as an error of the source names it, and no two rows alike.
    """

    def sorting_out(self) -> Source:
        """Return the same source with bad rows among its rows; it has this capability too."""

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        """Return the dead letters of bad rows: what was to be read, its place, and the reason why it does not fit.

        Args:
            rows: Rows of `sorting_out()`, all of them bad.
        """

    def places(self, dead_letters: Sequence[Row]) -> list[str]:
        """Return the place in the input of each row of `dead_letters`, such as `orders.csv:7` or `orders/0:511`."""


class AnnouncesInput(Protocol):
    """A source whose new input is announced soon; other sources have to be polled to find theirs.

    Law: an announcement decides nothing. The engine polls then, and now and then without one.
    """

    def announce_input(self, told: Callable[[], None]) -> Callable[[], None]:
        """Call a function, from any thread, after input has come that the last `next` did not see.

        Returns:
            What ends the announcements, but for one that is under way.
        """


class Rescannable(Protocol):
    """Reads again all input that the source ever gave: for `recompute` over everything.

    Law: the rows of `load_everything(spark, c)`, whatever their order, are those of `load` of all positions of
    which c is the cursor, or `verify_everything(c)` raises. If rows replace one another (`Upserts`), they are those
    of them that hold.
    """

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Read exactly the rows of all positions up to a cursor, lazily."""

    def verify_everything(self, cursor: Json) -> None:
        """Prove that all input up to a cursor is still there, unchanged.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """What tasks read of a position.

    Attributes:
        rows: How many rows.
        digest: The digest of the rows.
    """

    rows: int
    digest: str


class DigestsOnRead(Protocol):
    """Counts and digests rows in the tasks that read them: `verify` alone cannot see that a row has changed.

    Laws:
        * The rows are those of `load_together`; without ordinals, those of `load` of one position.
        * `reading(folder)` after a read is the same for the same rows, however Spark divides them or repeats a task,
          and another for other rows.
    """

    def load_digested(
        self, spark: SparkSession, positions: Sequence[Json], folders: Sequence[str], *, ordinals: bool
    ) -> DataFrame:
        """Read exactly the rows that positions name, lazily; tasks note in folders what they have read.

        Args:
            spark: The session.
            positions: The input to read.
            folders: One folder for each position; an empty name: nothing is noted.
            ordinals: Whether to add `_ordinal`, the index of a row's position.
        """

    def reading(self, folder: str) -> Reading | None:
        """Return what tasks have noted in a folder; None if no task has read anything."""


class ParameterizedRead(Protocol):
    """Reads many small steps by one Spark plan: the parameters of a job name the rows for the plan's one task.

    Planning a step takes Spark as long as running a small one, and is then done only once.

    Law: with `parameters_for(p, f)` as its job's parameter, `load_parameterized` returns the rows of `load(spark, p)`,
    and notes in folder f what `load_digested` notes. `load_parameterized` is called before `parameters_for`.
    """

    def load_parameterized(self, spark: SparkSession, frame_of: FrameOfTask | None = None) -> DataFrame:
        """Read the rows that the job's parameters name (`connectors.kit.job_parameters`), lazily, in one partition.

        Args:
            spark: The session.
            frame_of: Makes the frame of the rows of the task that reads. The frame may have one more column,
                which the source's expressions may drop. None: it has the columns of the task.
        """

    def parameters_for(self, position: Json, folder: str) -> bytes | None:
        """Return the parameters of a job: which rows to read, and where to note what was read.

        Returns:
            None if the position is better read by several tasks.
        """


@dataclass(frozen=True, slots=True)
class WaitingInput:
    """Input that is there, and that no step has taken yet.

    Attributes:
        count, unit: How much of what, such as 3 `files`.
        bytes: Its bytes, if they are known.
        oldest_at: When the oldest of it came, in milliseconds since 1970, if that is known.
    """

    count: int
    unit: str
    bytes: int | None = None
    oldest_at: int | None = None


class CrashPoints(Protocol):
    """Has several outside acts in one `commit`, and announces the moments between them: tests kill a process there."""

    def announce(self, moment: Callable[[str], None]) -> None:
        """Call a function at each moment from now on, with a word for the moment."""


@dataclass(frozen=True, slots=True)
class Upserts:
    """How the rows of a source replace one another.

    Laws:
        * Of the rows of a key one holds: the last in the order of `order`, unless it deletes its key.
        * No two rows have the same place in the order; rows of later positions come later.

    Attributes:
        key: The columns of the key, of which none is NULL.
        order, deletes: Columns of the source's, which no user declares: the order, and whether a row deletes its key.
    """

    key: tuple[str, ...]
    order: str
    deletes: str


@dataclass(frozen=True, slots=True)
class SourceCapabilities:
    """What a source can do beyond `Source`; None: it cannot.

    Attributes:
        ordered_within: The part of the input, in words, whose rows `load` gives in order, such as `file`. Law: put one
            behind the other by the number of their partition, the rows of each such part are in the order in which the
            source has them, whatever the number of partitions.
        period: The seconds from one step to the next, of a source whose steps come by the clock.
        upserts: How rows replace one another: the stream of the source is then the changes of the rows that hold. None:
            rows are new rows.
        preflight: Raises what `next` would raise of a place that can never give a row, such as `[NO_INPUT]`. It needs
            no session and has no effect.
        waiting: Returns what a source could still take after a cursor, for people. The engine asks now and then, from
            any thread.
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
    pushable: Pushable | None = None
    ordered_within: str | None = None
    period: float | None = None
    upserts: Upserts | None = None
    preflight: Callable[[], None] | None = None
    waiting: Callable[[Json], WaitingInput] | None = None


@dataclass(frozen=True, slots=True)
class SinkCapabilities:
    """What a sink does beyond `Sink`, or otherwise.

    Attributes:
        parts: In how many parts a step becomes visible, each atomically. After a crash a sink of several parts may show
            some of a step, so the same rows must come again.
        runs_jobs: Whether `commit` runs Spark jobs: the engine makes these jobs the sink's own, so that the end of a
            unit's jobs does not end them.
        crash_points: Announces the moments inside `commit`; None: `commit` is one outside act.
        places: The places that belong to the sink alone, in words, such as `folder /out`. Two sinks of a program that
            have one in common are refused. Law: two sinks that exclude each other, of any options, have a place in
            common.
        gathers: The sink takes the rows of many steps as one step, whose end this policy says: a gathering stands
            before it. None: it takes each step.
        leaves_files: Whether each step leaves a file of its own: `boatlift plan` warns where there will be many.
        preflight: Raises what `open` would raise of a place that is another sink's, or never there. It needs no session
            and has no effect. Of its context, token and schema say nothing, and the store is "" if it is not made yet.
        refuses_duplicates: The sink itself holds that no two rows have one key, so any key will do. Law: `commit` of a
            step with a row whose key another row has by then raises `[DUPLICATE_KEY]`, and nothing of it is visible.
    """

    parts: int = 1
    runs_jobs: bool = False
    crash_points: CrashPoints | None = None
    places: tuple[str, ...] = ()
    gathers: Batch | None = None
    leaves_files: bool = False
    preflight: Callable[[SinkContext], None] | None = None
    refuses_duplicates: bool = False
