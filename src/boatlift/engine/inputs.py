"""What steps take: the rows of a source's positions, and the runs that another unit has sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow import Json, LoadsTogether, Plan, Source
from boatlift.dataflow.columns import WEIGHT
from boatlift.engine.edges import ReadTask
from boatlift.engine.program import CompiledUnit
from boatlift.errors import InvalidError
from boatlift.runtime.regimes.acts import Take
from boatlift.storage.contents import runs_of
from boatlift.storage.records import RunRef
from boatlift.storage.store import Store

__all__ = ["Inputs", "content_of"]


class Inputs:
    """Reads what steps take.

    Args:
        plan: The dataflow.
        units: Its units, compiled.
        store: Where runs are that were kept.
        scratch: Where tasks have left them.
        recorded: Source to the last time that was closed before this process began: its input must be proved unchanged.
    """

    def __init__(
        self, plan: Plan, units: Mapping[str, CompiledUnit], store: Store, scratch: Path, recorded: Mapping[str, int]
    ) -> None:
        self._plan, self._units = plan, units
        self._store, self._scratch, self._recorded = store, scratch, recorded

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
        """Gives the source whose rows a unit takes at first hand."""
        root = self._plan.units[unit].root
        return self._plan.sources[root].source if root in self._plan.sources else None

    def position(self, unit: str, take: Take) -> tuple[Source, Json] | None:
        """Gives what a step reads from outside, if anything: of several times the last."""
        source = self.source_of(unit)
        return None if source is None else (source, take.inputs[-1].content["position"])

    def rows(self, spark: SparkSession, unit: str, content: Any) -> tuple[DataFrame, int]:
        """Gives the rows of a content, and their bytes, more or less."""
        source = self.source_of(unit)
        if source is not None:
            return source.load(spark, content["position"]), source.weigh(content["position"])
        root = self._units[self._plan.units[unit].root]
        runs = list(runs_of(content))
        files = tuple(str(self.path(run)) for run in runs)
        slots = spark.range(0, max(1, len(files)), 1, max(1, len(files)))
        weight_field = [StructField(WEIGHT, LongType())] if root.unit.changes_out else []
        schema = StructType([*root.schema.fields, *weight_field])
        return slots.mapInArrow(ReadTask(unit, files), schema), sum(run.size for run in runs)

    def rows_together(self, spark: SparkSession, unit: str, takes: Sequence[Take]) -> DataFrame:
        """Gives the rows of several steps, with `_ordinal`."""
        source = self.source_of(unit)
        assert isinstance(source, LoadsTogether)
        return source.load_together(spark, [content_of(take)["position"] for take in takes])

    def verify_recorded(self, unit: str, takes: Sequence[Take]) -> None:
        """Proves that what recorded steps read is what it was.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        recorded = self._recorded.get(self._plan.units[unit].root, -1)
        self._verify(unit, (message.content for take in takes for message in take.inputs if message.time <= recorded))

    def verify(self, unit: str, takes: Sequence[Take]) -> None:
        """Proves that what was read is what the positions name: only if files are the same after the job did Spark read those.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        self._verify(unit, (message.content for take in takes for message in take.inputs))

    def _verify(self, unit: str, contents: Any) -> None:
        source = self.source_of(unit)
        if source is not None:
            for content in contents:
                source.verify(content["position"])


def content_of(take: Take) -> Any:
    """Gives the content of a step that takes one message."""
    (message,) = take.inputs
    return message.content
