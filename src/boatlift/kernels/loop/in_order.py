"""State by iteration with sorted rows: the rows of a key are read only as far as an operator needs them.

The least value of a key depends only on its first rows. So few rows of a large key are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from boatlift.kernels.loop.by_iteration import IterationCodec, iterations_in, without_iterations
from boatlift.state.arrangement.codec import ArrangedRows
from boatlift.state.codec import ValueCodec
from boatlift.state.group import RowValues
from boatlift.state.merge import filtered
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows
from boatlift.state.segment import Segment

V = TypeVar("V")
Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
ByIteration = IterationCodec[ArrangedRows, ArrangedRows]

_NO_HASHES = np.zeros(0, np.uint64)
_NO_ITERATIONS = np.zeros(0, np.int64)


@dataclass(slots=True)
class RowsInOrder:
    """The rows of touched keys in a sorted part of the state before the step, by iteration.

    An operator reads the rows up to an iteration from the runs each time. Rows of later iterations that it meets are
    remembered. So `hashes_at` returns the keys with remembered rows of the iteration, and no other keys with such rows.

    Laws:
        - An operator is a function of the rows that it reads. So it would read the same rows of a key in the next
          iteration, with the same result, unless it has met rows of that iteration, or the key gets other changes.

    Attributes:
        codec: The codec of the part, by iteration.
        last: The last iteration of the rows that were met; -1 without rows.
    """

    codec: ByIteration
    runs: Iterable[OpenRun[ArrangedRows]]
    last: int = -1
    _segments: list[_Found] | None = None
    _keys: Hashes = field(default_factory=lambda: _NO_HASHES)
    _met: list[tuple[Hashes, Ints]] = field(default_factory=list)

    def read(self, wanted: Hashes) -> None:
        """Find the rows of more keys.

        Args:
            wanted: The hashes of keys that were not found yet, ascending, each once.
        """
        if self._segments is None:
            every = [segment for run in self.runs for segment in run.segments if len(segment)]
            self._segments = [_Found(segment, _NO_ITERATIONS, _NO_ITERATIONS) for segment in every]
        places = self._keys.searchsorted(wanted)
        self._keys = np.insert(self._keys, places, wanted)
        for found in self._segments:
            first, last = found.segment.stretches(wanted)
            found.first, found.last = np.insert(found.first, places, first), np.insert(found.last, places, last)

    def hashes_at(self, number: int) -> list[Hashes]:
        """Return the hashes of keys with remembered rows of an iteration, in unsorted arrays."""
        if not self._met:
            return []
        hashes, iterations = (np.concatenate(each) for each in zip(*self._met, strict=True))
        later = iterations > number
        self._met = [(hashes[later], iterations[later])]
        return [hashes[iterations == number]]

    def runs_until(self, keys: Hashes, number: int) -> list[OpenRun[ArrangedRows]]:
        """Return the rows up to an iteration, as runs.

        Args:
            keys: The hashes of the keys that the node reads, which were found earlier.
        """
        del keys
        return [OpenRun("", 0, {}, [_UntilIteration(self, found, number) for found in self._segments or ()])]

    def stretches(self, found: _Found, wanted: Hashes) -> tuple[Ints, Ints]:
        """Return the begin and the end of the rows of each hash in a segment."""
        places = self._keys.searchsorted(wanted)
        return found.first[places], found.last[places]

    def meet(self, hashes: Hashes, iterations: Ints, number: int) -> npt.NDArray[np.bool_]:
        """Remember rows of iterations after `number`; return which rows are of no later iteration."""
        later = iterations > number
        if later.any():
            own = iterations[later]
            self._met.append((hashes[later], own))
            self.last = max(self.last, int(own.max()))
        return ~later


@dataclass(slots=True)
class _Found:
    """A segment, and the begin and the end of each found key's rows in it."""

    segment: Segment[ArrangedRows]
    first: Ints
    last: Ints


class _UntilIteration(Segment[ArrangedRows]):
    """The rows of a segment up to an iteration; its places are those of the whole segment."""

    def __init__(self, held: RowsInOrder, found: _Found, number: int) -> None:
        self._held, self._found, self._segment, self._number = held, found, found.segment, number
        self.collides = found.segment.collides

    def __len__(self) -> int:
        return len(self._segment)

    def stretches(self, wanted: Hashes) -> tuple[Ints, Ints]:
        return self._held.stretches(self._found, wanted)

    def key_values(self, number: int) -> RowValues:
        return self._segment.key_values(number)

    def read(self, codec: ValueCodec[V, ArrangedRows], places: Ints) -> V:
        values: Any = self._segment.read(codec, places)
        iterations = self._segment.key_values(len(codec.keys))[places]
        early = self._held.meet(self._segment.hashes_at(places), iterations, self._number)
        return cast("V", ArrangedRows(values.weights * early, values.rows))

    def take(self, codec: ValueCodec[V, ArrangedRows], places: Ints) -> KeyedRows[V]:
        rows: KeyedRows[Any] = self._segment.take(self._held.codec, places)
        early = self._held.meet(rows.hash, iterations_in(rows), self._number)
        return without_iterations(codec, filtered(self._held.codec, rows, early))
