"""Advice for users of Spark: what to write instead of methods of a DataFrame that streams lack.

In the tables, code is between backticks; `{here}` is the stream (or the dataflow), `{keys}` the columns it is grouped
by, and `{other}` another stream. The tests execute all of it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import NoReturn

from boatlift.errors import InvalidError


class AttributeInvalidError(InvalidError, AttributeError):
    """`[NOT_ON_A_STREAM]`, and an AttributeError, so that `hasattr`, `copy` and `inspect` find no attribute."""


def _row_wise(code: str) -> str:
    return f'`{{here}}.transform("name", lambda df: {code})`'


_KEYED = '`{here}.group_by("k").agg("name", F.sum("x").alias("total"))`'
_COUNTED = '`{here}.group_by("k").agg("name", F.count("*").alias("n"))`'
_BATCH = (
    "a table of everything, computed anew now and then: "
    '`{here}.recompute("name", lambda df: df.orderBy(F.desc("x")).limit(10), policy=bl.Batch(epochs=10))`'
)
_TIMELY = '`{here}.with_watermark("timely", "t", "10 minutes")`'
_WINDOW = (
    'windows among the keys: `{here}.group_by(bl.window("t", "1 hour"), "k").agg("hours", F.count("*").alias("n"))`; '
    'each once: `{here}.with_watermark("timely", "t", "10 minutes").group_by(bl.window("t", "1 hour"), "k")'
    '.agg("hours", F.count("*").alias("n"), emit="final")`'
)
_WHOLE = '`{here}.agg("name", F.count("*").alias("n"))`'
_REDUCED = (
    'the aggregates of each step by itself: `{here}.group_by("k").reduce("name", F.sum("x").alias("total"))`; '
    'of all rows: `{here}.agg("name", F.sum("x").alias("total"))`'
)
_DISTINCT = '`{here}.group_by("k", "x").agg("name", F.count("*").alias("n"))`, which has one row for each of them'
_FIRST = (
    'the first row of a key: `{here}.drop_duplicates("first", ["k"])`; within a time: '
    '`{here}.with_watermark("timely", "t", "10 minutes").drop_duplicates("first", ["k"], within="10 minutes")`'
)
_SINK = '`{here}.sink("name", bl.parquet("folder"))`'
_LOOK = (
    'rows are there once the dataflow has run: `{here}.sink("name", bl.parquet("folder"))`, then '
    '`bl.run(flow, store="store", available_now=True)`, then `spark.read.parquet("folder")`'
)
_RUN = 'a dataflow runs as a whole: `bl.run(flow, store="store", available_now=True)`, or the command boatlift run'
_LOOKUP = (
    'a view keeps the join of all rows of both: `flow.sql("joined", "SELECT k, {here}.x, {other}.x AS y FROM '
    '{here} JOIN {other} USING (k)")`; '
    'for a table that does not change `{here}.transform("name", lambda df: '
    'df.join(df.sparkSession.read.parquet("table"), "k"))`; for what another stream holds now '
    '`{here}.lookup("name", newest={other}.group_by("k").agg("newest", F.max("x").alias("x")).by("k"))`'
)
_PROCESS = (
    'a function of a key, its new rows and its state: `{here}.group_by({keys}).process("name", '
    'lambda key, rows, state, context: [(len(rows),)], output="n LONG")`'
)
_UNION = '`{here}.union("name", {other})`, or, as rows come, `{here}.merge("name", {other})`'
_SAMPLE = _row_wise("df.where(bl.rand() < 0.1)")
_UDF = '`{here}.transform("name", lambda df: df.withColumn("y", F.udf(abs, "double")("x")), deterministic=True)`'
_COLUMNS = "names and types, where a session is active: `{here}.columns()`"
_KEPT = 'a policy says what is made durable: `{here}.transform("name", lambda df: df, policy=bl.Eager())`'
_DIVIDED = "leave it out, Boatlift divides the rows of a step among the slots that there are"

OF_STREAM: Mapping[str, str] = {
    **dict.fromkeys(("where", "filter"), _row_wise('df.where("x > 0")')),
    "select": _row_wise('df.select("k", "x")'),
    "selectExpr": _row_wise('df.selectExpr("k", "x * 2 AS y")'),
    "withColumn": _row_wise('df.withColumn("y", F.col("x") * 2)'),
    "withColumns": _row_wise('df.withColumns(dict(y=F.col("x") * 2))'),
    "withColumnRenamed": _row_wise('df.withColumnRenamed("x", "y")'),
    "withColumnsRenamed": _row_wise('df.withColumnsRenamed(dict(x="y"))'),
    "toDF": _row_wise('df.withColumnRenamed("x", "y")'),
    "drop": _row_wise('df.drop("x")'),
    **dict.fromkeys(("dropna", "na"), _row_wise('df.dropna(subset=["x"])')),
    "fillna": _row_wise('df.fillna(0, subset=["x"])'),
    "replace": _row_wise('df.replace("a", "b", subset=["kind"])'),
    "alias": _row_wise('df.alias("a").select("a.k")'),
    **dict.fromkeys(("explode", "flatMap"), _row_wise('df.withColumn("word", F.explode(F.split("kind", " ")))')),
    **dict.fromkeys(("map", "apply", "pipe", "foreach", "rdd", "mapInPandas", "mapInArrow"), _UDF),
    **dict.fromkeys(("sample", "randomSplit"), _SAMPLE),
    **dict.fromkeys(("join", "crossJoin", "lateralJoin"), _LOOKUP),
    **dict.fromkeys(("unionAll", "unionByName"), _UNION),
    **dict.fromkeys(("groupBy", "groupby", "rollup", "cube", "groupByKey", "key_by"), _KEYED),
    **dict.fromkeys(("count", "sum", "avg", "mean", "min", "max"), _WHOLE),
    "reduce": _REDUCED,
    "distinct": _DISTINCT,
    **dict.fromkeys(("dropDuplicates", "dropDuplicatesWithinWatermark"), _FIRST),
    "withWatermark": _TIMELY,
    "window": _WINDOW,
    **dict.fromkeys(
        ("orderBy", "sort", "limit", "offset", "sortWithinPartitions", "describe", "summary", "pivot"), _BATCH
    ),
    **dict.fromkeys(("intersect", "intersectAll", "subtract", "exceptAll"), _LOOKUP),
    **dict.fromkeys(("write", "writeStream", "writeTo", "foreachBatch", "foreachPartition", "to_sink"), _SINK),
    **dict.fromkeys(
        (
            "show",
            "collect",
            "toPandas",
            "toArrow",
            "toJSON",
            "toLocalIterator",
            "take",
            "head",
            "first",
            "tail",
            "isEmpty",
        ),
        _LOOK,
    ),
    **dict.fromkeys(("run", "start", "awaitTermination", "execute"), _RUN),
    **dict.fromkeys(("schema", "dtypes", "printSchema"), _COLUMNS),
    **dict.fromkeys(
        ("createTempView", "createOrReplaceTempView", "sql"), _row_wise('df.selectExpr("k", "x * 2 AS y")')
    ),
    **dict.fromkeys(("cache", "persist", "checkpoint", "localCheckpoint"), _KEPT),
    **dict.fromkeys(("repartition", "coalesce", "repartitionByRange", "hint"), _DIVIDED),
}
"""Advice by the name of a missing attribute of a stream."""


def _kept(column: str) -> str:
    return f'`{{here}}.group_by({{keys}}).agg("name", {column})`'


OF_GROUPED: Mapping[str, str] = {
    "count": _kept('F.count("*").alias("n")'),
    "sum": _kept('F.sum("x").alias("total")'),
    **dict.fromkeys(("avg", "mean"), _kept('F.avg("x").alias("mean")')),
    "min": _kept('F.min("x").alias("least")'),
    "max": _kept('F.max("x").alias("greatest")'),
    "pivot": "one aggregate a value: " + _kept('F.sum(F.when(F.col("kind") == "a", F.col("x"))).alias("a")'),
    **dict.fromkeys(
        ("transformWithState", "transformWithStateInPandas", "applyInPandasWithState"),
        _PROCESS + "; a StatefulProcessor of PySpark: transform_with_state, or transform_with_state_in_pandas",
    ),
    **dict.fromkeys(
        ("apply", "applyInPandas", "applyInArrow"),
        _PROCESS + "; a table of everything, computed anew now and then: "
        '`{here}.recompute("name", lambda df: df.groupBy({keys}).agg(F.expr("percentile(x, 0.5) AS median")), '
        "policy=bl.Batch(epochs=10))`, where df has all of Spark, applyInPandas too",
    ),
    "cogroup": "a lookup of what another stream holds now: "
    '`{here}.lookup("name", newest={other}.group_by({keys}).agg("newest", F.max("x").alias("x")).by({keys}))`',
    **dict.fromkeys(
        ("transform", "sink", "where", "filter", "select", "withColumn", "having"),
        "the aggregates first: " + _kept('F.count("*").alias("n")') + ", which is a stream",
    ),
}
"""Advice by the name of a missing attribute of a grouped stream."""

OF_DATAFLOW: Mapping[str, str] = {
    **dict.fromkeys(("run", "start", "execute", "awaitTermination"), _RUN.replace("(flow,", "({here},")),
    **dict.fromkeys(
        ("read", "readStream", "load", "add_source"),
        '`{here}.source("name", bl.files("folder/*.csv", schema="k LONG, x DOUBLE"))`',
    ),
    **dict.fromkeys(
        ("transform", "group_by", "groupBy", "sink", "where", "select"),
        'a stream has it, and a stream begins at a source: `{here}.source("name", bl.files("folder/*.csv", schema="k '
        'LONG, x DOUBLE"))`',
    ),
}
"""Advice by the name of a missing attribute of a dataflow."""

_FRAME_NAMES = frozenset({"_jdf", "_jrdd", "_plan"})  # attributes that Spark reads from a DataFrame


def advise(owner: object, name: str, table: Mapping[str, str], here: str, keys: tuple[str, ...] = ()) -> NoReturn:
    """Raise the error for a missing attribute of a stream, a grouped stream or a dataflow.

    Args:
        here: The name of the stream or dataflow in the code of the advice.
        keys: The columns of a grouped stream.

    Raises:
        AttributeInvalidError: `[NOT_ON_A_STREAM]` the table has the name, or Spark takes the object for a DataFrame.
        AttributeError: any other name; the text suggests a similar one.
    """
    kind = type(owner).__name__
    written = {"here": _variable(here), "keys": ", ".join(f'"{key}"' for key in keys), "other": "other"}
    if name in _FRAME_NAMES:
        raise AttributeInvalidError(
            "NOT_ON_A_STREAM", f"{here} is a {kind}, used where Spark takes a DataFrame: {of_two('stream', here)}"
        )
    if name in table:
        raise AttributeInvalidError("NOT_ON_A_STREAM", f"a {kind} has no {name}: {_filled(table[name], written)}")
    known = [each for each in dir(type(owner)) if not each.startswith("_")]
    like = [] if name.startswith("_") else difflib.get_close_matches(name, [*known, *table], 1)
    hint = f": is {like[0]} meant?" if like else ""
    if like and like[0] in table:
        hint += f" a {kind} has no {like[0]} either: {_filled(table[like[0]], written)}"
    raise AttributeError(f"{kind!r} object has no attribute {name!r}{hint}", name=name, obj=None)


def used_as_frame(captured: str, processor: str, upstream: str) -> InvalidError:
    """Return the error for a function of a processor over `upstream` that uses the stream `captured`."""
    return InvalidError(
        "NOT_ON_A_STREAM",
        f"the function of {processor} uses the stream {captured}, but can use only the rows of its own step and static "
        f"tables: {of_two(upstream, captured)}",
    )


def of_two(here: str, other: str) -> str:
    """Return the advice for combining a stream with another one."""
    written = {"here": _variable(here), "other": _variable(other, "other")}
    return f"{_filled(_LOOKUP, written)}; for the rows of both {_filled(_UNION, written).removeprefix('write ')}"


def _variable(name: str, otherwise: str = "stream") -> str:
    """Return the likely name of a stream's variable in the user's code."""
    return name if name.isidentifier() else otherwise


def _filled(advice: str, written: Mapping[str, str]) -> str:
    for name, value in written.items():
        advice = advice.replace("{" + name + "}", value)
    return f"write {advice}" if advice.startswith("`") else advice


def column_advice(call: str, key: object, here: str) -> InvalidError:
    """Return the error for a key that is no column name.

    Args:
        call: `group_by` or `by`.
        key: The argument: a Column, a list, …
        here: The stream's name.
    """
    variable = _variable(here)
    if isinstance(key, list | tuple):
        names = ", ".join(f'"{each}"' for each in key)
        return InvalidError("NOT_ON_A_STREAM", f"{call} takes names one by one: write `{variable}.{call}({names})`")
    text = re.sub(r"^Column<'(.*)'>$", r"\1", str(key), flags=re.DOTALL)
    if re.fullmatch(r"[\w.]+", text):
        return InvalidError("NOT_ON_A_STREAM", f'{call} takes names of columns: write `{variable}.{call}("{text}")`')
    window = re.match(r"window\((\w+), '([^']+)', '([^']+)', ", text)
    if window is not None and call == "group_by":
        column, length, slide = window.groups()
        made = ", ".join(f'"{each}"' for each in (column, length, *([] if slide == length else [slide])))
        return InvalidError(
            "NOT_ON_A_STREAM", f"windows are made by bl.window: write `{variable}.{call}(bl.window({made}))`"
        )
    if window is not None and window[2] == window[3]:
        name, made = "start", f'F.window("{window[1]}", "{window[2]}").start'
        why = "a window is no key, its start is"
    else:
        named = re.fullmatch(r"(.*) AS `?(\w+)`?", text, flags=re.DOTALL)
        name = named[2] if named else "key"
        made = "…"
        why = f"{named[1] if named else text} is an expression, to be computed in a transform"
    return InvalidError(
        "NOT_ON_A_STREAM",
        f'{call} takes names of columns, and {why}: write `{variable}.transform("keyed", lambda df: '
        f'df.withColumn("{name}", {made})).{call}("{name}")`',
    )
