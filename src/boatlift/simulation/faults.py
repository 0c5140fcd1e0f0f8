"""The faults of a simulation and their moments, and the settings of its machines: both are drawn by the seed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from boatlift.runtime.machine import instructions
from boatlift.simulation.recipes import Recipe


class Settings:
    """The settings of a simulated driver's machine, and the delays around it.

    Attributes:
        collect_after, messages_ahead, bytes_ahead: As `StateMachine` has them; each message has one byte.
        slow: The probability that an answer of the store, a timer or a probe waits once more.
        unanswered: For the first so many acts no write of the log is answered, while any other act is outstanding.
        most: The most steps of one job.
        restart: For so many acts after a failure the steps of a failed processor often wait.
        late: For so many acts after a failure answers to earlier incarnations come when they do the most harm.
        sluggish: Processors with long runs: the following steps are prepared meanwhile, several at a time.
        stalled: A processor that does not answer for a while, and the first and the last of these acts.
        carriers: The sinks that may carry facts which are being written.
        tellers: The sinks that say how far their acts rest.
        unawaited: The sinks that wait for no log.
        depths: Processor to the number of standbys that must hold its facts; one that is missing waits for the log.
        slow_log: The probability that a write of the log waits once more.
        in_two: Each write of the log begins some time before it ends.
        idle: The probability that a source with partners answers a poll with no input.
    """

    def __init__(self, rng: random.Random, recipe: Recipe, *, checked: bool) -> None:
        self.recipe = recipe
        self.checked = checked
        self.collect_after = rng.choice((1, 4, 16))
        self.messages_ahead = rng.choice((4, 12, 32))
        self.slow = rng.choice((0.0, 0.0, 0.7, 0.95))
        self.unanswered = rng.choice((0, 0, 40))
        self.restart = rng.choice((0, 10, 30))
        self.most = rng.choice((1, 1, 2, 5))
        self.late = rng.choice((0, 20, 60))
        share = rng.choice((0.0, 0.0, 0.3))
        self.sluggish = frozenset(name for name in recipe.parts if rng.random() < share)
        self.idle = rng.choice((0.0, 0.3, 0.7, 0.9))
        begin = rng.randint(0, 80)
        self.bytes_ahead = rng.choice((3, 1000, 1000))
        self.carriers: frozenset[str] = frozenset()
        self.tellers: frozenset[str] = frozenset()
        self.unawaited = recipe.identified
        self.depths: dict[str, int] = {}
        self.slow_log, self.in_two = 0.0, False
        self.stalled = (rng.choice(list(recipe.parts)), begin, begin + rng.choice((0, 60, 200)))

    def log_waits(self, rng: random.Random) -> bool:
        return bool(self.slow_log) and rng.random() < self.slow_log

    def steps_per_job(self, _processor: str, takes: Sequence[instructions.StepInput]) -> int:
        """As `StateMachine` has it."""
        return min(self.most, len(takes))


class FaultKind(Enum):
    """The kinds of faults."""

    CRASH = "the driver crashes"
    CRASH_IN_ACT = "the driver crashes before or after a later durable act"
    CRASH_BETWEEN = "the driver crashes after some times of its next commit of several"
    ZOMBIE = "the driver is presumed dead, and continues"
    FAIL = "some processors lose their memory"
    TIMEOUT = "a sink does not answer, whether it has committed or not"
    IDLE = "a source has no input for a while"
    DUPLICATE = "a source answers twice"


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    at: int
    kind: FaultKind
    detail: int  # a random number for the details of a kind, such as the number of durable acts before a crash
    who: tuple[str, ...] = ()  # the processors that fail

    def __str__(self) -> str:
        return f"after {self.at} acts {self.kind.value} ({', '.join(self.who) or self.detail})"


def random_faults(rng: random.Random, names: Sequence[str], acts: int) -> tuple[Fault, ...]:
    """Return a few faults, some of them in quick succession."""
    if rng.random() < 0.1:
        return _faults_of_a_young_driver(rng, names)
    faults: list[Fault] = []
    at = 0
    in_a_row = rng.random() < 0.4
    for _ in range(rng.choice((3, 4, 5)) if in_a_row else rng.choice((2, 3, 3, 4, 5, 6))):
        soon = faults and (in_a_row or rng.random() < 0.3)
        at = at + rng.choice((1, 3, 9, 20)) if soon else rng.randint(0, acts)
        weights = (1, 1, 1, 0, 9, 1, 0, 0) if in_a_row else (3, 3, 3, 2, 8, 2, 1, 1)
        kind = rng.choices(tuple(FaultKind), weights=weights)[0]
        faults.append(Fault(at, kind, rng.getrandbits(16), some_of(rng, names) if kind is FaultKind.FAIL else ()))
    return tuple(sorted(faults, key=lambda fault: fault.at))


def _faults_of_a_young_driver(rng: random.Random, names: Sequence[str]) -> tuple[Fault, ...]:
    """Return a failure before any fact is known to be durable, and the end of the driver soon after."""
    at = rng.randint(4, 40)
    first = Fault(at, FaultKind.FAIL, 0, some_of(rng, names))
    at += rng.randint(1, 12)
    kind = rng.choice((FaultKind.CRASH, FaultKind.CRASH_IN_ACT))
    return first, Fault(at, kind, rng.getrandbits(16))


def faults_up_a_chain(rng: random.Random, chain: Sequence[str], acts: int) -> tuple[Fault, ...]:
    """Return three failures in a row, up a chain of processors.

    First a processor in the middle fails; while it replays, its sender; then the one in the middle again, or its
    readers. A replay that was certain after the first failure is uncertain after the second, and must not count as
    certain after the third.
    """
    before, middle, *behind = chain
    at = rng.randint(acts // 4, acts)
    first = Fault(at, FaultKind.FAIL, 0, (middle, *(rng.sample(behind, k=1) if rng.random() < 0.7 else ())))
    at += rng.randint(1, 16)
    second = Fault(at, FaultKind.FAIL, 0, (before,))
    at += rng.randint(1, 80)
    third = Fault(at, FaultKind.FAIL, 0, (middle, *(name for name in behind if rng.random() < 0.7)))
    return first, second, third


def some_of(rng: random.Random, names: Sequence[str]) -> tuple[str, ...]:
    """Return some processors that fail at once, often one."""
    count = rng.choice((1, 1, 1, 2, max(1, len(names) // 2)))
    return tuple(sorted(rng.sample(names, k=min(count, len(names)))))
