"""What a source and a sink promise: the contracts that every connector keeps.

`tests/connectors/conformance.py` holds each connector to what stands here.

**Source.** A step's input is named by a *position*: a JSON object that says exactly what is read (file names, sizes and
digests; offset ranges). The position is the determinant: it is durable before anything computed from it can be seen.
A *cursor*, also JSON, says what all positions so far have taken; it is a pure function of them.

**Sink.** A step reaches a sink in two acts. `stage` runs in the tasks and has no effect that anyone can see. `commit`
makes the whole step visible at once, together with the step's number, row count and digest, in one atomic act.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from boatlift.errors import Finding

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "Committed",
    "CountsInTasks",
    "Delivery",
    "Gathers",
    "Json",
    "LoadsEverything",
    "LoadsTogether",
    "LoadsWhenTold",
    "NamesInput",
    "Outcome",
    "Reading",
    "Sink",
    "SinkContext",
    "Source",
    "Staged",
    "Stager",
    "TellsMoments",
    "WritesInParts",
]

Json = Mapping[str, Any]
"""A JSON object: strings, numbers, booleans, None, lists and objects of them."""


class Delivery(Enum):
    """What a connector can promise."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class Source(Protocol):
    """Where rows come from.

    Laws:
        * `load(spark, p)` gives the same rows for the same position, every time, on any cluster, or `verify(p)` raises.
        * `next(c)` takes nothing that `c` holds already, and everything that is there is taken in the end.
        * `advance` is pure: the cursor after positions p1…pn depends on them alone.
    """

    @property
    def delivery(self) -> Delivery:
        """What it can promise."""

    @property
    def positioned(self) -> bool:
        """Whether `load` adds the column `_position`."""

    def describe(self) -> Json:
        """Tells kind, schema and options that results depend on: part of the program's identity."""

    def schema(self, spark: SparkSession) -> StructType:
        """Gives the schema of its rows."""

    def start(self) -> Json:
        """Gives the cursor before anything was taken."""

    def next(self, cursor: Json) -> Json | None:
        """Closes a step over what is there now: its position, or None if there is nothing new.

        Raises:
            DataError: what is there cannot be read as declared (`[INPUT_EMPTY]`, `[BAD_HEADER]`).
            UnavailableError: the place cannot be reached.
        """

    def advance(self, cursor: Json, position: Json) -> Json:
        """Gives the cursor after a position."""

    def verify(self, position: Json) -> None:
        """Proves, by size and digest, that what a position names is still there, unchanged.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`, naming the difference.
        """

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Reads exactly the rows that a position names, lazily.

        A source whose rows have a position that does not depend on how Spark splits them adds it as the column
        `_position` (long), from which `bl.rand()` draws.
        """

    def weigh(self, position: Json) -> int:
        """Estimates the bytes that a position names, to choose how many tasks read it."""

    def explain_failure(self, position: Json, text: str) -> Exception | None:
        """Turns the text of a failed read into a `DataError` that names file and row, or None if it is not ours."""

    def acknowledge(self, position: Json) -> None:
        """Learns that no failure can make anyone read this position again."""


@runtime_checkable
class LoadsTogether(Source, Protocol):
    """A source that reads several positions in one scan: small steps that wait are then run as one Spark job.

    Law: the rows of `load_together(spark, [p0, …, pn])` with `_ordinal` i are those of `load(spark, pi)`.
    """

    def load_together(self, spark: SparkSession, positions: Sequence[Json]) -> DataFrame:
        """Reads exactly the rows that positions name, lazily; `_ordinal` (int) is the index of a row's position."""


@runtime_checkable
class NamesInput(Source, Protocol):
    """A source that tells people what a position names, so that an error can say which input a step takes."""

    def names(self, position: Json) -> str:
        """Return what a position names, in few words."""


@runtime_checkable
class Gathers(Source, Protocol):
    """A source that gives in its next position all that came meanwhile.

    So it is not asked before the step's turn: closed ahead, steps would be as many and as small as they come, and each would wait for all before it. It is
    asked at once where more is there than a position takes.
    """

    def is_full(self, position: Json) -> bool:
        """Tells whether more may have been there than the position took."""


@runtime_checkable
class LoadsEverything(Source, Protocol):
    """A source that reads again all that it ever gave: for what is recomputed from everything.

    Law: the rows of `load_everything(spark, c)`, whatever their order, are those of `load` of all positions of which c is the cursor, or
    `verify_everything(c)` raises.
    """

    def load_everything(self, spark: SparkSession, cursor: Json) -> DataFrame:
        """Reads exactly the rows of all positions up to a cursor, lazily."""

    def verify_everything(self, cursor: Json) -> None:
        """Proves that all that was taken up to a cursor is still there, unchanged.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of a position."""

    rows: int
    digest: str


@runtime_checkable
class CountsInTasks(LoadsTogether, Protocol):
    """A source whose rows are counted and digested by the tasks that read them: `verify` cannot tell that one has changed.

    Laws:
        * the rows are those of `load_together`, or without ordinals and of one position of `load`;
        * once they were read, `reading(folder)` is the same for the same rows, however Spark divides them or repeats a task, and another for
          others.
    """

    def load_counted(
        self, spark: SparkSession, positions: Sequence[Json], folders: Sequence[str], *, ordinals: bool
    ) -> DataFrame:
        """Reads exactly the rows that positions name, lazily; tasks leave in the folder of each what they have read of it.

        Args:
            spark: The session.
            positions, folders: Which rows, and where to note what of them was read, one each.
            ordinals: Whether there is `_ordinal`.
        """

    def reading(self, folder: str) -> Reading | None:
        """Tells what was read; None if nothing was."""


