"""How the machine of a simulated driver is set, and how slow what surrounds it is."""

from __future__ import annotations

import random
from collections.abc import Sequence

from boatlift.runtime.machine import instructions
from boatlift.simulation.recipes import Recipe

__all__ = ["Settings"]


class Settings:
    """How the machine is set.

    Attributes:
        checked: Whether the machine checks its invariants.
        recipe: What the machine drives: the program, with the policies of this life.
        collect_after, messages_ahead: As `StateMachine` has them.
        slow: How often the news that something is durable has to wait once more.
        unheard: For so many acts of a life no news that something is durable comes, while there is anything else to do.
        most: So many times are executed together at the most.
        restart: For so many acts the steps of a processor that has failed have to wait often.
        late: For so many acts after a failure answers to earlier lives come when they do the most harm.
        sluggish: Processors whose runs take long: the steps that follow are prepared meanwhile, several at a time.
    """

    def __init__(self, chance: random.Random, recipe: Recipe, *, checked: bool) -> None:
        self.recipe = recipe
        self.checked = checked
        self.collect_after = chance.choice((1, 4, 16))
        self.messages_ahead = chance.choice((4, 12, 32))
        self.slow = chance.choice((0.0, 0.0, 0.7, 0.95))
        self.unheard = chance.choice((0, 0, 40))
        self.restart = chance.choice((0, 10, 30))
        self.most = chance.choice((1, 1, 2, 5))
        self.late = chance.choice((0, 20, 60))
        share = chance.choice((0.0, 0.0, 0.3))
        self.sluggish = frozenset(name for name in recipe.parts if chance.random() < share)

    def together(self, _processor: str, takes: Sequence[instructions.StepInput]) -> int:
        """As `StateMachine` has it."""
        return min(self.most, len(takes))
