"""The data of a user's processor at a step: the touched keys with their rows, state and timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.state.newest import Cells, TouchedKeys

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Ask = Callable[[int, Callable[[], Any]], Any]
"""Takes the number of a key, and a function that asks an external system; returns the answer."""


@dataclass(frozen=True, slots=True)
class Timers:
    """Timers of keys.

    Attributes:
        key: The number of each timer's key.
        at: The time of each, in milliseconds since 1970.
    """

    key: Ints
    at: Ints

    def __len__(self) -> int:
        return len(self.key)


NO_TIMERS = Timers(np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """The keys that a task's part of a step touches: each has rows, or a timer that is due.

    Keys are numbered from 0, in an order of their hashes. The result for a key must depend on that key's rows, state
    and timers alone: another number of tasks has other keys in a batch.

    Attributes:
        keys: A row for each key: the columns of the key.
        rows: The rows of all keys, those of key 0 first; the rows of a key stand in the order of `order_by`.
        offsets: The rows of key i are those from `offsets[i]` up to, not including, `offsets[i + 1]`.
        state: A row for each key: its state; first values (NULL, or `defaults`) where it has none.
        has_state: Whether each key has a state.
        due: The timers that are due, in order of time, then of key.
        now: The step's recorded clock, in milliseconds since 1970; the same in a replay.
        passed: The time up to which timers are due: `now`, or the watermark for timers in event time.
        seed: A seed of random numbers for each key; the same in a replay.
        ask: With `calls=True`: takes the number of a key and a function without arguments, calls it and returns its
            answer; a replay returns the same without calling it. None without.
    """

    keys: pa.Table
    rows: pa.Table
    offsets: Ints
    state: pa.Table
    has_state: Mask
    due: Timers
    now: int
    passed: int
    seed: npt.NDArray[np.uint64]
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Processed:
    """The result of a function for a batch of keys.

    Attributes:
        rows: New rows, in the columns of the output; None: there are none.
        state: A row for each key: its state from now on; None: every key's state stays as it is.
        keep: Whether each key has a state from now on; None: a key has one if a column differs from its first value.
        timers: Timers to set. A key has one timer a time; a timer in the past is due at the next step.
        cleared: Timers to clear; a timer that is also set stays set.
    """

    rows: pa.Table | None = None
    state: pa.Table | None = None
    keep: Mask | None = None
    timers: Timers = NO_TIMERS
    cleared: Timers = NO_TIMERS


@dataclass(frozen=True, slots=True)
class Touched:
    """A batch of keys, with access to all parts of their state.

    Attributes:
        numbered: The keys, with their hashes.
        keys, rows, offsets, due, now, passed, seed, ask: As in `KeyedBatch`.
        begin, begin_offsets: The rows of an initial state, as `rows` and `offsets` have those of the step.
        held: Returns the rows that a part of the state holds of the keys.
    """

    numbered: TouchedKeys
    keys: pa.Table
    rows: pa.Table
    offsets: Ints
    due: Timers
    now: int
    passed: int
    seed: npt.NDArray[np.uint64]
    begin: pa.Table
    begin_offsets: Ints
    ask: Ask | None
    held: Callable[[str], Cells]


@dataclass(frozen=True, slots=True)
class Made:
    """The result of a batch of keys, as the kernel writes it.

    Attributes:
        parts: Part of the state to rows of it, and whether each row holds; the others end.
        timers: Timers, each of another time of a key.
        set_: Whether each timer is set; the others are cleared.
    """

    rows: pa.Table | None
    parts: dict[str, tuple[Cells, Mask]]
    timers: Timers
    set_: Mask


class KeyedProgram(Protocol):
    """The user's part of a processor. Immutable, and pickled into tasks."""

    def run(self, touched: Touched) -> Made:
        """Take the touched keys of a task's part of a step."""
