"""An operator with a keyed kernel, compiled: its frame has the rows that the kernel takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame

from boatlift.spark.compile.operator import Compiled
from boatlift.spark.keyed.kernel import KeyedKernel
from boatlift.storage.records.payloads import StepClock

__all__ = ["CompiledKeyed"]


@dataclass(frozen=True, kw_only=True)
class CompiledKeyed(Compiled):
    """An operator whose tasks run a kernel over rows that are divided by key.

    Attributes:
        kernel: What runs in the tasks.
        selected: The columns of the kernel's input, without `_hash`, as expressions over the operator's input.
    """

    kernel: KeyedKernel
    selected: tuple[Column, ...]

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return the rows that the kernel takes, without `_hash`."""
        del clock, state
        (rows,) = inputs
        assert rows is not None
        return rows.select(*self.selected)
