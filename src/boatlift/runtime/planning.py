"""The plan of a transition: what stands, begins anew, is computed from the past, and what must not be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from boatlift.dataflow import Delivery, History, Plan, Timing, Unit
from boatlift.dataflow.evolution import (
    FROM_PAST,
    KEPT_MODES,
    NEED_PAST,
    Mode,
    ProgramChange,
    another_sink,
    compare,
    connected_parts,
    sort_of,
)
from boatlift.dataflow.rows import RowKind
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.graph import WayBack, way_back
from boatlift.runtime.kept_rows import GivesRows, is_whole, state_has_rows
from boatlift.runtime.refused_changes import ChangeRefusals
from boatlift.runtime.transition import Transition
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import edges_of, without_units


def plan_transition(
    history: LogHistory,
    recorded: Mapping[str, Any],
    planned: Plan,
    identity: Mapping[str, Any],
    modes: Mapping[str, str],
    not_at_once: Callable[[str], str],
    back: str | None = None,
    present: Mapping[str, Any] | None = None,
    was: Mapping[str, str] | None = None,
    not_again: Callable[[str], str] = lambda _unit: "",
    gives_rows: GivesRows = lambda _unit, _program: False,
    *,
    from_copy: bool = False,
) -> Transition:
    """Return the transition of a store to another program.

    Args:
        history: The log; on a way back its meaning at the restore point.
        recorded: Its program.
        planned, identity: The new program.
        modes: As for `compare`.
        not_at_once: Returns why a unit cannot be executed over the whole past in one step; empty if it can.
        back: The restore point to go back to; empty for the beginning.
        present: On a way back the program of the log as it is.
        not_again: Returns why its steps cannot be executed again either.
        gives_rows: Returns whether a state that the recorded program has made of a unit gives all its rows.
        was: The processors that the user has renamed, with their former names; history and programs have the new ones.
        from_copy: Whether the store is an older copy, beyond which its sinks have gone on.

    Raises:
        InvalidError: `[BAD_OPTION]` as `compare`.
    """
    goes_back = back is not None or from_copy
    comparison = compare(
        without_units(recorded), identity, modes, goes_back=goes_back, was=was, stopped=history.stopped
    )
    made = Transition(comparison, back=back, from_copy=from_copy, was=dict(was or {}))
    if comparison.is_changed or goes_back:
        _Planning(made, history, planned, identity, not_at_once, not_again, present or {}, gives_rows).plan()
    return made


class _Planning(ChangeRefusals):
    def plan(self) -> None:
        made = self._made
        self._cut()
        for name, unit in self._plan.units.items():
            self._unit(name, unit)
        for name in self._compared:
            self._sink(name)
        made.forgotten += sorted(self._old.keys() - self._new.keys())
        made.forgotten += made.comparison.named(ProgramChange.REMOVED)
        kinds = {
            entry.partition(" ")[2]: entry for entry in self._recorded
        }  # a name may become another sort of processor
        made.forgotten += [
            name
            for name, each in self._compared.items()
            if each.change is ProgramChange.ADDED
            and kinds.get(name, f"{sort_of(each.kind)} {name}") != f"{sort_of(each.kind)} {name}"
        ]
        made.forgotten += [name for name in made.begins if self._compared[name].change is ProgramChange.CHANGED]
        void = edges_of(self._old) - edges_of(self._new)
        for name in {*made.fills, *made.empties}:
            void |= edges_of({name: self._new[name]})
        made.edges = sorted(void)
        made.forgotten = list(dict.fromkeys(made.forgotten))
        self._taint()
        self._computed()
        self._refuse_names()
        self._refuse_what_is_read_again()
        self._refuse_steps_of_no_program()

    def _cut(self) -> None:
        """Find the sources of all parts of the graph in which a processor is not unchanged, and where they are."""
        made, sources = self._made, self._plan.sources
        made.renamed.update({old: new for new, old in made.comparison.sources.items()})
        concerned = {name for name, each in self._compared.items() if each.change is not ProgramChange.UNCHANGED}
        for part in connected_parts(self._edges()):
            if concerned.isdisjoint(part):
                if made.goes_back:
                    made.cuts.update({name: self._history.last_closed(name) for name in part & sources.keys()})
                continue
            was = {self._made.comparison.sources.get(name, name) for name in part}
            before = [name for name in was if f"source {name}" in self._recorded]
            self._before += before
            last = max(map(self._history.last_closed, before), default=-1)
            for name in part & sources.keys():
                made.cuts[name] = last
                if self._compared[name].change is not ProgramChange.UNCHANGED:
                    made.begins.append(name)

    def _edges(self) -> Iterator[tuple[str, str]]:
        for identity in (self._recorded, self._identity):
            for entry, about in identity.items():
                name, reads = entry.partition(" ")[2], about.get("reads", ())
                yield name, name
                yield from ((read, name) for read in ((reads,) if isinstance(reads, str) else reads))

    def _unit(self, name: str, unit: Unit) -> None:
        made, compared = self._made, [self._compared[each.name] for each in unit.operators]
        modes = {each.mode for each in compared if each.mode is not None}
        begins = unit.reads[0] in made.begins and not unit.operators  # the rows of a source that begins
        if not modes.isdisjoint(NEED_PAST) or begins:
            made.fills.append(name)
            if modes.isdisjoint(FROM_PAST) and not begins:
                made.relaid.append(name)
            for each in compared:
                if each.mode in KEPT_MODES and not (name in made.relaid and each.mode is Mode.SAME):
                    self._obstacle(
                        each.name,
                        DataError(
                            "HISTORY_GONE", f"{each.name} shares a job with a changed operator: leave out its mode"
                        ),
                    )
            self._refuse_own_times(name, unit)
            if isinstance(unit.policy, History) and unit.keeps_state:
                self._obstacle(
                    name,
                    DataError(
                        "HISTORY_GONE",
                        f"{name} keeps its inputs (History), and a computed state has none: give it Lazy()",
                    ),
                )
        elif unit.keeps_state and unit.keeper is not None and self._compared[unit.keeper.name].mode is Mode.NOW:
            made.empties.append(name)
            taken = [read for read in unit.keeper.reads if self._plan.rows_of(read).kind is not RowKind.APPEND]
            if taken:  # a row would go that never came
                self._obstacle(
                    name,
                    DataError(
                        "HISTORY_GONE",
                        f"{name} reads changes of {taken[0]}, and without a past a row would go that never came: "
                        "let it be computed from the past",
                    ),
                )
            self._refuse_own_times(name, unit)
        else:
            self._stands(name, unit, carried=bool(modes & KEPT_MODES))
            return
        if name in self._old:
            made.forgotten.append(name)

    def _stands(self, name: str, unit: Unit, *, carried: bool) -> None:
        before, now = self._old.get(name), self._new[name]
        for each in unit.operators if carried else ():
            mode, old = self._compared[each.name].mode, self._recorded.get(f"processor {each.name}")
            if (
                mode in KEPT_MODES
                and old is not None
                and ((old["keeps_state"], old["timing"]) != (each.keeps_state, each.timing.value))
            ):
                self._obstacle(
                    each.name,
                    DataError(
                        "PROGRAM_CHANGED",
                        f"{each.name} has a state or times of its own in one of the two programs alone, and cannot "
                        "stay as it is: leave out its mode",
                    ),
                )
            elif mode is Mode.CARRY and each.keeps_state:
                self._refuse_another_state(each.name)
            if mode in KEPT_MODES and old is not None and tuple(old["reads"]) != each.reads:
                self._refuse_lost_steps(each.name, f"{each.name} reads another stream")
                self._refuse_missing_steps(name, each.reads[0])
        if before is not None and before.operators == now.operators and before.inputs == now.inputs:
            return
        inputs = before is not None and self._history.live_records.taken.get(name)
        if unit.timing is not Timing.EPOCHS or unit.records_answers or not unit.deterministic or inputs:
            self._obstacle(
                name,
                DataError(
                    "PROGRAM_CHANGED",
                    f"{name} is divided into other Spark jobs than before, and has determinants of its own: leave the "
                    "operators before it as they were",
                ),
            )
            return
        if not unit.keeps_state:
            if before is not None:
                self._made.forgotten.append(name)
            return
        senders = () if before is None else before.inputs.values()  # a state ends its job: its unit has its name
        if not self._history.stopped and not all(f"source {sender}" in self._recorded for sender in senders):
            self._unclean(name, f"{name} is divided into other Spark jobs than before")

    def _sink(self, name: str) -> None:
        made, each = self._made, self._compared[name]
        if each.kind != "sink" or each.change is ProgramChange.REMOVED:
            return
        sink, unit = self._plan.sinks[name].sink, self._plan.unit_of_sink(name)
        behind = unit.name in made.fills and unit.name not in made.relaid
        programs = [each for each in (self._recorded, self._present) if f"sink {name}" in each]
        fault = next(filter(None, (another_sink(name, each, self._identity) for each in programs)), "")
        if fault and (each.change is not ProgramChange.ADDED or made.goes_back):
            self._obstacle(name, InvalidError("OTHER_COLUMNS", fault))
            return
        if each.change is ProgramChange.UNCHANGED and not behind and not made.goes_back:
            return
        mode = each.mode or Mode.FILL
        if each.change is not ProgramChange.UNCHANGED:
            made.forgotten.append(name)
        past = max(made.cuts[source] for source in self._plan.sources_of(unit.name))
        # Before it went, before a way back, or after the copy was made that the store was once.
        known = self._history.given.keys() | self._history.numbers.keys()
        gave = not known.isdisjoint(self._history.names_of_place(name)) or self._history.ahead > 0
        if past < 0 and not made.goes_back and not gave:
            return
        stays = each.change is ProgramChange.UNCHANGED and not behind and unit.name not in made.empties
        if stays and mode is Mode.NOW and made.goes_back:
            made.returning.append(name)
        if mode is Mode.FILL and made.goes_back and (stays or past < 0):
            how = way_back(self._plan, name)
            if how in (WayBack.EMPTIES, WayBack.UNDOES):
                undone = made.emptied if how is WayBack.EMPTIES else made.undone
                undone[name] = self._history.own_number(name)
                made.sinks[name] = mode
                made.returning.append(name)
                return
        if unit.name not in made.fills and unit.name not in made.empties and past >= 0:  # else it is refused already
            self._refuse_own_times(name, unit)
        if mode is not Mode.NOW and sink.delivery is Delivery.AT_LEAST_ONCE:
            self._obstacle(
                name,
                InvalidError(
                    "SINK_NOT_READABLE",
                    f"the receiver of {name} cannot be asked what it holds: choose --change {name}=now",
                ),
            )
        elif (
            mode is not Mode.NOW
            and sink.key is not None
            and past >= 0
            and self._plan.rows_of(unit.name).kind is RowKind.APPEND
        ):
            self._obstacle(
                name,
                InvalidError(
                    "SINK_NOT_READABLE",
                    f"{name} keeps the newest row of each key, and one step over the whole past does not tell which is "
                    f"newest: choose --change {name}=now",
                ),
            )
        elif mode is not Mode.NOW and each.change is not ProgramChange.ADDED and sink.capabilities.reads_back is None:
            self._obstacle(
                name,
                InvalidError(
                    "SINK_NOT_READABLE",
                    f"{name} cannot tell what it holds: choose --change {name}=now, or another name and place",
                ),
            )
        elif (made.back or made.from_copy) and mode is Mode.FILL and stays and name in self._history.tainted:
            self._obstacle(
                name,
                InvalidError(
                    "CANNOT_TAKE_BACK",
                    f"{name} did not begin with the whole past, and what it held there cannot be computed: choose "
                    f"--change {name}=now",
                ),
            )
        elif mode is Mode.NOW and each.change is not ProgramChange.ADDED and name not in made.returning:
            self._refuse_lost_steps(name, f"{name} goes on from now on")
        if mode is not Mode.NOW:  # it gets all steps at once, also those for which a source that lags has no input yet
            made.cuts.update(dict.fromkeys(self._plan.sources_of(unit.name), past))
        made.sinks[name] = mode

    def _computed(self) -> None:
        """List the units to be executed over the past: those that are filled, and those above sinks and above them."""
        made, plan = self._made, self._plan
        if all(cut < 0 for cut in made.cuts.values()):
            return
        wanted = {name for name in made.fills if plan.units[name].keeps_state and self._has_past(name)}
        wanted |= {
            plan.unit_of_sink(sink).name
            for sink, mode in made.sinks.items()
            if mode is not Mode.NOW and sink not in made.undone and sink not in made.emptied
            if self._has_past(plan.unit_of_sink(sink).name)
        }
        executed = self._with_senders(wanted)
        made.stepwise = any(
            self._compared[each.name].mode is Mode.REPLAY for name in executed for each in plan.units[name].operators
        )
        if not made.stepwise:
            kept = {name for name in executed if self._stands_whole(name) and self._state_gives_rows(name)}
            executed = self._with_senders(wanted, kept)
            made.kept = [name for name in plan.units if name in executed & kept]
            executed -= kept
        made.known = [name for name in made.sinks if self._is_known(name)]
        made.computed = [name for name in plan.units if name in executed]
        self._refuse_pasts(set_aside={who for who, _ in self._history.decided("set_aside")})

    def _with_senders(self, units: AbstractSet[str], kept: AbstractSet[str] = frozenset()) -> set[str]:
        """Return units and all units from which their rows come, up to those whose rows are kept."""
        found = set(units)
        for name in reversed(list(self._plan.units)):
            if name in found - kept:
                found |= {read for read in self._plan.units[name].reads if read in self._plan.units}
        return found

    def _stands_whole(self, name: str) -> bool:
        """Return whether a unit and all before it are as they were, and follow from the whole past."""
        operators = {each.name for unit in self._with_senders({name}) for each in self._plan.units[unit].operators}
        stands = all(self._compared[each].change is ProgramChange.UNCHANGED for each in operators)
        return stands and operators.isdisjoint(self._made.tainted)

    def _state_gives_rows(self, name: str) -> bool:
        """Return whether the state of a unit at the cut is there, and has all rows that its sinks got."""
        cut = max(self._made.cuts[source] for source in self._plan.sources_of(name))
        return state_has_rows(self._history, self._plan.units[name], cut, self._gives_rows)

    def _is_known(self, sink: str) -> bool:
        """Return whether the log says that a sink got the rows of the state of its unit, and no others."""
        unit, entry = self._plan.unit_of_sink(sink).name, f"sink {sink}"
        before = self._recorded.get(entry, {})
        return (
            not self._made.goes_back
            and self._made.sinks[sink] is Mode.FILL
            and before.get("reads") == unit == self._identity[entry]["reads"]
            and is_whole(self._history, {sink})
            and self._state_gives_rows(unit)
        )

    def _refuse_pasts(self, set_aside: set[str]) -> None:
        made, plan = self._made, self._plan
        for name in made.computed:
            for each in plan.units[name].operators:
                if each.name in made.tainted:
                    self._obstacle(
                        each.name,
                        DataError(
                            "HISTORY_GONE",
                            f"the past of {name} cannot be computed, because {each.name} got its code from some "
                            f"step on, or a step of it was skipped: choose --change {each.name}=fill, too, or now for "
                            "what is added",
                        ),
                    )
            if bad := sorted(set_aside.intersection(plan.units[name].reads)):
                self._obstacle(
                    name,
                    DataError(
                        "HISTORY_GONE",
                        f"the past of {name} cannot be computed, because bad rows of {bad[0]} were set aside: send "
                        f"them to a stream of their own (bad_rows='dead_letters'), or {self._remedy(name)}",
                    ),
                )
            # What stays as it was has rows of the steps as they were, which are no rows of a replay.
            by_steps = [each.name for each in plan.units[name].operators if each.of_steps]
            stay = [each for each in by_steps if self._compared[each].mode is not Mode.REPLAY]
            if why := self._not_at_once(name) if stay or not by_steps else self._not_again(name):
                remedy = self._remedy(name)
                if stay and not self._not_again(name):
                    remedy = f"choose {self._replays()} (the input once more, step by step), or {remedy}"
                self._obstacle(
                    name, DataError("HISTORY_GONE", f"the past of {name} cannot be computed, because {why}: {remedy}")
                )
            for source in plan.units[name].reads:
                spec = plan.sources.get(source)
                if spec is None or source in made.begins:
                    continue
                able = spec.source.capabilities
                if made.stepwise and able.divided_anew is None and able.rescannable is not None:
                    self._obstacle(
                        name,
                        DataError(
                            "HISTORY_GONE",
                            f"the past of {name} cannot be replayed, because the order in which {source} was taken is "
                            f"not known: {self._remedy(name)}",
                        ),
                    )
                pushed = able.store_backed is not None and not able.store_backed.retains
                if able.rescannable is None or pushed:
                    kept = " (bl.push keeps its rows with retain=True, from the first run on)" if pushed else ""
                    self._obstacle(
                        name,
                        DataError(
                            "HISTORY_GONE",
                            f"the past of {name} is gone: source {source} cannot be read again from its beginning"
                            f"{kept}; {self._remedy(name)}",
                        ),
                    )

    def _replays(self) -> str:
        """Return the modes with which all that depends on steps is replayed."""
        operators = [each for name in self._made.computed for each in self._plan.units[name].operators if each.of_steps]
        names = [each.name for each in operators if self._compared[each.name].mode is not Mode.REPLAY]
        return " ".join(f"--change {name}=replay" for name in names)

    def _remedy(self, unit: str) -> str:
        """Return the modes with which no past of a unit is needed."""
        below = {unit}
        for name, each in self._plan.units.items():
            below |= {name} if not below.isdisjoint(each.reads) else set()
        begun = (ProgramChange.CHANGED, ProgramChange.ADDED, ProgramChange.OTHER_LAYOUT)
        needing = [
            each.name
            for name in self._plan.units
            if name in below
            for each in self._plan.units[name].operators
            if self._compared[each.name].change in begun and self._compared[each.name].mode in NEED_PAST
        ]
        own = [each.name for each in self._plan.units[unit].operators if self._compared[each.name].mode in NEED_PAST]
        needing = needing or own
        sinks = [
            name
            for name, mode in self._made.sinks.items()
            if mode is not Mode.NOW and self._plan.unit_of_sink(name).name in below
            if not needing or self._compared[name].change in begun
        ]
        said = " ".join(f"--change {name}=now" for name in (*needing, *sinks))
        users = needing and all(
            self._identity[f"processor {name}"].get("code")
            and self._compared[name].change is not ProgramChange.OTHER_LAYOUT
            for name in needing
        )
        kept = " (or carry, for a state that stays as it is)" if users else ""
        choose = f"choose {said}{kept}, or " if said else ""
        return f"{choose}begin with a new store and new places of its sinks"

    def _taint(self) -> None:
        """List what does not follow from the whole past: kept with new code, begun without a past, or skipped."""
        operators = {each.name for unit in self._plan.units.values() for each in unit.operators}
        kept = {name for name, each in self._compared.items() if each.mode in (Mode.CARRY, Mode.NOW)}
        filled = {name for name, each in self._compared.items() if each.mode in FROM_PAST}
        skipped = {
            each.name
            for unit, _ in self._history.decided("skipped")
            if unit in self._plan.units
            for each in self._plan.units[unit].operators
        }
        filled |= {name for name, mode in self._made.sinks.items() if mode is Mode.FILL and not self._made.goes_back}
        kept |= {name for name, mode in self._made.sinks.items() if mode in (Mode.NOW, Mode.NEW_ROWS)}
        known = operators | self._plan.sinks.keys()
        self._made.tainted = sorted(((self._history.tainted | skipped) - filled | kept) & known)

    def _has_past(self, name: str) -> bool:
        return any(self._made.cuts[source] >= 0 for source in self._plan.sources_of(name))
