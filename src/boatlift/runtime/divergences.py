"""What comes out differently on replay: refused, or, if the user said so, let stand as it was released, on the record."""

from __future__ import annotations

import logging
from collections.abc import Callable

from boatlift.errors import DivergedError
from boatlift.storage.facts import Result
from boatlift.storage.history import History
from boatlift.storage.records import Accepted, Record
from boatlift.storage.standing import Standing

__all__ = ["Divergences"]

logger = logging.getLogger(__name__)


class Divergences:
    """Knows what was recorded of each step, and for which the user has accepted that it is something else now.

    Args:
        history: What was recorded before this process began.
        accept: Whether the user accepts whatever differs.
    """

    def __init__(self, history: History, *, accept: bool) -> None:
        self._accept = accept
        self._accepted = set(history.accepted)
        self._standing = history.standing
        self._memos: list[Record] = []

    def standing(self) -> Standing:
        """Gives the facts that replays are held to: with all accepted, those that are no results."""
        facts = self._standing.facts()
        return Standing.of(fact for fact in facts if not (self._accept and isinstance(fact, Result)))

    def note(self, processor: str, number: int, digest: str) -> None:
        """Puts on the record that a result is not the recorded one, if it is not."""
        recorded = self._standing.results.get(processor, {}).get(number)
        if self._accept and recorded is not None and recorded.digest != digest:
            said = f"{processor} gave digest {digest} at time {number} on replay, where {recorded.digest} was recorded"
            self._put_on_record(processor, number, said)

    def compare(self, sink: str, step: int, with_held: Callable[[], object]) -> None:
        """Compares a step with what a sink holds, unless it was accepted before that they differ.

        Args:
            sink: Which.
            step: As the sink counts.
            with_held: Compares.

        Raises:
            DivergedError: `[DIVERGED]` they differ, and nobody has accepted it.
        """
        if (sink, step) in self._accepted:
            return
        try:
            with_held()
        except DivergedError as error:
            if not self._accept:
                raise
            self._put_on_record(sink, step, error.message)

    def take(self) -> list[Record]:
        """Gives what is to be put on the record."""
        memos, self._memos = self._memos, []
        return memos

    def _put_on_record(self, who: str, time: int, said: str) -> None:
        logger.warning("accepted, and on the record: %s", said)
        self._accepted.add((who, time))
        self._memos.append(Accepted(who, time, said))
