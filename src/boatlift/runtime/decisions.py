"""What a user decides about single steps, on the record: to let stand what was released though a replay differs, or to skip one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from queue import SimpleQueue

from boatlift.errors import DivergedError, InvalidError
from boatlift.storage.facts import Result
from boatlift.storage.history import History
from boatlift.storage.records import Decided, Record
from boatlift.storage.standing import Standing

__all__ = ["Decisions"]

logger = logging.getLogger(__name__)

ACCEPTED, SKIPPED = "accepted", "skipped"


class Decisions:
    """Knows what was decided before, takes what is decided now, and puts it on the record.

    Args:
        history: What was recorded before this process began.
        accept: Whether the user lets stand whatever was released, where a replay differs.
        skip: Processors and their steps that give nothing, whatever they take.
        recorded: Those whose steps can be skipped, to the last step whose input is recorded: what a step of theirs takes is certain.

    Raises:
        InvalidError: `[BAD_OPTION]` a step that cannot be skipped.
    """

    def __init__(
        self,
        history: History,
        *,
        accept: bool,
        skip: Collection[tuple[str, int]],
        recorded: Mapping[str, int],
    ) -> None:
        self._accept = accept
        self._standing = history.standing
        self._accepted = history.decided(ACCEPTED)
        self._skipped = history.decided(SKIPPED)
        self._memos: SimpleQueue[Record] = SimpleQueue()
        for who, time in sorted(set(skip) - self._skipped):
            self._skip(who, time, history.last_executed(who), recorded)

    @property
    def skipped(self) -> AbstractSet[tuple[str, int]]:
        """All steps that are skipped, each with its processor."""
        return self._skipped

    def standing(self) -> Standing:
        """Gives the facts that replays are held to: where differences are accepted, those that are no results."""
        facts = self._standing.facts()
        return Standing.of(fact for fact in facts if not (self._accept and isinstance(fact, Result)))

    def note(self, processor: str, number: int, digest: str) -> None:
        """Puts on the record that a result is not the recorded one, if it is not and that is accepted."""
        recorded = self._standing.results.get(processor, {}).get(number)
        if self._accept and recorded is not None and recorded.digest != digest:
            said = f"{processor} gave digest {digest} at time {number} on replay, where {recorded.digest} was recorded"
            self._put_on_record(ACCEPTED, processor, number, said)

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
            self._accepted.add((sink, step))
            self._put_on_record(ACCEPTED, sink, step, error.message)

    def take(self) -> list[Record]:
        """Gives what is to be put on the record."""
        return [self._memos.get() for _ in range(self._memos.qsize())]  # nobody else takes any

    def _skip(self, who: str, time: int, executed: int, recorded: Mapping[str, int]) -> None:
        if who not in recorded:
            raise InvalidError(
                "BAD_OPTION",
                f"{who} has no steps that could be skipped, for what it takes is not recorded before: {', '.join(recorded)} have",
            )
        if time <= executed:
            raise InvalidError(
                "BAD_OPTION",
                f"step {time} of {who} was executed, and others may have seen what it gave: only a step that fails can be skipped",
            )
        if time > recorded[who]:
            raise InvalidError("BAD_OPTION", f"step {time} of {who} has not come yet: the last is {recorded[who]}")
        self._skipped.add((who, time))
        self._put_on_record(SKIPPED, who, time, f"step {time} of {who} gives nothing")

    def _put_on_record(self, what: str, who: str, time: int, said: str) -> None:
        logger.warning("%s, and on the record: %s", what, said)
        self._memos.put(Decided(what, who, time, said))
