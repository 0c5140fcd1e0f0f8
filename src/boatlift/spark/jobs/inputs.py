"""What steps take: the rows of a source's positions, and the runs that another unit has sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow import Json, Plan, Source
from boatlift.dataflow.columns import ORDINAL, WEIGHT, quoted
from boatlift.errors import InvalidError
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.jobs.edges import ReadTask
from boatlift.spark.jobs.readings import Readings
from boatlift.spark.program import CompiledUnit
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.store import Store

__all__ = ["Inputs", "content_of"]


class Inputs:
    """Reads what steps take.

    Args:
        plan: The dataflow.
        units: Its units, compiled.
        store: Where runs are that were kept.
        scratch: Where tasks have left them.
        slots: How many tasks run at once.
        recorded: Source to the last time that was closed before this process began: its input must be proved unchanged.
        readings: What was read.
    """

    def __init__(
        self,
        plan: Plan,
        units: Mapping[str, CompiledUnit],
        store: Store,
        scratch: Path,
        slots: int,
        recorded: Mapping[str, int],
        readings: Readings,
    ) -> None:
        self._plan, self._units = plan, units
        self._store, self._scratch, self._recorded = store, scratch, recorded
        self._senders = {edge_name(sender, name): sender for name, unit in plan.units.items() for sender in unit.reads}
        self._slots = slots
        self._readings = readings

    def path(self, run: RunRef) -> Path:
        """Tells where a run can be read: where a task has left it, else where it was kept."""
        here = self._scratch / Path(run.name).name
        if here.exists():
            return here
        kept = self._store.local_path(run.name)
        if kept is None:
            raise InvalidError("BAD_OPTION", "runs are mapped into memory: use a store whose objects are local files")
        return kept

    def source_of(self, unit: str) -> Source | None:
        """Gives the one source whose rows a unit takes at first hand, and nothing else."""
        roots = self._units[unit].unit.roots
        return self._source(roots[0]) if len(roots) == 1 else None

    def positions(self, take: StepInput) -> list[tuple[Source, Json]]:
        """Gives what a step reads from outside, if anything."""
        return [
            (self._plan.sources[source].source, message.payload["position"])
            for source, message in self._from_sources((take,))
        ]

    def rows(self, spark: SparkSession, unit: str, take: StepInput, reader: str | None = None) -> tuple[DataFrame, int]:
        """Gives the rows that a step takes, and their bytes, more or less.

        Args:
            spark: The session.
            unit, take: Which step.
            reader: Who else but the unit reads them, as `verify` is told.
        """
        sent: dict[str, list[Message]] = {}
        for message in take.inputs:
            sent.setdefault(self._sender(message), []).append(message)
        parts = [self._rows(spark, unit, sender, messages, reader or unit) for sender, messages in sent.items()]
        frames = [frame for frame, _ in parts]
        if len(self._units[unit].unit.roots) > 1:
            columns = [quoted(name) for name in self._units[unit].takes]
            frames = [frame.select(*columns) for frame in frames]
        return reduce(DataFrame.unionAll, frames), sum(weight for _, weight in parts)

    def _rows(
        self, spark: SparkSession, unit: str, sender: str, messages: Sequence[Message], reader: str
    ) -> tuple[DataFrame, int]:
        if sender in self._plan.sources:
            return self._rows_of_source(spark, sender, messages, reader)
        root = self._units[sender]
        runs = [run for message in messages for run in runs_of(message.payload)]
        files = tuple(str(self.path(run)) for run in runs)
        slots = spark.range(0, max(1, len(files)), 1, max(1, min(len(files), self._slots)))
        weight_field = [StructField(WEIGHT, LongType())] if root.unit.changes_out else []
        schema = StructType([*root.schema.fields, *weight_field])
        return slots.mapInArrow(ReadTask(unit, files), schema), sum(run.size for run in runs)

    def _rows_of_source(
        self, spark: SparkSession, name: str, messages: Sequence[Message], reader: str
    ) -> tuple[DataFrame, int]:
        source = self._plan.sources[name].source
        positions = [message.payload["position"] for message in messages]
        weight = sum(map(source.size_bytes, positions))
        if source.capabilities.digests_on_read is not None:
            return self._counted(spark, name, messages, reader, ordinals=False), weight
        if len(positions) > 1 and (many := source.capabilities.reads_many_steps) is not None:
            return many.load_together(spark, positions).drop(ORDINAL), weight
        return reduce(DataFrame.unionAll, [source.load(spark, position) for position in positions]), weight

    def rows_together(self, spark: SparkSession, unit: str, takes: Sequence[StepInput]) -> DataFrame:
        """Gives the rows of several steps, with `_ordinal`."""
        source = self.source_of(unit)
        assert source is not None
        if source.capabilities.digests_on_read is not None:
            messages = [message for take in takes for message in take.inputs]
            return self._counted(spark, self._units[unit].unit.roots[0], messages, unit, ordinals=True)
        many = source.capabilities.reads_many_steps
        assert many is not None
        return many.load_together(spark, [content_of(take)["position"] for take in takes])

    def _counted(
        self, spark: SparkSession, name: str, messages: Sequence[Message], reader: str, *, ordinals: bool
    ) -> DataFrame:
        digests = self._plan.sources[name].source.capabilities.digests_on_read
        assert digests is not None
        positions = [message.payload["position"] for message in messages]
        folders = [self._readings.folder(reader, name, message.time) for message in messages]
        return digests.load_digested(spark, positions, folders, ordinals=ordinals)

    def parameters_for(self, unit: str, take: StepInput) -> bytes | None:
        """Return the parameters of the task that reads a step; None if more than one task had better read it."""
        (name,), (message,) = self._units[unit].unit.roots, take.inputs
        capabilities = self._plan.sources[name].source.capabilities
        assert capabilities.parameterized_read is not None
        folder = self._readings.folder(unit, name, message.time) if capabilities.digests_on_read is not None else ""
        return capabilities.parameterized_read.parameters_for(message.payload["position"], folder)

    def verify_recorded(self, takes: Sequence[StepInput]) -> None:
        """Proves that what recorded steps read is what it was.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        for source, message in self._from_sources(takes):
            if message.time <= self._recorded[source]:
                self._plan.sources[source].source.verify(message.payload["position"])

    def verify(self, reader: str, takes: Sequence[StepInput]) -> None:
        """Prove, after a job, that it read the rows that the positions name.

        Spark read a file's recorded bytes only if the file is the same after the job.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        for name, message in self._from_sources(takes):
            source = self._plan.sources[name].source
            source.verify(message.payload["position"])
            if (digests := source.capabilities.digests_on_read) is not None:
                self._readings.compare(reader, name, message.time, digests)

    def _from_sources(self, takes: Sequence[StepInput]) -> Iterator[tuple[str, Message]]:
        for message in (message for take in takes for message in take.inputs):
            if (sender := self._sender(message)) in self._plan.sources:
                yield sender, message

    def _sender(self, message: Message) -> str:
        return self._senders[message.edge]

    def _source(self, name: str) -> Source | None:
        return self._plan.sources[name].source if name in self._plan.sources else None


def content_of(take: StepInput) -> Any:
    """Gives the content of a step that takes one message."""
    (message,) = take.inputs
    return message.payload
