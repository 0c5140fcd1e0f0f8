"""Transactions on a database server: each is run again until its outcome is known, or time is up.

**An answer has three values**: committed, not committed, unknown. After a lost connection the outcome of `COMMIT` is
unknown: the transaction runs again on a new connection, and reads in its ledger whether its first run was committed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

from boatlift.connectors.databases.dialect import Dialect, Session
from boatlift.errors import BoatliftError, UnavailableError

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_REST, _LONGEST_REST = 0.05, 2.0
_GRACE = 5.0
"""Seconds for which the client waits longer than the server lets a statement run."""

RETRY_FOR = 60.0
"""The seconds for which a transaction without a clear outcome is run again."""


class Transactions:
    """One connection to a database, made anew after a failure.

    Args:
        place: What is written, as messages name it.
        lock_timeout: Seconds for which a statement waits for a lock.
        statement_timeout: Seconds for which a statement may run, without its waits for locks, and for which the client
            may do nothing in a transaction.
    """

    def __init__(self, dialect: Dialect[Any], place: str, lock_timeout: float, statement_timeout: float) -> None:
        self.place = place
        self.lock_timeout = lock_timeout
        self._dialect, self._statement_timeout = dialect, statement_timeout
        self._session: Session | None = None

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def another(self) -> Transactions:
        """Return another connection to the same database, which is not made yet."""
        return Transactions(self._dialect, self.place, self.lock_timeout, self._statement_timeout)

    def outside(self, act: Callable[[Session], _T]) -> _T:
        """Run statements of which each is a transaction, once, on a connection of their own.

        Raises:
            BoatliftError: As `transaction`.
        """
        try:
            with closing(self._connect()) as session:
                return act(session)
        except self._dialect.error as error:
            raise self._raised(error) from error

    def transaction(
        self,
        act: Callable[[Session], _T],
        name: str,
        *,
        writes: bool = True,
        lock_timeout: float | None = None,
    ) -> _T:
        """Run a transaction, and run it again after each failure that passes.

        Args:
            act: Runs statements in the transaction. It is called once more after a failure, also when an earlier call
                was committed and the answer was lost.
            name: By which a newer owner finds the transaction on the server.

        Raises:
            UnavailableError: `[SINK_FAILED]` no clear outcome in `RETRY_FOR` seconds; `[SINK_LOCKED]`.
            BoatliftError: What the dialect makes of the server's refusals, and what `act` raises.
        """
        for last in self._tries():
            try:
                return self._once(act, name, writes, lock_timeout or self.lock_timeout)
            except self._dialect.error as error:
                if last or not self._dialect.is_passing(error):
                    raise self._raised(error) from error
        raise AssertionError

    def _once(self, act: Callable[[Session], _T], name: str, writes: bool, lock_timeout: float) -> _T:
        session = self._session
        try:
            if session is None or session.closed:
                session = self._session = self._connect()
            self._dialect.begin(session, name, writes, lock_timeout, self._statement_timeout + lock_timeout)
            result = act(session)
            session.execute("COMMIT")
        except BaseException as error:
            passing = isinstance(error, self._dialect.error) and self._dialect.is_passing(error)
            self._roll_back(session, keep=not passing)
            raise
        return result

    def _raised(self, error: Exception) -> BoatliftError:
        if not self._dialect.is_passing(error):
            return self._dialect.error_of(error, self.place)
        words = " ".join(str(error).split())[:300] or type(error).__name__
        return UnavailableError("SINK_FAILED", f"{self.place}: {words}; run again once the server answers")

    def _roll_back(self, session: Session | None, *, keep: bool) -> None:
        if session is None or session.closed:
            return
        try:
            if keep:
                session.execute("ROLLBACK")
        except self._dialect.error:
            keep = False
        if not keep:
            self.close()

    def _connect(self) -> Session:
        session: Session = self._dialect.connect(self._statement_timeout + self.lock_timeout + _GRACE)
        return session

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
