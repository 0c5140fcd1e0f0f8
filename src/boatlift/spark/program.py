"""A dataflow's units, compiled: schemas known, transformations checked, aggregates laid out.

Compiling runs the user's functions once, on empty frames. The plans that come out are checked against the allow-list
(`row_wise.py`) and hashed (`fingerprint.py`): together with names, keys and schemas they are the program's identity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    LongType,
    MapType,
    StructField,
    StructType,
)

from boatlift.dataflow import Plan
from boatlift.dataflow.columns import POSITION, WEIGHT
from boatlift.errors import InvalidError
from boatlift.operators.aggregate.columns import canonical_key, parse_aggregates
from boatlift.operators.aggregate.kernel import AggregateColumn, Layout
from boatlift.operators.aggregate.node import Aggregate
from boatlift.operators.lookup.node import Table
from boatlift.operators.merge.node import Merge
from boatlift.operators.recompute.node import Recompute
from boatlift.operators.transform.node import Transform
from boatlift.spark.jobs.row_questions import check_marks
from boatlift.spark.plans.catalyst import INPUT, analysed, analysed_text, can_thread, python_functions
from boatlift.spark.plans.column_rules import check_sink_key, refuse_maps, refuse_reserved
from boatlift.spark.plans.fingerprint import calls_python, fingerprint, libraries, pin_static_tables, shape
from boatlift.spark.plans.function_code import code_hash
from boatlift.spark.plans.row_wise import apply, check_row_wise
from boatlift.spark.plans.step_functions import MARK, StepContext, step_context
from boatlift.spark.session.jvm import unless_gone
from boatlift.spark.unit import LinearUnit, linear

__all__ = ["CompiledProgram", "CompiledUnit", "compile_program"]


_OWN = {"boatlift": "position"}
"""Marks the column that a source adds."""


@dataclass(frozen=True, slots=True)
class CompiledLookup:
    """What a unit does before its own transforms: it looks up.

    Attributes:
        before: The transforms before that.
        tables: What is looked up, and the columns of each table's rows.
        schema: Of the rows then.
    """

    before: CompiledUnit
    tables: tuple[tuple[Table, pa.Schema], ...]
    schema: StructType


@dataclass(frozen=True, slots=True)
class CompiledUnit:
    """One unit, ready to build its frame for any step.

    Attributes:
        schema: Of its output rows, without weight.
        output: The same as Arrow, with `_weight` if its output is changes.
        columns: What is selected for it: canonical keys and the arguments of its aggregates.
        layout: How its state is laid out; None without state.
        fingerprint: Canonical hash of its plan.
        positioned: Whether source rows carry `_position` through its chain.
        libraries: Installed packages that its Python UDFs reach, and their versions.
        python: Whether its plan has Python UDFs.
        functions: The transforms that they are of, or itself: who may have raised.
        shape: What its plan looks like, whatever the step.
        apart: Whether its steps cannot be run together: its plan has values that are a step's own (`bl.now()`,
            `bl.rand()`, `bl.uuid()`), or a node that no further column passes through.
        takes: The columns of the rows that it takes, in order.
        lookup: What is done before; then `build` begins with the rows that it gives.
    """

    unit: LinearUnit
    schema: StructType
    output: pa.Schema
    columns: tuple[Column, ...]
    layout: Layout | None
    fingerprint: str
    positioned: bool
    libraries: Mapping[str, str] = field(default_factory=dict)
    python: bool = False
    functions: tuple[str, ...] = ()
    shape: str = ""
    apart: bool = False
    takes: tuple[str, ...] = ()
    lookup: CompiledLookup | None = None

    def build(self, rows: DataFrame, clock: int, seed: int) -> DataFrame:
        """Applies the unit's transforms to the rows of a step.

        Raises:
            InvalidError: `[NOT_DETERMINISTIC]` the user's functions build another plan than when the program was
                compiled.
        """
        frame = self._built(rows, clock, seed)
        if self.unit.recomputation is not None or not self.unit.repeats:
            return frame  # what it gives is durable before anyone sees it: it may be another plan each time
        if shape(frame, functions=self.python) != self.shape:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{self.unit.name} builds another plan now than when this process began, so a replay would differ: "
                "let its "
                "functions depend on nothing that changes while it runs",
            )
        return frame

    def taken(self, rows: DataFrame, clock: int, seed: int) -> DataFrame:
        """Gives what comes out of the transforms before a recomputation."""
        frame = _apply(self.unit, rows.alias(INPUT), clock, seed, self.positioned)
        return frame.drop(POSITION) if self.positioned else frame

    def with_shape(self, empty: DataFrame) -> CompiledUnit:
        """The same, knowing the shape of its frame; `empty` has the columns of the unit's rows."""
        frame = self._built(empty, 0, 0)
        python = calls_python(frame)
        return replace(
            self,
            python=python,
            shape=shape(frame, functions=python),
            libraries=libraries(frame),
            apart=MARK in analysed_text(frame) or not can_thread(analysed(frame)),
        )

    def _built(self, rows: DataFrame, clock: int, seed: int) -> DataFrame:
        if self.unit.changes_in:
            return _on_changes(self.unit, rows.alias(INPUT), clock, seed)
        if self.columns:
            return _apply(self.unit, rows.alias(INPUT), clock, seed, self.positioned).select(*self.columns)
        frame = self.taken(rows, clock, seed)
        again = self.unit.end
        return _recomputed(again, frame, clock, seed) if isinstance(again, Recompute) else frame


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled dataflow.

    Attributes:
        identity: What a store is only opened with again: names, keys, schemas, canonical hashes of plans.
        pinned: Static tables whose content the session keeps for it.
    """

    plan: Plan
    units: dict[str, CompiledUnit]
    identity: dict[str, Any]
    pinned: list[DataFrame]

    def close(self) -> None:
        """Lets go of static tables."""
        for table in self.pinned:
            with unless_gone():
                table.unpersist()


def compile_program(spark: SparkSession, plan: Plan) -> CompiledProgram:
    """Compiles every unit.

    Raises:
        InvalidError: a transform is not row-wise, an aggregate not supported, a column not there.
        UserCodeError: a function of the program raised.
    """
    program = CompiledProgram(plan, {}, {}, [])
    try:
        _compile_units(spark, program)
    except BaseException:
        program.close()
        raise
    return program


def _compile_units(spark: SparkSession, program: CompiledProgram) -> None:
    plan, units, identity = program.plan, program.units, program.identity
    schemas: dict[str, StructType] = {name: p.source.schema(spark) for name, p in plan.sources.items()}
    for name, processor in plan.sources.items():
        # Where input lies is no part of the program: it may be moved, as long as names and bytes stay.
        described = processor.source.describe()
        identity[f"source {name}"] = {key: value for key, value in described.items() if key != "path"}
        if plan.forgets(name):
            identity[f"source {name}"]["forgets"] = True
    for name, planned in plan.units.items():
        unit = linear(planned, plan)
        rows = _schema_of_rows(unit, {**schemas, **{name: there.schema for name, there in units.items()}})
        (first, *others) = unit.roots
        positioned = not others and first in plan.sources and plan.sources[first].source.positioned
        if planned.rereads_source:
            _check_reads_everything(unit, plan)
        if unit.lookup is None:
            compiled = _compile(spark, unit, rows, positioned, program.pinned)
        else:
            compiled = _compile_lookup(spark, unit, rows, positioned, program)
        for sink in planned.sinks:
            check_sink_key(sink, name, compiled.schema, plan.rows_of(name).unique)
        units[name] = compiled
        identity[f"processor {name}"] = {
            "reads": first,
            "keys": list(unit.aggregate.keys) if unit.aggregate else [],
            "schema": compiled.schema.simpleString(),
            "plan": compiled.fingerprint,
            **_more_identity(unit),
        }
    for name, end in plan.sinks.items():
        identity[f"sink {name}"] = {"reads": plan.unit_of_sink(name).name, "key": list(end.sink.key or [])}


def _compile(
    spark: SparkSession, unit: LinearUnit, schema: StructType, positioned: bool, pinned: list[DataFrame]
) -> CompiledUnit:
    refuse_reserved(schema.fieldNames(), " and ".join(unit.roots))
    own = [StructField(POSITION, LongType(), metadata=_OWN)] if positioned else []
    frame = spark.createDataFrame([], StructType([*schema.fields, *own]))
    functions: list[str] = []
    calls = 0
    identity = ""
    for transform in unit.chain:
        if not transform.deterministic:
            identity = fingerprint(frame) + code_hash(transform.function)  # its plan may differ every time
        with step_context(_context(0, 0, transform, unit, positioned=POSITION in frame.columns)):
            frame = check_row_wise(frame, transform.function, transform.name, transform.vouched)
        if (now := len(python_functions(frame))) > calls:
            functions.append(transform.name)
        calls = now
    positioned = POSITION in frame.columns
    if positioned:
        if frame.schema[POSITION].metadata != _OWN:  # an expression of the user's, which Spark gives no such mark
            refuse_reserved([POSITION], unit.chain[-1].name)
        frame = frame.drop(POSITION)
    pinned += pin_static_tables(frame)
    if unit.aggregate is not None:
        compiled = _compile_aggregate(unit, unit.aggregate, frame, positioned)
    else:
        identity = identity or fingerprint(frame)
        if unit.recomputation is not None:
            _check_takes_nothing_of_a_step(unit, frame)
            if unit.recomputation.policy.asks_rows:
                check_marks(unit.name, unit.recomputation.policy, frame)
            if isinstance(unit.recomputation, Recompute):
                identity += code_hash(unit.recomputation.function)  # its plan may differ every time
                frame = _recomputed(unit.recomputation, frame, 0, 0)
        refuse_maps(frame.schema, unit.name)
        arrow = _arrow(frame.schema, spark)
        output = arrow.append(pa.field(WEIGHT, pa.int64(), nullable=False)) if unit.changes_out else arrow
        compiled = CompiledUnit(unit, frame.schema, output, (), None, identity, positioned)
    refuse_reserved(compiled.schema.fieldNames(), unit.name)
    given = [*schema.fields, *own, *([StructField(WEIGHT, LongType())] if unit.changes_in else [])]
    compiled = compiled.with_shape(spark.createDataFrame([], StructType(given)))
    return replace(compiled, functions=tuple(functions) or (unit.name,), takes=tuple(schema.fieldNames()))


def _more_identity(unit: LinearUnit) -> dict[str, Any]:
    if unit.recomputation is not None:
        return {"batch": "everything" if unit.recomputation.rereads_source else "batch"}
    more: dict[str, Any] = {}
    if unit.union is not None:
        more["union"] = {"others": list(unit.union.reads[1:]), "as_they_come": isinstance(unit.union, Merge)}
    if not unit.repeats:
        more["repeats"] = False
    if unit.tables:
        more["tables"] = {table.name: {"reads": table.upstream, "keys": list(table.keys)} for table in unit.tables}
    return more


def _schema_of_rows(unit: LinearUnit, schemas: Mapping[str, StructType]) -> StructType:
    """Gives the columns of what a unit takes: of all of its roots the same, in whatever order."""
    first, *others = unit.roots
    wanted = {field.name: field.dataType for field in schemas[first].fields}
    for other in others:
        found = {field.name: field.dataType for field in schemas[other].fields}
        different = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        if different:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{unit.name} takes from {first} and {other}, which differ in {', '.join(different)}: give them the "
                "same columns of the "
                "same types",
            )
    fields = [
        _with_nullable(field, any(schemas[root][field.name].nullable for root in unit.roots))
        for field in schemas[first].fields
    ]
    return StructType(fields)


def _with_nullable(field: StructField, nullable: bool) -> StructField:
    return StructField(field.name, field.dataType, nullable, field.metadata)


def _check_takes_nothing_of_a_step(unit: LinearUnit, frame: DataFrame) -> None:
    if MARK in analysed_text(frame):
        raise InvalidError(
            "NOT_DETERMINISTIC",
            f"{unit.name} is recomputed from the rows of many steps at once, and a transform before it takes clock "
            "or chance from "
            "each: leave that out of what it reads",
        )


def _check_reads_everything(unit: LinearUnit, plan: Plan) -> None:
    (root,) = unit.roots
    source = plan.sources[root].source
    if source.capabilities.rescannable is None:
        raise InvalidError(
            "BAD_RECOMPUTATION",
            f"{unit.name} is recomputed from everything, and source {root} cannot be read again from the beginning: "
            "use "
            "over='batch'",
        )


def _compile_lookup(
    spark: SparkSession, unit: LinearUnit, schema: StructType, positioned: bool, program: CompiledProgram
) -> CompiledUnit:
    """Compiles a lookup as what comes before it, and what comes after it."""
    before = replace(unit, end=None, after=(), sinks=(), materialised=False)
    first = _compile(spark, before, schema, positioned, program.pinned)
    fields, tables = list(first.schema.fields), []
    for table in unit.tables:
        there = program.units[table.upstream]
        _check_table(unit, table, first.schema, there.schema)
        fields += [
            StructField(f"{table.name}_{field.name}", field.dataType)
            for field in there.schema.fields
            if field.name not in table.keys
        ]
        tables.append((table, there.output))
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidError(
            "SCHEMA_MISMATCH", f"{unit.name} has two columns {', '.join(twice)}: name its tables otherwise"
        )
    looked_up = StructType(fields)
    behind = replace(unit, chain=unit.after, end=None, after=())
    compiled = _compile(spark, behind, looked_up, False, program.pinned)
    return replace(
        compiled,
        fingerprint=first.fingerprint + compiled.fingerprint,
        libraries={**first.libraries, **compiled.libraries},
        functions=(*first.functions, *compiled.functions),
        apart=True,
        lookup=CompiledLookup(first, tuple(tables), looked_up),
    )


def _check_table(unit: LinearUnit, table: Table, rows: StructType, there: StructType) -> None:
    for key in table.keys:
        for schema, whose in ((rows, f"the input of {unit.name}"), (there, table.upstream)):
            if key in schema.fieldNames() and isinstance(
                schema[key].dataType, ArrayType | StructType | MapType | FloatType | DoubleType
            ):
                raise InvalidError(
                    "BAD_LOOKUP",
                    f"{unit.name} looks up {table.upstream} by {key}, a {schema[key].dataType.simpleString()} in "
                    f"{whose}: look up by "
                    "columns of whole numbers, text, dates or the like",
                )
            if key not in schema.fieldNames():
                raise InvalidError(
                    "SCHEMA_MISMATCH",
                    f"{unit.name} looks up {table.upstream} by {key}, which {whose} does not have: it has "
                    f"{', '.join(schema.fieldNames())}; both sides need the key's columns by the same names, so "
                    "rename one before",
                )
        if rows[key].dataType != there[key].dataType:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"{unit.name} looks up {table.upstream} by {key}, which is {rows[key].dataType.simpleString()} here "
                "and "
                f"{there[key].dataType.simpleString()} there: cast one of them",
            )


def _arrow(schema: StructType, spark: SparkSession) -> pa.Schema:
    """The schema that Spark hands to Python tasks, where a timestamp carries the session's time zone."""
    return to_arrow_schema(schema, timezone=spark.conf.get("spark.sql.session.timeZone"))


