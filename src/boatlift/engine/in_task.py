"""What every task of ours does: it knows its partition, and turns what it cannot foresee into an error of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark import TaskContext

from boatlift.errors import BoatliftError, InternalError

__all__ = ["guarded", "partition"]

T = TypeVar("T")


def partition() -> int:
    """Gives the number of this task's partition; 0 outside a task."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def guarded(processor: str, work: Callable[[], T]) -> T:
    """Lets our errors through; any other is a fault of ours, and says so when it reaches the driver as text."""
    try:
        return work()
    except BoatliftError:
        raise
    except Exception as error:
        raise InternalError("INTERNAL", f"a task of {processor} failed with {error!r}: please report it") from error
