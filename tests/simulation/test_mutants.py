"""Deliberate faults of the core are caught by the outside alone: each by a seed that passes without it."""

import json

import pytest

from support.worlds.mutant import SEEDS, caught
from support.worlds.mutants import EXACT, MUTANTS

FOUND = json.loads(SEEDS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_outside_catches(name):
    mutant = MUTANTS[name]
    assert not caught(FOUND[name], mutant)
    with mutant.at_work():
        assert caught(FOUND[name], mutant)


def test_notification_frontiers_are_what_saves_consistency():
    """The control of the mutant without them.

    With what was delivered known exactly, but with them, nothing goes wrong.
    """
    seeds = [*range(60), FOUND.get("notified", 60)]
    with EXACT.at_work():
        assert not any(caught(seed, EXACT) for seed in seeds)
