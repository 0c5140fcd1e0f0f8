"""Which units may have a resident job (`spark/jobs/long_running.py`), and why others have none."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from boatlift.dataflow import Plan, Timing
from boatlift.dataflow.columns import MARK, POSITION
from boatlift.spark.compile.keyed import CompiledKeyed
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.plans.catalyst import optimised
from boatlift.spark.plans.marked import is_a_stream, marked
from boatlift.storage.records.payloads import StepClock

EXPRESSIONS = "its expressions take more than one row at a time, or call Python"


def needs_own_jobs(unit: CompiledUnit, plan: Plan) -> str | None:
    """Return why each step of a unit has a job of its own; None if that depends on its expressions alone."""
    (first, *others) = unit.leaves
    if others or first not in plan.sources:
        return "it does not read one source alone"
    if plan.sources[first].source.capabilities.parameterized_read is None:
        return f"the plan of a step holds the input that {first} gives"
    if unit.unit.timing is not Timing.EPOCHS:
        return "its steps are not those of its source"
    if unit.apart or not unit.unit.deterministic:
        return "its plan has values of a step's own"
    if unit.unit.records_answers:
        return "it asks the outside, and a step that is executed twice would ask twice"
    return None


def slots_left(plan: Plan) -> int:
    """Return how many slots a resident job has to leave to others: one, and one to batches."""
    return 1 + any(unit.timing is Timing.BATCH for unit in plan.units.values())


def long_running(units: Mapping[str, CompiledUnit], plan: Plan, spark: SparkSession) -> dict[str, str | None]:
    """Return for each unit why it can have no resident job, however many slots there are; None: it can have one."""
    found: dict[str, str | None] = {}
    for name, unit in units.items():
        found[name] = needs_own_jobs(unit, plan)
        if found[name] is None and not _lets_marks_pass(unit, spark):
            found[name] = EXPRESSIONS
    return found


def _lets_marks_pass(unit: CompiledUnit, spark: SparkSession) -> bool:
    top = unit.top
    if not (top is None or top.row_wise or isinstance(top, CompiledKeyed) or unit.unit.keeps_state):
        return False
    (leaf,) = unit.leaves
    columns = unit.leaves[leaf]
    position = [StructField(POSITION, LongType())] if columns.positioned else []
    schema = StructType([*columns.weighted_schema.fields, *position, StructField(MARK, IntegerType(), nullable=False)])
    rows = spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, schema).drop(MARK)
    passing = marked(unit.frame({leaf: rows}, StepClock(0, 0)), spark)
    return passing is not None and is_a_stream(optimised(passing))
