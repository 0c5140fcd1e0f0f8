"""The frame of a view's query, over the frames of its streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from boatlift.dataflow.columns import quoted
from boatlift.errors import InvalidError
from boatlift.spark.plans.clock import dated
from boatlift.spark.plans.row_wise import apply
from boatlift.spark.plans.watermarks import refuse_watermark_of_sql
from boatlift.views.catalyst_plan import CatalystPlan


def queried(
    name: str, query: str | Callable[..., DataFrame], frames: Mapping[str, DataFrame], nodes: CatalystPlan
) -> DataFrame:
    """Return the frame of a query, in which a text without a date is no timestamp.

    Args:
        query: SQL over streams as tables; or a function of the frames, in their order.

    Raises:
        InvalidError: `[BAD_VIEW]` Spark does not understand the query; `[NOT_ON_A_STREAM]` it says WATERMARK.
        UserCodeError: `[USER_CODE]` the function raised.
    """
    if not isinstance(query, str):
        first, *others = frames.values()
        return apply(first, lambda rows: query(rows, *others), name)
    spark = nodes.spark
    with ExitStack() as views:
        for stream, leaf in frames.items():
            if nodes.has_temporary_view(stream):
                raise InvalidError(
                    "BAD_VIEW",
                    f"{name} reads {stream}, which is a stream, and a temporary view of this session too: give one of "
                    "them another name",
                )
            leaf.createOrReplaceTempView(quoted(stream))
            views.callback(spark.catalog.dropTempView, stream)
        try:
            if nodes.says_watermark(query):
                refuse_watermark_of_sql(name)
            return dated(spark.sql(query))
        except AnalysisException as error:  # ParseException is one of these
            missing = "TABLE_OR_VIEW_NOT_FOUND" in str(error.getCondition())
            hint = f" (the streams that it was found to read: {', '.join(frames)})" if missing else ""
            said = str(error).split("\n\nJVM stacktrace")[0].partition(";\n")[0].strip()  # without the plan
            said = said.partition("\n")[0] if "TABLE_OR_VIEW_NOT_FOUND" in said else said
            raise InvalidError("BAD_VIEW", f"{name}: {said}{hint}") from error
