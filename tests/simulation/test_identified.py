"""Simulated sinks whose receivers recognise rows: they are handed steps ahead of the log, and no row is lost."""

from __future__ import annotations

import pytest

from boatlift.runtime.machine.instructions import CommitSink, Rests
from boatlift.simulation.identified import Content, Row, add_rows, row_wise_sinks
from boatlift.simulation.oracle import judge
from boatlift.simulation.recipes import Role
from boatlift.simulation.simulation import Simulation

SEEDS = [seed for seed in range(150) if Simulation(seed).recipe.identified]


def test_steps_are_handed_over_ahead_of_the_log_and_each_wrong_row_is_noticed() -> None:
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
            row, content = rows.popitem()
            with pytest.raises(AssertionError, match=f"{sink} was never delivered"):
                judge(simulation.world)
            rows[row] = ((7, None), *content)
            with pytest.raises(AssertionError, match=f"{sink} was delivered .* with other contents"):
                judge(simulation.world)
            rows[row] = content
            strange = row[0], simulation.world.items[row[0][-1].split(">")[0]]
            rows[strange] = content
            with pytest.raises(AssertionError, match=f"{sink} was delivered .* which no execution gives"):
                judge(simulation.world)
            del rows[strange]
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


def test_a_row_that_comes_again_with_another_content_is_refused() -> None:
    known: dict[Row, Content] = {(("a>b",), 1): ()}
    add_rows(known, {(("a>b",), 1): (), (("a>b",), 2): ()})
    assert list(known) == [(("a>b",), 1), (("a>b",), 2)]
    with pytest.raises(AssertionError, match="comes as"):
        add_rows(known, {(("a>b",), 2): ((3, None),)})
