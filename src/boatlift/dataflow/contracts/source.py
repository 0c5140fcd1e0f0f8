"""The contract of a source.

A *position* identifies the input of a step: a JSON object with file names, sizes and digests, or ranges of bytes or
offsets. The position is the step's determinant: it is in the log before any result of the step is visible. A *cursor*
summarises all positions so far, of which it is a pure function. A cursor is JSON, except that one entry may be `Names`,
if the source must know each name that it has taken; `start` already has that entry.

The legal order of calls, by one engine:

    describe, schema                              at any time, even while planning; `schema` needs Spark
    start ─► next ─► advance ─► next ─► …         one thread at a time; a restart begins at a recorded cursor
                │
                └► verify ─► load ─► verify       for each execution of a step, even years later, by any thread
                                │
                                └► acknowledge    once, when no failure can make a processor read the position again

`verify` comes after `load` again, because only a position that is unchanged after the job was read unchanged.
`size_bytes`, `diagnose` and `names` may be called at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from boatlift.dataflow.contracts.capabilities import SourceCapabilities
from boatlift.dataflow.contracts.values import Delivery, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Source(Protocol):
    """Reads rows from an external system.

    Laws:
        * `load(spark, p)` returns the same rows for the same position, every time, on any cluster, or `verify(p)`
          raises.
        * `next(c)` takes nothing before `c`, and every available row is taken eventually.
        * `advance` is pure: the cursor after positions p1…pn depends on them alone.
        * `copy.deepcopy` makes an independent source, with which a standby rehearses. If it raises, rehearsals have
          recorded input alone.
    """

    @property
    def delivery(self) -> Delivery:
        """The guarantee of the source."""

    @property
    def positioned(self) -> bool:
        """Whether `load` adds the column `_position`."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """The optional abilities; constant."""

    def describe(self) -> Json:
        """Return kind, schema and the options that results depend on: part of the program's identity."""

    def schema(self, spark: SparkSession) -> StructType:
        """Return the schema of the rows, without `_position`."""

    def start(self) -> Json:
        """Return the cursor before any row was taken."""

    def next(self, cursor: Json) -> Json | None:
        """Choose the input of a step among the available rows.

        Law: after a failure the cursor may be an earlier one, and the source returns everything after that: what it
        remembers about one cursor hides nothing from another.

        Returns:
            The position, or None if there is nothing new.

        Raises:
            DataError: the input cannot be read as declared (`[INPUT_EMPTY]`, `[BAD_HEADER]`).
            UnavailableError: the external system cannot be reached.
        """

    def advance(self, cursor: Json, position: Json) -> Json:
        """Return the cursor after a position."""

    def verify(self, position: Json) -> None:
        """Check by size and digest that the input of a position exists unchanged.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`, with the difference.
        """

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Read exactly the rows of a position, lazily.

        If each row has a place that does not depend on how Spark splits the input, the source adds it as the column
        `_position` (long), from which `bl.rand()` draws.
        """

    def size_bytes(self, position: Json) -> int:
        """Estimate the bytes of a position; the engine derives the number of reading tasks from it."""

    def diagnose(self, position: Json, text: str) -> Exception | None:
        """Turn the text of a failed read into a `DataError` with file and row; None for any other cause."""

    def acknowledge(self, position: Json) -> None:
        """Free the resources of a position: no failure can make a processor read it again."""
