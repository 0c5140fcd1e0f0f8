"""PostgreSQL as a dialect: its connections, transactions and locks, and the tables of its ledger.

**Behind a pooler.** Nothing outlives a transaction: settings are `SET LOCAL`, and no statement is prepared. So each
transaction may run on another connection of a pooler such as PgBouncer in its transaction mode.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from boatlift.connectors.databases.dialect import Session, TableSpec, label_of, quoted
from boatlift.connectors.databases.ledger import LedgerTables
from boatlift.connectors.databases.postgres import refusals
from boatlift.connectors.databases.postgres.address import Address
from boatlift.errors import BoatliftError, InvalidError, UnavailableError

if TYPE_CHECKING:
    import psycopg

    from boatlift.connectors.databases.postgres.table import PostgresTable
    from boatlift.dataflow.contracts import SinkContext

_OLDEST_SERVER = 120_000
_CONNECT_TIMEOUT = 10
_NO_DELAY = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
"""A peer that is gone without a word is noticed after half a minute."""

_SETTINGS = """SELECT set_config('application_name', %s, true), set_config('lock_timeout', %s, true),
    set_config('statement_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', true) END"""
"""The settings of a transaction. A stronger `synchronous_commit` stays."""

_ADVISORY = 0x626F61746C696674
"""The lock under which the ledger is made: `boatlift` in ASCII."""


class PostgresLedger(LedgerTables):
    """The ledger in a schema of its own."""

    sinks, steps, notes = "_boatlift.sinks", "_boatlift.steps", "_boatlift.notes"
    pid = "pg_backend_pid()"

    def exists(self, session: Session) -> bool:
        (there,) = session.execute("SELECT to_regclass('_boatlift.steps') IS NOT NULL").fetchone()
        return bool(there)

    def has_notes(self, session: Session) -> bool:
        (there,) = session.execute("SELECT to_regclass('_boatlift.notes') IS NOT NULL").fetchone()
        return bool(there)

    def make(self, session: Session) -> None:
        session.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY,))
        session.execute("CREATE SCHEMA IF NOT EXISTS _boatlift")
        session.execute("""CREATE TABLE IF NOT EXISTS _boatlift.sinks (
            dataflow text NOT NULL, sink text NOT NULL, place text NOT NULL UNIQUE, key text[], store text NOT NULL,
            token bigint NOT NULL, step bigint NOT NULL, pid integer NOT NULL, format integer NOT NULL,
            PRIMARY KEY (dataflow, sink))""")
        session.execute("""CREATE TABLE IF NOT EXISTS _boatlift.steps (
            dataflow text NOT NULL, sink text NOT NULL, step bigint NOT NULL, rows bigint NOT NULL,
            digest text NOT NULL, token bigint NOT NULL, transaction bigint NOT NULL,
            PRIMARY KEY (dataflow, sink, step))""")
        self.make_notes(session)

    def make_notes(self, session: Session) -> None:
        session.execute("""CREATE TABLE IF NOT EXISTS _boatlift.notes (
            dataflow text NOT NULL, sink text NOT NULL, note bytea NOT NULL, PRIMARY KEY (dataflow, sink))""")


class PostgresDialect:
    """A PostgreSQL database."""

    kind = "postgres"
    ledger = PostgresLedger()
    ddl_commits = False

    def __init__(self, address: Address) -> None:
        self.address = address

    @property
    def error(self) -> type[Exception]:
        import psycopg

        return psycopg.Error

    def is_passing(self, error: psycopg.Error) -> bool:
        return refusals.is_passing(error)

    def error_of(self, error: psycopg.Error, place: str) -> BoatliftError:
        return refusals.error_of(error, place, self.address)

    def connect(self, limit: float) -> psycopg.Connection[Any]:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        class ImpatientConnection(psycopg.Connection[Any]):
            """Does not wait for ever for a server that does not answer."""

            def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
                return super().wait(gen, interval, limit if timeout is None else timeout)

        given = conninfo_to_dict(self.address.conninfo)
        usual = {"connect_timeout": _CONNECT_TIMEOUT, **_NO_DELAY, "client_encoding": "UTF8"}
        parameters: dict[str, Any] = {**usual, **given, "client_encoding": "UTF8"}
        return ImpatientConnection.connect(autocommit=True, prepare_threshold=None, **parameters)

    def begin(
        self, session: psycopg.Connection[Any], name: str, writes: bool, lock_timeout: float, runs: float
    ) -> None:
        # READ COMMITTED: what is read behind a lock is what its last holder has committed.
        session.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED READ {'WRITE' if writes else 'ONLY'}")
        limits = (f"{max(1, round(seconds * 1000))}ms" for seconds in (lock_timeout, runs, runs))
        session.execute(_SETTINGS, (name, *limits))

    def check_server(self, session: psycopg.Connection[Any]) -> None:
        version = session.info.server_version
        if version < _OLDEST_SERVER:
            raise InvalidError(
                "SINK_UNSUITABLE",
                f"the server of {self.address} has version {version // 10_000}: the sink needs PostgreSQL "
                f"{_OLDEST_SERVER // 10_000} or newer",
            )

    def qualified(self, session: psycopg.Connection[Any], table: str) -> str:
        schema, _, name = table.rpartition(".")
        if not schema:  # the first of the search path
            row = session.execute("SELECT coalesce(current_schema(), '')").fetchone()
            schema = "" if row is None else str(row[0])
            if not schema:
                raise InvalidError(
                    "SINK_UNSUITABLE",
                    f"{self.address} has no schema in the role's search_path: name one, as in 'sales.{name}'",
                )
        return f"{quoted(schema)}.{quoted(name)}"

    def columns_of(self, session: psycopg.Connection[Any], name: str) -> dict[str, str]:
        from boatlift.connectors.databases.postgres.table import columns_of

        return columns_of(session, name)

    def is_taken(self, session: psycopg.Connection[Any], name: str) -> bool:
        return session.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone() == (True,)

    def is_marked(self, session: psycopg.Connection[Any], name: str) -> bool:
        from boatlift.connectors.databases.table import MARK

        row = session.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", (name,)).fetchone()
        return row == (MARK,)

    def table(self, session: psycopg.Connection[Any], spec: TableSpec) -> PostgresTable:  # noqa: ARG002
        from boatlift.connectors.databases.postgres.table import PostgresTable

        return PostgresTable(spec)

    def end_older_owners(self, session: psycopg.Connection[Any], context: SinkContext) -> list[int]:
        import psycopg

        label = label_of(context)
        named = session.execute(
            "SELECT pid, substr(application_name, %s) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND starts_with(application_name, %s)",
            (len(label) + 1, label),
        ).fetchall()
        older = [pid for pid, theirs in named if theirs.isdecimal() and int(theirs) <= context.token]
        try:
            for pid in older:
                session.execute("SELECT pg_terminate_backend(%s)", (pid,))
        except psycopg.errors.InsufficientPrivilege:
            return []
        return older

    def locked(self, session: psycopg.Connection[Any], place: str, table: str, waited: float) -> UnavailableError:
        holders = session.execute(
            """SELECT DISTINCT pid, usename, application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
            WHERE granted AND pid <> pg_backend_pid() AND (
                relation = to_regclass(%s) AND mode <> 'AccessShareLock'
                OR relation = to_regclass('_boatlift.sinks') AND mode NOT IN ('AccessShareLock', 'RowShareLock',
                    'RowExclusiveLock')
                OR locktype = 'transactionid' AND transactionid IN (SELECT xmax FROM _boatlift.sinks))
            ORDER BY pid""",
            (table,),
        ).fetchall()
        if not holders:
            return UnavailableError(
                "SINK_LOCKED", f"{place} was locked for {waited:g} s, and nobody holds the lock any more: run again"
            )
        named = ", ".join(f"process {pid} of role {role} ({name or 'no name'})" for pid, role, name in holders)
        ends = "; ".join(f"SELECT pg_terminate_backend({pid})" for pid, *_ in holders)
        return UnavailableError(
            "SINK_LOCKED",
            f"{place} has been locked for {waited:g} s by {named}: let it end, or end it as that role or a superuser "
            f"({ends}), then run again",
        )
