"""Deliberate faults of transitions: shortcuts that lose rows, double them, or leave a store between two programs.

Shortcuts of the design that a store cannot take:
    * What does not stand has no message at the transition for readers that stand ("silent"): there is no step t* on
      edges. A reader that stands must have come to the cut, or the transition is refused ("evolve-missing").
    * An older owner may still write to the log ("nofence", in part): each number of the log can be created once.
    * A filled state is taken for that of another transition ("anyid"): none is kept; what was killed begins anew.
    * A transition in the background ("catchup", "stalefork", "gcfork"): there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from boatlift.dataflow import evolution
from boatlift.dataflow.evolution import ProgramChange
from boatlift.runtime import kept_rows, past_steps, planning, refused_changes
from boatlift.runtime.host import consent, transition
from boatlift.runtime.host.log import StoredRuns
from boatlift.runtime.host.sinks import SinkCommits
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.planning import _Planning
from boatlift.simulation.disk import DATAFLOW
from boatlift.simulation.evolving import owner
from boatlift.simulation.evolving.engine import EvolvingEngine
from boatlift.simulation.evolving.outside import LedgerPlace
from boatlift.simulation.evolving.owner import EvolvingOwner
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records import history
from boatlift.storage.records.facts import payloads_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import names_of_runs
from boatlift.storage.records.records import Evolved, SinkCommit
from boatlift.storage.records.renaming import Renaming
from support.worlds import aims
from support.worlds.mutant import Mutant

__all__ = ["MUTANTS_OF_TRANSITIONS"]

_append = Log.append
_at = LogHistory.at
_begin = StoredRuns.begin
_claim = EvolvingOwner._claim
_compared = evolution._compared
_consented = consent.consented
_cursor = SourceCursors.cursor
_evolve = LogHistory._evolve
_from_past = EvolvingEngine.from_past
_held = EvolvingEngine.held
_make_durable = transition._make_durable
_open_sinks = transition._open_sinks
_rename = LogHistory._rename
_unit = _Planning._unit


# -- what is compared


def _with_inputs_that_never_move(
    name: str, kind: str, before: Any, now: Any, above: Any, asked: Any, **more: Any
) -> Any:
    still = {each: msgspec.structs.replace(about, moves=False) for each, about in above.items()}
    return _compared(name, kind, before, now, still, asked, **more)


def _kept_unless_changed_itself(self: Any, name: str, unit: Any) -> None:
    changed = {self._compared[each.name].change for each in unit.operators}
    if unit.keeps_state and changed <= {ProgramChange.UNCHANGED, ProgramChange.DOWNSTREAM}:
        return
    _unit(self, name, unit)


def _at_once(self: EvolvingEngine, past: Any) -> Any:
    return _from_past(self, replace(past, stepwise=False))


# -- what a sink holds


def _held_at_the_cut(self: EvolvingEngine, sink: str) -> Any:
    """Return the integral of the old program, whether the sink has come so far or not."""
    ideal: Any = self._outside._judge
    part = ideal._plain.parts.get(self._label(sink))
    if part is None or part.name not in self._outside.places:
        return _held(self, sink)
    return ideal._integral(part.reads[0], ideal._last_above(part.name))


def _as_the_log_says(made: Any, engine: Any, log: Any, token: int) -> dict[str, int]:
    return {name: log.history.own_number(name) for name in _open_sinks(made, engine, log, token)}


def _read_first(log: Any, engine: Any, options: Any) -> Any:
    made = _consented(log, engine, options)
    if made is not None and not hasattr(engine, "read_first"):
        engine.read_first = {name: place.content() for name, place in engine._outside.places.items()}
    return made


def _held_before_the_claim(self: Any, sink: str) -> Any:
    return self.read_first.get(self._label(sink), {})


def _ask_without_opening(made: Any, engine: Any, _log: Any, token: int) -> dict[str, int]:
    """Leave older owners their sinks, until the machine begins."""
    engine.for_sinks = token
    for name in made.sinks:
        engine._outside.places.setdefault(engine._label(name), LedgerPlace())
    return {name: len(engine._outside.steps(engine._label(name))) - 1 for name in made.sinks}


# -- ways back


def _of_the_newest_program(self: LogHistory, name: str, names: Any) -> LogHistory:
    past = _at(self, name, names)
    past.program = self.program
    return past


_taken: dict[tuple[int, str], Any] = {}


def _where_it_was(self: SourceCursors, source: str, time: int) -> Any:
    """Return the largest cursor that any owner of the same life was given."""
    key: Any = id(self._engine._outside), source  # type: ignore[attr-defined]
    cursor = max(_cursor(self, source, time), _taken.get(key, {"taken": 0}), key=lambda each: each["taken"])
    _taken[key] = cursor
    return cursor


def _numbers_of_the_point(made: Any, engine: Any, log: Any, token: int) -> dict[str, int]:
    held = _open_sinks(made, engine, log, token)
    if made.back is None:
        return held
    there = consent.base_of(log, made.back, from_copy=made.from_copy).renamed(made.was)
    return {name: min(held[name], there.own_number(name)) for name in held}


# -- differences


def _never_delivered(_self: SinkCommits) -> list[SinkCommit]:
    return []


def _delivered_beside_the_ledger(self: SinkCommits) -> list[SinkCommit]:
    delivered = []
    for sink, numbers in self._numbers.items():
        if numbers.difference is not None:
            self._engine.commit(sink, self.held[sink] - numbers.ahead + 1, numbers.difference)
            self.held[sink] = max(self.held[sink], numbers.time)
            delivered.append(SinkCommit(sink, numbers.time))
    return delivered


# -- the record


_late: list[Any] = []


def _later(*what: Any) -> None:
    _late.append(what)


def _append_then_make_durable(self: Log, records: Any, entries: int = 1) -> int:
    number = _append(self, records, entries)
    if any(isinstance(record, Evolved) for record in records):
        for what in [_late.pop() for _ in range(len(_late))]:
            _make_durable(*what)
    return number


def _begin_without_garbage(self: Any, token: int, adopted: Any) -> None:
    _begin(self, token, adopted)
    log = LogReader(self._store, DATAFLOW)
    log.load()
    payloads = (payload for fact in log.history.live_records.facts() for payload in payloads_of(fact))
    for name in self.garbage(names_of_runs(payloads)):
        self._store.delete(name)


def _whatever_is_consented(log: Any, engine: Any, options: Any) -> Any:
    return _consented(log, engine, options) if options.evolve else None


def _without_tokens(self: LogHistory, change: Any) -> None:
    _evolve(self, msgspec.structs.replace(change, ahead=0))


def _given_by_the_log(_made: Any, _log: Any, now: Any, sink: str) -> int:
    return max(now.own_number(sink), now.given.get(sink, -1))


def _forever(_log: Any) -> int:
    return 10**9


class _AnyNumber(int):
    def __eq__(self, _other: object) -> bool:
        return True

    __hash__ = int.__hash__


def _as_far_as_asked(*_: Any) -> int:
    return _AnyNumber()


def _always(*_: Any) -> bool:
    return True


def _of_any_code(self: EvolvingEngine, unit: str, _program: Any) -> bool:
    return self._sum_of(unit) is not None


def _renamed_again(old: Any, new: Any, was: Mapping[str, str]) -> dict[str, str]:
    recorded, named = (
        {entry.partition(" ")[2]: entry.partition(" ")[0] for entry in each if entry != "units"} for each in (old, new)
    )
    return {name: former for name, former in was.items() if named.get(name) == recorded.get(former) is not None}


def _without_places(self: LogHistory, was: Mapping[str, str]) -> None:
    _rename(self, was)
    self.places.clear()


_first: dict[int, tuple[Any, Any]] = {}


def _planned_once(log: Any, engine: Any, options: Any) -> Any:
    if id(log) in _first and _first[id(log)][0] is log:
        return _first.pop(id(log))[1]
    made = _consented(log, engine, options)
    _first[id(log)] = log, made
    return made


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _mutant(what: str, patches: Mapping[tuple[Any, str], Any], **options: Any) -> Mutant:
    return Mutant(what, patches, evolving=True, **options)


def _none(*_: Any) -> Iterator[str]:
    return iter(())


MUTANTS_OF_TRANSITIONS: dict[str, Mutant] = {
    "evolve-nottransitive": _mutant(
        "what is behind a changed operator stands", {(evolution, "_compared"): _with_inputs_that_never_move}
    ),
    "evolve-behind": _mutant(
        "sinks behind a change get the difference, and states in between stay as they are",
        {(_Planning, "_unit"): _kept_unless_changed_itself},
    ),
    "evolve-replan": _mutant(
        "another layout of a state counts as no change", {(evolution, "_has_other_layout"): lambda *_: False}
    ),
    "evolve-replay": _mutant("what is to be replayed is computed at once", {(EvolvingEngine, "from_past"): _at_once}),
    "evolve-held-more": _mutant(
        "new code is accepted for steps that sinks hold and the log does not know",
        {(past_steps, "_sinks_hold_more"): lambda *_: False},
        aims=aims.changes_after_a_step_without_record,
    ),
    "evolve-lagging": _mutant(
        "the difference is taken from the old integral at the cut", {(EvolvingEngine, "held"): _held_at_the_cut}
    ),
    "evolve-memo": _mutant("what a sink holds is what the log says", {(transition, "_open_sinks"): _as_the_log_says}),
    "evolve-readfirst": _mutant(
        "what a sink holds is read before older owners are shut out of it",
        {(owner, "consented"): _read_first, (EvolvingEngine, "held"): _held_before_the_claim},
    ),
    "evolve-nofence": _mutant(
        "older owners may write to sinks until the new one begins", {(transition, "_open_sinks"): _ask_without_opening}
    ),
    "evolve-pointprog": _mutant(
        "a way back compares the program with the newest one, not with that of the restore point",
        {(LogHistory, "at"): _of_the_newest_program},
    ),
    "evolve-renamed-again": _mutant(
        "a former name counts though the store knows the new one", {(consent, "renamed_since"): _renamed_again}
    ),
    "evolve-unnamed-points": _mutant(
        "restore points keep the names that processors had there", {(Renaming, "point"): lambda _, point: point}
    ),
    "evolve-unplaced": _mutant(
        "a sink with another name looks for its steps under that name", {(LogHistory, "_rename"): _without_places}
    ),
    "evolve-cursor": _mutant(
        "a way back leaves the cursors of sources where they are", {(SourceCursors, "cursor"): _where_it_was}
    ),
    "evolve-gcpoint": _mutant(
        "runs are garbage though a restore point needs them",
        {(history, "runs_of_point"): lambda _: set(), (owner, "runs_of_point"): lambda _: set()},
    ),
    "evolve-renumber": _mutant(
        "a way back takes the numbers of sinks back, too", {(transition, "_open_sinks"): _numbers_of_the_point}
    ),
    "evolve-inflight": _mutant(
        "the machine begins before the difference is handed over",
        {(SinkCommits, "deliver_differences"): _never_delivered},
    ),
    "evolve-twice": _mutant(
        "the difference is handed over again, beside the ledger",
        {(SinkCommits, "deliver_differences"): _delivered_beside_the_ledger},
    ),
    "evolve-early": _mutant(
        "the transition is recorded before the runs that it names are durable",
        {(transition, "_make_durable"): _later, (Log, "append"): _append_then_make_durable},
    ),
    "evolve-oldback": _mutant(
        "after the transition the old program is accepted again",
        {
            (owner, "consented"): _whatever_is_consented,
            (owner, "refuse_other_division"): _nothing,
            (Log, "refuse_other_program"): _nothing,
        },
    ),
    "evolve-gcpending": _mutant(
        "an owner begins by deleting what no fact names, differences among it",
        {(StoredRuns, "begin"): _begin_without_garbage},
    ),
    "evolve-bulkseq": _mutant(
        "what depends on the order of steps is computed at once", {(EvolvingEngine, "not_at_once"): lambda *_: ""}
    ),
    "evolve-tainted": _mutant(
        "what began from some step on counts as if it had the whole past", {(_Planning, "_taint"): _nothing}
    ),
    "evolve-lag": _mutant("'from now on' is accepted without a clean stop", {(_Planning, "_unclean"): _nothing}),
    "evolve-waiting": _mutant(
        "'from now on' is accepted though steps wait", {(refused_changes, "waiting_unit"): lambda *_: None}
    ),
    "evolve-lacking": _mutant(
        "a sink goes on from now on though it lacks the last step of its unit",
        {(refused_changes, "lacking"): lambda *_: None},
    ),
    "evolve-missing": _mutant(
        "what has come less far than the cut stays behind what begins there",
        {(refused_changes, "missing_steps"): lambda *_: ""},
    ),
    "evolve-repeated": _mutant(
        "new code is accepted for steps that are executed again", {(refused_changes, "replayed"): _none}
    ),
    "evolve-known-held": _mutant(
        "a sink is known to hold what its state gave, however far it has come",
        {(transition, "own_number_at"): _as_far_as_asked},
    ),
    "evolve-known-whole": _mutant(
        "a sink is known to hold what its state gave, though it got its code from some step on",
        {(kept_rows, "is_whole"): _always, (planning, "is_whole"): _always, (transition, "is_whole"): _always},
        aims=aims.changes_before_a_sink_of_a_part,
    ),
    "evolve-kept-rows": _mutant(
        "a state of other code gives the rows of a unit", {(EvolvingEngine, "gives_rows"): _of_any_code}
    ),
    "evolve-copied-token": _mutant(
        "the log does not know by which token sinks know the owner of a copy",
        {(LogHistory, "_evolve"): _without_tokens},
    ),
    "evolve-copied-numbers": _mutant(
        "receivers get steps again under numbers that they know", {(transition, "_newest_given"): _given_by_the_log}
    ),
    "evolve-copied-places": _mutant(
        "steps that were emptied since the copy was made count as there", {(transition, "_last_that_worked"): _forever}
    ),
    "evolve-planned-once": _mutant(
        "what was planned before the claim is carried out", {(owner, "consented"): _planned_once}
    ),
}
