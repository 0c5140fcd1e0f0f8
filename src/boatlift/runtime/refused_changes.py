"""What a change of a program must not be: each refusal is an obstacle of the transition, and says what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from boatlift.dataflow import Plan, Unit
from boatlift.dataflow.evolution import Mode, ProgramChange
from boatlift.errors import BoatliftError, DataError, InvalidError
from boatlift.runtime.graph import division_of
from boatlift.runtime.kept_rows import GivesRows
from boatlift.runtime.past_steps import lacking, missing_steps, replayed, waiting_unit, with_own_times
from boatlift.runtime.transition import Obstacle, Transition
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import units_in, without_units

MOST_EMPTY_STEPS = 100_000
"""A source that comes to meet another one may be so many steps behind it."""


class ChangeRefusals:
    """The obstacles of a transition that is being planned; arguments as of `plan_transition`."""

    def __init__(
        self,
        made: Transition,
        history: LogHistory,
        planned: Plan,
        identity: Mapping[str, Any],
        not_at_once: Callable[[str], str],
        not_again: Callable[[str], str],
        present: Mapping[str, Any],
        gives_rows: GivesRows,
    ) -> None:
        self._present = without_units(present)
        self._made, self._history, self._plan = made, history, planned
        self._not_at_once, self._not_again, self._gives_rows = not_at_once, not_again, gives_rows
        self._compared = made.comparison.processors
        self._old, self._new = units_in(history.program), units_in({"units": division_of(planned)})
        self._recorded, self._identity = without_units(history.program), identity
        self._before: list[str] = []  # the old sources of all parts that are concerned

    def _refuse_own_times(self, name: str, unit: Unit) -> None:
        """Refuse what begins behind a lookup, a merge or a batch: its cut is none of a source's."""
        if (apart := with_own_times(self._plan, unit)) is not None:
            self._obstacle(
                name,
                DataError(
                    "HISTORY_GONE",
                    f"{name} would begin behind {apart.name}, which has times of its own ({apart.timing.value}): leave "
                    "it as it was, or begin with a new store",
                ),
            )

    def _refuse_another_state(self, name: str) -> None:
        """Refuse code over a state that may have another form: only code of the user's own says nothing about it."""
        old, new = self._recorded[f"processor {name}"], self._identity[f"processor {name}"]
        keeps = {"kind", "schema", "options", "state", "layout"}
        if any(old.get(key) != new.get(key) for key in keeps) or not new.get("code"):
            self._obstacle(
                name,
                DataError(
                    "PROGRAM_CHANGED",
                    f"{name} cannot be carried over, because its state may have another form: leave out carry, and "
                    "it is computed from the past",
                ),
            )

    def _refuse_what_is_read_again(self) -> None:
        """Refuse a source that begins anew before what keeps the rows that it has given."""
        made = self._made
        again = {name for name in made.begins if self._compared[name].change is ProgramChange.CHANGED}
        for name, unit in self._plan.units.items():
            if again.intersection(unit.reads) and name not in made.fills:
                self._obstacle(
                    name,
                    DataError(
                        "HISTORY_GONE",
                        f"{name} keeps rows of {min(again.intersection(unit.reads))}, which gives them again: let it "
                        "be computed from the past, or give the source another name",
                    ),
                )
        for edge in made.edges:
            receiver = edge.partition("->")[2]
            stands = receiver in self._plan.units and receiver not in made.fills and receiver not in made.empties
            if stands and self._history.live_records.sent.get(edge):
                self._unclean(receiver, f"messages wait on {edge}, which goes")
        for name, cut in made.cuts.items():
            if name not in made.begins and cut - self._closed(name) > MOST_EMPTY_STEPS:
                self._obstacle(
                    name,
                    DataError(
                        "HISTORY_GONE",
                        f"{name} is {cut - self._closed(name)} steps behind a source that it meets now, and would "
                        "execute as many empty steps: give the store a new source in its place",
                    ),
                )

    def _closed(self, source: str) -> int:
        former = self._made.comparison.sources.get(source, source)
        return self._history.last_closed(former)

    def _refuse_steps_of_no_program(self) -> None:
        """Refuse what stands behind what is computed anew, unless no step is under way: it may need older messages."""
        made = self._made
        for name, unit in self._plan.units.items():
            behind = [read for read in unit.reads if read in made.fills or read in made.empties]
            if behind and not {name}.intersection((*made.fills, *made.empties)):
                self._refuse_lost_steps(name, f"{name} stays as it is behind {behind[0]}, which changes")
                self._refuse_missing_steps(name, behind[0])
        kept = [each for each in self._compared.values() if each.mode in (Mode.CARRY, Mode.NOW) and each.kind != "sink"]
        for each in kept:
            if each.change is ProgramChange.ADDED:
                continue
            if each.name in made.empties:
                self._refuse_lost_steps(each.name, f"{each.name} begins empty")
                self._refuse_missing_steps(each.name, each.name)
            elif not self._history.stopped:
                self._unclean(each.name, f"{each.name} has its new code from now on")
        for name in made.relaid:
            self._refuse_lost_steps(name, f"the state of {name} gets another form")
            self._refuse_missing_steps(name, name)
        self._refuse_replays(
            {each.name for each in kept if each.change is not ProgramChange.ADDED} | {*made.fills, *made.empties}
        )

    def _refuse_lost_steps(self, name: str, what: str) -> None:
        """Refuse what passes over the steps up to the cut, unless all of them are executed."""
        if not self._history.stopped:
            self._unclean(name, what)
        elif (waits := waiting_unit(self._history, self._before)) is not None:
            self._unclean(name, what, f"steps of {waits} wait")
        elif (unit := lacking(self._history, name)) is not None:
            self._unclean(name, what, f"{name} lacks a step of {unit}")

    def _refuse_missing_steps(self, name: str, behind: str) -> None:
        cut = max(self._made.cuts[source] for source in self._plan.sources_of(name))
        refused = any(each.name == name for each in self._made.obstacles)
        if not refused and (missing := missing_steps(self._history, name, behind, cut)):
            self._obstacle(name, DataError("HISTORY_GONE", missing))

    def _refuse_replays(self, changed: set[str]) -> None:
        """Refuse steps from before the cut that are executed again, by other code or from a sender's new state.

        Args:
            changed: Operators with new code from now on, and units that begin at the cut.
        """
        begin = {*self._made.fills, *self._made.empties}
        for name in replayed(self._history, self._plan, changed) if self._history.stopped else ():
            if name not in begin:
                why = (
                    "what they gave is not durable (a state without checkpoints, such as Lazy() makes; or the last run "
                    "was stopped before it had repeated them)"
                )
                self._unclean(name, f"{name} would execute earlier steps again after the change", why)

    def _unclean(self, name: str, what: str, why: str = "the last run did not stop cleanly") -> None:
        self._obstacle(
            name,
            DataError(
                "NEEDS_CLEAN_STOP",
                f"{what}, and {why}: run the old program until it has taken all of its "
                "input, end it with Ctrl-C, then change it",
            ),
        )

    def _obstacle(self, name: str, error: BoatliftError) -> None:
        self._made.obstacles.append(Obstacle(name, error))

    def _refuse_names(self) -> None:
        """Refuse a renamed source with a log of its own, steps that draw by their name, and a name that a place has."""
        was = self._made.was
        for name in was.keys() & self._plan.sources.keys():
            if self._plan.sources[name].source.capabilities.store_backed is not None:
                self._obstacle(
                    name,
                    InvalidError("BAD_OPTION", f"{name} keeps its rows in the store by its name: call it {was[name]}"),
                )
            if any(source == name for source, _ in self._history.decided("set_aside")):
                self._obstacle(
                    name,
                    InvalidError(
                        "BAD_OPTION", f"bad rows of {name} were set aside under the name {was[name]}: call it so"
                    ),
                )
        for name in self._plan.sinks:
            place = self._history.places.get(name, name)
            other = next((each for each in self._plan.sinks if self._history.places.get(each) == name != each), None)
            if place == name and other is not None:
                self._obstacle(
                    name,
                    InvalidError(
                        "BAD_OPTION", f"the place of {other} knows it as {name}: give the new sink another name"
                    ),
                )
        renamed = {name for name in was if name not in self._plan.sinks}
        drawing = {
            unit.name
            for unit in self._plan.units.values()
            if not renamed.isdisjoint(each.name for each in unit.operators) and self._not_at_once(unit.name)
        }
        if drawing and not self._history.stopped:
            self._unclean(min(drawing), f"{min(drawing)} has another name, by which its steps may draw")
        self._refuse_replays(drawing)
