"""An SQLite database with durable transactions, a wait for locks, and clear errors.

**Durable when a transaction has ended.** `synchronous=FULL` with a write-ahead log syncs each transaction. A rollback
journal would not be enough: there a transaction ends when the journal's name is removed, and FULL does not sync the
folder, so a power loss could undo a committed step. The write-ahead log also allows reads while a step is written, but
the database must be on a disk of this machine. `connect` syncs the names of the database and of its folders, also those
that exist: the process that made them may have died before a sync.
"""

from __future__ import annotations

import sqlite3 as driver
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from boatlift.errors import BoatliftError, DataError, UnavailableError
from boatlift.storage.filesystem import DurableFolders, FileSystem

_T = TypeVar("_T")
_BUSY_MS = 200  # between checks of the clock and of Ctrl-C while another process holds the lock
_LOCKED = (driver.SQLITE_BUSY, driver.SQLITE_LOCKED)
_DAMAGED = (driver.SQLITE_CORRUPT, driver.SQLITE_NOTADB)


class Database:
    """One connection to a database file.

    Args:
        lock_timeout: How long to wait, in seconds, while another process is writing.
    """

    def __init__(self, path: Path, lock_timeout: float, files: FileSystem) -> None:
        self.path = path
        self._lock_timeout = lock_timeout
        self._files = files
        self._connection: driver.Connection | None = None

    @property
    def connection(self) -> driver.Connection:
        """The connection, for use inside a `transaction`."""
        assert self._connection is not None, "connect comes first"
        return self._connection

    @property
    def is_connected(self) -> bool:
        """Whether the connection may be used: not before `connect`, nor after a failure."""
        return self._connection is not None

    def connect(self) -> None:
        """Open the file; make it and its folders if they do not exist, all durable."""
        DurableFolders(self.path, self._files).make(self.path.parent)
        self._connection = driver.connect(self.path, isolation_level=None, check_same_thread=False)
        self._connection.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        (mode,) = self._waiting(lambda: self.connection.execute("PRAGMA journal_mode = WAL").fetchone())
        if mode != "wal":
            raise driver.OperationalError(f"it cannot have a write-ahead log here (journal mode {mode})")
        self.connection.execute("PRAGMA synchronous = FULL")
        # SQLite syncs the name of its log, but not that of a new database.
        self._files.sync_folder(self.path.parent)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[driver.Connection]:
        """Run an atomic transaction that excludes all others."""
        self._waiting(lambda: self.connection.execute("BEGIN IMMEDIATE"))
        try:
            yield self.connection
            self._waiting(lambda: self.connection.execute("COMMIT"))
        except BaseException:
            if self._connection is not None and self._connection.in_transaction:
                with suppress(driver.Error):
                    self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn SQLite's errors into Boatlift's, and close the connection: the database's state is then unknown."""
        try:
            yield
        except (driver.Error, OSError) as error:
            with suppress(driver.Error):
                self.close()
            raise error_of(error, self.path) from error

    def _waiting(self, action: Callable[[], _T]) -> _T:
        """Run an action that needs the lock, as soon as the lock is free."""
        deadline = time.monotonic() + self._lock_timeout
        while True:
            try:
                return action()
            except driver.OperationalError as error:
                if _code(error) not in _LOCKED:
                    raise
                if time.monotonic() >= deadline:
                    raise UnavailableError(
                        "SINK_LOCKED",
                        f"another process has held the lock of {self.path} for {self._lock_timeout:g} s (`fuser -v "
                        f"{self.path}` lists those that have it open): end that process, then run again",
                    ) from error


def error_of(error: driver.Error | OSError, path: Path) -> BoatliftError:
    """Return Boatlift's error for one of SQLite or the system."""
    if isinstance(error, driver.Error) and _code(error) in _DAMAGED:
        message = f"{path} cannot be read as an SQLite database ({error}): restore it from a copy"
        return DataError("SINK_DAMAGED", message)
    return UnavailableError("SINK_FAILED", f"{path}: {error}; mend that, then run again")


def _code(error: driver.Error) -> int:
    """Return SQLite's primary error code: the lowest byte of the extended one."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'
