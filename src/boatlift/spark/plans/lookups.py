"""Queries that ask tables for some keys: the keys in Spark's optimised plan, and the plan over rows at hand.

A table is in the plan as a leaf without rows. Where the filter above a leaf gives each key column values by literals,
rows with other keys cannot pass the filter. So the leaf may have the rows of these keys alone, whatever the rest of the
plan does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from boatlift.spark.plans.catalyst import Package, frame_of, items, java_session, jvm, module, optimised_plan_of
from boatlift.spark.plans.common_plan import kind_of, scala_seq

MOST_KEYS = 100
"""A query for more keys than this reads the whole table, which costs less than so many calls of the JVM."""

_LEAVES = frozenset({"LocalRelation", "OneRowRelation", "Range"})
"""Other leaves of a plan than tables: a session may have older files of any other one."""

Literals = tuple[Any, ...]
"""A key: the JVM's literal for each of its columns."""


class NoLookupError(Exception):
    """A query needs whole tables."""


@dataclass(frozen=True, slots=True)
class AskedTable:
    """A table that a query may ask for keys.

    Attributes:
        key: The columns of the key.
        columns: All columns.
        look: Returns the rows of some keys, and perhaps of others.
    """

    key: tuple[str, ...]
    columns: StructType
    look: Callable[[Sequence[Literals]], Sequence[pa.RecordBatch]]


