"""Simulated links between the owner of a dataflow and its standbys."""

from __future__ import annotations

import random
from dataclasses import dataclass

from boatlift.runtime.peers.channel import Beat
from boatlift.runtime.peers.follower import Lost

SECONDS_AN_ACT = 0.02
AGAIN_SECONDS = 0.2  # from one attempt to connect to the next
LOSES = (0.0, 0.0, 0.1, 0.5)  # shares of messages that are dropped
DELAYS = (0.0, 0.02, 0.1, 0.5)  # the most seconds that messages are under way


@dataclass(frozen=True, slots=True)
class LinkCut:
    """An interval in seconds in which nothing passes in one direction: to the standby, or from it."""

    begin: float
    end: float
    to_standby: bool


class BeatLink:
    """A link from one owner to one standby. Messages are delayed, dropped and reordered, and cut by direction.

    A connection is made if both directions pass. It outlives a cut, as connections do. A process that has ended closes
    it, and refuses new ones.

    Args:
        cuts: When nothing passes.
    """

    def __init__(self, rng: random.Random, cuts: list[LinkCut]) -> None:
        self._rng, self._cuts = rng, cuts
        self._loss, self._delay = rng.choice(LOSES), rng.choice(DELAYS)
        self._on_the_way: list[tuple[float, Beat]] = []
        self._connected, self._tries_at = False, 0.0

    def send(self, now: float, beat: Beat) -> None:
        if self._connected and self._passes(now, to_standby=True) and self._rng.random() >= self._loss:
            self._on_the_way.append((now + self._rng.uniform(0.0, self._delay), beat))

    def hear(self, now: float, *, runs: bool) -> list[Beat | Lost]:
        """Return what has come.

        Args:
            runs: The owner has not ended, so that it, or the system in its place, answers.
        """
        came: list[Beat | Lost] = [beat for at, beat in sorted(self._on_the_way, key=lambda each: each[0]) if at <= now]
        self._on_the_way = [each for each in self._on_the_way if each[0] > now]
        both = self._passes(now, to_standby=True) and self._passes(now, to_standby=False)
        if self._connected and not runs and self._passes(now, to_standby=True):
            self._connected = False
            came.append(Lost.CLOSED)
        elif not self._connected and now >= self._tries_at:
            self._tries_at = now + AGAIN_SECONDS
            if both and runs:
                self._connected = True
            else:
                came.append(Lost.REFUSED if both else Lost.UNREACHED)
        return came

    def _passes(self, now: float, *, to_standby: bool) -> bool:
        return not any(cut.to_standby == to_standby and cut.begin <= now < cut.end for cut in self._cuts)
