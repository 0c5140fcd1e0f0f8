"""Faults that strike at the moment at which they do the most harm: chance finds such a moment in few seeds.

Each function returns a new function, as `Simulation` takes it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from copy import deepcopy

from boatlift.recovery import Kind
from boatlift.runtime.machine.events import EpochClosed
from boatlift.simulation.disk import DATAFLOW
from boatlift.simulation.evolving.life import ENDS, EvolvingLife
from boatlift.simulation.evolving.programs import TELLING, EvolvingProgram, random_modes
from boatlift.simulation.evolving.turns import PlannedTurn, Turn
from boatlift.simulation.faults import Fault, FaultKind
from boatlift.simulation.machines import carried_behind
from boatlift.simulation.recipes import Role
from boatlift.simulation.simulation import Simulation
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.facts import Truncation, survives
from boatlift.storage.records.records import units_in

Aim = Callable[[Simulation], Fault | None]
Fits = Callable[[EvolvingProgram, EvolvingProgram, Mapping[str, str]], bool]

SLOW = 0.9
PAUSE = 30
MOST = 6  # faults of a seed
MOST_CHANGES = 20
MOST_DRAWN = 1000


def _at_most(find: Callable[[Simulation], Fault | None]) -> Aim:
    left = MOST

    def strike(simulation: Simulation) -> Fault | None:
        nonlocal left
        fault = find(simulation) if left else None
        left -= fault is not None
        return fault

    return strike


def deaths_with_a_rollback_carried() -> Aim:
    """Let a processor fail that has made choices which only memory has, then its owner die with a rollback carried.

    It fails as soon as the log has the choices of its readers, and the owner dies once a sink carries the rollback.
    """
    struck = set[int]()

    def find(simulation: Simulation) -> Fault | None:
        driver = simulation.driver
        assert driver is not None
        waiting = [record for records, _, _ in driver._commit.waiting for record in records or ()]
        if driver.owner in struck:
            if not any(isinstance(record, Truncation) for record in waiting):
                return None
            log = LogReader(simulation.disk, DATAFLOW)
            log.load()
            return Fault(simulation.acts, FaultKind.CRASH, 0) if carried_behind(simulation.world, log).undoes else None
        if waiting:
            return None
        for p in driver.machine.processors.values():
            chooses = p.vertex.chooses and not p.durability.recorded and p.vertex.kind is not Kind.SOURCE
            readers = (reader for _, reader in p.receivers if reader.vertex.kind is Kind.STATEFUL)
            if chooses and p.unsaved.steps and any(reader.unsaved.steps for reader in readers):
                struck.add(driver.owner)
                driver.settings.slow_log = 1.0
                return Fault(simulation.acts, FaultKind.FAIL, 0, (p.name,))
        return None

    return _at_most(find)


def deaths_with_a_choice_shown() -> Aim:
    """Let an owner die once a sink shows the outcome of a choice that the log lacks."""
    shown = dict[str, object]()

    def find(simulation: Simulation) -> Fault | None:
        nonlocal shown
        world, driver = simulation.world, simulation.driver
        assert driver is not None
        for cut in (r for records, _, _ in driver._commit.waiting for r in records or () if isinstance(r, Truncation)):
            if not all(survives(fact, cut) for facts in world.determinants.values() for fact in facts.values()):
                driver.settings.slow_log = SLOW
        if world.held == shown:
            return None
        shown = dict(world.held)
        effects = [effect for of in world.effects.values() for effect in of.values()]
        for node in world.nodes.past_of(digest for effect in effects for _, _, digest in effect):
            part, facts = world.recipe.parts[node.processor], world.determinants[node.processor]
            if part.role is Role.ORDERED and part.durability.recorded:
                edge, number = node.time
                lacks = sum(fact.taken == edge for fact in facts.values()) <= number
            else:
                chooses = part.role is not Role.SOURCE and not part.deterministic and part.durability.recorded
                lacks = chooses and (node.time not in facts or facts[node.time].outcome != node.determinant)
            if lacks:
                return Fault(simulation.acts, FaultKind.CRASH, 0)
        return None

    return _at_most(find)


def failures_before_late_answers() -> Aim:
    """Let sources answer twice, and fail before the second answer, with the steps before it."""
    asked = False

    def find(simulation: Simulation) -> Fault | None:
        nonlocal asked
        driver = simulation.driver
        assert driver is not None
        recorded = driver.machine.durable.records.determinants
        for event in driver.outstanding:
            if isinstance(event, EpochClosed) and event.time and event.time - 1 not in recorded.get(event.source, {}):
                asked = False
                current = event.incarnation == driver.machine.processors[event.source].incarnation
                return Fault(simulation.acts, FaultKind.FAIL, 0, (event.source,)) if current else None
        if asked or not any(
            source.done.maximal and source.following - 1 not in recorded.get(source.name, {})
            for source in driver.machine.sources
        ):
            return None
        asked = True
        return Fault(simulation.acts, FaultKind.DUPLICATE, 0)

    return _at_most(find)


def failures_of_senders_of_prepared_steps() -> Aim:
    """Let the sender of a message fail that a later one of several prepared steps takes."""
    struck = set[tuple[int, str, int]]()

    def find(simulation: Simulation) -> Fault | None:
        driver = simulation.driver
        assert driver is not None
        for p in driver.machine.processors.values():
            for message in (message for step in p.prepared[1:] for message in step.inputs):
                sender = next(sender for edge, sender in p.senders if edge.name == message.edge)
                key = driver.owner, sender.name, sender.incarnation
                if sender.vertex.kind is not Kind.SOURCE and sender.vertex.deterministic and key not in struck:
                    struck.add(key)
                    return Fault(simulation.acts, FaultKind.FAIL, 0, (sender.name,))
        return None

    return _at_most(find)


def changes_after_a_step_without_record() -> Callable[[EvolvingLife], PlannedTurn | None]:
    """Let an owner die whose sink holds a step that is not recorded, and the program change before it is repeated."""
    left, dead = MOST_CHANGES, False

    def strike(life: EvolvingLife) -> PlannedTurn | None:
        nonlocal left, dead
        owner = life.owner
        if owner is None or not left:
            return None
        if dead:
            left, dead = left - 1, False
            return _change(life, drains=False)
        history, parts = owner.history, life.ideal.program.parts
        chains = ((name, unit) for name, unit in units_in(history.program).items() if parts[name].kind == "chain")
        for name, unit in chains:  # new code goes on with their state
            for sink in unit.outputs.values():
                ahead = history.numbers[sink].ahead if sink in history.numbers else 0
                if len(life.outside.steps(parts[sink].label)) - 1 + ahead > history.last_executed(name):
                    dead = True
                    return PlannedTurn(life.acts, Turn.CRASH, 0)
        return None

    return strike


def changes_before_a_sink_of_a_part() -> Callable[[EvolvingLife], PlannedTurn | None]:
    """Let a sum get a sink from now on, and what the sum reads change after that."""
    last = 0

    def adds(old: EvolvingProgram, new: EvolvingProgram, modes: Mapping[str, str]) -> bool:
        sums = [each.name for each in old.parts.values() if each.kind == "sum" and old.parts[each.reads[0]].reads]
        return any(
            each.name not in old.parts and each.reads[0] in sums and modes.get(each.name) == "now"
            for each in new.sinks
            if each.kind in TELLING
        )

    def changes(old: EvolvingProgram, new: EvolvingProgram, modes: Mapping[str, str]) -> bool:
        return old.parts.keys() == new.parts.keys() and not modes

    def strike(life: EvolvingLife) -> PlannedTurn | None:
        nonlocal last
        if life.owner is None or life.acts <= last + PAUSE:
            return None
        last, parts = life.acts, life.ideal.program.plain.parts
        partial = (parts[name] for name in life.ideal.partial if name in parts)
        fits = changes if any(parts[sink.reads[0]].kind == "sum" for sink in partial) else adds
        return _change(life, drains=True, fits=fits)

    return strike


def _change(life: EvolvingLife, *, drains: bool, fits: Fits = lambda *_: True) -> PlannedTurn | None:
    """Return a change after a clean stop; None if none of many that fits is drawn."""
    details, old = random.Random(f"change {life.acts}"), life.ideal.program
    for _ in range(MOST_DRAWN):
        rng = random.Random(detail := details.getrandbits(24))
        if rng.choice(ENDS) == "stops" and (rng.random() < 0.5) == drains:
            new = deepcopy(life.drawing).changed(rng, old)
            modes, names = random_modes(rng, old, new), new.parts
            if fits(old.plain, new.plain, {names[name].label: mode for name, mode in modes.items()}):
                return PlannedTurn(life.acts, Turn.CHANGE, detail)
    return None
