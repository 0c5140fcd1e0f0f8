"""Row probes: what the rows of a step say about the end of a batch's epoch. Answers are in no log; the end is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.inputs import Inputs, content_of
from boatlift.spark.jobs.row_questions import asked
from boatlift.spark.program import CompiledUnit

__all__ = ["Markers"]


class Markers:
    """Asks the rows of steps.

    Args:
        spark: The session.
        units: The dataflow's units, compiled.
        inputs: What steps take.
    """

    def __init__(self, spark: SparkSession, units: Mapping[str, CompiledUnit], inputs: Inputs) -> None:
        self._spark, self._units, self._inputs = spark, units, inputs

    def mark(self, unit: str, take: StepInput) -> Mapping[str, Any]:
        """Runs the job of a step: one message."""
        compiled, given, reader = self._units[unit], content_of(take), f"{unit}:marks"
        assert compiled.unit.recomputation is not None
        self._inputs.verify_recorded((take,))
        rows, _ = self._inputs.rows(self._spark, unit, take, reader)
        frame = compiled.taken(rows, given["clock"], given["seed"])
        (answer,) = asked(compiled.unit.recomputation.policy, frame).collect()
        self._inputs.verify(reader, (take,))
        return {"period": answer["period"], "ends": bool(answer["ends"])}
