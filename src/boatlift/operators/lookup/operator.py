"""The lookup: each row of a stream gets the newest rows of tables, as they are when it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

__all__ = ["Lookup", "Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """What a lookup keeps of another stream: for each key the row that holds now.

    Attributes:
        name: The lookup's own name for it; the table's columns begin with that.
        upstream: The stream: changes with one row a key, or a recomputation's.
        keys: The columns by which its rows are found.
    """

    name: str
    upstream: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lookup(Operator):
    """A lookup of the newest rows of tables for each row; all inputs are taken in arrival order."""

    kind: ClassVar[str] = "lookup"

    name: str
    upstream: str
    tables: tuple[Table, ...]
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The stream of rows, then the streams of its tables."""
        return (self.upstream, *(table.upstream for table in self.tables))

    @property
    def looks_up(self) -> tuple[str, ...]:
        """The streams of its tables."""
        return tuple(table.upstream for table in self.tables)

    @property
    def timing(self) -> Timing:
        """One time for each message."""
        return Timing.ARRIVAL

    @property
    def keeps_state(self) -> bool:
        """It keeps its tables."""
        return True

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return new rows at times of its own.

        Whether changes that are no aggregate's have one row a key is seen when their query is compiled.

        Raises:
            InvalidError: `[BAD_LOOKUP]` the rows are not all new, or a table does not say which of its rows holds now.
        """
        taken, *tables = inputs
        if taken.kind is not RowKind.APPEND:
            raise InvalidError(
                "BAD_LOOKUP",
                f"{self.name} looks up for {self.upstream}, whose rows are not all new: what was looked up for a row "
                "could not be taken back as it was; look up for the rows of a source, or of transforms of one",
            )
        for table, rows in zip(self.tables, tables, strict=True):
            self._check(table, rows)
        return Rows(self.name, source_times=False)

    def _check(self, table: Table, rows: Rows) -> None:
        if rows.unique is not None and not set(rows.unique) <= set(table.keys):
            raise InvalidError(
                "BAD_LOOKUP",
                f"{self.name} looks up {table.upstream} by {', '.join(table.keys)}, which has rows for each "
                f"{', '.join(rows.unique)}: look up by all of these, or aggregate by fewer",
            )
        if rows.kind is RowKind.APPEND:
            raise InvalidError(
                "BAD_LOOKUP",
                f"{self.name} looks up {table.upstream}, which gives new rows and never says which of them holds now: "
                f"aggregate it by {', '.join(table.keys)}",
            )

    def describe(self) -> Json:
        """Return its tables."""
        return {"tables": {t.name: {"reads": t.upstream, "keys": list(t.keys)} for t in self.tables}}
