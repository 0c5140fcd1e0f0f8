"""The processor on Spark: a kernel around the user's function."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, _parse_datatype_string

from boatlift.dataflow.columns import quoted
from boatlift.errors import InvalidError
from boatlift.operators.process.arrow import ArrowProgram
from boatlift.operators.process.by_key import ByKey, KeyState
from boatlift.operators.process.kernel import ProcessKernel
from boatlift.operators.process.node import Process, ProcessForm
from boatlift.operators.process.stateful.compiled import Shapes, UsersPart, stateful_program
from boatlift.spark.compile.keyed import CompiledKeyed, KeyedInput
from boatlift.spark.compile.operator import Columns, Kit, SparkOperator, without_position
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.keyed_steps import KeyedSteps
from boatlift.spark.keyed.column import is_supported
from boatlift.spark.keyed.newest.codec import NewestCodec
from boatlift.spark.keyed.state import STATE
from boatlift.spark.plans.canonical_keys import canonical_key
from boatlift.spark.plans.catalyst import INPUT
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
        _check_columns(name, takes, operator)
        state = _schema(name, "state", operator.state) if operator.state else StructType()
        output = _schema(name, "output", operator.output)
        for schema in (state, output):
            refuse_maps(schema, name)
        frame = kit.empty(without_position(takes)).alias(INPUT)
        others = [column for column in takes.names if column not in operator.keys]
        selected = (
            *(canonical_key(frame, key) for key in operator.keys),
            *(F.col(quoted(column)) for column in others),
        )
        rows = frame.select(*selected)
        arrow = kit.arrow_of(rows.schema)
        keys = tuple((key, arrow.field(key).type) for key in operator.keys)
        for key, kind in keys:
            if not is_supported(kind):
                raise InvalidError(
                    "TYPE_REFUSED", f"{name} groups by {key}, a {kind}: group by columns of numbers, text or times"
                )
        of_key = StructType([rows.schema[key] for key in operator.keys])
        shapes = Shapes(rows.schema, of_key, keys, output)
        if operator.form in (ProcessForm.BY_KEY, ProcessForm.ARROW):
            user = _of_function(operator, state, shapes, kit)
        else:
            user = stateful_program(operator, shapes, kit)
        ticks = None if operator.ticks is None else ("number",)
        kernel = ProcessKernel(
            processor=name,
            keys=keys,
            columns=arrow,
            order_by=operator.order_by,
            output=kit.arrow_of(output),
            program=user.program,
            codecs=user.codecs,
            timed=operator.timers,
            ticks=ticks,
        )
        taken = [KeyedInput(selected, operator.keys, rows.schema)]
        if ticks is not None:
            number = kit.empty(without_position(inputs[1])).select("number").schema
            taken.append(KeyedInput((F.col("number"),), (), number))
        return CompiledKeyed(
            columns=Columns(name, output),
            fingerprint=f"{fingerprint(rows)}{code_hash(operator.function)}{user.described}",
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
        function = ByKey(name, function, shapes.rows, shapes.key, state, shapes.output)
    program = ArrowProgram(name, function, kit.arrow_of(state), kit.arrow_of(shapes.output))
    codecs = {STATE: NewestCodec(shapes.keys, kit.arrow_of(state))} if len(state) else {}
    return UsersPart(program, codecs, state.simpleString())


def _check_columns(name: str, takes: Columns, operator: Process) -> None:
    for column in (*operator.keys, *operator.order_by):
        if column not in takes.names:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{name} asks for {column}, which {takes.origin} does not have: it has {', '.join(takes.names)}",
            )


def _schema(name: str, what: str, declared: str | StructType) -> StructType:
    """Return the columns that a program declares."""
    try:
        schema = _parse_datatype_string(declared) if isinstance(declared, str) else declared
    except PySparkException as error:
        first = next(iter(str(error).splitlines()), "")
        raise InvalidError(
            "BAD_PROCESSOR",
            f"{name}: {what} {declared!r} is no list of columns as in 'count LONG, last TIMESTAMP': {first}",
        ) from error
    if not isinstance(schema, StructType) or not len(schema):
        raise InvalidError(
            "BAD_PROCESSOR", f"{name}: {what} {declared!r} has no columns: write 'count LONG' or the like"
        )
    if what == "state":
        taken = [field for field in schema.fieldNames() if not field.isidentifier() or hasattr(KeyState, field)]
        if taken:
            raise InvalidError(
                "BAD_PROCESSOR", f"{name}: a state cannot have a column {taken[0]!r}: it is no name of an attribute"
            )
    return schema
