"""Crashes at every durable act of simulated dataflows leave no trace."""

import pytest

from boatlift.simulation.units import Simulation, simulate

SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 20))
def test_crashes_leave_no_trace(first: int) -> None:
    deaths = 0
    for seed in range(first, first + 20):
        simulation = Simulation(seed)
        simulation.run()
        deaths += simulation.deaths
    assert deaths > 20, "the simulation hardly ever crashes, so it proves little"


def test_a_seed_repeats_its_trace() -> None:
    assert simulate(7) == simulate(7)
    assert simulate(7) != simulate(8)
