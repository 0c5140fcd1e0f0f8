"""`boatlift look`: the rows that a step takes from its sources, printed."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from boatlift.api.by_value import pickle_by_value
from boatlift.api.dataflow import Dataflow
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import BAD_ROW, Json, Source, plan
from boatlift.runtime.inspect.source_steps import is_of_a_query, source_steps
from boatlift.spark.compile.program import compile_program
from boatlift.spark.jobs.set_aside import fitting


def show_rows(
    begin: Callable[[], SparkSession],
    flow: Dataflow,
    store: str,
    processor: str,
    time: int,
    *,
    at_most: int,
    as_json: bool,
) -> None:
    """Read the rows again at the place that the log names, and print them.

    Args:
        begin: Returns the session; it is called once the step is known to be in the log.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such step, or it takes no rows from a source.
        DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]` the rows have changed.
    """
    pickle_by_value(flow)
    planned = plan(flow)
    if is_of_a_query(planned, store, processor):
        planned = compile_program(begin(), planned, ON_SPARK).plan
    for step in source_steps(planned, store, processor, time):
        frame, dead_letters = _rows_of(planned.sources[step.source].source, begin(), step.position)
        if as_json:
            whole = F.to_json(F.struct("*"), {"ignoreNullFields": "false"})
            for shown in (frame, dead_letters):
                for (row,) in () if shown is None else shown.limit(at_most).select(whole).collect():
                    print(row)
            continue
        print(f"{step.source}, step {step.step}:")
        frame.show(at_most, truncate=False)
        if dead_letters is not None and not dead_letters.isEmpty():
            print(f"{step.source}, step {step.step}, bad rows:")
            dead_letters.show(at_most, truncate=False)


def _rows_of(source: Source, spark: SparkSession, position: Json) -> tuple[DataFrame, DataFrame | None]:
    """Return the rows of a position, and the dead letters of its bad rows if the source can tell them apart."""
    sorts = source.capabilities.bad_rows
    if sorts is None or source.describe().get("bad_rows") == "dead_letters":
        return source.load(spark, position), None
    sorting = sorts.sorting_out()
    assert sorting.capabilities.bad_rows is not None, "see SortsOutBadRows"
    rows = sorting.load(spark, position)
    return fitting(rows), sorting.capabilities.bad_rows.dead_letters(rows.where(F.col(BAD_ROW).isNotNull()))
