"""The lookup: each row of a stream gets the latest rows of tables, as of its arrival."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import Operator, Timing
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Table:
    """The state of a lookup for another stream: for each key the row that holds now.

    Attributes:
        name: The lookup's own name for the table, and the prefix of its columns.
        upstream: The stream: changes with one row a key, or a recomputation's.
    """

    name: str
    upstream: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lookup(Operator):
    """Adds the columns of the latest rows of tables to each row; all inputs are taken in arrival order.

        flights.lookup("joined", live=delays.by("origin"))

    Its inputs are the stream of rows, then the streams of its tables. Whether the changes of a view have one row a key
    is checked when the view's query is compiled.
    """

    kind = "lookup"
    timing = Timing.ARRIVAL
    keeps_state = True
    tables: tuple[Table, ...]

    @property
    def looks_up(self) -> tuple[str, ...]:
        return self.reads[1:]

    def rows(self, inputs: Sequence[Rows]) -> Rows:
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
        return {"tables": {t.name: {"reads": t.upstream, "keys": list(t.keys)} for t in self.tables}}
