"""The processor on Spark: a kernel around the user's function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from boatlift.dataflow.identity import OwnState
from boatlift.errors import InvalidError
from boatlift.kernels.step_state import STATE
from boatlift.operators.process.arrow import ArrowProgram
from boatlift.operators.process.by_key import ByKey, KeyState
from boatlift.operators.process.kernel import KERNEL_TIME, ProcessKernel
from boatlift.operators.process.operator import Process, ProcessForm, TimerTime
from boatlift.operators.process.rows import table_of
from boatlift.operators.process.stateful.compiled import Shapes, UsersPart, described, stateful_program
from boatlift.spark.compile.keyed import (
    CompiledKeyed,
    RowsByKey,
    declared_columns,
    require_columns,
    rows_by_key,
    ticks_input,
)
from boatlift.spark.compile.operator import Columns, Kit, no_watermark
from boatlift.spark.plans.column_rules import refuse_types
from boatlift.spark.plans.fingerprint import content_of, fingerprint
from boatlift.spark.plans.function_code import code_hash, libraries_of
from boatlift.state.newest import NewestCodec


def compile_process(operator: Process, inputs: Sequence[Columns], kit: Kit) -> CompiledKeyed:
    """Compile a processor: a kernel around the user's function."""
    takes = inputs[0]
    name = operator.name
    require_columns(name, operator.order_by, takes)
    if operator.timers is TimerTime.EVENT and not takes.has_watermark:
        raise InvalidError("NO_LATENESS", no_watermark(name, "has timers in event time", takes))
    state = _state_columns(name, operator.state) if operator.state else StructType()
    output = declared_columns(name, "output", operator.output)
    for schema in (state, output):
        refuse_types(schema, name)
    rows = rows_by_key(name, operator.keys, takes, kit)
    of_key = StructType([rows.frame.schema[key] for key in operator.keys])
    begin = None if operator.initial_state is None else _initial_state(operator, operator.initial_state, rows, kit)
    initial = StructType() if begin is None else begin.frame.schema
    shapes = Shapes(rows.frame.schema, of_key, rows.keys, output, initial)
    if operator.form in (ProcessForm.BY_KEY, ProcessForm.ARROW):
        user = _of_function(operator, state, shapes, kit)
    else:
        user = stateful_program(operator, shapes, kit)
    ticks = [ticks_input(each, kit) for each in inputs[1:]]
    kernel = ProcessKernel(
        processor=name,
        keys=rows.keys,
        columns=rows.arrow,
        order_by=operator.order_by,
        output=kit.arrow_of(output),
        program=user.program,
        codecs=user.codecs,
        time=KERNEL_TIME[operator.timers],
        ticks=("number",) if ticks else None,
        initial=None if begin is None else begin.arrow,
        records_answers=operator.records_answers,
    )
    taken = [rows.taken, *ticks]
    content = "" if begin is None else ",".join(content_of(begin.frame))
    if begin is not None:
        taken.append(begin.taken)
    return CompiledKeyed(
        columns=Columns(name, output, has_watermark=takes.has_watermark),
        fingerprint=f"{fingerprint(rows.frame)}{content}",
        own_state=OwnState(user.described, code_hash(operator.function)),
        calls_python=True,
        libraries=libraries_of(operator.function),
        kernel=kernel,
        inputs=tuple(taken),
        begin=None if begin is None else begin.frame,
    )


def _of_function(operator: Process, state: StructType, shapes: Shapes, kit: Kit) -> UsersPart:
    """Return the program of a function, whose keys have one row of state each."""
    name, function = operator.name, operator.function
    initial = _initial_values(name, operator.defaults, state, kit)
    if operator.form is ProcessForm.BY_KEY:
        by_watermark = operator.timers is TimerTime.EVENT
        function = ByKey(name, function, shapes.rows, shapes.key, state, shapes.output, by_watermark, initial)
    program = ArrowProgram(name, function, kit.arrow_of(state), kit.arrow_of(shapes.output), initial)
    codecs = {STATE: NewestCodec(shapes.keys, kit.arrow_of(state), initial)} if len(state) else {}
    return UsersPart(program, codecs, {STATE: described(state, initial)} if len(state) else {})


def _initial_values(
    name: str, defaults: Sequence[tuple[str, Any]], state: StructType, kit: Kit
) -> tuple[pa.Scalar, ...]:
    """Return the first value of each column of a state; a column without a default begins with NULL."""
    unknown = [column for column, _ in defaults if column not in state.names]
    if unknown:
        known = ", ".join(state.names) or "none"
        raise InvalidError("BAD_PROCESSOR", f"{name}: defaults has {unknown[0]!r}, and the state has {known}")
    if not len(state):
        return ()
    values = dict(defaults)
    row = tuple(values.get(column) for column in state.names)
    try:
        table = table_of([row], state).cast(kit.arrow_of(state))
    except (PySparkException, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        message = f"{name}: the defaults {values!r} do not fit {state.simpleString()}: {error}"
        raise InvalidError("BAD_PROCESSOR", message) from error
    return tuple(column[0] for column in table.columns)


def _initial_state(operator: Process, table: DataFrame, rows: RowsByKey, kit: Kit) -> RowsByKey:
    """Return the rows of an initial state by key, which the session keeps."""
    name = operator.name
    if table.sparkSession is not kit.spark:
        raise InvalidError("BAD_PROCESSOR", f"the initial state of {name} is of another session: make it anew")
    begin = rows_by_key(name, operator.keys, Columns(f"the initial state of {name}", table.schema), kit)
    if begin.keys != rows.keys:
        ours, theirs = (", ".join(f"{key} {kind}" for key, kind in each.keys) for each in (rows, begin))
        raise InvalidError(
            "SCHEMA_MISMATCH", f"{name} groups by {ours}, and its initial state has {theirs}: cast its columns"
        )
    refuse_types(table.schema, f"the initial state of {name}")
    if table.storageLevel == StorageLevel.NONE:  # the user has not cached it
        kit.pinned.append(table.persist())
    return replace(begin, frame=table)


def _state_columns(name: str, declared: str | StructType) -> StructType:
    """Return the columns of a state, each of which is an attribute."""
    schema = declared_columns(name, "state", declared)
    taken = [field for field in schema.fieldNames() if not field.isidentifier() or hasattr(KeyState, field)]
    if taken:
        raise InvalidError(
            "BAD_PROCESSOR", f"{name}: a state cannot have a column {taken[0]!r}: it is no name of an attribute"
        )
    return schema


COMPILERS = {Process: compile_process}
