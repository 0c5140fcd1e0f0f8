"""A table in a PostgreSQL database as a sink, with one row a key, or with all rows appended.

A step's rows, its number and its digest are written in one transaction, so all of it is in the database or nothing.
`docs/formats/postgres-sink.md` describes the tables.

**Fencing.** The owner's token is in the sink's row of `_boatlift.sinks`. `open` and each commit lock that row and read
it in the transaction of their own writes. So an older owner either has committed before `open` returned, and `open`
returns that step; or it finds the newer token and stops. An older owner that was paused in its transaction holds the
lock: its successor ends that transaction on the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from boatlift.connectors.kit import Decision, SinkBase, StepLedger, checked_options, read_pieces, user_columns
from boatlift.connectors.postgres import ledger as entries
from boatlift.connectors.postgres import locks
from boatlift.connectors.postgres.address import Address, address_of
from boatlift.connectors.postgres.database import PostgresDatabase
from boatlift.dataflow.contracts import Committed, Json, Outcome, SinkCapabilities, SinkContext, Staged
from boatlift.errors import DataError, Finding, InvalidError, UnavailableError

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.postgres.table import SinkTable

_T = TypeVar("_T")
_OLDEST_SERVER = 120_000
_LONGEST = 2_000_000
"""Seconds: the server's milliseconds have 32 bits."""

_COURTESY = 1.0
"""Seconds for which an owner waits for an older one's transaction, before it ends it."""

_BLOCKED = 3
"""How often an owner ends transactions of older ones: a live one may try again until it reads the new token."""


@checked_options("bl.postgres")
def postgres(
    conninfo: str,
    *,
    table: str,
    key: Sequence[str] | None = None,
    unique: bool = False,
    lock_timeout: float = 60.0,
    statement_timeout: float = 600.0,
) -> PostgresSink:
    """Return a sink that keeps the newest row of every key in a table of a PostgreSQL database, exactly once.

    Args:
        conninfo: A connection string, as `dbname=shop` or `postgresql://db/shop`. Other values are those of
            `PGHOST`, `PGUSER`, `PGPASSWORD` and their like, or of a password file. The password is in no record and no
            message.
        table: The table, with its schema or without: `routes`, `sales.routes`. The sink makes it, and no other program
            writes to it. Case matters.
        key: The columns that tell rows apart; NULL is a key like any other. None: rows are appended, with their
            `_weight` (+1 or −1) if they are changes.
        unique: True asserts that no two current rows have the same key, if the program does not prove it. The table
            then never replaces a row: a step with a second row of a key stops the dataflow (`[DUPLICATE_KEY]`), and
            nothing of the step is in the table.
        lock_timeout: How long to wait, in seconds, for a lock that another session holds.
        statement_timeout: How long a statement may run, in seconds.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[MISSING_EXTRA]`.

    Examples:
        >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("delay"))
        >>> worst.sink("shop", bl.postgres("host=localhost dbname=shop", table="worst", key=["origin"]))
    """
    if key is not None and (isinstance(key, str) or not key or len(set(key)) != len(key)):
        raise InvalidError("BAD_OPTION", f"key is {key!r}: give a list of different column names")
    schema, dot, name = table.rpartition(".")
    if not _is_name(name) or name.startswith("_boatlift") or (dot and (not _is_name(schema) or schema[0] == "_")):
        example = "give a name of up to 63 bytes that does not begin with _boatlift, as 'routes' or 'sales.routes'"
        raise InvalidError("BAD_OPTION", f"table is {table!r}: {example}")
    if unique is not True and unique is not False:
        raise InvalidError("BAD_OPTION", f"unique is {unique!r}: choose True or False")
    if unique and key is None:
        raise InvalidError("BAD_OPTION", "unique is True, and there is no key: give key=, or leave unique out")
    for option, seconds in (("lock_timeout", lock_timeout), ("statement_timeout", statement_timeout)):
        if not 0 < seconds <= _LONGEST:
            raise InvalidError("BAD_OPTION", f"{option} is {seconds!r}: give seconds, more than 0")
    keyed = None if key is None else tuple(key)
    return PostgresSink(address_of(conninfo), table, keyed, unique, lock_timeout, statement_timeout)


def _is_name(name: str) -> bool:
    return bool(name) and "\0" not in name and len(name.encode()) <= 63


