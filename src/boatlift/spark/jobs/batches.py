"""Batches: tables that are computed anew every now and then, beside everything else, and never on all slots.

Spark does not take a slot away from a task that runs. So a batch has one slot fewer than there are, and whatever is
quick always finds one free.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.jobs.inputs import Inputs
from boatlift.spark.jobs.planner import StepPlanner
from boatlift.spark.plans.catalyst import java_settings
from boatlift.spark.program import CompiledUnit
from boatlift.spark.session.worker_pools import workers_of_batches
from boatlift.spark.tasks.stage import TaskReceipt

__all__ = ["Batches"]


class Batches:
    """Executes the steps of units that are recomputed, in a session of their own with the settings of another.

    Args:
        spark: The session of everything else, whose executors do the work.
        units: The dataflow's units, compiled.
        inputs: What steps take.
        planner: Makes plans.

    Attributes:
        one_at_a_time: To be held while a batch is executed: two would take all slots.
    """

    def __init__(
        self, spark: SparkSession, units: Mapping[str, CompiledUnit], inputs: Inputs, planner: StepPlanner
    ) -> None:
        self._parent, self._units, self._inputs, self._planner = spark, units, inputs, planner
        self._slots = max(1, spark.sparkContext.defaultParallelism - 1)
        self._made: SparkSession | None = None
        self._making = threading.Lock()
        self.one_at_a_time = threading.Lock()

    def recompute(self, unit: str, take: StepInput) -> Sequence[TaskReceipt]:
        """Runs a batch.

        Args:
            unit: Which.
            take: The messages of its epoch, or the cursor of everything that its source ever gave.
        """
        cursor = take.cursor
        source, last = self._inputs.source_of(unit), take.inputs[-1].payload
        everything = None if source is None or cursor is None else source.capabilities.rescannable
        if cursor is not None:
            assert everything is not None
            everything.verify_everything(cursor)
            rows = everything.load_everything(self._spark, cursor)
        else:
            self._inputs.verify_recorded((take,))
            rows, _ = self._inputs.rows(self._spark, unit, take)
        rows = rows.coalesce(self._slots)
        with workers_of_batches(self._parent.sparkContext):
            plan = self._planner.plan(self._units[unit], rows, 0, take.number, last["clock"], last["seed"])
        (receipts,) = plan.run(())
        if cursor is not None:
            assert everything is not None
            everything.verify_everything(cursor)
        else:
            self._inputs.verify(unit, (take,))
        return receipts

    @property
    def _spark(self) -> SparkSession:
        """The session; made when it is first asked for."""
        with self._making:
            if self._made is None:
                made = self._parent.newSession()
                for name, value in dict(java_settings(self._parent)).items():
                    if made.conf.isModifiable(name):
                        made.conf.set(name, value)
                made.conf.set("spark.sql.shuffle.partitions", self._slots)
                self._made = made
            return self._made
