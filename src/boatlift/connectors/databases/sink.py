"""A table in a database as a sink, with one row a key, or with all rows appended: what holds for each dialect.

A step's rows, its number and its digest are written in one transaction, so all of it is in the database or nothing.
`docs/formats/postgres-sink.md` and `docs/formats/mysql-sink.md` describe the tables.

**Fencing.** The owner's token is in the sink's row of `_boatlift.sinks`. `open` and each commit lock that row and read
it in the transaction of their own writes. So an older owner either has committed before `open` returned, and `open`
returns that step; or it finds the newer token and stops. An older owner that was paused in its transaction holds the
lock: its successor ends that transaction on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from boatlift.connectors.databases import ledger as entries
from boatlift.connectors.databases.dialect import Dialect, Session, TableSpec, label_of
from boatlift.connectors.databases.transactions import Transactions
from boatlift.connectors.kit import Decision, SinkBase, StepLedger, read_pieces, user_columns
from boatlift.dataflow.contracts import (
    Committed,
    Json,
    Outcome,
    SinkCapabilities,
    SinkContext,
    Staged,
    commit_together,
)
from boatlift.errors import DataError, Finding, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.databases.table import SinkTable

_T = TypeVar("_T")
_LONGEST = 2_000_000
"""Seconds: the server's milliseconds have 32 bits."""

_COURTESY = 1.0
"""Seconds for which an owner waits for an older one's transaction, before it ends it."""

_BLOCKED = 3
"""How often an owner ends transactions of older ones: a live one may try again until it reads the new token."""


