"""Whole dataflows of every domain and regime, under every failure: nothing is lost, nothing doubled."""

from collections import Counter

import pytest

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy
from boatlift.simulation.faults import FaultKind
from boatlift.simulation.host import machine_of
from boatlift.simulation.recipes import Role, random_recipe
from boatlift.simulation.simulation import Simulation, simulate

SEEDS = 500


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_failures_leave_no_trace(first):
    for seed in range(first, first + 25):
        Simulation(seed).run()


def test_the_seeds_have_everything_in_them():
    roles, policies, faults = Counter(), Counter(), Counter()
    forgetful = 0
    for seed in range(SEEDS):
        simulation = Simulation(seed)
        faults.update(fault.kind for fault in simulation.faults)
        forgetful += any(v.forgets for v in simulation.recipe.program().graph.vertices.values())
        for part in simulation.recipe.parts.values():
            roles[part.role] += 1
            policies[type(part.regime.policy), part.regime.recorded or part.deterministic] += 1
    assert min(roles[role] for role in Role) > 20, roles
    assert forgetful > 100
    assert min(faults[kind] for kind in FaultKind) > 20, faults
    kinds = [(policy, kept) for policy in (Ephemeral, Batch, Lazy, Eager) for kept in (True, False)]
    assert min(policies[kind] for kind in [*kinds, (History, True)]) > 10, policies


def test_a_seed_repeats_its_trace():
    assert simulate(7) == simulate(7)
    assert simulate(7) != simulate(8)


def test_recipes_make_a_fresh_program_each_time():
    import random

    recipe = random_recipe(random.Random(3))
    assert recipe.program().graph is not recipe.program().graph


@pytest.mark.parametrize("seed", range(30))
def test_recorded_events_make_the_machine_again(seed):
    simulation = Simulation(seed)
    simulation.run()
    host = simulation.host
    machine = machine_of(host.facts, host.held, host.settings)
    told = [machine.start(), *(machine.handle(event) for event in host.heard)]
    assert machine.finished
    assert told == host.told
    for name, p in host.machine.processors.items():
        again = machine.processors[name]
        assert (again.done, again.life, again.state, again.sent) == (p.done, p.life, p.state, p.sent)
    assert str(machine.story) == str(host.machine.story)


@pytest.mark.parametrize("seed", range(30))
def test_what_the_machine_takes_for_durable_is_what_the_log_says(seed):
    simulation = Simulation(seed)
    simulation.run()
    taken, said = simulation.host.machine.durable.standing, simulation.host.history.standing
    assert set(map(repr, taken.facts())) == set(map(repr, said.facts()))
