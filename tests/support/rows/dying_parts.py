"""A source and a sink whose tasks die, fail, are stopped or hang, once and at a point that a file names."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from boatlift.connectors.kit import SinkWrapper, SourceWrapper
from boatlift.dataflow import SourceCapabilities, Staged, Stager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DyingSink", "DyingSource", "obey"]


def obey(order: str, point: str) -> None:
    """Do once what a file says, if it names this point: `POINT die`, `POINT fail`, `POINT stop` or `POINT hang`."""
    path = Path(order)
    try:
        at, what = path.read_text().rsplit(" ", 1)
        if at != point:
            return
        path.unlink()
    except FileNotFoundError:
        return
    if what in ("die", "stop"):
        os.kill(os.getpid(), signal.SIGKILL if what == "die" else signal.SIGSTOP)
    while what in ("stop", "hang"):  # the process must be killed: it does not go on by itself
        time.sleep(1)
    raise ValueError("told to fail")


@dataclass(frozen=True)
class _Dying:
    stager: Stager
    order: str
    name: str

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        obey(self.order, f"{self.name}before")
        staged = self.stager.stage(folder, name, partition, batches)
        obey(self.order, f"{self.name}after")
        return staged


class DyingSink(SinkWrapper):
    """Its tasks obey an order before and after they stage rows.

    Args:
        name: Stands before the name of a point.
    """

    def __init__(self, sink: Any, order: str, name: str = "") -> None:
        super().__init__(sink)
        self.order, self.name = order, name

    def stager(self) -> Stager:
        return _Dying(self.sink.stager(), self.order, self.name)


class DyingSource(SourceWrapper):
    """Its reading tasks obey an order before and after they give their rows; arguments as for `DyingSink`."""

    def __init__(self, source: Any, order: str, name: str = "") -> None:
        super().__init__(source)
        self.order, self.name = order, name

    @property
    def capabilities(self) -> SourceCapabilities:
        return replace(self.source.capabilities, parameterized_read=self)

    def parameters_for(self, position: Any, folder: str) -> bytes | None:
        read = self.source.capabilities.parameterized_read
        assert read is not None
        return read.parameters_for(position, folder)

    def load_parameterized(self, spark: SparkSession, frame_of: Any = None) -> DataFrame:
        read, order, name = self.source.capabilities.parameterized_read, self.order, self.name
        assert read is not None

        def dying(task: Any) -> Any:
            def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
                obey(order, f"{name}before")
                yield from task(batches)
                obey(order, f"{name}after")

            return run

        def made(task: Any, schema: Any) -> DataFrame:
            if frame_of is not None:
                return frame_of(dying(task), schema)
            return spark.range(0, 1, 1, 1).mapInArrow(dying(task), schema)

        return read.load_parameterized(spark, made)
