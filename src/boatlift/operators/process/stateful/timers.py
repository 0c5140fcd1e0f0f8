"""The timers of keys during a step: those that are set, by key, beside those that are due."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.operators.process.batch import Timers, Touched
from boatlift.state.column import Column
from boatlift.state.newest.codec import NewestCodec
from boatlift.state.newest.held import Cells

SET_TIMERS = "timers"
"""The part of the state with the timers of each key, for `listTimers`."""


def timers_codec(keys: tuple[tuple[str, pa.DataType], ...]) -> NewestCodec:
    """Return the form of the rows: a row for each timer of a key."""
    return NewestCodec((*keys, ("_at", pa.int64())), pa.schema([]))


class KeyTimers:
    """The timers of the keys that a step touches.

    Args:
        touched: The keys.
    """

    def __init__(self, touched: Touched) -> None:
        self._touched = touched
        self._before: dict[int, set[int]] | None = None
        self._changes: dict[tuple[int, int], bool] = {}

    def of(self, number: int) -> list[int]:
        """Return the timers of a key, ascending."""
        held = set(self._held().get(number, ()))
        for (key, at), on in self._changes.items():
            if key == number:
                (held.add if on else held.discard)(at)
        return sorted(held)

    def register(self, number: int, at: int) -> None:
        """Set a timer."""
        self._changes[number, at] = True

    def delete(self, number: int, at: int) -> None:
        """Clear a timer."""
        self._changes[number, at] = False

    def due(self) -> list[tuple[int, int]]:
        """Return times and keys of the timers that are due, in that order: those of this step's rows among them."""
        stood = zip(self._touched.due.at.tolist(), self._touched.due.key.tolist(), strict=True)
        due = {(at, number) for at, number in stood if self._changes.get((number, at)) is not False}
        due |= {(at, number) for (number, at), on in self._changes.items() if on and at <= self._touched.passed}
        return sorted(due)

    def is_set(self, number: int, at: int) -> bool:
        """Return whether a timer that was due has not been cleared since."""
        return self._changes.get((number, at)) is not False

    def written(self) -> tuple[Timers, npt.NDArray[np.bool_], tuple[Cells, npt.NDArray[np.bool_]] | None]:
        """Return the timers that are set and cleared, and the rows of the part `SET_TIMERS`."""
        pairs = np.array(list(self._changes), np.int64).reshape(-1, 2)
        on = np.array(list(self._changes.values()), np.bool_)
        timers = Timers(pairs[:, 0], pairs[:, 1])
        if not len(pairs):
            return timers, on, None
        return timers, on, (Cells(timers.key, (Column(pa.int64(), timers.at),), ()), on)

    def _held(self) -> dict[int, set[int]]:
        if self._before is None:
            cells = self._touched.held(SET_TIMERS)
            self._before = {}
            for number, at in zip(cells.key.tolist(), cells.further[0].values.tolist(), strict=True):
                self._before.setdefault(number, set()).add(at)
        return self._before
