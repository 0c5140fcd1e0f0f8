"""What happens to the owner of a store in a life, and when."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum


class Turn(Enum):
    """What happens to the owner of a store."""

    CHANGE = "the program is to change"
    CRASH = "the owner crashes"
    CRASH_IN_ACT = "the owner crashes before or after a later durable act"
    PAUSE = "the owner is presumed dead, and goes on"
    STOP = "the owner is to stop"
    POINT = "a restore point is to be kept, or dropped"
    BACK = "the dataflow is to go back"
    COPY = "the store is copied"
    RESTORE = "the store is lost, and restored from its copy"


@dataclass(frozen=True, slots=True)
class PlannedTurn:
    """A turn, and after how many acts it comes."""

    at: int
    turn: Turn
    detail: int  # from which the details are drawn, so that each turn can be left out alone

    def __str__(self) -> str:
        return f"after {self.at} acts {self.turn.value} ({self.detail})"


def random_turns(rng: random.Random, acts: int) -> tuple[PlannedTurn, ...]:
    """Return about ten turns, a third of them changes."""
    turns = tuple(Turn)[:7]
    made = [
        PlannedTurn(rng.randint(0, acts), rng.choices(turns, weights=(8, 1, 2, 2, 2, 5, 4))[0], rng.getrandbits(24))
        for _ in range(rng.randint(4, 14))
    ]
    if rng.random() < 0.4:
        at = sorted(rng.randint(0, acts) for _ in range(rng.randint(2, 6)))
        kinds = (Turn.COPY, *(rng.choice((Turn.COPY, Turn.RESTORE, Turn.RESTORE)) for _ in at[1:]))
        made += [PlannedTurn(when, turn, rng.getrandbits(24)) for when, turn in zip(at, kinds, strict=True)]
    return tuple(sorted(made, key=lambda each: each.at))
