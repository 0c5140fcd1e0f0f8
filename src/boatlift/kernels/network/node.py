"""The contract of a node: an operator on changes, as a task runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.step_state import StepState
from boatlift.state.codec import ValueCodec
from boatlift.state.column import shown
from boatlift.storage.records.records import RunRef

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ZSet:
    """Rows with weights: a Z-set, in which a row may stand several times.

    Attributes:
        columns: The columns, of one length.
        weights: The weights; none of them is 0 where it costs nothing to know.
    """

    columns: tuple[pa.Array, ...]
    weights: Ints

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, rows: Ints) -> ZSet:
        """Return some of the rows."""
        at = pa.array(rows)
        return ZSet(tuple(column.take(at) for column in self.columns), self.weights[rows])


def concat(changes: Sequence[ZSet]) -> ZSet | None:
    """Return the sum of changes with the same columns; None if there are no rows."""
    there = [change for change in changes if len(change)]
    if len(there) < 2:
        return there[0] if there else None
    columns = (pa.concat_arrays(columns) for columns in zip(*(change.columns for change in there), strict=True))
    return ZSet(tuple(columns), np.concatenate([change.weights for change in there]))


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """The result of a node's part of a step.

    Attributes:
        changes: The change of each result; None where there is none. Empty: there is none at all.
        runs: Part to the run that the step adds; a part that stays as it is is left out.
    """

    changes: tuple[ZSet | None, ...] = ()
    runs: Mapping[str, RunRef] = field(default_factory=dict)


class Node(Protocol):
    """An operator on changes. Immutable, and pickled into tasks.

    Laws, with the sum of changes as the state of a stream:
        - After each step the sum of all changes that the node gave is its function of the sums of its inputs. (A node
          that gives the rows of touched keys, for Spark to compute the change from, says so.)
        - Replay: a step over the same changes and the same state gives the same rows and runs, bit for bit.
        - Division: the sum of what all tasks give depends on the changes alone, not on the number of tasks.
        - Merging: it does not depend on how runs were merged either.
        - Rest: a step without rows gives nothing, and opens no run; but the first step of a node that has a row for no
          rows gives that row.
    """

    @property
    def inputs(self) -> int:
        """The number of its inputs."""

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The named parts of its state, each with the form of its rows."""

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of each of its results, of which most nodes have one."""

    @property
    def whole(self) -> bool:
        """Whether it has a row for no rows at all, as an aggregate without keys.

        Such a node takes the first step in any case.
        """

    def keys(self, number: int) -> tuple[int, ...] | None:
        """Return the places of the columns of an input by whose hash rows are divided among tasks.

        No columns: all rows are one task's. None: by all columns.
        """

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Take a task's part of a step.

        Args:
            changes: The change of each input; None where there is none.

        Raises:
            DataError: a run is missing or damaged; `[NEGATIVE_WEIGHT]`.
        """


def refuse_negative(
    columns: Sequence[pa.Array], weights: npt.NDArray[np.int64], schema: pa.Schema, place: str, processor: str
) -> None:
    """Refuse rows that a step would leave with a negative weight.

    Args:
        weights: The weight of each after the step.
        place, processor: The place in the query, and the view.

    Raises:
        DataError: `[NEGATIVE_WEIGHT]`.
    """
    below = np.flatnonzero(weights < 0)
    if len(below):
        row = {field.name: shown(column[int(below[0])]) for field, column in zip(schema, columns, strict=True)}
        raise DataError("NEGATIVE_WEIGHT", f"{place} of {processor} loses {row} more often than it came")