def table_sink(
    dialect: Dialect[Any],
    table: str,
    key: Sequence[str] | None,
    unique: bool,
    lock_timeout: float,
    statement_timeout: float,
) -> TableSink:
    """Return the sink of a table, whose name is checked already.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if key is not None and (isinstance(key, str) or not key or len(set(key)) != len(key)):
        raise InvalidError("BAD_OPTION", f"key is {key!r}: give a list of different column names")
    if unique is not True and unique is not False:
        raise InvalidError("BAD_OPTION", f"unique is {unique!r}: choose True or False")
    if unique and key is None:
        raise InvalidError("BAD_OPTION", "unique is True, and there is no key: give key=, or leave unique out")
    for option, seconds in (("lock_timeout", lock_timeout), ("statement_timeout", statement_timeout)):
        if not 0 < seconds <= _LONGEST:
            raise InvalidError("BAD_OPTION", f"{option} is {seconds!r}: give seconds, more than 0")
    return TableSink(dialect, table, None if key is None else tuple(key), unique, lock_timeout, statement_timeout)


class TableSink(SinkBase):
    """One row a key, or all rows; the step's number is checked and recorded in the transaction of its rows."""

    def __init__(
        self,
        dialect: Dialect[Any],
        table: str,
        key: Sequence[str] | None,
        unique: bool,
        lock_timeout: float,
        statement_timeout: float,
    ) -> None:
        self.key: Sequence[str] | None = key
        self._dialect, self._entries = dialect, dialect.ledger
        self._table_name = table
        self._unique = unique
        self._place = f"table {table} of {dialect.address}"
        self.shared_place = f"{dialect.kind} database {dialect.address}"
        self._transactions = Transactions(dialect, self._place, lock_timeout, statement_timeout)
        self._table: SinkTable[Any] | None = None
        self._failed = False
        self._noted = b""

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            places=(self._place,),
            refuses_duplicates=self._unique,
            preflight=self._preflight,
            reads_back=self,
            keeps_note=self,
            shares_transaction=self,
        )

    def describe(self) -> Json:
        place: Json = {"kind": self._dialect.kind, "database": str(self._dialect.address), "table": self._table_name}
        key = {} if self.key is None else {"key": list(self.key)}
        return {**place, **key, **({"unique": True} if self._unique else {})}

    def open(self, context: SinkContext) -> Committed | None:
        self.close()
        self._context, self._table, self._failed = context, None, False
        fields = user_columns(context, self.key or ())

        def claimed(session: Session) -> tuple[SinkTable[Any], Committed | None, bytes]:
            self._dialect.check_server(session)
            name = self._dialect.qualified(session, self._table_name)
            key = None if self.key is None else list(self.key)
            spec = TableSpec(name, self._place, key, fields, context.changes, self._unique)
            table = self._dialect.table(session, spec)
            return table, self._claim(session, context, table), self._entries.note_of(session, context)

        try:
            self._table, held, self._noted = self._behind_older_owners(claimed, context)
        except BaseException:
            self.close()
            raise
        return held

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        return commit_together(self, [self.step_write(step, rows, digest, staged)])[0]

    def step_write(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> _TriedStep:
        return _TriedStep(self, Committed(step, rows, digest), staged, self._take_note())

    def transaction(self, act: Callable[[Session], _T]) -> _T:
        context = self._opened
        if self._failed:
            raise self._ledger(context).failed_before()
        try:
            return self._behind_older_owners(act, context)
        except UnavailableError:
            self._failed = True
            raise

    def add_columns(self, session: Session, step: int) -> None:
        """Add the columns that the table lacks, if a step is to be written; it may end the transaction."""
        table, ledger = self._opened_table, self._ledger(self._opened)
        if table.lacks and ledger.decide(step, self._locked(session, ledger)) is Decision.APPEND:
            table.add_columns(session)

    def write(self, session: Session, now: Committed, staged: Sequence[Staged], note: bytes) -> Outcome:
        """Write a step in a transaction, or compare it."""
        context, table = self._opened, self._opened_table
        ledger = self._ledger(context)
        newest = self._locked(session, ledger)
        if ledger.decide(now.step, newest) is Decision.COMPARE:
            return self._compared(session, ledger, table, now, newest, staged)
        table.apply(session, read_pieces(now.rows, staged))
        self._entries.record(session, context, now, table.transaction)
        if note:
            self._entries.write_note(session, context, note)
        return Outcome.APPENDED

    def has_columns(self) -> None:
        """Note that the table has all columns."""
        self._opened_table.lacks = []

    def notes(self) -> Sequence[bytes]:
        return [self._noted] if self._noted else []

    def held(self, spark: SparkSession) -> DataFrame | None:
        rows = self._transactions.transaction(self._opened_table.held, self._name(self._opened), writes=False)
        return spark.createDataFrame(rows) if rows.num_rows else None

    def verify(self) -> Iterator[Finding]:
        """Check that the sink's row, its table and its steps are there; values carry no checksum of ours."""
        yield from self._looked(self._findings, "boatlift verify")

    def close(self) -> None:
        self._transactions.close()

    @property
    def _opened_table(self) -> SinkTable[Any]:
        assert self._table is not None, "open comes first"
        return self._table

    def _preflight(self, context: SinkContext) -> None:
        def looked(session: Session) -> None:
            if self._entries.exists(session):
                name = self._dialect.qualified(session, self._table_name)
                self._refuse(self._ledger(context), session, name)

        self._looked(looked, "boatlift preflight")

    def _looked(self, act: Callable[[Session], _T], name: str) -> _T:
        """Run a transaction that reads, beside the owner's."""
        transactions = self._transactions.another()
        try:
            return transactions.transaction(act, name, writes=False)
        finally:
            transactions.close()

    def _findings(self, session: Session) -> list[Finding]:
        place = self._place
        name = self._dialect.qualified(session, self._table_name)
        entry = self._entries.entry_of_place(session, name) if self._entries.exists(session) else None
        if entry is None:
            if not self._dialect.is_marked(session, name):
                return []
            return [Finding(place, "SINK_DAMAGED", self._lost_row())]
        if entry.format > entries.FORMAT:
            newer = f"{place} has format {entry.format}, this version reads {entries.FORMAT}: upgrade Boatlift"
            return [Finding(place, "NEWER_FORMAT", newer)]
        found = []
        if not self._dialect.columns_of(session, name):
            gone = f"{place} is gone but its ledger is there: restore the database"
            found.append(Finding(place, "SINK_DAMAGED", gone))
        steps, first, last = self._entries.kept_steps(session, entry)
        wanted = min(entry.step + 1, entries.KEPT_STEPS)
        if steps != wanted or last != entry.step:
            has = f"its ledger has {steps} steps from {first} to {last}"
            found.append(Finding(place, "SINK_GAP", f"{place} holds step {entry.step}, and {has}: restore it"))
        return found

    def _claim(self, session: Session, context: SinkContext, table: SinkTable[Any]) -> Committed | None:
        ledger, dialect = self._ledger(context), self._dialect
        if not self._entries.exists(session):
            self._entries.make(session)
        elif not self._entries.has_notes(session):
            self._entries.make_notes(session)
        self._refuse(ledger, session, table.name)
        own = self._entries.entry_of_sink(session, context, lock=True)
        found = dialect.columns_of(session, table.name)
        if own is not None and dialect.ddl_commits and own.step < 0 and not dialect.columns_of(session, own.place):
            # Its first owner died between row and table, or was refused the table.
            self._check_owner(ledger, own)
            self._entries.forget(session, context)
            own = None
        if own is None:
            if found or dialect.is_taken(session, table.name):
                raise ledger.foreign("was not made by a sink")
            self._entries.add(session, context, table.name, table.key)
            table.create(session)
            return None
        if own.place != table.name:
            raise ledger.foreign(f"is not where sink {own.sink!r} of {own.dataflow!r} wrote: that is {own.place}")
        self._check_owner(ledger, own)
        if own.key != table.key:
            raise ledger.foreign(f"was written with key {own.key}, but this sink writes with key {table.key}")
        if not found:
            raise DataError("SINK_DAMAGED", f"{self._place} is gone but its ledger is there: restore the database")
        if wrong := table.check(session):
            raise ledger.foreign(wrong)
        self._entries.claim(session, context)
        if own.step < 0:
            return None
        newest = self._entries.step(session, context, own.step)
        if newest is None:
            raise ledger.lacks(own.step)
        return newest.committed

    def _refuse(self, ledger: StepLedger, session: Session, name: str) -> None:
        """Raise if the table is another sink's, or of another store; without a lock, so that no owner is disturbed."""
        context = ledger.context
        for entry in (
            self._entries.entry_of_place(session, name),
            self._entries.entry_of_sink(session, context, lock=False),
        ):
            if entry is None:
                continue
            if entry.format > entries.FORMAT:
                newer = f"{self._place} has format {entry.format}, this version writes {entries.FORMAT}"
                raise DataError("NEWER_FORMAT", f"{newer}: upgrade Boatlift")
            if (entry.dataflow, entry.sink) != (context.dataflow, context.sink):
                raise ledger.foreign(f"belongs to sink {entry.sink!r} of dataflow {entry.dataflow!r}")
            ledger.refuse_other_store(entry.store)

    def _locked(self, session: Session, ledger: StepLedger) -> int:
        """Lock the sink's row, and return the newest step; raise if another owner has it."""
        entry = self._entries.entry_of_sink(session, ledger.context, lock=True)
        self._check_owner(ledger, entry)
        assert entry is not None
        return entry.step

    def _check_owner(self, ledger: StepLedger, entry: entries.SinkEntry | None) -> None:
        if entry is None:
            raise DataError("SINK_DAMAGED", self._lost_row())
        ledger.refuse_other_store(entry.store)
        ledger.refuse_newer_owner(entry.token)

    def _lost_row(self) -> str:
        return f"{self._place} has lost its row in {self._entries.sinks}: restore the database"

    def _compared(
        self,
        session: Session,
        ledger: StepLedger,
        table: SinkTable[Any],
        now: Committed,
        newest: int,
        staged: Sequence[Staged],
    ) -> Outcome:
        found = self._entries.step(session, ledger.context, now.step)
        if found is None and now.step <= newest - entries.KEPT_STEPS:
            return ledger.too_old(now.step)
        if found is None:
            raise ledger.lacks(now.step)

        def difference() -> str:
            # Later steps have overwritten the rows of older steps: only the newest can be compared row by row.
            if now.step != newest or not staged:
                return ""
            return table.difference(session, read_pieces(now.rows, staged), found.transaction)

        return ledger.compare(now, found.committed, difference)

    def _behind_older_owners(self, act: Callable[[Session], _T], context: SinkContext) -> _T:
        """Run a transaction; those of older owners in its way are ended, and so are lost ones of this owner."""
        patience = self._transactions.lock_timeout
        for _ in range(_BLOCKED):
            try:
                return self._transactions.transaction(act, self._name(context), lock_timeout=min(_COURTESY, patience))
            except UnavailableError as error:
                if error.condition != "SINK_LOCKED":
                    raise
            if not self._transactions.outside(lambda there: self._dialect.end_older_owners(there, context)):
                break
        try:
            return self._transactions.transaction(act, self._name(context), lock_timeout=patience)
        except UnavailableError as error:
            if error.condition != "SINK_LOCKED":
                raise
            name = self._transactions.outside(lambda there: self._dialect.qualified(there, self._table_name))
            raise self._transactions.outside(
                lambda there: self._dialect.locked(there, self._place, name, patience)
            ) from error.__cause__

    def _name(self, context: SinkContext) -> str:
        return f"{label_of(context)}{context.token}"

    def _ledger(self, context: SinkContext) -> StepLedger:
        return StepLedger(context, self._place, "table", "restore the database")


@dataclass(slots=True)
class _TriedStep:
    """A step of one table; after a try whose answer was lost, a step that is there was appended."""

    sink: TableSink
    now: Committed
    staged: Sequence[Staged]
    note: bytes
    tried: bool = False

    def prepare(self, transaction: Session) -> None:
        self.sink.add_columns(transaction, self.now.step)

    def write(self, transaction: Session) -> Outcome:
        outcome = self.sink.write(transaction, self.now, self.staged, self.note)
        self.tried = self.tried or outcome is Outcome.APPENDED
        return Outcome.APPENDED if self.tried else outcome

    def ended(self, outcome: Outcome) -> None:
        if outcome is Outcome.APPENDED:
            self.sink.has_columns()
