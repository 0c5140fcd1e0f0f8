"""The contract of a node: an operator on changes inside a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from boatlift.errors import DataError
from boatlift.kernels.step_state import Runs, StepState
from boatlift.state.arrangement.arranged import arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.column import Ints, shown
from boatlift.state.key_groups import Share
from boatlift.storage.records.records import RunRef


@dataclass(frozen=True, slots=True)
class ZSet:
    """Rows with weights: a Z-set, which may have a row several times."""

    columns: tuple[pa.Array, ...]
    weights: Ints
    """The weights; weights of 0 are left out where that is cheap."""

    def __len__(self) -> int:
        return len(self.weights)

    def take(self, rows: Ints) -> ZSet:
        at = pa.array(rows)
        return ZSet(tuple(column.take(at) for column in self.columns), self.weights[rows])


def concat(changes: Sequence[ZSet]) -> ZSet | None:
    """Return the sum of changes with the same columns; None without rows."""
    there = [change for change in changes if len(change)]
    if len(there) < 2:
        return there[0] if there else None
    columns = (pa.concat_arrays(columns) for columns in zip(*(change.columns for change in there), strict=True))
    return ZSet(tuple(columns), np.concatenate([change.weights for change in there]))


def consolidated(change: ZSet | None, schema: pa.Schema) -> ZSet | None:
    """Return a change without duplicates and without weights of 0, in an order of its content; None if it is empty."""
    if change is None or not len(change):
        return None
    codec = ArrangementCodec(schema)
    rows = arranged(codec, change.columns, change.weights, key_hashes(change.columns, len(change)))
    return ZSet(rows.values.rows, rows.values.weights) if len(rows) else None


@dataclass(frozen=True, slots=True)
class NodeOutput:
    """The result of a step of a node in a task."""

    changes: tuple[ZSet | None, ...] = ()
    """The change of each result; None: no change. Empty: no change at all."""
    runs: Mapping[str, RunRef] = field(default_factory=dict)
    """Part to the run that the step adds; unchanged parts are absent."""


class Node(Protocol):
    """An operator on changes, of a view (`processor`), at a place in its query. Immutable, and pickled into tasks.

    Laws, where the state of a stream is the sum of its changes:
        - After each step the sum of all output changes is the node's function of the sums of its inputs. (A node that
          emits the rows of touched keys, from which Spark computes the change, says so.)
        - Replay: a step over equal changes and equal state has equal rows and runs, bit for bit.
        - Division: the sum of all tasks' output depends only on the changes, not on the number of tasks.
        - Merging: it does not depend on merges of runs either.
        - Rest: a step without rows has no output, and opens no run; but the first step of a node with a row for no rows
          emits that row.
    """

    @property
    def inputs(self) -> int:
        """The number of its inputs."""

    @property
    def parts(self) -> Mapping[str, ValueCodec[Any, Any]]:
        """The named parts of its state, each with its codec."""

    @property
    def schemas(self) -> tuple[pa.Schema, ...]:
        """The columns of each of its results; most nodes have one."""

    @property
    def whole(self) -> bool:
        """Whether it has a row for no rows at all, as an aggregate without keys; it always runs the first step."""

    def keys(self, number: int) -> tuple[int, ...] | None:
        """Return the places of the columns of an input by whose hash rows are divided among tasks.

        Empty: one task has all rows. None: by all columns.
        """

    def step(self, changes: Sequence[ZSet | None], state: StepState) -> NodeOutput:
        """Execute a step in a task.

        Args:
            changes: The change of each input; None: no change.

        Raises:
            DataError: a run is missing or damaged; `[NEGATIVE_WEIGHT]` a row is retracted that does not exist.
        """


@runtime_checkable
class KeepingNode(Node, Protocol):
    """A node whose state has all rows of its only result.

    Law: if `keeps_rows`, the rows `held` in a state are the sum of the changes of all steps up to it.
    """

    @property
    def keeps_rows(self) -> bool:
        """Whether `held` gives them."""

    def held(self, runs: Mapping[str, Runs], share: Share) -> ZSet | None:
        """Return the rows that hold, of a share of the keys; None if there are none.

        Args:
            runs: Part to its runs.
        """


def refuse_negative(columns: Sequence[pa.Array], weights: Ints, schema: pa.Schema, place: str, processor: str) -> None:
    """Refuse rows that would have a negative weight after a step.

    Args:
        weights: The weight of each row after the step.
        place, processor: The place in the query, and the view.

    Raises:
        DataError: `[NEGATIVE_WEIGHT]`.
    """
    below = np.flatnonzero(weights < 0)
    if len(below):
        row = {field.name: shown(column[int(below[0])]) for field, column in zip(schema, columns, strict=True)}
        raise DataError("NEGATIVE_WEIGHT", f"{place} of {processor} loses {row} more often than it came")
