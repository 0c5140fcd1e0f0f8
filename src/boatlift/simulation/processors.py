"""Simulated processors compute hashes: a node is one execution, and its digest stands for all that led to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["NOTHING", "Nodes", "SimulatedProcessor"]

NOTHING = "nothing"
"""The digest of no message, where a time without one is an event."""


@dataclass(frozen=True, slots=True)
class SimulatedProcessor:
    """One execution of a processor at a time.

    Attributes:
        choice: Its own choice; of a source its positions.
        inputs: (edge, sender's time, the message's digest) each.
        state: The digest of the state from the time before.
    """

    processor: str
    time: Any
    choice: Any
    inputs: tuple[tuple[str, Any, str], ...]
    state: str | None

    @property
    def digest(self) -> str:
        """The hash of time, inputs in order, choice and past."""
        said = repr((self.processor, self.time, self.choice, self.inputs, self.state))
        return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


class Nodes:
    """All nodes ever computed, by digest."""

    def __init__(self) -> None:
        self._nodes: dict[str, SimulatedProcessor] = {}
        self._at: dict[tuple[str, Any], set[SimulatedProcessor]] = {}

    def add(self, node: SimulatedProcessor) -> str:
        """Add a node, and return its digest."""
        digest = node.digest
        if digest not in self._nodes:
            self._nodes[digest] = node
            self._at.setdefault((node.processor, node.time), set()).add(node)
        return digest

    def at(self, processor: str, time: Any) -> set[SimulatedProcessor]:
        """Return all nodes of a processor at a time, of any execution."""
        return self._at.get((processor, time), set())

    def __getitem__(self, digest: str) -> SimulatedProcessor:
        return self._nodes[digest]

    def past_of(self, digests: Iterable[str]) -> Iterator[SimulatedProcessor]:
        """Return all nodes that led to some nodes, and these, once each."""
        left, seen = list(digests), {NOTHING}
        while left:
            digest = left.pop()
            if digest in seen:
                continue
            seen.add(digest)
            node = self._nodes[digest]
            yield node
            left += [payload for _, _, payload in node.inputs]
            left += [] if node.state is None else [node.state]
