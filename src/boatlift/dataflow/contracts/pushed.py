"""Sources to which clients push rows that no other system keeps.

The rows themselves are the determinants. An input log of the store has them before the client gets an answer; replays
read them there, and they are freed when no recovery needs them (Feldera, dist-design: "input logging").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from boatlift.dataflow.contracts.values import Json

Log_contra = TypeVar("Log_contra", contravariant=True)  # the input logs that a source can be attached to


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to a push.

    Attributes:
        rows: Number of rows.
        repeated: Whether the key was already recorded; then the rows were not taken again.
        stable: Whether the results of the rows are durable, so that no failure needs the rows again.
    """

    rows: int
    repeated: bool
    stable: bool


class Pushable(Protocol):
    """Takes rows from clients."""

    def push(self, rows: object, key: str | None, timeout: float, digest: bytes = b"") -> Receipt:
        """Take rows, all or none; return once they are recorded.

        Args:
            rows: Rows as mappings, or a table of Arrow, pandas or Polars.
            key: The idempotency key. A client that got no answer pushes the rows again with the same key.
            timeout: Seconds to wait for the dataflow to begin.
            digest: What the key stands for, if another digest than that of the rows.

        Raises:
            DataError: `[BAD_ROW]` a row does not fit the schema; no row was recorded.
            InvalidError: `[KEY_REUSED]`, `[PUSH_TOO_LARGE]`.
            FencedError: another process takes the rows now.
            UnavailableError: `[NOT_RUNNING]`, `[PUSH_FULL]`, `[KEYS_FULL]`.
        """

    def pushed(self, key: str) -> Receipt | None:
        """Return the receipt of a recorded key.

        Returns:
            None if no push had the key, or if the key is forgotten. A source without an input log knows only keys of
            stable rows.

        Raises:
            UnavailableError: `[NOT_RUNNING]`.
        """


class StoreBacked(Protocol[Log_contra]):
    """Has an input log in the store, because no other system keeps its rows.

    An input log keeps either the rows, or only the keys of pushes; in the second case the rows do not outlive this
    process.

    The legal order of calls: `redirect` any number of times, `reserve`, `attach`, `open`, then the calls of `Source`,
    then `close`. A reader beside the owner calls only `attach`, then `verify` and `load`.

    Laws:
        * Rows that a client knows to be recorded are in exactly one later position.
        * With an input log of keys only, rows that a client knows to be stable are in exactly one acknowledged
          position; and `next(c)` returns the same position for the same cursor.
    """

    @property
    def answers_when_stable(self) -> bool:
        """Whether clients get their answers only once their rows are stable."""

    @property
    def retains(self) -> bool:
        """Whether the store keeps all rows, so that a changed program reads them again."""

    @property
    def url(self) -> str | None:
        """The URL that accepts rows now, if any."""

    @property
    def advertised(self) -> str:
        """The URL at which clients reach the server, without a path; empty if there is none, or no port yet."""

    @property
    def awaits_stability(self) -> bool:
        """Whether a client now waits for rows to become stable: for an answer, or for room to push more."""

    def redirect(self, name: str, owner: str | None) -> None:
        """Answer clients in the place of another process, the owner.

        Laws:
            * Nothing listens where the owner would: at its own URL, or at a port that is not known before.
            * A port that cannot be had is left alone.

        Args:
            name: Of the source in the dataflow.
            owner: The owner's advertised URL, which the client is told. Empty: nobody owns the dataflow; a server that
                answers already tells its clients to try again, and none begins to. None: answer nothing.
        """

    def reserve(self, name: str) -> None:
        """Take exclusive resources under the source's name in the dataflow, until `close`.

        Raises:
            InvalidError: `[BAD_OPTION]` the source runs already.
            UnavailableError: `[LISTEN_FAILED]`.
        """

    def attach(self, log: Log_contra) -> None:
        """Set the source's input log, so that its rows can be read."""

    def open(self, token: int, stable: Json, newest: Json) -> None:
        """Start to accept rows, as the owner with a token.

        Args:
            token: The number of the owner's claim; a newer owner has a larger token.
            stable: The cursor after all positions that no recovery needs any more.
            newest: The cursor after all positions so far.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
            FencedError: a newer owner has the log.
        """

    def close(self) -> None:
        """Accept no more rows, and answer each waiting client."""
