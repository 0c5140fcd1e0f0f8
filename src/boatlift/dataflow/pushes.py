"""What a source promises that is handed its rows, and whose rows nobody else keeps.

The rows themselves are the determinants: they are in an input log of the store before whoever handed them over hears of it, are read again from there,
and are freed when no failure can make anyone read them again (Feldera's dist-design, "input logging").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from boatlift.dataflow.contracts import Json, Source

if TYPE_CHECKING:
    from boatlift.storage.input_log import InputLog
    from boatlift.storage.unlogged_input import UnloggedInput

__all__ = ["KeptInStore", "Receipt", "TakesPushes"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of rows that were pushed.

    Attributes:
        rows: How many they are.
        repeated: Whether they had been recorded before, with the same key; they were not taken again.
        stable: Whether no failure can make anyone read them again: what came of them is durable where it went.
    """

    rows: int
    repeated: bool
    stable: bool


@runtime_checkable
class TakesPushes(Source, Protocol):
    """A source that is handed its rows."""

    def push(self, rows: object, key: str | None, timeout: float) -> Receipt:
        """Takes rows, all or none; returns once they are recorded.

        Args:
            rows: Rows as mappings, or a table of Arrow, pandas or Polars.
            key: What the same rows come with if they are pushed again, because it is not known whether they were recorded.
            timeout: Seconds to wait for the dataflow to begin.

        Raises:
            DataError: `[BAD_ROW]` a row does not fit the schema; none was recorded.
            InvalidError: `[KEY_REUSED]`, `[PUSH_TOO_LARGE]`.
            FencedError: another process takes them now.
            UnavailableError: `[NOT_RUNNING]`, `[PUSH_FULL]`.
        """

    def pushed(self, key: str) -> Receipt | None:
        """Tells what was recorded with a key; None if nothing was, or so long ago that it is forgotten. Of rows that nobody keeps: what is stable.

        Raises:
            UnavailableError: `[NOT_RUNNING]`.
        """


@runtime_checkable
class KeptInStore(Source, Protocol):
    """A source whose rows nobody else keeps: they are in an input log of the store.

    Laws:
        * What it has told anyone to be recorded is in some later position, in exactly one.
        * Of rows that nobody keeps: what it has told anyone to be stable is in exactly one position that was acknowledged, and `next(c)` gives again what
          was given after c.
    """

    @property
    def answers_when_stable(self) -> bool:
        """Whether those who push hear of it only once their rows are stable."""

    @property
    def url(self) -> str | None:
        """The URL that rows are taken on now, if any."""

    @property
    def awaits_stability(self) -> bool:
        """Whether somebody waits now until rows are stable: to hear of it, or to push more."""

    def reserve(self, name: str) -> None:
        """Takes what only one process can have, under its name in the dataflow: until `close`.

        Raises:
            InvalidError: `[BAD_OPTION]` it runs already.
            UnavailableError: `[LISTEN_FAILED]`.
        """

    def attach(self, log: InputLog | UnloggedInput) -> None:
        """Learns where its rows are; it can be read then. With an `UnloggedInput` nobody keeps them beyond this process."""

    def open(self, token: int, stable: Json, newest: Json) -> None:
        """Takes input from now on, as the owner of this token.

        Args:
            token: See `InputLog.claim`.
            stable: The cursor after what no failure needs any more.
            newest: The cursor after all that it gave.

        Raises:
            DataError: `[MISSING_OBJECT]`, `[CORRUPT]`.
            FencedError: a newer owner has it.
        """

    def close(self) -> None:
        """Takes no more input; whoever waits for an answer gets one."""
