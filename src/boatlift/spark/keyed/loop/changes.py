"""The changes of a step within a loop: rows with the round at which they came, found by the hash of their key."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.spark.keyed.arrangement.arranged import arranged, key_hashes
from boatlift.spark.keyed.arrangement.codec import ArrangementCodec
from boatlift.spark.keyed.group import ranges
from boatlift.spark.keyed.network.node import ZSet, concat

__all__ = ["ChangesByRound", "consolidated", "negated"]

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]


def consolidated(change: ZSet | None, schema: pa.Schema) -> ZSet | None:
    """Return a change with each row once, none with weight 0, in an order of its content; None if nothing is left."""
    if change is None or not len(change):
        return None
    codec = ArrangementCodec(schema)
    rows = arranged(codec, change.columns, change.weights, key_hashes(change.columns, len(change)))
    return ZSet(rows.values.rows, rows.values.weights) if len(rows) else None


def negated(change: ZSet) -> ZSet:
    """Return the change that takes a change back."""
    return ZSet(change.columns, -change.weights)


@dataclass(frozen=True, slots=True)
class _Chunk:
    hash: Hashes
    rounds: Ints
    rows: ZSet


@dataclass(slots=True)
class ChangesByRound:
    """The changes of one input of an operator in a step, of all rounds so far."""

    _chunks: list[_Chunk] = field(default_factory=list)

    def add(self, change: ZSet, hashes: Hashes, number: int) -> None:
        """Add the change of a round.

        Args:
            change: The change.
            hashes: The hash of each row's key.
            number: The round.
        """
        chunk = _sorted(_Chunk(hashes, np.full(len(hashes), number, np.int64), change))
        while self._chunks and len(self._chunks[-1].hash) < 2 * len(chunk.hash):
            chunk = _merged(self._chunks.pop(), chunk)
        self._chunks.append(chunk)

    def until(self, keys: Hashes, number: int) -> ZSet | None:
        """Return the rows of some keys that came up to a round.

        Args:
            keys: The hashes of the keys, ascending, each once.
            number: The round.
        """
        return self._of(keys, number, exactly=False)

    def exactly(self, keys: Hashes, number: int) -> ZSet | None:
        """Return the rows of some keys that came at one round."""
        return self._of(keys, number, exactly=True)

    def _of(self, keys: Hashes, number: int, *, exactly: bool) -> ZSet | None:
        found = []
        for chunk in self._chunks:
            places = ranges(chunk.hash.searchsorted(keys, "left"), chunk.hash.searchsorted(keys, "right"))
            rounds = chunk.rounds[places]
            places = places[rounds == number] if exactly else places[rounds <= number]
            if len(places):
                found.append(chunk.rows.take(places))
        return concat(found)


def _sorted(chunk: _Chunk) -> _Chunk:
    order = np.argsort(chunk.hash, kind="stable")
    return _Chunk(chunk.hash[order], chunk.rounds[order], chunk.rows.take(order))


def _merged(one: _Chunk, other: _Chunk) -> _Chunk:
    rows = concat([one.rows, other.rows])
    assert rows is not None
    hashes, rounds = np.concatenate([one.hash, other.hash]), np.concatenate([one.rounds, other.rounds])
    return _sorted(_Chunk(hashes, rounds, rows))
