"""Simulated sinks whose receivers recognise rows: they are handed steps ahead of the log, and no row is lost."""

from __future__ import annotations

import pytest

from boatlift.runtime.machine.instructions import CommitSink, Rests
from boatlift.simulation.identified import row_wise_sinks
from boatlift.simulation.oracle import judge
from boatlift.simulation.recipes import Role
from boatlift.simulation.simulation import Simulation

SEEDS = [seed for seed in range(150) if Simulation(seed).recipe.identified]


def test_steps_are_handed_over_ahead_of_the_log_and_the_loss_of_a_row_is_noticed() -> None:
    ahead = 0
    for seed in SEEDS:
        simulation = Simulation(seed)
        simulation.run()
        if simulation.stands_still:  # more members are gone than the depth allows
            continue
        assert simulation.driver is not None
        orders = [each for made in simulation.driver.instructions for each in made if isinstance(each, CommitSink)]
        ahead += sum(each.rests is Rests.SUBMITTED for each in orders)
        assert {each.sink for each in orders if each.rests is Rests.SUBMITTED} <= simulation.recipe.identified
        for sink, rows in simulation.world.rows.items():
            lost = rows.pop()
            with pytest.raises(AssertionError, match=f"{sink} was never delivered"):
                judge(simulation.world)
            rows.add(lost)
        judge(simulation.world)
    assert len(SEEDS) > 5
    assert ahead > len(SEEDS)


def test_a_path_on_which_steps_matter_excludes_a_sink() -> None:
    for seed in range(150):
        recipe = Simulation(seed).recipe
        for sink in row_wise_sinks(recipe):
            assert not recipe.parts[sink].ledger
            left, before = [sink], set[str]()
            while left:
                before.add(name := left.pop())
                left += [wire.source for wire in recipe.inputs(name)]
            parts = [recipe.parts[name] for name in before - {sink}]
            assert all(part.deterministic and not part.keeps and not part.swallows for part in parts)
            assert {part.role for part in parts} <= {Role.SOURCE, Role.STRUCTURED, Role.GATHERED}
