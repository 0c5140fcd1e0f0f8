"""MariaDB and MySQL as a dialect: sessions, transactions and locks, and the tables of the ledger.

**A table that is made or altered ends the transaction around it.** So `open` adds the sink's row first, which the
`CREATE TABLE` behind it commits; a successor finds the row without a table and goes on. `commit` adds columns before it
writes, then locks the sink's row anew.

**Owners know each other** by user locks (`GET_LOCK`), each named after a sink and a token: the server tells which
session has one, also of a session that hangs in a transaction that was never committed.
"""

from __future__ import annotations

import configparser
import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import xxhash

from boatlift.connectors.databases.dialect import Session, TableSpec, label_of, quoted
from boatlift.connectors.databases.ledger import LedgerTables
from boatlift.connectors.databases.mysql import refusals
from boatlift.connectors.databases.mysql.address import OPTION_FILE, MysqlAddress
from boatlift.errors import BoatliftError, InvalidError, UnavailableError

if TYPE_CHECKING:
    import pymysql

    from boatlift.connectors.databases.mysql.table import MysqlTable
    from boatlift.dataflow.contracts import SinkContext

_OLDEST_MARIADB, _OLDEST_MYSQL = (10, 5), (8, 0, 23)
_CONNECT_TIMEOUT = 10
LONGEST_NAME = 64

ROW = "_boatlift_row"
"""The invisible column that numbers appended rows."""

_TOKENS = 1_000
"""The older tokens whose sessions are looked for."""

_MODES = (
    # Values that do not fit are errors.
    "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,"
    # SQL as it is written here.
    "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,NO_AUTO_VALUE_ON_ZERO"
)

_WHOLE_NUMBERS = (1, 2, 3, 8, 9, 13)
"""The client's numbers of types that become Python's whole numbers; all others stay text."""


class MysqlSession:
    """A connection with the methods of `Session`.

    Attributes:
        collation: By which no two texts are equal unless all their bytes are, spaces at the end too.
        owner: The transaction's name that the session's user lock has.
    """

    def __init__(self, connection: pymysql.Connection[Any]) -> None:
        self._connection = connection
        self.owner = ""
        ((self.version, self.database, flushes, is_logged, syncs, read_only, self.largest),) = self.execute(
            "SELECT version(), database(), @@global.innodb_flush_log_at_trx_commit, @@global.log_bin, "
            "@@global.sync_binlog, @@global.read_only, @@global.max_allowed_packet"
        ).fetchall()
        self.takes_writes = str(read_only) in {"0", "OFF"}
        self.forgets = ""
        if flushes != 1:
            self.forgets = "innodb_flush_log_at_trx_commit"
        elif is_logged and syncs != 1:
            self.forgets = "sync_binlog"
        self.is_mariadb = "mariadb" in self.version.lower()
        self.collation = "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"

    @property
    def closed(self) -> bool:
        return not self._connection.open

    def execute(self, statement: str | bytes, values: Sequence[Any] | None = None, /) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, values)
        return cursor

    def read(self, statement: str, at_once: int) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield rows of a query, so many at once; the server keeps the others."""
        from pymysql.cursors import SSCursor

        with closing(self._connection.cursor(SSCursor)) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(at_once):
                yield rows

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()


class MysqlLedger(LedgerTables):
    """The ledger in the database of the sinks' tables: copies of the database have both."""

    sinks, steps, notes = "_boatlift_sinks", "_boatlift_steps", "_boatlift_notes"
    pid = "connection_id()"

    def exists(self, session: Session) -> bool:
        return bool(session.execute(f"SHOW TABLES LIKE '{self.steps}'").fetchall())

    def has_notes(self, session: Session) -> bool:
        return bool(session.execute(f"SHOW TABLES LIKE '{self.notes}'").fetchall())

    def make(self, session: Session) -> None:
        assert isinstance(session, MysqlSession)
        kept = f"ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {session.collation}"
        name = "dataflow varchar(255) NOT NULL, sink varchar(255) NOT NULL"
        session.execute(f"""CREATE TABLE IF NOT EXISTS {self.sinks} (
            {name}, place varchar(130) NOT NULL UNIQUE, "key" longtext, store varchar(64) NOT NULL,
            token bigint NOT NULL, step bigint NOT NULL, pid bigint NOT NULL, format int NOT NULL,
            PRIMARY KEY (dataflow, sink)) {kept}""")
        session.execute(f"""CREATE TABLE IF NOT EXISTS {self.steps} (
            {name}, step bigint NOT NULL, "rows" bigint NOT NULL, digest varchar(255) NOT NULL,
            token bigint NOT NULL, transaction bigint NOT NULL, PRIMARY KEY (dataflow, sink, step)) {kept}""")
        self.make_notes(session)

    def make_notes(self, session: Session) -> None:
        assert isinstance(session, MysqlSession)
        session.execute(f"""CREATE TABLE IF NOT EXISTS {self.notes} (
            dataflow varchar(255) NOT NULL, sink varchar(255) NOT NULL, note longblob NOT NULL,
            PRIMARY KEY (dataflow, sink))
            ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE {session.collation}""")

    def key_of(self, columns: list[str] | None) -> Any:
        return None if columns is None else json.dumps(columns, ensure_ascii=False)

    def columns_of(self, key: Any) -> list[str] | None:
        return None if key is None else list(json.loads(key))


