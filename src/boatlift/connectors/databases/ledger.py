"""The ledger of a database: one row a sink, which is the fence too, and one row a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from boatlift.connectors.databases.dialect import Session
from boatlift.dataflow.contracts import Committed, SinkContext

FORMAT = 1

KEPT_STEPS = 65_536
"""The steps of a sink in the ledger: a replay of older steps is not compared."""


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """The row of a sink."""

    dataflow: str
    sink: str
    place: str
    key: list[str] | None
    store: str
    token: int
    step: int
    format: int


@dataclass(frozen=True, slots=True)
class StepEntry:
    """The row of a step."""

    committed: Committed
    token: int
    transaction: int


class LedgerTables:
    """The statements for the three tables; a dialect of SQL names and makes them."""

    sinks: str
    steps: str
    notes: str
    pid: str
    """The expression for the server's number of the session."""

    def exists(self, session: Session) -> bool:
        """Return whether a database has a ledger."""
        raise NotImplementedError

    def has_notes(self, session: Session) -> bool:
        """Return whether the ledger has its table of notes, which older versions did not make."""
        raise NotImplementedError

    def make_notes(self, session: Session) -> None:
        """Make the table of notes."""
        raise NotImplementedError

    def make(self, session: Session) -> None:
        """Make the ledger of a database; two processes may do it at once."""
        raise NotImplementedError

    def key_of(self, columns: list[str] | None) -> Any:
        """Return key columns as the ledger has them, and the other way round."""
        return columns

    def columns_of(self, key: Any) -> list[str] | None:
        return key  # type: ignore[no-any-return]

    def entry_of_place(self, session: Session, place: str) -> SinkEntry | None:
        """Return the row of the sink that has a table."""
        return self._entry(session, "place = %s", (place,))

    def entry_of_sink(self, session: Session, context: SinkContext, *, lock: bool) -> SinkEntry | None:
        """Return a sink's own row, as its newest owner has committed it if it is locked."""
        own = f"dataflow = %s AND sink = %s{' FOR UPDATE' if lock else ''}"
        return self._entry(session, own, (context.dataflow, context.sink))

    def _entry(self, session: Session, where: str, values: tuple[str, ...]) -> SinkEntry | None:
        asked = f'SELECT dataflow, sink, place, "key", store, token, step, format FROM {self.sinks} WHERE {where}'
        row = session.execute(asked, values).fetchone()
        if row is None:
            return None
        dataflow, sink, place, key, store, token, step, form = row
        return SinkEntry(dataflow, sink, place, self.columns_of(key), store, token, step, form)

    def add(self, session: Session, context: SinkContext, place: str, key: list[str] | None) -> None:
        """Add a sink's row, without steps."""
        session.execute(
            f"INSERT INTO {self.sinks} VALUES (%s, %s, %s, %s, %s, %s, -1, {self.pid}, %s)",
            (context.dataflow, context.sink, place, self.key_of(key), context.store, context.token, FORMAT),
        )

    def forget(self, session: Session, context: SinkContext) -> None:
        """Remove a sink's row, which has no steps."""
        session.execute(f"DELETE FROM {self.sinks} WHERE dataflow = %s AND sink = %s", (context.dataflow, context.sink))
        session.execute(f"DELETE FROM {self.notes} WHERE dataflow = %s AND sink = %s", (context.dataflow, context.sink))

    def claim(self, session: Session, context: SinkContext) -> None:
        """Write the owner's token into its locked row."""
        session.execute(
            f"UPDATE {self.sinks} SET token = %s, pid = {self.pid} WHERE dataflow = %s AND sink = %s",
            (context.token, context.dataflow, context.sink),
        )

    def step(self, session: Session, context: SinkContext, number: int) -> StepEntry | None:
        """Return the row of a step, if it is kept."""
        row = session.execute(
            f'SELECT step, "rows", digest, token, transaction FROM {self.steps} '
            "WHERE dataflow = %s AND sink = %s AND step = %s",
            (context.dataflow, context.sink, number),
        ).fetchone()
        return None if row is None else StepEntry(Committed(*row[:3]), *row[3:])

    def record(self, session: Session, context: SinkContext, step: Committed, transaction: str) -> None:
        """Write a step's row, and forget one that is too old.

        Args:
            transaction: The expression for what finds the rows of an appended step.
        """
        name = (context.dataflow, context.sink)
        session.execute(
            f"INSERT INTO {self.steps} VALUES (%s, %s, %s, %s, %s, %s, {transaction})",
            (*name, step.step, step.rows, step.digest, context.token),
        )
        session.execute(
            f"UPDATE {self.sinks} SET step = %s, pid = {self.pid} WHERE dataflow = %s AND sink = %s",
            (step.step, *name),
        )
        if step.step >= KEPT_STEPS:
            session.execute(
                f"DELETE FROM {self.steps} WHERE dataflow = %s AND sink = %s AND step <= %s",
                (*name, step.step - KEPT_STEPS),
            )

    def note_of(self, session: Session, context: SinkContext) -> bytes:
        """Return the newest note of a sink, whose row is locked; empty for none."""
        name = (context.dataflow, context.sink)
        row = session.execute(f"SELECT note FROM {self.notes} WHERE dataflow = %s AND sink = %s", name).fetchone()
        return b"" if row is None else bytes(row[0])

    def write_note(self, session: Session, context: SinkContext, note: bytes) -> None:
        name = (context.dataflow, context.sink)
        session.execute(f"DELETE FROM {self.notes} WHERE dataflow = %s AND sink = %s", name)
        session.execute(f"INSERT INTO {self.notes} VALUES (%s, %s, %s)", (*name, note))

    def kept_steps(self, session: Session, entry: SinkEntry) -> tuple[int, int, int]:
        """Return the number of rows of steps, and the first and the last step; −1 for none."""
        count, first, last = session.execute(
            f"SELECT count(*), coalesce(min(step), -1), coalesce(max(step), -1) FROM {self.steps} "
            "WHERE dataflow = %s AND sink = %s",
            (entry.dataflow, entry.sink),
        ).fetchone()
        return count, first, last
