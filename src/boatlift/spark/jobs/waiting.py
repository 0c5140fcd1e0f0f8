"""Waiting steps of a unit that keeps nothing share a job if they are large; else each has a plan and a job of its own.

Each task of such a job has the rows of one step, which leaves what it leaves in a job of its own: the same digest, and
the same rows in the same partitions in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from boatlift.dataflow import Timing
from boatlift.dataflow.columns import ORDINAL
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.inputs import Inputs
from boatlift.spark.jobs.long_running import LONG_RUNNING_BYTES

WAITING_BYTES = 32 << 20
"""Steps with more input than this do not share a job: a stop waits for the job, and a failure repeats all of it."""


def waiting_together(inputs: Inputs, unit: CompiledUnit, takes: Sequence[StepInput]) -> int:
    """Return how many of the steps of a unit without state, from the first on, share a job: 1 or more.

    A small step does not: it goes round, or its plan is cached. A replay may divide steps in another way.
    """
    if unit.unit.timing is not Timing.EPOCHS:
        return 1
    count = total = 0
    for take in takes:
        weight = inputs.weight(inputs.sent(take))
        total += weight
        follows = take.time == takes[0].time + count
        if not follows or not _has_rows(take) or weight <= LONG_RUNNING_BYTES or total > WAITING_BYTES:
            break
        count += 1
    return max(1, count)


def input_in_turn(inputs: Inputs, unit: CompiledUnit, takes: Sequence[StepInput]) -> DataFrame:
    """Return the rows of several steps of a unit that reads one source or unit, step after step, with `_ordinal`."""
    (leaf,) = unit.leaves
    frames = [inputs.rows(inputs.spark, unit, take)[0][leaf] for take in takes]
    numbered = [frame.withColumn(ORDINAL, F.lit(ordinal).cast("int")) for ordinal, frame in enumerate(frames)]
    return reduce(DataFrame.unionAll, numbered)


def _has_rows(take: StepInput) -> bool:
    return all(message.payload is not None for message in take.inputs)
