"""The contract of a source.

A step's input is named by a *position*: a JSON object that says exactly which rows the step reads (file names, sizes
and digests; ranges of bytes or offsets). The position is the determinant of the step: the log holds it before any
result of the step can be seen. A *cursor* says what all positions so far have taken; the cursor is a pure function of
them. It is JSON, too, but for one entry at most, which `start` has already: `Names`, if the source must know each name
that it has taken.

The legal order of calls, by one engine:

    describe, schema                              at any time, also while planning; `schema` needs Spark
    start ─► next ─► advance ─► next ─► …         one thread at a time; a restart goes on from a recorded cursor
                │
                └► verify ─► load ─► verify       for each execution of a step, also years later, by any thread
                                │
                                └► acknowledge    once, when no failure can make a processor read the position again

`verify` follows `load` too: only a position that is unchanged after the job was read unchanged. `size_bytes`,
`diagnose` and the names of an input may be asked for at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from boatlift.dataflow.contracts.capabilities import SourceCapabilities
from boatlift.dataflow.contracts.values import Delivery, Json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["Source"]


class Source(Protocol):
    """Where rows come from.

    Laws:
        * `load(spark, p)` returns the same rows for the same position, every time, on any cluster, or `verify(p)`
          raises.
        * `next(c)` takes nothing that `c` holds already, and every available row is taken in the end.
        * `advance` is pure: the cursor after positions p1…pn depends on them alone.
        * `capabilities` is constant: the engine may ask for it once, or each time.
    """

    @property
    def delivery(self) -> Delivery:
        """The guarantee that the source can give."""

    @property
    def positioned(self) -> bool:
        """Return whether `load` adds the column `_position`."""

    @property
    def capabilities(self) -> SourceCapabilities:
        """The abilities that this source has beyond this contract."""

    def describe(self) -> Json:
        """Return kind, schema and the options that results depend on: part of the program's identity."""

    def schema(self, spark: SparkSession) -> StructType:
        """Return the schema of the rows, without `_position`."""

    def start(self) -> Json:
        """Return the cursor before any row was taken."""

    def next(self, cursor: Json) -> Json | None:
        """Choose the input of a step out of what is available now.

        Law: what the source remembers of one cursor hides nothing from another. After a failure it may be asked with an
        earlier one, and gives everything behind that.

        Returns:
            The position, or None if there is nothing new.

        Raises:
            DataError: the input cannot be read as declared (`[INPUT_EMPTY]`, `[BAD_HEADER]`).
            UnavailableError: the place cannot be reached.
        """

    def advance(self, cursor: Json, position: Json) -> Json:
        """Return the cursor after a position."""

    def verify(self, position: Json) -> None:
        """Prove, by size and digest, that the input that a position names is still there, unchanged.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`, naming the difference.
        """

    def load(self, spark: SparkSession, position: Json) -> DataFrame:
        """Read exactly the rows that a position names, lazily.

        A row's place may be independent of how Spark splits the input. A source with such places adds them as the
        column `_position` (long), from which `bl.rand()` draws.
        """

    def size_bytes(self, position: Json) -> int:
        """Estimate the bytes that a position names: the engine chooses by it how many tasks read them."""

    def diagnose(self, position: Json, text: str) -> Exception | None:
        """Turn the text of a failed read into a `DataError` that names file and row; None if the cause is another."""

    def acknowledge(self, position: Json) -> None:
        """Free what the source keeps for a position: no failure can make a processor read it again."""
