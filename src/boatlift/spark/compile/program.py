"""A dataflow, compiled: with its schemas, its checked functions and the hashes of its plans.

Compiling runs the user's functions on empty frames. The resulting plans are checked against the allow-list
(`plans/row_wise.py`) and hashed (`plans/fingerprint.py`). Names, options, schemas and hashes of all processors are the
program's identity; how the dataflow is divided into units is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from boatlift.dataflow import Operator, Plan, Unit
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.identity import OwnState, identity_of
from boatlift.errors import InvalidError
from boatlift.processes.jvm import unless_gone
from boatlift.spark.compile.operator import Columns, Compiled, Compiler, Kit, OtherOperators
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.plans.as_written import as_written
from boatlift.spark.plans.column_rules import check_sink_key, refuse_reserved, refuse_types
from boatlift.spark.plans.fingerprint import reaching


@dataclass(frozen=True, slots=True)
class Registry:
    """The operators that Spark can execute.

    Attributes:
        operators: The class of an operator to its compiler.
        rewritten: Returns the plan with other operators in the place of one that needs them.
    """

    operators: Mapping[type[Operator], Compiler]
    rewritten: Callable[[Plan, OtherOperators], Plan]


@dataclass(frozen=True, slots=True)
class CompiledProgram:
    """A compiled dataflow.

    Attributes:
        plan: The dataflow.
        units: Its units by name.
        identity: The program's identity: a store accepts an equal one alone.
        kit: The parts of the session that compiling used.
    """

    plan: Plan
    units: dict[str, CompiledUnit]
    identity: dict[str, Any]
    kit: Kit

    @property
    def queries(self) -> dict[str, tuple[str, ...]]:
        """Operator to the jobs of its steps, in words, of each operator with a query."""
        compiled = {name: each for unit in self.units.values() for name, each in unit.operators.items()}
        return {name: each.in_words for name, each in compiled.items() if each.in_words}

    def with_ends(self, plan: Plan) -> CompiledProgram:
        """Return the same operators, compiled already, between other sources and sinks of the same rows.

        Static tables stay this program's.

        Args:
            plan: The plan with these sources and sinks.
        """
        units = {name: replace(each, unit=plan.units[name]) for name, each in self.units.items()}
        return CompiledProgram(plan, units, self.identity, Kit(self.kit.spark))

    def close(self) -> None:
        """Release static tables."""
        for table in self.kit.pinned:
            with unless_gone():
                table.unpersist()


def compile_program(spark: SparkSession, plan: Plan, registry: Registry) -> CompiledProgram:
    """Compile all units of a dataflow; in the resulting plan other operators may replace a view.

    Raises:
        InvalidError: a transform is not row-wise, an aggregate is not supported, a column is missing.
        UserCodeError: a function of the program raised.
    """
    while True:
        program = CompiledProgram(plan, {}, {}, Kit(spark))
        try:
            _compile_units(program, registry)
        except OtherOperators as asked:
            program.close()
            plan = registry.rewritten(plan, asked)
        except BaseException:
            program.close()
            raise
        else:
            return program


def _compile_units(program: CompiledProgram, registry: Registry) -> None:
    plan, kit = program.plan, program.kit
    given: dict[str, Columns] = {}
    schemas, plans, states = dict[str, str](), dict[str, str](), dict[str, OwnState]()
    layouts, texts = dict[str, str](), dict[str, str]()
    for name, processor in plan.sources.items():
        source = processor.source
        given[name] = Columns(name, source.schema(kit.spark), positioned=source.positioned)
    for name, unit in plan.units.items():
        if unit.rereads_source:
            _check_rereads(unit, plan)
        program.units[name] = compiled = _compile(unit, plan, given, registry, kit, texts)
        columns = compiled.columns
        given[name] = replace(columns, of_step=False)
        refuse_types(columns.schema, name, compared=unit.materialised or compiled.top is None or compiled.top.compares)
        refuse_reserved(_names(columns, plan), name)
        keys = None if compiled.top is None else compiled.top.keys
        for sink in unit.sinks:
            check_sink_key(sink, name, columns.schema, plan.rows_of(name).unique, keys)
        for name_of_operator, operator in compiled.operators.items():
            schemas.setdefault(name_of_operator, operator.columns.schema.simpleString())
            plans.setdefault(name_of_operator, operator.fingerprint)
            layouts.setdefault(name_of_operator, operator.layout)
            if operator.own_state is not None:
                states.setdefault(name_of_operator, operator.own_state)
    program.identity.update(identity_of(plan, schemas, plans, states, texts, layouts))


def _compile(
    unit: Unit, plan: Plan, given: Mapping[str, Columns], registry: Registry, kit: Kit, texts: dict[str, str]
) -> CompiledUnit:
    leaves = {name: given[name] for name in unit.reads}
    for name, columns in leaves.items():
        refuse_reserved(_names(columns, plan), name)
    here, operators = dict(leaves), dict[str, Compiled]()
    for operator in unit.operators:
        inputs = [here[read] for read in operator.reads]
        with reaching() as reached:
            operators[operator.name] = made = registry.operators[type(operator)](operator, inputs, kit)
        texts.setdefault(operator.name, "" if reached.tables else as_written(operator, reached.functions))
        here[operator.name] = made.columns
    return CompiledUnit.of(unit, leaves, operators, plan.rows_of(unit.name).unique, kit)


def _names(columns: Columns, plan: Plan) -> list[str]:
    """Return the columns whose names must not be reserved: `_weight` may be, where all readers read weights."""
    if columns.partials:
        return []  # only the aggregate reads them
    readers = [each for unit in plan.units.values() for each in unit.operators if columns.origin in each.reads]
    weights = bool(readers) and all(each.reads_weights for each in readers)
    return [name for name in columns.names if not (weights and name == WEIGHT)]


def _check_rereads(unit: Unit, plan: Plan) -> None:
    for read in unit.reads:
        if plan.sources[read].source.capabilities.rescannable is None:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{unit.name} is recomputed from everything, and source {read} cannot be read again from the "
                "beginning: use over='batch'",
            )
