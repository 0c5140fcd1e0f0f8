"""A `StatefulProcessor`, compiled: one call of its `init` declares its state variables."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import StructType, _parse_datatype_string

from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.operators.process.batch import KeyedProgram
from boatlift.operators.process.kernel import KERNEL_TIME
from boatlift.operators.process.operator import Process, ProcessForm, TimerTime
from boatlift.operators.process.stateful.cells import SET_TIMERS, Variable, timers_codec
from boatlift.operators.process.stateful.handle import StateRecorder
from boatlift.operators.process.stateful.program import StatefulProgram
from boatlift.spark.compile.operator import Kit
from boatlift.spark.plans.tracebacks import own_frames, place
from boatlift.state.column import is_supported
from boatlift.state.newest import NewestCodec


@dataclass(frozen=True, slots=True)
class Shapes:
    """The columns around a processor.

    Attributes:
        rows, key, output: Those of its rows, of its key, and of new rows.
        initial: Those of the rows of an initial state; none: there is no such state.
    """

    rows: StructType
    key: StructType
    keys: tuple[tuple[str, pa.DataType], ...]
    output: StructType
    initial: StructType


@dataclass(frozen=True, slots=True)
class UsersPart:
    """The user's part of a processor, compiled."""

    program: KeyedProgram
    codecs: Mapping[str, NewestCodec]
    """Part of the state to the form of its rows."""
    described: dict[str, dict[str, str]]
    """Part of the state to its columns, as part of the program's identity."""


def described(columns: StructType, initial: Sequence[pa.Scalar] = ()) -> dict[str, str]:
    """Return columns with their types and first values, as a store records them."""
    kinds = {field.name: field.dataType.simpleString() for field in columns.fields}
    first = dict(zip(columns.names, initial, strict=True)) if initial else {}
    return {
        name: kind if name not in first or not first[name].is_valid else f"{kind} = {first[name]}"
        for name, kind in kinds.items()
    }


def stateful_program(operator: Process, shapes: Shapes, kit: Kit) -> UsersPart:
    """Return the program of a `StatefulProcessor`.

    Raises:
        InvalidError: `[BAD_PROCESSOR]` the function is no such processor, or its state cannot be kept.
        UserCodeError: `[USER_CODE]` its `init` raised.
    """
    name = operator.name
    variables = _variables(operator)
    for each in variables:
        for field in each.codec(shapes.keys, kit.arrow_of).keys[len(shapes.keys) :]:
            if not is_supported(field[1]):
                _refuse(name, f"has a map {each.name} by {field[0]}, a {field[1]}: use numbers, text or times as keys")
    program = StatefulProgram(
        processor=name,
        program=operator.function,
        variables=variables,
        fields=tuple((kit.arrow_of(each.key), kit.arrow_of(each.columns)) for each in variables),
        columns=shapes.rows,
        key=shapes.key,
        output=shapes.output,
        arrow=kit.arrow_of(shapes.output),
        pandas=operator.form is ProcessForm.PANDAS,
        time=KERNEL_TIME[operator.timers],
        zone=str(kit.spark.conf.get("spark.sql.session.timeZone")),
        initial=shapes.initial,
    )
    codecs = {each.part: each.codec(shapes.keys, kit.arrow_of) for each in variables}
    if operator.timers is not TimerTime.NONE:
        codecs[SET_TIMERS] = timers_codec(shapes.keys)
    return UsersPart(program, codecs, {each.describe(): described(each.value) for each in variables})


def _variables(operator: Process) -> tuple[Variable, ...]:
    """Return the state variables that `init` declares, by name."""
    name = operator.name
    if not isinstance(operator.function, StatefulProcessor):
        _refuse(name, f"is {operator.function!r}: give an object of a class that derives from StatefulProcessor")
    recorder = StateRecorder(
        _schema_of(name), lives=operator.timers is TimerTime.CLOCK, refuse=lambda fault: _refuse(name, fault)
    )
    processor: Any = copy.deepcopy(operator.function)
    try:
        processor.init(recorder)
        processor.close()
    except BoatliftError:
        raise
    except Exception as error:
        own = own_frames(error.__traceback__)
        message = f"init of the processor of {name} raised {type(error).__name__}: {error}{place(own)}"
        raise UserCodeError("USER_CODE", message) from error
    return tuple(recorder.variables[each] for each in sorted(recorder.variables))


def _schema_of(name: str) -> Any:
    def parsed(declared: Any) -> StructType:
        try:
            schema = _parse_datatype_string(declared) if isinstance(declared, str) else declared
        except PySparkException as error:
            first = next(iter(str(error).splitlines()), "")
            _refuse(name, f"declares a state {declared!r}, which is no list of columns: {first}")
        if not isinstance(schema, StructType) or not len(schema):
            _refuse(name, f"declares a state {declared!r}, which is no list of columns: write 'count LONG'")
        return schema

    return parsed


def _refuse(name: str, fault: str) -> NoReturn:
    raise InvalidError("BAD_PROCESSOR", f"the processor of {name} {fault}")
