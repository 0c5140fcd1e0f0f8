"""The processor on Spark: a kernel around the user's function."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from boatlift.errors import InvalidError
from boatlift.operators.process.arrow import ArrowProgram
from boatlift.operators.process.by_key import ByKey, KeyState
from boatlift.operators.process.kernel import ProcessKernel
from boatlift.operators.process.node import Process, ProcessForm, TimerTime
from boatlift.operators.process.stateful.compiled import Shapes, UsersPart, stateful_program
from boatlift.operators.process.timers import time_of
from boatlift.spark.compile.declared import declared_columns
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput, require_columns, rows_by_key
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator, no_lateness, without_position
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.keyed.newest.codec import NewestCodec
from boatlift.spark.keyed.state import STATE
from boatlift.spark.plans.column_rules import refuse_maps
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.function_code import code_hash, libraries_of

__all__ = ["ProcessOnSpark"]


class ProcessOnSpark(SparkOperator[Process]):
    """Compiles processors."""

    def compile(self, operator: Process, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
        """Compile a processor.

        Raises:
            InvalidError: `[SCHEMA_MISMATCH]`, `[BAD_PROCESSOR]`, `[TYPE_REFUSED]`.
        """
        takes = inputs[0]
        name = operator.name
        require_columns(name, operator.order_by, takes)
        if operator.timers is TimerTime.EVENT and not takes.bounded:
            raise InvalidError("NO_LATENESS", no_lateness(name, "has timers in event time", takes))
        state = _state_columns(name, operator.state) if operator.state else StructType()
        output = declared_columns(name, "output", operator.output)
        for schema in (state, output):
            refuse_maps(schema, name)
        rows = rows_by_key(name, operator.keys, takes, kit)
        of_key = StructType([rows.frame.schema[key] for key in operator.keys])
        shapes = Shapes(rows.frame.schema, of_key, rows.keys, output)
        if operator.form in (ProcessForm.BY_KEY, ProcessForm.ARROW):
            user = _of_function(operator, state, shapes, kit)
        else:
            user = stateful_program(operator, shapes, kit)
        ticks = None if operator.ticks is None else ("number",)
        kernel = ProcessKernel(
            processor=name,
            keys=rows.keys,
            columns=rows.arrow,
            order_by=operator.order_by,
            output=kit.arrow_of(output),
            program=user.program,
            codecs=user.codecs,
            time=time_of(operator.timers),
            ticks=ticks,
        )
        taken = [rows.taken]
        if ticks is not None:
            number = kit.empty(without_position(inputs[1])).select("number").schema
            taken.append(KeyedInput((F.col("number"),), (), number))
        return CompiledKeyed(
            columns=Columns(name, output, bounded=takes.bounded),
            fingerprint=f"{fingerprint(rows.frame)}{code_hash(operator.function)}{user.described}",
            calls_python=True,
            libraries=libraries_of(operator.function),
            kernel=kernel,
            inputs=tuple(taken),
        )

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> KeyedSteps:
        """Return steps over keyed state."""
        assert isinstance(unit.top, CompiledKeyed)
        return KeyedSteps(unit, jobs, unit.top.kernel)


def _of_function(operator: Process, state: StructType, shapes: Shapes, kit: Kit) -> UsersPart:
    """Return the program of a function, whose keys have one row of state each."""
    name, function = operator.name, operator.function
    if operator.form is ProcessForm.BY_KEY:
        by_bound = operator.timers is TimerTime.EVENT
        function = ByKey(name, function, shapes.rows, shapes.key, state, shapes.output, by_bound)
    program = ArrowProgram(name, function, kit.arrow_of(state), kit.arrow_of(shapes.output))
    codecs = {STATE: NewestCodec(shapes.keys, kit.arrow_of(state))} if len(state) else {}
    return UsersPart(program, codecs, state.simpleString())


def _state_columns(name: str, declared: str | StructType) -> StructType:
    """Return the columns of a state, each of which is an attribute."""
    schema = declared_columns(name, "state", declared)
    taken = [field for field in schema.fieldNames() if not field.isidentifier() or hasattr(KeyState, field)]
    if taken:
        raise InvalidError(
            "BAD_PROCESSOR", f"{name}: a state cannot have a column {taken[0]!r}: it is no name of an attribute"
        )
    return schema
