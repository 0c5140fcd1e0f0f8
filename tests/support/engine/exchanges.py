"""Tasks of one process that exchange rows, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from boatlift.kernels.network.node import ZSet, concat
from boatlift.kernels.step_state import ALONE, Exchange
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.key_groups import residues

__all__ = ["exchanges_of", "in_threads"]

T = TypeVar("T")


def in_threads(run: Callable[[int], T], tasks: int) -> list[T]:
    """Return what each task returns; they run at once."""
    if tasks == 1:
        return [run(0)]
    with ThreadPoolExecutor(tasks) as pool:
        return list(pool.map(run, range(tasks)))


def exchanges_of(tasks: int) -> list[Exchange]:
    """Return each task's side of an exchange."""
    if tasks == 1:
        return [ALONE]
    table = _Table(tasks)
    return [_Side(table, task) for task in range(tasks)]


@dataclass
class _Table:
    tasks: int
    barrier: threading.Barrier = field(init=False)
    laid: list[Any] = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(self.tasks, timeout=60)
        self.laid = [None] * self.tasks

    def swap(self, task: int, mine: Any) -> list[Any]:
        """Return what all tasks lay down."""
        try:
            self.laid[task] = mine
            self.barrier.wait()
            found = list(self.laid)
            self.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise AssertionError("the tasks do not make the same calls") from error
        return found


@dataclass
class _Side:
    table: _Table
    task: int

    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        """Return the rows of all tasks whose keys are of this task's key groups."""
        found = [self._mine(each, keys) for each in self.table.swap(self.task, rows) if each is not None]
        return concat(found)

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Return for each number the greatest that any task has."""
        return [max(each) for each in zip(*self.table.swap(self.task, list(numbers)), strict=True)]

    def _mine(self, rows: ZSet, keys: tuple[int, ...] | None) -> ZSet:
        columns = rows.columns if keys is None else [rows.columns[place] for place in keys]
        targets = residues(key_hashes(columns, len(rows)), self.table.tasks)
        return rows.take(np.flatnonzero(targets == np.uint64(self.task)))
