"""Loop checkpoints: finished iterations of a running step, saved every few seconds so that a retry resumes from them.

A step of a loop may take minutes. Its iterations are saved in order, so that a state of the loop is that after a step
plus some iterations of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from boatlift.state.codec import ValueCodec
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.opened import OpenRun
from boatlift.state.rows import KeyedRows

NamedRows = Mapping[str, tuple[ValueCodec[Any, Any], KeyedRows[Any]]]
"""Rows by name, with their codec."""


@dataclass(frozen=True, slots=True)
class SavedIterations:
    """The last loop checkpoint.

    Attributes:
        number: The last saved iteration.
        runs: The rows of all tasks by name, with their codec.
    """

    number: int
    runs: Mapping[str, tuple[ValueCodec[Any, Any], Sequence[OpenRun[Any]]]]


class LoopCheckpoint(Protocol):
    """The loop checkpoints of a step, for one task.

    Laws:
        - A loop checkpoint is read only for the step and the input for which it was written.
        - A loop checkpoint that cannot be read is absent: the step begins with iteration 0.
        - A loop checkpoint that cannot be written is skipped; the step continues.
    """

    def read(self) -> SavedIterations | None:
        """Return the last loop checkpoint; None if there is none."""

    @property
    def due(self) -> bool:
        """Whether the next iteration should be saved."""

    def write(self, number: int, rows: NamedRows) -> None:
        """Write a task's rows of all iterations so far; they become valid when `written` is called."""

    def written(self, number: int) -> None:
        """Record that all tasks have written their rows."""


class _NotKept:
    def read(self) -> None:
        return None

    due = False

    def write(self, number: int, rows: NamedRows) -> None:
        del number, rows

    def written(self, number: int) -> None:
        del number


NOT_KEPT: LoopCheckpoint = _NotKept()
"""No loop checkpoints."""


def rows_of_share(codec: ValueCodec[Any, Any], runs: Sequence[OpenRun[Any]], share: Share) -> KeyedRows[Any] | None:
    """Return the rows of runs in a share of the key groups; None if there are none."""
    pieces = [segment.cut(codec, 0, len(segment)) for run in runs for segment in run.segments if len(segment)]
    pieces = [filtered(codec, piece, share.holds(piece.hash)) for piece in pieces]
    pieces = [piece for piece in pieces if len(piece)]
    rows = merge_rows(codec, pieces) if pieces else None
    return rows if rows is not None and len(rows) else None
