"""What a step has computed of a loop so far, kept now and then: a step that is executed again goes on from there.

A step of a loop may take minutes. Its rounds are kept in the order of rounds, which with the step before is the
lexicographic order of (step, round): a state of the loop is that after a step, and the rows of some rounds more.
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
"""Rows by name, with their form."""


@dataclass(frozen=True, slots=True)
class SavedIterations:
    """The rounds that were kept last.

    Attributes:
        runs: Their rows by name, of all tasks, with their form.
    """

    number: int
    runs: Mapping[str, tuple[ValueCodec[Any, Any], Sequence[OpenRun[Any]]]]


class LoopCheckpoint(Protocol):
    """The keeping of a step's rounds, on the side of a task.

    Laws:
        - Iterations are kept of the step and of the input alone for which they were written.
        - What cannot be read is not there: then the step begins with round 0.
        - A round that cannot be written is not kept; the step goes on.
    """

    def read(self) -> SavedIterations | None:
        """Return the rounds that were kept last; None if there are none."""

    @property
    def due(self) -> bool:
        """Whether the last rounds were kept so long ago that this one shall be."""

    def write(self, number: int, rows: NamedRows) -> None:
        """Write a task's rows of all rounds so far; they count once `written` is called."""

    def written(self, number: int) -> None:
        """Take note that all tasks have written their rows."""


class _NotKept:
    def read(self) -> None:
        return None

    @property
    def due(self) -> bool:
        return False

    def write(self, number: int, rows: NamedRows) -> None:
        del number, rows

    def written(self, number: int) -> None:
        del number


NOT_KEPT: LoopCheckpoint = _NotKept()
"""No rounds are kept."""


def rows_of_share(codec: ValueCodec[Any, Any], runs: Sequence[OpenRun[Any]], share: Share) -> KeyedRows[Any] | None:
    """Return the rows of runs that are of some key groups; None if there are none."""
    pieces = [segment.cut(codec, 0, len(segment)) for run in runs for segment in run.segments if len(segment)]
    pieces = [filtered(codec, piece, share.holds(piece.hash)) for piece in pieces]
    pieces = [piece for piece in pieces if len(piece)]
    rows = merge_rows(codec, pieces) if pieces else None
    return rows if rows is not None and len(rows) else None
