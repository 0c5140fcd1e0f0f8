"""Simulated members: the standbys that hold the entries of owners, and the connections between them.

A connection has the messages of each direction in order, as TCP has them, and late. A break loses those on their way;
the standby connects again.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from boatlift.runtime.peers.holding import HeldTail, HeldUpTo, Hold, Promised, Refused, missing
from boatlift.simulation.driver import SimulatedDriver
from boatlift.simulation.recipes import Recipe
from boatlift.simulation.standbys import SimulatedStandby
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.records import Membership
from boatlift.storage.records.stream import Tail

SHARE = 0.5  # of the seeds with standbys
CHANGES = 0.3  # how often an owner records its standbys
CONNECTS = 0.3
EXTRA = 0.3  # how often a claimant asks one more member than it must


class MembersMissingError(Exception):
    """More members are gone than the depth allows: what sinks show may rest on what nobody has."""


def depths_of(recipe: Recipe, rng: random.Random) -> dict[str, int]:
    """Return a depth for each processor, or for some of them."""
    depth = rng.choice((1, 1, 2, 2, 3))
    mixed = rng.choice(((depth,), (depth,), (depth, depth, 1, 2, 0)))
    chosen = {name: rng.choice(mixed) for name in recipe.parts}
    return {name: depth for name, depth in chosen.items() if depth}


@dataclass(slots=True)
class _Connection:
    to_standby: deque[Hold] = field(default_factory=deque)
    to_owner: deque[HeldUpTo | Refused | Promised] = field(default_factory=deque)
    moves: float = 0.0  # how often it moves another message, in place of what all have


class Peers:
    """The connections of all owners and standbys of a seed.

    Attributes:
        waits: For so many moments a claimant waits before it asks the next member.
        uneven: Some connections are slower than others, and breaks are short.
    """

    waits, uneven = 1, False

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"peers {seed}")
        self._breaks = self._rng.choice((0.0, 0.01, 0.05))
        self._moves = self._rng.choice((0.5, 0.8, 0.9))  # how often a connection moves another message
        self._connections: dict[tuple[int, str], _Connection] = {}

    def act(self, owners: Iterable[SimulatedDriver], standbys: Sequence[SimulatedStandby]) -> None:
        """Let messages pass between owners that have not ended and their standbys."""
        rng, living = self._rng, {driver.owner: driver for driver in owners if driver.holders is not None}
        here = {standby.life: standby for standby in standbys}
        for token, life in list(self._connections):
            driver = living.get(token)
            if driver is None or life not in here or here[life].token != token or rng.random() < self._breaks:
                del self._connections[token, life]
                if driver is not None and driver.holders is not None:
                    driver.holders.lost(life)
        for driver in living.values():
            assert driver.holders is not None
            if rng.random() < CHANGES:
                driver.record_members()
            for standby in standbys:
                if standby.token != driver.owner:
                    continue
                connection = self._connections.get((driver.owner, standby.life))
                if connection is not None:
                    while rng.random() < (connection.moves or self._moves):
                        self._move(driver, standby.tail, connection)
                elif rng.random() < (0.9 if self.uneven else CONNECTS):
                    made = self._connections[driver.owner, standby.life] = _Connection()
                    made.moves = rng.choice((0.2, 0.9)) if self.uneven else 0.0
                    made.to_owner.append(standby.tail.promise(driver.owner))
                    driver.holders.connected(standby.life, standby.host)

    def _move(self, driver: SimulatedDriver, tail: HeldTail, connection: _Connection) -> None:
        assert driver.holders is not None
        match self._rng.choice(("send", "to standby", "to owner")):
            case "send" if (hold := driver.holders.to_send(tail.life)) is not None:
                connection.to_standby.append(hold)
            case "to standby" if connection.to_standby:
                answer = tail.hold(connection.to_standby.popleft())
                if answer is not None:
                    connection.to_owner.append(answer)
            case "to owner" if connection.to_owner:
                match connection.to_owner.popleft():
                    case HeldUpTo() as held:
                        assert driver.holders.held(held), f"{tail.life} holds more than it was sent"
                        driver.tell_held()
                    case Refused():
                        driver.is_refused = True

    def gather(
        self,
        token: int,
        members: Membership,
        own: HeldTail | None,
        standbys: Sequence[SimulatedStandby],
        meanwhile: Callable[[], None],
        goes_on: Callable[[Collection[Tail]], bool],
    ) -> list[Tail]:
        """Return what members hold, for a claimant.

        Args:
            own: What the claimant held as a standby.
            meanwhile: Lets others act.
            goes_on: Returns whether the claimant may go on with these without the promises of others.

        Raises:
            MembersMissingError: too few answer.
        """
        promised: dict[str, Promised] = {}
        asked = [*([] if own is None else [own]), *self._rng.sample([each.tail for each in standbys], len(standbys))]
        for tail in asked:
            if not missing(members, promised)[0] and self._rng.random() >= EXTRA:
                break
            for _ in range(self.waits):
                meanwhile()
            answer = tail.promise(token)
            assert isinstance(answer, Promised), f"{tail.life} is promised to an owner behind {token}"
            promised[tail.life] = answer
        tails = [decode_tail(each, "a member") for answer in promised.values() for each in answer.entries]
        if missing(members, promised)[0] and not goes_on(tails):
            raise MembersMissingError(f"{members} is in force, and {sorted(promised)} have answered")
        return tails
