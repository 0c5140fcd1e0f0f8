"""Operators over rows that are hashes, and the arithmetic of rows with weights.

Laws:
    * `Mapped`, `UnitedRows` and `Summed` give the same rows and the same state, however their input comes in steps.
    * The rows of `Chained` depend on that division, on the order of the steps and on their number.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from boatlift.dataflow.operator import Operator
from boatlift.dataflow.rows import RowKind, Rows

Row = tuple[int, int]  # a key, and a hash of everything that led to the row
RowWeights = dict[Row, int]
"""Rows to their weights, none of which is 0."""

KEYS = 3


def total(*parts: RowWeights) -> RowWeights:
    """Return the sum of rows with weights."""
    out: RowWeights = {}
    for part in parts:
        for row, weight in part.items():
            out[row] = out.get(row, 0) + weight
    return {row: weight for row, weight in out.items() if weight}


def minus(rows: RowWeights) -> RowWeights:
    """Return rows with the opposite weights."""
    return {row: -weight for row, weight in rows.items()}


def mixed(*parts: object) -> int:
    """Return a hash of anything, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=6).digest())


@dataclass(frozen=True, slots=True)
class HashingOperator(Operator):
    """An operator of which a version is part of each row.

    Attributes:
        first: The name that it had first, which is part of each row.
        layout: How a sum keeps its state; no row shows it.
    """

    version: int = 0
    first: str = ""
    layout: int = 0

    @abstractmethod
    def step(self, state: RowWeights, inputs: Sequence[RowWeights]) -> tuple[RowWeights, RowWeights]:
        """Return the state after a step, and the rows of the step."""

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        changes = [each for each in inputs if each.kind is not RowKind.APPEND]
        return replace((changes or inputs)[0], origin=self.name)


@dataclass(frozen=True, slots=True)
class Mapped(HashingOperator):
    """Hashes each row, drops a part of them, and moves rows to other keys with each version."""

    kind: ClassVar[str] = "map"
    of_steps: ClassVar[str] = ""

    def step(self, state: RowWeights, inputs: Sequence[RowWeights]) -> tuple[RowWeights, RowWeights]:
        rows: RowWeights = {}
        for (key, value), weight in inputs[0].items():
            made = mixed(self.first, self.version, key, value)
            if made % 4:
                rows[(key + self.version) % KEYS, made] = weight
        return state, rows


@dataclass(frozen=True, slots=True)
class UnitedRows(HashingOperator):
    """The rows of all inputs."""

    kind: ClassVar[str] = "union"
    of_steps: ClassVar[str] = ""

    def step(self, state: RowWeights, inputs: Sequence[RowWeights]) -> tuple[RowWeights, RowWeights]:
        return state, total(*inputs)

    def fuses(self, read: int) -> bool:  # noqa: ARG002
        """Return False: what it reads is a unit of its own."""
        return False


@dataclass(frozen=True, slots=True)
class Summed(HashingOperator):
    """One row for each key: the hash of all rows of the key so far, which are the state."""

    kind: ClassVar[str] = "sum"
    keeps_state: ClassVar[bool] = True
    ends_job: ClassVar[bool] = True
    of_steps: ClassVar[str] = ""

    def step(self, state: RowWeights, inputs: Sequence[RowWeights]) -> tuple[RowWeights, RowWeights]:
        before = {(key, value - self.layout): weight for (key, value), weight in state.items()}
        after, keys = total(before, inputs[0]), {key for key, _ in inputs[0]}
        kept = {(key, value + self.layout): weight for (key, value), weight in after.items()}
        return kept, total(self._of(after, keys), minus(self._of(before, keys)))

    def given(self, state: RowWeights) -> RowWeights:
        """Return the sum of all rows until a state."""
        before = {(key, value - self.layout): weight for (key, value), weight in state.items()}
        return self._of(before, {key for key, _ in state})

    def _of(self, state: RowWeights, keys: set[int]) -> RowWeights:
        by_key = {key: sorted(each for each in state.items() if each[0][0] == key) for key in keys}
        return {(key, mixed(self.first, self.version, rows)): 1 for key, rows in by_key.items() if rows}

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        return replace(inputs[0], origin=self.name, kind=RowKind.CHANGES)


@dataclass(frozen=True, slots=True)
class Chained(HashingOperator):
    """One new row for each key of a step: a hash chain, which is the state."""

    kind: ClassVar[str] = "chain"
    keeps_state: ClassVar[bool] = True
    ends_job: ClassVar[bool] = True

    def step(self, state: RowWeights, inputs: Sequence[RowWeights]) -> tuple[RowWeights, RowWeights]:
        links, came = {key: value for key, value in state}, sorted(inputs[0].items())  # noqa: C416
        keys = {key for key, _ in inputs[0]}
        new = {
            key: mixed(self.first, self.version, links.get(key), [each for each in came if each[0][0] == key])
            for key in keys
        }
        links |= new
        return dict.fromkeys(links.items(), 1), dict.fromkeys(new.items(), 1)


OPERATORS: dict[str, type[Any]] = {each.kind: each for each in (Mapped, UnitedRows, Summed, Chained)}
