"""Nodes of Catalyst's with Python UDFs, as calls in the sink task of a long-running job."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from boatlift.spark.plans.catalyst import items, jvm, pickled_function
from boatlift.spark.plans.common_plan import NotRowByRowError, kind_of
from boatlift.tasks.python_calls import PythonCall, PythonCalls


def calls_of(node: Any, spark: SparkSession) -> tuple[PythonCalls, list[Any]]:
    """Return the calls of an `ArrowEvalPython` node, and the expressions of all arguments.

    Args:
        spark: The session of the plan.

    Raises:
        NotRowByRowError: a function has a broadcast variable, which only a worker of its own gets.
    """
    arguments: list[Any] = []
    calls: list[PythonCall] = []
    for outermost in items(node.udfs()):
        functions, udf = [outermost], outermost
        while (inner := items(udf.children())) and len(inner) == 1 and kind_of(inner[0]) == "PythonUDF":
            (udf,) = inner
            functions.insert(0, udf)
        if any(each.func().broadcastVars().size() for each in functions):
            raise NotRowByRowError("it has a function in Python with a broadcast variable")
        places: list[int] = []
        named: list[tuple[str, int]] = []
        for each in items(udf.children()):
            if kind_of(each) == "NamedArgumentExpression":
                named.append((str(each.key()), len(arguments)))
                arguments.append(each.value())
            else:
                places.append(len(arguments))
                arguments.append(each)
        calls.append(PythonCall(tuple(map(pickled_function, functions)), tuple(places), tuple(named)))
    given, made = (
        StructType([field_of(f"_{place}", each) for place, each in enumerate(columns)])
        for columns in (arguments, items(node.resultAttrs()))
    )
    results = to_arrow_schema(made, timezone=spark.conf.get("spark.sql.session.timeZone"))
    return PythonCalls(int(node.evalType()), tuple(calls), _settings(spark), given.json(), results), arguments


def _settings(spark: SparkSession) -> tuple[tuple[str, str], ...]:
    """Return the settings that Spark hands to the workers of such functions."""
    runner = jvm().org.apache.spark.sql.execution.python.ArrowPythonRunner
    settings = spark._jsparkSession.sessionState().conf()  # noqa: SLF001
    lines = str(runner.getPythonRunnerConfMap(settings).mkString("\n")).splitlines()
    pairs = (line.partition(" -> ") for line in lines)
    return tuple(sorted((name, value) for name, _, value in pairs))


def field_of(name: str, expression: Any) -> StructField:
    """Return a column with the type of an expression."""
    return StructField(name, _parse_datatype_json_string(str(expression.dataType().json())))