@runtime_checkable
class LoadsWhenTold(Source, Protocol):
    """A source that reads many small steps by one plan: which rows they are its one task is told when a step begins.

    Planning a step takes Spark as long as running a small one, and is done but once then.

    Law: what `load_when_told` gives to a task that is told `words_for(p, f)` are the rows of `load` of p; what it notes in f is what `load_counted` notes.
    """

    def load_when_told(self, spark: SparkSession) -> DataFrame:
        """Reads what its task is told (`engine.in_task.told`), lazily, in one partition."""

    def words_for(self, position: Json, folder: str) -> bytes | None:
        """Gives what to tell the task: which rows, and where to note what of them was read, as `load_counted` has it.

        Returns:
            None if more than one task had better read them.
        """


@dataclass(frozen=True, slots=True)
class SinkContext:
    """Who writes to a sink, and what.

    Attributes:
        dataflow: The dataflow's name; with `sink` it is the key of all that the sink records.
        sink: The sink's name.
        store: The id of the store that the dataflow runs from: another store's rows are not this sink's.
        token: The owner's number in that store; a newer owner has a larger one.
        schema: What a step's batches have: the user's columns; then `_weight` (int64) if `changes`.
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
    """The newest step that a sink holds: its number, rows and digest."""

    step: int
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class Staged:
    """What one task staged of one step: a receipt that `commit` is handed.

    Attributes:
        partition: The task's partition; a step's receipts are handed over in order of partition.
        rows: How many rows.
        place: Where the sink's own stager put them (a file, a transaction).
    """

    partition: int
    rows: int
    place: str


class Outcome(Enum):
    """What became of a step that was handed to `commit`."""

    APPENDED = "appended"
    DROPPED = "compared and dropped"


class Stager(Protocol):
    """The part of a sink that runs in the tasks. It is pickled; it keeps nothing between steps."""

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Puts a task's rows of one step where `commit` will find them; nothing can be seen of it yet.

        Args:
            folder: A scratch folder that driver and tasks share.
            name: A fresh file name, unique to this attempt.
            partition: The task's partition.
            batches: The rows, in the sink's context's schema.
        """


class Sink(Protocol):
    """Where results go.

    Laws (`commit` of step n while the sink holds steps 0…m):
        * n = m + 1: the whole step becomes visible at once, with its number and digest: `APPENDED`. A crash at any
          moment leaves all of it or nothing.
        * n ≤ m: nothing changes. Same rows and digest: `DROPPED`; else `DivergedError [DIVERGED]`.
        * n > m + 1: `DataError [SINK_GAP]`.
        * once `open` was called with a larger token, an older owner's commit raises `FencedError [FENCED]`.
        * rows that anyone but this dataflow and sink wrote into its place are refused, also rows under another key:
          `[SINK_OF_ANOTHER_DATAFLOW]`.
        * rows that this sink wrote for another store are refused: `[SINK_OF_ANOTHER_STORE]`. Tokens are numbers of one
          store, so none is looked at before. Nothing refused has fenced anyone.
        * NULL stays NULL, NaN stays NaN or is refused (`[NAN_REFUSED]`), −0.0 stays a zero.
    """

    @property
    def delivery(self) -> Delivery:
        """What it can promise."""

    @property
    def key(self) -> Sequence[str] | None:
        """Key columns: then rows are upserts (`_weight` +1) and deletes (−1); a step's deletes come before its upserts.

        None: rows are changes as they are.
        """

    def describe(self) -> Json:
        """Tells kind, place and options, for `plan` and `status`."""

    def open(self, context: SinkContext) -> Committed | None:
        """Takes the sink over: makes its place if there is none, fences older owners, tells what it holds.

        Raises:
            DataError: `[SINK_OF_ANOTHER_DATAFLOW]`, `[SINK_OF_ANOTHER_STORE]`, `[SINK_DAMAGED]`.
            InvalidError: `[TYPE_REFUSED]` a column's type cannot be held.
            FencedError: a newer owner has it.
        """

    def stager(self) -> Stager:
        """Gives the part that runs in the tasks; called at any time after `open`, also while a step is committed.

        It is the same however often the same owner opens the sink: what it gave first may be used for all steps.
        """

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        """Makes a step visible, atomically, under the laws above."""

    def verify(self) -> Iterator[Finding]:
        """Checks what this sink wrote as far as the outside keeps checksums of it, and tells what is wrong.

        It needs no `open`, no store and no JVM; it takes nothing over and writes nothing, and it may run beside the
        owner. In a sink that was never written there is nothing wrong.

        Raises:
            UnavailableError: `[SINK_FAILED]` the place cannot be read.
        """

    def close(self) -> None:
        """Lets go of connections."""


@runtime_checkable
class WritesInParts(Sink, Protocol):
    """A sink that makes a step visible in parts, each at once: after a crash some of them may be there, and the same rows must come again."""

    @property
    def parts(self) -> int:
        """How many."""


@runtime_checkable
class TellsMoments(Sink, Protocol):
    """A sink whose `commit` is more than one act outside: it tells when it is between two, so that tests can crash there."""

    def tell(self, at: Callable[[str], None]) -> None:
        """Has a function called at each moment, with a word for it."""
