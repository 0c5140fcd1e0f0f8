"""Transactions on a PostgreSQL server: each is run again until its outcome is known, or time is up.

**An answer has three values**: committed, not committed, unknown. After a lost connection the outcome of `COMMIT` is
unknown: the transaction runs again on a new connection, and reads in its ledger whether its first run was committed.

**Behind a pooler.** Nothing outlives a transaction: settings are `SET LOCAL`, and no statement is prepared. So each
transaction may run on another connection of a pooler such as PgBouncer in its transaction mode.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from boatlift.connectors.postgres.address import Address
from boatlift.connectors.postgres.refusals import error_of, is_passing
from boatlift.errors import BoatliftError, UnavailableError

if TYPE_CHECKING:
    import psycopg

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_REST, _LONGEST_REST = 0.05, 2.0
_CONNECT_TIMEOUT = 10
_GRACE = 5.0
"""Seconds for which the client waits longer than the server lets a statement run."""

RETRY_FOR = 60.0
"""The seconds for which a transaction without a clear outcome is run again."""

_NO_DELAY = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
"""A peer that is gone without a word is noticed after half a minute."""

_SETTINGS = """SELECT set_config('application_name', %s, true), set_config('lock_timeout', %s, true),
    set_config('statement_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', true) END"""
"""The settings of a transaction. A stronger `synchronous_commit` stays."""


class PostgresDatabase:
    """One connection to a database, made anew after a failure.

    Args:
        name: The name of transactions in `pg_stat_activity`.
        place: What is written, as messages name it.
        lock_timeout: Seconds for which a statement waits for a lock.
        statement_timeout: Seconds for which a statement may run, without its waits for locks, and for which the client
            may do nothing in a transaction.
    """

    def __init__(self, address: Address, place: str, lock_timeout: float, statement_timeout: float) -> None:
        self.place = place
        self.lock_timeout = lock_timeout
        self._address, self._statement_timeout = address, statement_timeout
        self._connection: psycopg.Connection[Any] | None = None

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def another(self) -> PostgresDatabase:
        """Return another connection to the same database, which is not made yet."""
        return PostgresDatabase(self._address, self.place, self.lock_timeout, self._statement_timeout)

    def outside(self, act: Callable[[psycopg.Connection[Any]], _T]) -> _T:
        """Run statements of which each is a transaction, once, on a connection of their own.

        Raises:
            BoatliftError: As `transaction`.
        """
        import psycopg

        try:
            with self._connect() as connection:
                return act(connection)
        except psycopg.Error as error:
            raise self._raised(error) from error

    def transaction(
        self,
        act: Callable[[psycopg.Connection[Any]], _T],
        name: str,
        *,
        writes: bool = True,
        lock_timeout: float | None = None,
    ) -> _T:
        """Run a transaction, and run it again after each failure that passes.

        Args:
            act: Runs statements in the transaction. It is called once more after a failure, also when an earlier call
                was committed and the answer was lost.
            name: The transaction's name in `pg_stat_activity`.

        Raises:
            UnavailableError: `[SINK_FAILED]` no clear outcome in `RETRY_FOR` seconds; `[SINK_LOCKED]`.
            BoatliftError: What `refusals.error_of` makes of the server's refusals, and what `act` raises.
        """
        import psycopg

        for last in self._tries():
            try:
                return self._once(act, name, writes, lock_timeout or self.lock_timeout)
            except psycopg.Error as error:
                if last or not is_passing(error):
                    raise self._raised(error) from error
        raise AssertionError

    def _once(self, act: Callable[[psycopg.Connection[Any]], _T], name: str, writes: bool, lock_timeout: float) -> _T:
        import psycopg

        connection = self._connection
        try:
            if connection is None or connection.closed:
                connection = self._connection = self._connect()
            # READ COMMITTED: what is read behind a lock is what its last holder has committed.
            connection.execute(f"BEGIN ISOLATION LEVEL READ COMMITTED READ {'WRITE' if writes else 'ONLY'}")
            connection.execute(_SETTINGS, self._settings(name, lock_timeout))
            result = act(connection)
            connection.execute("COMMIT")
        except BaseException as error:
            self._roll_back(connection, keep=not (isinstance(error, psycopg.Error) and is_passing(error)))
            raise
        return result

    def _raised(self, error: psycopg.Error) -> BoatliftError:
        if not is_passing(error):
            return error_of(error, self.place, self._address)
        words = " ".join(str(error).split())[:300] or type(error).__name__
        return UnavailableError("SINK_FAILED", f"{self.place}: {words}; run again once the server answers")

    def _roll_back(self, connection: psycopg.Connection[Any] | None, *, keep: bool) -> None:
        import psycopg

        if connection is None or connection.closed:
            return
        try:
            if keep:
                connection.execute("ROLLBACK")
        except psycopg.Error:
            keep = False
        if not keep:
            self.close()

    def _settings(self, name: str, lock_timeout: float) -> list[str]:
        runs = self._statement_timeout + lock_timeout
        return [name, *(f"{max(1, round(seconds * 1000))}ms" for seconds in (lock_timeout, runs, runs))]

    def _connect(self) -> psycopg.Connection[Any]:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        limit = self._statement_timeout + self.lock_timeout + _GRACE

        class ImpatientConnection(psycopg.Connection[Any]):
            """Does not wait for ever for a server that does not answer."""

            def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
                return super().wait(gen, interval, limit if timeout is None else timeout)

        given = conninfo_to_dict(self._address.conninfo)
        usual = {"connect_timeout": _CONNECT_TIMEOUT, **_NO_DELAY, "client_encoding": "UTF8"}
        parameters: dict[str, Any] = {**usual, **given, "client_encoding": "UTF8"}
        return ImpatientConnection.connect(autocommit=True, prepare_threshold=None, **parameters)

    def _tries(self) -> Iterator[bool]:
        """Yield until time is up, with growing rests; True for the last time."""
        rest, deadline = _FIRST_REST, time.monotonic() + RETRY_FOR
        while (now := time.monotonic()) < deadline:
            yield False
            time.sleep(min(rest, max(0.0, deadline - now)))
            if rest < 1.0 <= 2 * rest:
                logger.warning("%s has no clear answer yet: trying for %.0f s", self.place, RETRY_FOR)
            rest = min(2 * rest, _LONGEST_REST)
        yield True