def _compile_aggregate(unit: LinearUnit, aggregate: Aggregate, frame: DataFrame, positioned: bool) -> CompiledUnit:
    missing = [key for key in aggregate.keys if key not in frame.columns]
    if missing:
        raise InvalidError(
            "SCHEMA_MISMATCH",
            f"{unit.name} groups by {', '.join(missing)}, which {aggregate.upstream} does not have: "
            f"it has {', '.join(frame.columns)}",
        )
    parsed = parse_aggregates(frame, aggregate.keys, aggregate.columns)
    keys = tuple(canonical_key(frame, key) for key in aggregate.keys)
    arguments = tuple(column.alias(name) for name, column in parsed.arguments)
    selected = frame.select(*keys, *arguments)
    arrow = _arrow(selected.schema, frame.sparkSession)
    layout = Layout(
        tuple((key, arrow.field(key).type) for key in aggregate.keys),
        tuple(
            AggregateColumn(spec.function, spec.argument, spec.output, spec.input_type, spec.output_type)
            for spec in parsed.aggregates
        ),
        null_on_overflow=str(frame.sparkSession.conf.get("spark.sql.ansi.enabled")).lower() == "false",
    )
    output_schema = StructType(
        [frame.schema[key] for key in aggregate.keys] + [StructField(s.output, s.spark_type) for s in parsed.aggregates]
    )
    output = _arrow(output_schema, frame.sparkSession).append(pa.field(WEIGHT, pa.int64(), nullable=False))
    return CompiledUnit(
        unit, output_schema, output, (*keys, *arguments), layout, fingerprint(selected) + parsed.fingerprint, positioned
    )


def _apply(unit: LinearUnit, rows: DataFrame, clock: int, seed: int, positioned: bool) -> DataFrame:
    for transform in unit.chain:
        with step_context(_context(clock, seed, transform, unit, positioned=positioned)):
            rows = apply(rows, transform.function, transform.name)
    return rows


def _context(clock: int, seed: int, transform: Transform, unit: LinearUnit, *, positioned: bool) -> StepContext:
    return StepContext(clock, seed, transform.name, positioned, unit.changes_in, not transform.deterministic)


def _recomputed(recomputation: Recompute, rows: DataFrame, clock: int, seed: int) -> DataFrame:
    with step_context(StepContext(clock, seed, recomputation.name, False, False, True)):
        return apply(rows, recomputation.function, recomputation.name)


def _on_changes(unit: LinearUnit, rows: DataFrame, clock: int, seed: int) -> DataFrame:
    """Applies transforms to changes: row-wise functions are linear, so they may see the rows of each weight alone."""
    sides = []
    for weight in (-1, 1):
        side = _apply(unit, rows.where(F.col(WEIGHT) == weight).drop(WEIGHT), clock, seed, False)
        sides.append(side.withColumn(WEIGHT, F.lit(weight).cast("long")))
    return sides[0].unionAll(sides[1])
