"""Simulated processors compute hashes: a node is one execution, and its digest identifies its whole past."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from boatlift.runtime.machine import instructions
from boatlift.simulation.recipes import Recipe, Role

NOTHING = "nothing"  # the digest of no message, where a time without one is an event


@dataclass(frozen=True, slots=True)
class SimulatedProcessor:
    """One execution of a processor at a time."""

    processor: str
    time: Any
    determinant: Any  # its own determinant; of a source its positions
    inputs: tuple[tuple[str, Any, str], ...]  # (edge, sender's time, the message's digest) each
    state: str | None

    @property
    def digest(self) -> str:
        said = repr((self.processor, self.time, self.determinant, self.inputs, self.state))
        return hashlib.blake2b(said.encode(), digest_size=8).hexdigest()


class Nodes:
    """All nodes ever computed, by digest."""

    def __init__(self) -> None:
        self._nodes: dict[str, SimulatedProcessor] = {}
        self._at: dict[tuple[str, Any], set[SimulatedProcessor]] = {}

    def add(self, node: SimulatedProcessor) -> str:
        digest = node.digest
        if digest not in self._nodes:
            self._nodes[digest] = node
            self._at.setdefault((node.processor, node.time), set()).add(node)
        return digest

    def at(self, processor: str, time: Any) -> set[SimulatedProcessor]:
        return self._at.get((processor, time), set())

    def __getitem__(self, digest: str) -> SimulatedProcessor:
        return self._nodes[digest]

    def past_of(self, digests: Iterable[str]) -> Iterator[SimulatedProcessor]:
        """Return some nodes and all nodes that they depend on, each once."""
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


MILLISECONDS = 1300
"""Clocks are within so much.

Two of them can be a second apart, so that an epoch of one second ends by clocks as well as by a timer.
"""

MOST_ROWS = 3  # messages have fewer rows than so many


class Memory:
    """States and messages by digest, each with the processors that hold it.

    A payload is held by the processor that made it, and by its readers.

    Laws:
        * A state that an instruction names is in memory at that moment, or durable.
        * A message that an instruction names is in its sender's memory, or durable, or read again by a source: if only
          its reader has it, its sender may have failed, and cannot send it to others.
        durable: The durable digests, as they change.

    Attributes:
        whole: What was adopted from earlier drivers was adopted whole.
    """

    def __init__(self, recipe: Recipe, nodes: Nodes, durable: Container[str]) -> None:
        self._nodes, self._durable, self.whole = nodes, durable, True
        self._holders: dict[str, set[str]] = {}
        self._read_again = {
            name for name, part in recipe.parts.items() if part.role is Role.SOURCE and part.deterministic
        }

    def hold(self, processor: str, payloads: Iterable[Any]) -> None:
        for digest in map(digest_of, payloads):
            self._holders.setdefault(digest, set()).add(processor)

    def adopt(self, processor: str, payloads: Iterable[Any], before: Memory) -> bool:
        """Hold what a processor had in its memory in an earlier driver; return whether it was there.

        Raises:
            AssertionError: one of the payloads was deleted there, though a successor needs it.
        """
        digests = list(map(digest_of, payloads))
        for digest in digests:
            if digest not in before._holders and digest not in self._durable:
                raise AssertionError(f"{processor} had {self._nodes[digest]}, which was deleted")
        there = all(before._holders.get(digest) or digest in self._durable for digest in digests)
        for digest in digests if there else ():
            self._holders.setdefault(digest, set()).add(processor)
        return there

    def lose(self, processors: Iterable[str]) -> None:
        """Empty the memory of processors."""
        for holders in self._holders.values():
            holders.difference_update(processors)

    def keep_only(self, live: set[str]) -> None:
        self._holders = {digest: holders for digest, holders in self._holders.items() if digest in live}

    def check(self, order: instructions.Instruction) -> None:
        """Refuse an instruction that names a lost payload.

        Raises:
            AssertionError: A state or a message that it names is neither in memory nor durable.
        """
        for digest in map(digest_of, named_by(order)):
            holders = self._holders.get(digest, set())
            maker = "" if digest == NOTHING else self._nodes[digest].processor
            # What a processor makes durable, it may have taken.
            held = bool(holders) if isinstance(order, instructions.Persist) else maker in holders
            if not (digest == NOTHING or held or digest in self._durable or maker in self._read_again):
                raise AssertionError(f"{order} names {self._nodes[digest]}, which is lost")


def named_by(order: instructions.Instruction) -> Iterator[Any]:
    """Return the states and messages that an instruction needs."""
    match order:
        case instructions.Execute() | instructions.Prepare():
            yield from (message.payload for take in order.takes for message in take.inputs)
            if isinstance(order, instructions.Execute) and order.state is not None:
                yield order.state
        case instructions.ProbeRows():
            yield order.message.payload
        case instructions.Restore():
            yield order.state
        case instructions.Persist():
            yield from order.payloads
        case instructions.CommitSink():
            yield from (message.payload for _, came in order.steps for message in came)
        case instructions.CommitTogether():
            for each in order.orders:
                yield from named_by(each)
        case _:
            return


def digest_of(payload: Any) -> str:
    """Return the digest of a state or a message; a source's message is its positions."""
    if payload is None:
        return NOTHING
    return str(payload["node"] if isinstance(payload, dict) else payload)


def clock_of(payload: Any) -> int:
    """Return the clock of a state or a message, in milliseconds: any number, but always the same one."""
    return int(digest_of(payload), 16) % MILLISECONDS


def rows_of(payload: Any) -> int:
    """Return the number of rows of a message: any small number, but always the same one."""
    return int(digest_of(payload), 16) % MOST_ROWS
