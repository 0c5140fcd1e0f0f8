"""A user's decisions about single steps and rows, which the log records.

A user may accept that a replay differs from a released step, skip a step, or set bad rows aside.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from queue import SimpleQueue

from boatlift.dataflow import Delivery, Plan
from boatlift.errors import BoatliftError, DataError, DivergedError, InvalidError
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.engine import Skips
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.facts import StepDigest
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.live import LiveRecords
from boatlift.storage.records.records import Override, Record
from boatlift.times import Time

logger = logging.getLogger(__name__)

ACCEPTED, SKIPPED, FAILED, SET_ASIDE = "accepted", "skipped", "failed", "set_aside"


class Overrides:
    """The decisions of earlier runs and of this one; those of this run are recorded.

    Args:
        history: The log before this process began.
        recorded: Unit to the last step whose input is recorded. A unit that chooses its input records the input of a
            step only if the step fails.

    Raises:
        DataError: `[PROGRAM_CHANGED]` a skipped step is of a unit that the program does not have.
        InvalidError: `[BAD_OPTION]` a step that cannot be skipped, or a source whose bad rows cannot be set aside.
    """

    def __init__(
        self, history: LogHistory, options: RunOptions, recorded: Mapping[str, int], plan: Plan, graph: RecoveryGraph
    ) -> None:
        # A step that failed may belong to a unit that only other policies make; a skip counts for ever.
        known = {*plan.units, *plan.sinks}
        if unknown := sorted((unit, step) for unit, step in history.decided(SKIPPED) if unit not in known):
            unit, step = unknown[0]
            raise DataError(
                "PROGRAM_CHANGED",
                f"step {step} of {unit} was skipped, and {unit} executes no steps of its own under the policies of "
                "this program: run it with those under which that step was skipped, or begin with a new store and new "
                "sinks",
            )
        self._accept = options.accept_released
        self._records = history.live_records
        self._accepted = history.decided(ACCEPTED)
        self.skipped = history.decided(SKIPPED)
        self._plan, self._graph = plan, graph
        self._failed_inputs = {
            (unit, n): it.messages for (what, unit, n), it in history.decisions.items() if what == FAILED
        }
        self._skipped_messages = {
            (unit, *message)
            for (what, unit, _), decided in history.decisions.items()
            if what == SKIPPED
            for message in decided.messages
        }
        self._unwritten: SimpleQueue[Record] = SimpleQueue()
        self._rows: dict[str, AbstractSet[str] | None] = {}
        for (kind, source, _), decided in sorted(history.decisions.items(), reverse=True):  # every bad row comes last
            if kind == SET_ASIDE:
                self._rows[source] = {*(self._rows.get(source) or ()), decided.place} if decided.place else None
        for name, what in sorted(set(options.skip) - self.skipped, key=repr):
            if isinstance(what, str):
                self._set_aside(name, what)
            else:
                self._skip(name, what, last_done(plan, name, history), recorded)
        for name in sorted(set(options.set_aside)):
            self._set_aside(name)

    @property
    def skips(self) -> Skips:
        """The skipped steps, messages and rows; a unit that chooses its input skips messages, not steps."""
        units = self._plan.units
        steps = {(unit, n) for unit, n in self.skipped if unit in units and not units[unit].chooses_inputs}
        return Skips(steps, self._skipped_messages, self._rows)

    def failed(self, processor: str, step: StepInput, error: BoatliftError) -> list[Record]:
        """Return the record of a step that always fails: its input, if the unit chooses its input."""
        unit = self._plan.units[processor]
        if not unit.chooses_inputs:
            return []
        messages = tuple((message.edge, message.time) for message in step.inputs)
        senders = ", ".join(f"step {time} of {self._graph.edges[edge].source}" for edge, time in messages[:3])
        more = f" and {len(messages) - 3} more" if len(messages) > 3 else ""
        logger.warning("on the record: step %s of %s, which fails, takes %s%s", step.number, processor, senders, more)
        return [Override(FAILED, processor, step.number, error.message, messages)]

    def live_records(self) -> LiveRecords:
        """Return the facts that replays are compared with: without recorded digests, if differences are accepted."""
        facts = self._records.facts()
        return LiveRecords.of(fact for fact in facts if not (self._accept and isinstance(fact, StepDigest)))

    def note(self, processor: str, number: int, digest: str) -> None:
        """Record that a result differs from the recorded one, if it does and that is accepted."""
        recorded = self._records.results.get(processor, {}).get(number)
        if self._accept and recorded is not None and recorded.digest != digest:
            said = f"{processor} gave digest {digest} at time {number} on replay, where {recorded.digest} was recorded"
            self._record(ACCEPTED, processor, number, said)

    def compare(self, sink: str, step: int, with_held: Callable[[], object]) -> None:
        """Compare a step with the one that a sink holds, unless their difference was accepted before.

        Raises:
            DivergedError: `[DIVERGED]` the steps differ, and the user has not accepted that.
        """
        if (sink, step) in self._accepted:
            return
        try:
            with_held()
        except DivergedError as error:
            if not self._accept:
                raise
            self._accepted.add((sink, step))
            self._record(ACCEPTED, sink, step, error.message)

    def take(self) -> list[Record]:
        return [self._unwritten.get() for _ in range(self._unwritten.qsize())]  # no other thread takes any

    def _skip(self, unit: str, step: int, done: int, recorded: Mapping[str, int]) -> None:
        refuse_skip(self._plan, unit, step, done)
        if unit in self._plan.sinks:
            self.skipped.add((unit, step))
            self._record(SKIPPED, unit, step, f"{unit} is not handed step {step}")
            return
        if self._plan.units[unit].chooses_inputs:
            if (unit, step) not in self._failed_inputs:
                raise InvalidError(
                    "BAD_OPTION",
                    f"step {step} of {unit} has not failed: {unit} chooses its input, and the log has the input "
                    "of failed steps only",
                )
        elif step > recorded[unit]:
            raise InvalidError("BAD_OPTION", f"step {step} of {unit} has not come yet: the last is {recorded[unit]}")
        self.skipped.add((unit, step))
        messages = self._failed_inputs.get((unit, step), ())
        self._skipped_messages.update((unit, *message) for message in messages)
        self._record(SKIPPED, unit, step, f"step {step} of {unit} gives nothing", messages)

    def _set_aside(self, named: str, place: str = "") -> None:
        source = refuse_set_aside(self._plan, named)
        places = self._rows.get(source, frozenset())
        if places is None or place in places:
            return
        self._rows[source] = {*places, place} if place else None
        said = f"bad rows of {source} are kept in the store, and no step takes them"
        if place:
            said = f"the bad row {place} of {source} is kept in the store, and no step takes it"
        self._record(SET_ASIDE, source, len(places) if place else -1, said, place=place)

    def _record(
        self, what: str, unit: str, step: int, said: str, messages: tuple[tuple[str, Time], ...] = (), place: str = ""
    ) -> None:
        logger.warning("%s, and on the record: %s", what.replace("_", " "), said)
        self._unwritten.put(Override(what, unit, step, said, messages, place))


def last_done(plan: Plan, name: str, history: LogHistory) -> int:
    """Return the last step that a unit has executed, or that a sink holds, by the log; -1 for none."""
    return history.held(name) if name in plan.sinks else history.last_executed(name)


def source_named(plan: Plan, named: str) -> str:
    """Return the source of a name; the name may be that of the stream of its rows.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such source.
    """
    name = named if named in plan.sources else f"{named}_source"
    if name not in plan.sources:
        raise InvalidError(
            "BAD_OPTION", f"{plan.dataflow} has no source {named}: choose from {', '.join(plan.sources)}"
        )
    return name


def refuse_set_aside(plan: Plan, named: str) -> str:
    """Return the source whose bad rows are set aside, as `source_named` does.

    Raises:
        InvalidError: `[BAD_OPTION]` the source has no bad rows that could be set aside.
    """
    name = source_named(plan, named)
    capabilities = plan.sources[name].source.capabilities
    if capabilities.store_backed is not None:
        raise InvalidError("BAD_OPTION", f"{named} refuses bad rows as they are pushed: there are none to set aside")
    if capabilities.bad_rows is None:
        raise InvalidError(
            "BAD_OPTION",
            f"bad rows of {named} cannot be set aside: those of files of JSON can, of CSV without multi_line, and of "
            "topics with format='json'",
        )
    if plan.sources[name].source.describe().get("bad_rows") == "dead_letters":
        raise InvalidError("BAD_OPTION", f"the bad rows of {named} are a stream of the dataflow: nothing is set aside")
    if plan.read_whole(name):
        raise InvalidError(
            "BAD_OPTION",
            f"{named} is read from its beginning at every step: begin with a new store and bad_rows='dead_letters'",
        )
    return name


def refuse_skip(plan: Plan, unit: str, step: int, done: int) -> None:
    """Refuse to skip a step if the program, or an execution of the step, forbids that.

    The step of a sink is the one that it is not handed; `done` is what `last_done` returns.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if unit in plan.sinks:
        if plan.sinks[unit].sink.delivery is not Delivery.AT_LEAST_ONCE:
            raise InvalidError(
                "BAD_OPTION",
                f"{unit} is exactly-once, and its steps have no gap: skip the step of the unit that it reads",
            )
        if step <= done:
            raise InvalidError("BAD_OPTION", f"step {step} was delivered to {unit}: the last was {done}")
        if step > done + 1:
            raise InvalidError(
                "BAD_OPTION", f"step {step} of {unit} has not failed: the next step that it is handed is {done + 1}"
            )
        return
    refused = plan.units.get(unit)
    if refused is None:
        units = ", ".join(plan.units)
        raise InvalidError("BAD_OPTION", f"{unit} executes no steps that could be skipped: {units} do")
    if refused.rereads_source:
        raise InvalidError(
            "BAD_OPTION",
            f"{unit} takes all rows at every step, so that the rows at which a step fails come again with the next "
            "step: let its function ignore them",
        )
    unkept = [source for source in sorted(plan.sources_of(unit)) if plan.keeps_no_rows(source)]
    if unkept:
        raise InvalidError(
            "BAD_OPTION",
            f"{unkept[0]} keeps no rows, so that a step of {unit} would have other rows now: let its function ignore "
            "bad ones, or choose ack='recorded'",
        )
    if step <= done:
        raise InvalidError(
            "BAD_OPTION",
            f"step {step} of {unit} was executed, and other processors may have taken its rows: only a step that "
            f"fails can be skipped",
        )
