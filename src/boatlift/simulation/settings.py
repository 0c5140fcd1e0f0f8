"""The settings of a simulated driver's machine, and how slow its surroundings are."""

from __future__ import annotations

import random
from collections.abc import Sequence

from boatlift.runtime.machine import instructions
from boatlift.simulation.recipes import Recipe

__all__ = ["Settings"]


class Settings:
    """Drawn by the seed.

    Attributes:
        checked: The machine checks its invariants.
        recipe: The program, with the policies of this life.
        collect_after, messages_ahead, bytes_ahead: As `StateMachine` has them; each message has one byte.
        slow: How often an answer of the store, a timer or a probe has to wait once more.
        unheard: For so many acts of a life no write of the log is answered, as long as any other act is outstanding.
        most: The most steps that are executed together.
        restart: For so many acts after a failure the steps of a failed processor often wait.
        late: For so many acts after a failure answers to earlier incarnations come when they do the most harm.
        sluggish: Processors whose runs take long: the steps that follow are prepared meanwhile, several at a time.
        stalled: A processor that gives no answer for a while, and the first and the last of these acts of a life.
        idle: How often a source that has partners answers a poll that it has nothing.
    """

    def __init__(self, rng: random.Random, recipe: Recipe, *, checked: bool) -> None:
        self.recipe = recipe
        self.checked = checked
        self.collect_after = rng.choice((1, 4, 16))
        self.messages_ahead = rng.choice((4, 12, 32))
        self.slow = rng.choice((0.0, 0.0, 0.7, 0.95))
        self.unheard = rng.choice((0, 0, 40))
        self.restart = rng.choice((0, 10, 30))
        self.most = rng.choice((1, 1, 2, 5))
        self.late = rng.choice((0, 20, 60))
        share = rng.choice((0.0, 0.0, 0.3))
        self.sluggish = frozenset(name for name in recipe.parts if rng.random() < share)
        self.idle = rng.choice((0.0, 0.3, 0.7, 0.9))
        begin = rng.randint(0, 80)
        self.bytes_ahead = rng.choice((3, 1000, 1000))
        self.stalled = (rng.choice(list(recipe.parts)), begin, begin + rng.choice((0, 60, 200)))

    def steps_per_job(self, _processor: str, takes: Sequence[instructions.StepInput]) -> int:
        """As `StateMachine` has it."""
        return min(self.most, len(takes))
