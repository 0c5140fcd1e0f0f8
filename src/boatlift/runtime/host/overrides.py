"""What a user decides about single steps, on the record: to let stand what was released though a replay differs, or to skip one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from queue import SimpleQueue
from typing import Any

from boatlift.dataflow import Plan
from boatlift.errors import BoatliftError, DataError, DivergedError, InvalidError
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.facts import StepDigest, Time
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.records import Override, Record

__all__ = ["Overrides", "refuse_skip"]

logger = logging.getLogger(__name__)

ACCEPTED, SKIPPED, FAILED = "accepted", "skipped", "failed"


class Overrides:
    """Knows what was decided before, takes what is decided now, and puts it on the record.

    Args:
        history: What was recorded before this process began.
        accept: Whether the user lets stand whatever was released, where a replay differs.
        skip: Processors and their steps that give nothing, whatever they take.
        recorded: Units to the last step whose input is recorded; of those that choose what they take it is, once a step has failed.
        plan: The dataflow.

    Raises:
        DataError: `[PROGRAM_CHANGED]` a step was skipped of a unit that the program has not.
        InvalidError: `[BAD_OPTION]` a step that cannot be skipped.
    """

    def __init__(
        self,
        history: LogHistory,
        *,
        accept: bool,
        skip: Collection[tuple[str, int]],
        recorded: Mapping[str, int],
        plan: Plan,
    ) -> None:
        # A step that failed may have been of a unit that other policies make; only a skip must be heeded for ever.
        strange = sorted((who, time) for who, time in history.decided(SKIPPED) if who not in plan.units)
        if strange:
            who, time = strange[0]
            raise DataError(
                "PROGRAM_CHANGED",
                f"step {time} of {who} was skipped, and {who} executes no steps of its own under the policies of this program: run it "
                f"with those under which that step was skipped, or begin with a new store and new sinks",
            )
        self._accept = accept
        self._live_records = history.live_records
        self._accepted = history.decided(ACCEPTED)
        self._skipped = history.decided(SKIPPED)
        self._plan = plan
        self._of_failed = {(who, n): it.messages for (what, who, n), it in history.decisions.items() if what == FAILED}
        self._passed_over = {
            (who, *message)
            for (what, who, _), decided in history.decisions.items()
            if what == SKIPPED
            for message in decided.messages
        }
        self._memos: SimpleQueue[Record] = SimpleQueue()
        for who, time in sorted(set(skip) - self._skipped):
            self._skip(who, time, history.last_executed(who), recorded)

    @property
    def skipped(self) -> AbstractSet[tuple[str, int]]:
        """All steps that are skipped, each with its processor; but those of processors that choose what they take."""
        return {(who, n) for who, n in self._skipped if not self._plan.units[who].takes_by_choice}

    @property
    def passed_over(self) -> AbstractSet[tuple[str, str, Any]]:
        """All messages that are skipped by those that choose: processor, edge, and sender's time."""
        return self._passed_over

    def failed(self, processor: str, take: StepInput, error: BoatliftError) -> list[Record]:
        """Gives what is to be on the record of a step that always fails: what it takes, if that is the processor's choice."""
        unit = self._plan.units[processor]
        if not unit.takes_by_choice:
            return []
        messages = tuple((message.edge, message.time) for message in take.inputs)
        senders = ", ".join(f"step {time} of {edge.partition('->')[0]}" for edge, time in messages[:3])
        more = f" and {len(messages) - 3} more" if len(messages) > 3 else ""
        logger.warning("on the record: step %s of %s, which fails, takes %s%s", take.number, processor, senders, more)
        return [Override(FAILED, processor, take.number, error.message, messages)]

    def live_records(self) -> LiveRecords:
        """Gives the facts that replays are held to: where differences are accepted, those that are no results."""
        facts = self._live_records.facts()
        return LiveRecords.of(fact for fact in facts if not (self._accept and isinstance(fact, StepDigest)))

    def note(self, processor: str, number: int, digest: str) -> None:
        """Puts on the record that a result is not the recorded one, if it is not and that is accepted."""
        recorded = self._live_records.results.get(processor, {}).get(number)
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
        refuse_skip(self._plan, who, time, executed)
        if self._plan.units[who].takes_by_choice:
            if (who, time) not in self._of_failed:
                raise InvalidError(
                    "BAD_OPTION",
                    f"step {time} of {who} has not failed: what it takes is a choice, which is on the record only of a step that has run",
                )
        elif time > recorded[who]:
            raise InvalidError("BAD_OPTION", f"step {time} of {who} has not come yet: the last is {recorded[who]}")
        self._skipped.add((who, time))
        messages = self._of_failed.get((who, time), ())
        self._passed_over.update((who, *message) for message in messages)
        self._put_on_record(SKIPPED, who, time, f"step {time} of {who} gives nothing", messages)

    def _put_on_record(
        self, what: str, who: str, time: int, said: str, messages: tuple[tuple[str, Time], ...] = ()
    ) -> None:
        logger.warning("%s, and on the record: %s", what, said)
        self._memos.put(Override(what, who, time, said, messages))


def refuse_skip(plan: Plan, who: str, time: int, executed: int) -> None:
    """Refuse to skip a step, as far as the program and what was executed tell it.

    Args:
        plan: The dataflow.
        who, time: Which step.
        executed: The last step of that unit that was executed.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    unit = plan.units.get(who)
    if unit is None:
        units = ", ".join(plan.units)
        raise InvalidError("BAD_OPTION", f"{who} executes no steps that could be skipped: {units} do")
    if unit.recomputation is not None and unit.recomputation.everything:
        raise InvalidError(
            "BAD_OPTION",
            f"{who} takes everything at every step, so that the rows at which a step fails come again with the next step: let its function pass over it",
        )
    forgets = [source for source in sorted(plan.sources_of(who)) if plan.forgets(source)]
    if forgets:
        raise InvalidError(
            "BAD_OPTION",
            f"{forgets[0]} keeps no rows, so that a step of {who} would be of others now: let its function pass over bad ones, or choose ack='recorded'",
        )
    if time <= executed:
        raise InvalidError(
            "BAD_OPTION",
            f"step {time} of {who} was executed, and other processors may have taken its rows: only a step that fails can be skipped",
        )
