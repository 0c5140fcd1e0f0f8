"""Rows that change hands between the tasks of a step while it runs: a loop's operators divide them by other keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from boatlift.kernels.network.node import ZSet


class Exchange(Protocol):
    """A task's side of an exchange. All tasks of the step make the same calls in the same order."""

    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        """Return the rows of all tasks whose keys are of this task's key groups.

        Args:
            keys: The places of the columns of the key; None: all columns.

        Raises:
            UnavailableError: `[TASK_LOST]` another task has ended.
        """

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Return for each of some numbers the greatest that any task has.

        Raises:
            UnavailableError: `[TASK_LOST]` another task has ended.
        """


class _Alone:
    """The exchange of a step's only task."""

    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        del keys
        return rows

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)


ALONE: Exchange = _Alone()
"""The exchange of a step's only task."""
