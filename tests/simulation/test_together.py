"""Whole dataflows whose sinks are shown together, under every failure: none is ever ahead of another.

The world refuses an act that shows a time in one sink of a group and not in the others.
"""

from collections import Counter

import pytest

from boatlift.simulation.simulation import Simulation

SEEDS = 200


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_failures_leave_sinks_that_are_shown_together_in_step(first: int) -> None:
    for seed in range(first, first + 25):
        Simulation(seed, together=True).run()


def test_the_seeds_have_every_kind_of_group_in_them() -> None:
    kinds = Counter[str]()
    for seed in range(SEEDS):
        recipe = Simulation(seed, together=True).recipe
        for group in recipe.groups:
            kinds["any"] += 1
            kinds["of more than two"] += len(group) > 2
            kinds["of different sources"] += len(set().union(*map(recipe._sources_of, group))) > 1
            kinds["of a source that keeps no rows"] += not all(
                recipe.parts[source].deterministic for sink in group for source in recipe._sources_of(sink)
            )
            kinds["with times of their own"] += bool(recipe._own_times(group[0]))
    assert min(kinds.values()) > 5, kinds
    assert kinds["any"] > SEEDS / 3