class Lookups:
    """Queries of a session over tables of which some keys are asked."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._session = spark, java_session(spark)
        java = jvm()
        catalyst = java.org.apache.spark.sql.catalyst
        self._expressions = Package(catalyst.expressions)
        self._local = catalyst.plans.logical.LocalRelation
        self._none = java.scala.Option.empty()
        self._literal = module("org.apache.spark.sql.catalyst.expressions.Literal")
        self._converters = module("org.apache.spark.sql.execution.arrow.ArrowConverters")
        self._subquery = module("org.apache.spark.sql.catalyst.trees.TreePattern").PLAN_EXPRESSION()

    def placeholder(self, columns: StructType) -> tuple[DataFrame, int]:
        """Return a frame that stands for the rows of a table, and its number; a job that reads it fails."""
        raising = self._spark.sql("SELECT raise_error('a table of a query was not given its rows') AS row")
        rows = raising._jdf.queryExecution().toRdd()
        frame = self._session.internalCreateDataFrame(rows, self._session.parseDataType(columns.json()), False)
        return DataFrame(frame, self._spark), int(rows.id())

    def result(self, asked: DataFrame, tables: Mapping[int, AskedTable]) -> pa.Table:
        """Return the result of a query that asks its tables for some keys.

        Args:
            asked: The query, over frames by `placeholder`.
            tables: The number of each frame to its table.

        Raises:
            NoLookupError: the query needs a whole table, or its result depends on the division of rows among tasks.
            pyspark.errors.PySparkException: The query fails on a row.
        """
        plan = optimised_plan_of(asked)
        if plan.containsPattern(self._subquery) or not plan.deterministic():
            raise NoLookupError
        frame = frame_of(self._spark, self._with_rows(plan, tables))
        executed = frame._jdf.queryExecution().executedPlan()
        if kind_of(executed) != "LocalTableScanExec":
            return frame.toArrow()
        large = str(self._spark.conf.get("spark.sql.execution.arrow.useLargeVarTypes")) == "true"
        schema = to_arrow_schema(
            frame.schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC", prefers_large_types=large
        )
        found = [each.cast(schema) for each in self._arrow(executed.rows(), executed.schema(), large=large)]
        return pa.concat_tables([schema.empty_table(), *found])

    def spark_hashes(self, key: Literals) -> tuple[int, int]:
        """Return `hash` and `xxhash64` of a key, which are equal for 0.0 and −0.0, and for all NaNs."""
        values = scala_seq(list(key))
        first, second = self._expressions.Murmur3Hash(values), self._expressions.XxHash64(values)
        return int(first.eval(None)), int(second.eval(None))

    def rows_of(self, keys: Sequence[Literals]) -> pa.Table:
        """Return keys as rows, whose columns are named by their place."""
        named = [[part for at, each in enumerate(key) for part in (self._literal.apply(str(at)), each)] for key in keys]
        structs = [self._expressions.CreateNamedStruct(scala_seq(each)) for each in named]
        rows = scala_seq([each.eval(None) for each in structs])
        return pa.concat_tables(self._arrow(rows, structs[0].dataType(), large=False))

    def _with_rows(self, plan: Any, tables: Mapping[int, AskedTable]) -> Any:
        kind = kind_of(plan)
        if kind == "Filter" and kind_of(leaf := plan.child()) == "LogicalRDD":
            table = tables.get(int(leaf.rdd().id()))
            if table is None:
                raise NoLookupError
            rows = table.look(self._keys(plan.condition(), table.key))
            return plan.withNewChildren(scala_seq([self._with_local_rows(leaf, table.columns, rows)]))
        children = [self._with_rows(child, tables) for child in items(plan.children())]
        if kind == "Sample" or not (children or kind in _LEAVES):
            raise NoLookupError
        return plan.withNewChildren(scala_seq(children)) if children else plan

    def _with_local_rows(self, leaf: Any, columns: StructType, rows: Sequence[pa.RecordBatch]) -> Any:
        batches = scala_seq([each.serialize().to_pybytes() for each in rows]).iterator()
        given = self._converters.toDataFrame(batches, columns.json(), self._session).queryExecution().analyzed()
        if kind_of(given) != "LocalRelation":  # more bytes than Spark keeps in a plan
            raise NoLookupError
        return self._local(leaf.output(), given.data(), False, self._none)

    def _keys(self, condition: Any, key: Sequence[str]) -> list[Literals]:
        """Return the keys that rows may have which fulfil a condition.

        Raises:
            NoLookupError: a column of the key may have any value, or there are too many keys.
        """
        found: dict[str, list[Any]] = {}
        for each in _conjuncts(condition):
            column, values = self._values(each)
            if column not in found or len(values) < len(found[column]):
                found[column] = values
        if not all(column in found for column in key) or prod(len(found[column]) for column in key) > MOST_KEYS:
            raise NoLookupError
        return list(product(*(found[column] for column in key)))

    def _values(self, condition: Any) -> tuple[str, list[Any]]:
        """Return the column to which a condition leaves some values, and these; "" for any other condition."""
        kind = kind_of(condition)
        if kind in ("EqualTo", "EqualNullSafe"):
            sides = [condition.left(), condition.right()]
            sides.sort(key=lambda side: kind_of(side) == "Literal")
            return _only(sides[0], sides[1:])
        if kind == "In":
            return _only(condition.value(), items(condition.list()))
        if kind == "IsNull":
            column = condition.child()
            return _only(column, [self._literal.create(None, column.dataType())])
        if kind == "Not":
            return _only(condition.child(), [self._literal.FalseLiteral()])
        return _only(condition, [self._literal.TrueLiteral()])

    def _arrow(self, rows: Any, schema: Any, *, large: bool) -> list[pa.Table]:
        """Return rows of the JVM as Arrow, as Spark gives them to Python."""
        most = 1 << 30
        made = self._converters.toBatchWithSchemaIterator(rows.iterator(), schema, most, most, "UTC", True, large)
        tables = []
        while made.hasNext():
            tables.append(pa.ipc.open_stream(bytes(made.next())).read_all())
        return tables


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind_of(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition


def _only(column: Any, values: list[Any]) -> tuple[str, list[Any]]:
    """Return the name of a column and values, if that is what they are."""
    if kind_of(column) != "AttributeReference" or any(kind_of(each) != "Literal" for each in values):
        return "", []
    return str(column.name()), values
