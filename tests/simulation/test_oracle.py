"""The oracle notices a lost or doubled message behind a merge, where it may not know the last messages."""

import pytest

from boatlift.simulation.oracle import judge
from boatlift.simulation.recipes import Role
from boatlift.simulation.simulation import Simulation


def merges_before_sinks():
    """Return runs in which sources go straight into a merge without state, and from there into a sink."""
    for seed in range(2000):
        simulation = Simulation(seed)
        parts = simulation.recipe.parts
        for name, part in parts.items():
            senders = [parts[wire.source].role for wire in simulation.recipe.inputs(name)]
            plain = part.role is Role.ORDERED and not part.keeps and set(senders) == {Role.SOURCE}
            if plain and f"{name}-sink" in parts:
                simulation.run()
                yield simulation, f"{name}-sink"


@pytest.fixture(scope="module")
def runs():
    found = merges_before_sinks()
    return [next(found) for _ in range(3)]


def test_the_last_message_of_a_merge_cannot_be_lost(runs):
    for simulation, sink in runs:
        effects = simulation.world.effects[sink]
        last = max(effects)
        lost = effects.pop(last)
        with pytest.raises(AssertionError):
            judge(simulation.world)
        effects[last] = lost
        judge(simulation.world)


def test_a_message_of_a_merge_cannot_come_twice(runs):
    for simulation, sink in runs:
        effects = simulation.world.effects[sink]
        effects[max(effects) + 1] = effects[max(effects)]
        with pytest.raises(AssertionError):
            judge(simulation.world)
        del effects[max(effects)]