class PostgresSink(SinkBase):
    """One row a key, or all rows; the step's number is checked and recorded in the transaction of its rows."""

    def __init__(
        self,
        address: Address,
        table: str,
        key: Sequence[str] | None,
        unique: bool,
        lock_timeout: float,
        statement_timeout: float,
    ) -> None:
        self.key: Sequence[str] | None = key
        self._address = address
        self._table_name = table
        self._unique = unique
        self._place = f"table {table} of {address}"
        self._database = PostgresDatabase(address, self._place, lock_timeout, statement_timeout)
        self._table: SinkTable | None = None
        self._failed = False

    @property
    def capabilities(self) -> SinkCapabilities:
        return SinkCapabilities(
            places=(self._place,), refuses_duplicates=self._unique, preflight=self._preflight, reads_back=self
        )

    def describe(self) -> Json:
        place: Json = {"kind": "postgres", "database": str(self._address), "table": self._table_name}
        key = {} if self.key is None else {"key": list(self.key)}
        return {**place, **key, **({"unique": True} if self._unique else {})}

    def open(self, context: SinkContext) -> Committed | None:
        from boatlift.connectors.postgres.table import SinkTable

        self.close()
        self._context, self._table, self._failed = context, None, False
        fields = user_columns(context, self.key or ())

        def claimed(connection: psycopg.Connection[Any]) -> tuple[SinkTable, Committed | None]:
            self._check_server(connection)
            name = self._qualified(connection)
            table = SinkTable(name, self._place, self.key, fields, context.changes, self._unique)
            held = self._claim(connection, context, table)
            return table, held

        try:
            self._table, held = self._behind_older_owners(claimed, context)
        except BaseException:
            self.close()
            raise
        return held

    def commit(self, step: int, rows: int, digest: str, staged: Sequence[Staged]) -> Outcome:
        context, table = self._opened, self._table
        ledger = self._ledger(context)
        if self._failed:
            raise ledger.failed_before()
        assert table is not None, "open comes first"
        now = Committed(step, rows, digest)
        tried = False

        def written(connection: psycopg.Connection[Any]) -> Outcome:
            nonlocal tried
            entry = entries.entry_of_sink(connection, context, lock=True)
            self._check_owner(ledger, entry)
            assert entry is not None
            if ledger.decide(step, entry.step) is Decision.COMPARE:
                outcome = self._compared(connection, ledger, table, now, entry.step, staged)
                return Outcome.APPENDED if tried else outcome  # the answer of the first try was lost
            tried = True
            table.apply(connection, read_pieces(rows, staged))
            entries.record(connection, context, now)
            return Outcome.APPENDED

        try:
            outcome = self._behind_older_owners(written, context)
        except UnavailableError:
            self._failed = True
            raise
        if outcome is Outcome.APPENDED:
            table.has_all_columns()
        return outcome

    def held(self, spark: SparkSession) -> DataFrame | None:
        table = self._table
        assert table is not None, "open comes first"
        rows = self._database.transaction(table.held, self._name(self._opened), writes=False)
        return spark.createDataFrame(rows) if rows.num_rows else None

    def verify(self) -> Iterator[Finding]:
        """Check that the sink's row, its table and its steps are there; values carry no checksum of ours."""
        from boatlift.connectors.postgres.checks import findings

        def found(connection: psycopg.Connection[Any]) -> list[Finding]:
            return list(findings(connection, self._qualified(connection), self._place))

        database = self._database.another()
        try:
            yield from database.transaction(found, "boatlift verify", writes=False)
        finally:
            database.close()

    def close(self) -> None:
        self._database.close()

    def _preflight(self, context: SinkContext) -> None:
        def looked(connection: psycopg.Connection[Any]) -> None:
            if entries.exists(connection):
                self._refuse(self._ledger(context), connection, self._qualified(connection))

        database = self._database.another()
        try:
            database.transaction(looked, "boatlift preflight", writes=False)
        finally:
            database.close()

    def _check_server(self, connection: psycopg.Connection[Any]) -> None:
        version = connection.info.server_version
        if version < _OLDEST_SERVER:
            raise InvalidError(
                "SINK_UNSUITABLE",
                f"the server of {self._address} has version {version // 10_000}: the sink needs PostgreSQL "
                f"{_OLDEST_SERVER // 10_000} or newer",
            )

    def _qualified(self, connection: psycopg.Connection[Any]) -> str:
        """Return the quoted name of the table with its schema; without one it is in the first of the search path."""
        from boatlift.connectors.postgres.table import quoted

        schema, _, name = self._table_name.rpartition(".")
        if not schema:
            row = connection.execute("SELECT coalesce(current_schema(), '')").fetchone()
            schema = "" if row is None else str(row[0])
            if not schema:
                raise InvalidError(
                    "SINK_UNSUITABLE",
                    f"{self._address} has no schema in the role's search_path: name one, as in 'sales.{name}'",
                )
        return f"{quoted(schema)}.{quoted(name)}"

    def _claim(self, connection: psycopg.Connection[Any], context: SinkContext, table: SinkTable) -> Committed | None:
        from boatlift.connectors.postgres.table import columns_of

        ledger = self._ledger(context)
        if not entries.exists(connection):
            entries.make(connection)
        self._refuse(ledger, connection, table.name)
        own = entries.entry_of_sink(connection, context, lock=True)
        found = columns_of(connection, table.name)
        key = None if self.key is None else list(self.key)
        if own is None:
            if found or self._is_taken(connection, table.name):
                raise ledger.foreign("was not made by a sink")
            entries.add(connection, context, table.name, key)
            table.create(connection)
            return None
        if own.place != table.name:
            raise ledger.foreign(f"is not where sink {own.sink!r} of {own.dataflow!r} wrote: that is {own.place}")
        self._check_owner(ledger, own)
        if own.key != key:
            raise ledger.foreign(f"was written with key {own.key}, but this sink writes with key {key}")
        if not found:
            raise DataError("SINK_DAMAGED", f"{self._place} is gone but its ledger is there: restore the database")
        if wrong := table.check(connection):
            raise ledger.foreign(wrong)
        entries.claim(connection, context)
        if own.step < 0:
            return None
        newest = entries.step(connection, context, own.step)
        if newest is None:
            raise ledger.lacks(own.step)
        return newest.committed

    @staticmethod
    def _is_taken(connection: psycopg.Connection[Any], name: str) -> bool:
        """Return whether a view, a sequence or the like has the name."""
        row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
        return row is not None and bool(row[0])

    def _refuse(self, ledger: StepLedger, connection: psycopg.Connection[Any], name: str) -> None:
        """Raise if the table is another sink's, or of another store; without a lock, so that no owner is disturbed."""
        context = ledger.context
        for entry in (
            entries.entry_of_place(connection, name),
            entries.entry_of_sink(connection, context, lock=False),
        ):
            if entry is None:
                continue
            if entry.format > entries.FORMAT:
                newer = f"{self._place} has format {entry.format}, this version writes {entries.FORMAT}"
                raise DataError("NEWER_FORMAT", f"{newer}: upgrade Boatlift")
            if (entry.dataflow, entry.sink) != (context.dataflow, context.sink):
                raise ledger.foreign(f"belongs to sink {entry.sink!r} of dataflow {entry.dataflow!r}")
            ledger.refuse_other_store(entry.store)

    def _check_owner(self, ledger: StepLedger, entry: entries.SinkEntry | None) -> None:
        if entry is None:
            lost = f"{self._place} has lost its row in _boatlift.sinks: restore the database"
            raise DataError("SINK_DAMAGED", lost)
        ledger.refuse_other_store(entry.store)
        ledger.refuse_newer_owner(entry.token)

    def _compared(
        self,
        connection: psycopg.Connection[Any],
        ledger: StepLedger,
        table: SinkTable,
        now: Committed,
        newest: int,
        staged: Sequence[Staged],
    ) -> Outcome:
        found = entries.step(connection, ledger.context, now.step)
        if found is None and now.step <= newest - entries.KEPT_STEPS:
            return ledger.too_old(now.step)
        if found is None:
            raise ledger.lacks(now.step)

        def difference() -> str:
            # Later steps have overwritten the rows of older steps: only the newest can be compared row by row.
            if now.step != newest or not staged:
                return ""
            return table.difference(connection, read_pieces(now.rows, staged), found.transaction)

        return ledger.compare(now, found.committed, difference)

    def _behind_older_owners(self, act: Callable[[psycopg.Connection[Any]], _T], context: SinkContext) -> _T:
        """Run a transaction; those of older owners in its way are ended, and so are lost ones of this owner."""
        label = locks.label_of(context.dataflow, context.sink)
        patience = self._database.lock_timeout
        for _ in range(_BLOCKED):
            try:
                return self._database.transaction(act, self._name(context), lock_timeout=min(_COURTESY, patience))
            except UnavailableError as error:
                if error.condition != "SINK_LOCKED":
                    raise
            if not self._database.outside(lambda there: locks.end_older_owners(there, label, context.token)):
                break
        try:
            return self._database.transaction(act, self._name(context), lock_timeout=patience)
        except UnavailableError as error:
            if error.condition != "SINK_LOCKED":
                raise
            name = self._database.outside(self._qualified)
            raise self._database.outside(
                lambda connection: locks.locked(connection, self._place, name, patience)
            ) from error.__cause__

    def _name(self, context: SinkContext) -> str:
        return f"{locks.label_of(context.dataflow, context.sink)}{context.token}"

    def _ledger(self, context: SinkContext) -> StepLedger:
        return StepLedger(context, self._place, "table", "restore the database")