class MysqlDialect:
    """A database of a MariaDB or MySQL server."""

    kind = "mysql"
    ledger = MysqlLedger()
    ddl_commits = True

    def __init__(self, address: MysqlAddress) -> None:
        self.address = address

    @property
    def error(self) -> type[Exception]:
        import pymysql

        error: type[Exception] = pymysql.MySQLError
        return error

    def is_passing(self, error: pymysql.MySQLError) -> bool:
        return refusals.is_passing(error)

    def error_of(self, error: pymysql.MySQLError, place: str) -> BoatliftError:
        return refusals.error_of(error, place, self.address)

    def connect(self, limit: float) -> MysqlSession:
        import pymysql
        from pymysql import converters

        try:
            connection = pymysql.connect(
                charset="utf8mb4",
                autocommit=False,
                conv={**converters.encoders, **dict.fromkeys(_WHOLE_NUMBERS, int)},
                connect_timeout=_CONNECT_TIMEOUT,
                read_timeout=limit,
                write_timeout=limit,
                **self.address.parameters(),
            )
        except configparser.Error:  # whose text may have a password
            raise InvalidError("BAD_OPTION", f"{OPTION_FILE} cannot be read: correct it") from None
        except (OSError, RuntimeError, ValueError) as error:  # files of certificates; a package that is missing
            told = f"the URL's options and those of {OPTION_FILE} cannot be used for {self.address} ({error})"
            raise InvalidError("BAD_OPTION", f"{told}: correct them") from error
        session = MysqlSession(connection)
        session.execute(
            f"SET sql_mode = '{_MODES}', time_zone = '+00:00', {'tx' if session.is_mariadb else 'transaction'}"
            "_isolation = 'READ-COMMITTED'"
        )
        return session

    def begin(self, session: MysqlSession, name: str, writes: bool, lock_timeout: float, runs: float) -> None:
        lock, whole = max(1, math.ceil(lock_timeout)), math.ceil(runs)
        limits = (
            f"max_statement_time = {whole}, idle_transaction_timeout = {whole}"
            if session.is_mariadb
            else f"max_execution_time = {1000 * whole}, wait_timeout = {whole}"
        )
        session.execute(f"SET innodb_lock_wait_timeout = {lock}, lock_wait_timeout = {lock}, {limits}")
        if writes and session.owner != name:
            self._name(session, name)
        # READ COMMITTED: what is read behind a lock is what its last holder has committed.
        session.execute(f"START TRANSACTION READ {'WRITE' if writes else 'ONLY'}")

    def _name(self, session: MysqlSession, name: str) -> None:
        """Take the owner's user lock; a session of the same owner that has it was lost, and is ended."""
        lock = _user_lock(session.database, name)
        for wait in (0, 1):
            if session.execute("SELECT get_lock(%s, %s)", (lock, wait)).fetchone() == (1,):
                session.owner = name
                return
            self._end(session, [lock])

    def check_server(self, session: MysqlSession) -> None:
        found = tuple(map(int, re.findall(r"\d+", session.version)[:3]))
        oldest, name = (_OLDEST_MARIADB, "MariaDB") if session.is_mariadb else (_OLDEST_MYSQL, "MySQL")
        if found < oldest:
            raise InvalidError(
                "SINK_UNSUITABLE",
                f"the server of {self.address} has version {session.version}: the sink needs {name} "
                f"{'.'.join(map(str, oldest))} or newer",
            )
        if not session.takes_writes:
            raise InvalidError(
                "SINK_UNSUITABLE", f"{self.address} takes no writes (read_only is on): give the primary's address"
            )
        if session.forgets:
            raise InvalidError(
                "SINK_UNSUITABLE",
                f"the server of {self.address} may forget transactions that it has committed: set {session.forgets} to "
                f"1 (SET GLOBAL {session.forgets} = 1, and in its option file)",
            )

    def qualified(self, session: MysqlSession, table: str) -> str:  # noqa: ARG002
        return quoted(table, "`")

    def columns_of(self, session: MysqlSession, name: str) -> dict[str, str]:
        rows = session.execute(
            "SELECT c.column_name, c.column_type, c.collation_name FROM information_schema.columns c "
            "JOIN information_schema.tables t USING (table_schema, table_name) WHERE c.table_schema = database() "
            "AND c.table_name = %s AND t.table_type = 'BASE TABLE' AND c.column_name <> %s ORDER BY ordinal_position",
            (_bare(name), ROW),
        ).fetchall()
        return {
            column: re.sub(r"^((tiny|small|big)?int)\((?!1\))\d+\)", r"\1", kind)
            + (f" COLLATE {collation}" if collation else "")
            for column, kind, collation in rows
        }

    def is_taken(self, session: MysqlSession, name: str) -> bool:
        return self.made(session, name) is not None

    def is_marked(self, session: MysqlSession, name: str) -> bool:
        from boatlift.connectors.databases.table import MARK

        found = self.made(session, name)
        return found is not None and found[1].startswith(MARK)

    def made(self, session: MysqlSession, name: str) -> tuple[str, str] | None:
        """Return engine and comment of a table."""
        found: tuple[str, str] | None = session.execute(
            "SELECT coalesce(engine, ''), table_comment FROM information_schema.tables "
            "WHERE table_schema = database() AND table_name = %s",
            (_bare(name),),
        ).fetchone()
        return found

    def primary_key(self, session: MysqlSession, name: str) -> list[str]:
        """Return the columns of a table's primary key."""
        rows = session.execute(
            "SELECT column_name FROM information_schema.statistics WHERE table_schema = database() "
            "AND table_name = %s AND index_name = 'PRIMARY' AND sub_part IS NULL ORDER BY seq_in_index",
            (_bare(name),),
        ).fetchall()
        return [column for (column,) in rows]

    def table(self, session: MysqlSession, spec: TableSpec) -> MysqlTable:
        from boatlift.connectors.databases.mysql.table import MysqlTable

        return MysqlTable(self, session, spec)

    def end_older_owners(self, session: MysqlSession, context: SinkContext) -> list[int]:
        own = self.ledger.entry_of_sink(session, context, lock=False)
        # Who holds the row's lock has its token, or a larger one that is not committed yet.
        first = max(0 if own is None else own.token, context.token - _TOKENS)
        label = label_of(context)
        named = [_user_lock(session.database, f"{label}{token}") for token in range(first, context.token)]
        return self._end(session, named) if named else []

    @staticmethod
    def _end(session: MysqlSession, locks: Sequence[str]) -> list[int]:
        import pymysql

        asked = ", ".join(["is_used_lock(%s)"] * len(locks))
        found = [each for each in session.execute(f"SELECT {asked}", tuple(locks)).fetchone() if each is not None]
        try:
            for each in found:
                session.execute(f"KILL {each}")
        except (pymysql.OperationalError, pymysql.InternalError) as error:
            if refusals.number_of(error) == 1095:  # another user's
                return []
            if refusals.number_of(error) != 1094:  # it has ended by itself
                raise
        return found

    def locked(self, session: MysqlSession, place: str, table: str, waited: float) -> UnavailableError:  # noqa: ARG002
        import pymysql

        seconds = max(1, math.ceil(waited))
        try:
            holders = session.execute(
                "SELECT p.id, p.user FROM information_schema.innodb_trx x "
                "JOIN information_schema.processlist p ON p.id = x.trx_mysql_thread_id "
                "WHERE p.id <> connection_id() AND x.trx_rows_locked + x.trx_tables_locked > 0 ORDER BY p.id"
            ).fetchall()
        except pymysql.OperationalError:  # which the right PROCESS allows
            holders = ()
        if not holders:
            return UnavailableError(
                "SINK_LOCKED",
                f"{place} has been locked for {seconds} s by a session that the server does not tell this user: let "
                "it end, or end it as an administrator (SHOW PROCESSLIST lists sessions, and KILL ends one), then run "
                "again",
            )
        named = ", ".join(f"session {number} of user {user}" for number, user in holders)
        ends = "; ".join(f"KILL {number}" for number, _ in holders)
        return UnavailableError(
            "SINK_LOCKED",
            f"{place} has been locked for {seconds} s, and locks are held by {named}: let it end, or end it as that "
            f"user or an administrator ({ends}), then run again",
        )


def _bare(name: str) -> str:
    return name[1:-1].replace("``", "`")


def _user_lock(database: str, name: str) -> str:
    return f"boatlift {xxhash.xxh3_128_hexdigest(f'{database} {name}'.encode())}"


def can_be_a_name(name: str) -> bool:
    """Return whether the server can give a column or a table a name."""
    return 0 < len(name) <= LONGEST_NAME and not name.endswith(" ") and min(name) > "\0" and max(name) < "\U00010000"
