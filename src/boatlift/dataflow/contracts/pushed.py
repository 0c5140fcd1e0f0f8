"""Sources whose rows a client hands over, and which no other system keeps.

The rows themselves are the determinants. They are in an input log of the store before the client gets an answer, are
read again from there, and are freed when no failure can make a processor read them again (Feldera, dist-design: "input
logging").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from boatlift.dataflow.contracts.values import Json

__all__ = ["Pushable", "Receipt", "StoreBacked"]

Log_contra = TypeVar("Log_contra", contravariant=True)
"""The input logs that a source can be attached to."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of rows that a client pushed.

    Attributes:
        rows: How many rows.
        repeated: Whether the same key had been recorded before; then the rows were not taken again.
        stable: Whether no failure can make a processor read the rows again: their results are durable.
    """

    rows: int
    repeated: bool
    stable: bool


class Pushable(Protocol):
    """Takes rows from clients."""

    def push(self, rows: object, key: str | None, timeout: float) -> Receipt:
        """Take rows, all or none; return once they are recorded.

        Args:
            rows: Rows as mappings, or a table of Arrow, pandas or Polars.
            key: The idempotency key. A client that does not know whether its rows were recorded pushes them again with
                the same key.
            timeout: Seconds to wait for the dataflow to begin.

        Raises:
            DataError: `[BAD_ROW]` a row does not fit the schema; no row was recorded.
            InvalidError: `[KEY_REUSED]`, `[PUSH_TOO_LARGE]`.
            FencedError: another process takes the rows now.
            UnavailableError: `[NOT_RUNNING]`, `[PUSH_FULL]`, `[KEYS_FULL]`.
        """

    def pushed(self, key: str) -> Receipt | None:
        """Return what was recorded with a key.

        Returns:
            None if no push had the key, or one so long ago that the key is forgotten. A source without an input log
            knows only keys whose rows are stable.

        Raises:
            UnavailableError: `[NOT_RUNNING]`.
        """


class StoreBacked(Protocol[Log_contra]):
    """Keeps its rows in an input log of the store, because no other system keeps them.

    The store has two kinds of input logs: one keeps rows, the other keeps only the keys of pushes, and its rows do not
    outlive this process.

    The legal order of calls: `reserve`, `attach`, `open`, then the calls of `Source`, then `close`. A reader beside the
    owner calls `attach` and then `verify` and `load` only.

    Laws:
        * Rows that a client knows to be recorded are in exactly one later position.
        * With an input log of keys alone, rows that a client knows to be stable are in exactly one acknowledged
          position; and `next(c)` returns for a cursor c the same position every time.
    """

    @property
    def answers_when_stable(self) -> bool:
        """Return whether clients get their answers only once their rows are stable."""

    @property
    def url(self) -> str | None:
        """The URL at which rows are taken now, if any."""

    @property
    def awaits_stability(self) -> bool:
        """Return whether a client waits now until rows are stable: for an answer, or for room to push more."""

    def reserve(self, name: str) -> None:
        """Take the resources that only one process can have, under the source's name in the dataflow: until `close`.

        Raises:
            InvalidError: `[BAD_OPTION]` the source runs already.
            UnavailableError: `[LISTEN_FAILED]`.
        """

    def attach(self, log: Log_contra) -> None:
        """Set the source's input log, so that its rows can be read."""

    def open(self, token: int, stable: Json, newest: Json) -> None:
        """Take input from now on, as the owner with a token.

        Args:
            token: The number of the owner's claim; a newer owner has a larger token.
            stable: The cursor after all positions that no failure needs any more.
            newest: The cursor after all positions so far.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
            FencedError: a newer owner has the log.
        """

    def close(self) -> None:
        """Take no more input; each waiting client gets an answer."""
