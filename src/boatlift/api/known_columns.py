"""The columns of streams, and queries over them, while a program is being written and a session is active."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from boatlift.connectors import foreach
from boatlift.dataflow.plan import Plan, replanned
from boatlift.dataflow.processors import Processor, SinkSpec, SourceSpec
from boatlift.errors import InvalidError
from boatlift.operators.view.operator import View
from boatlift.processes.on_demand import begun_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from boatlift.api.dataflow import Dataflow

_LOOK = "columns_of_"  # the begin of the name of the sink behind a stream whose columns are asked for


def columns_of(flow: Dataflow, stream: str) -> dict[str, str]:
    """Return the names of a stream's columns and their types, as Spark writes them; its inputs are compiled for that.

    Raises:
        InvalidError: `[NO_SESSION]`; or an error of a processor before it, as `bl.run` raises it.
        UserCodeError: `[USER_CODE]` a function of such a processor raised.
    """
    spark = begun_session()
    if spark is None:
        raise InvalidError(
            "NO_SESSION", f"Spark alone knows the columns of {stream}: write spark = bl.session() before you ask"
        )
    from boatlift.api.by_value import pickle_by_value
    from boatlift.api.registry import ON_SPARK
    from boatlift.spark.compile.program import compile_program

    pickle_by_value(flow)  # PySpark pickles a UDF once, and keeps that for the run
    before = {stream}
    for name, processor in reversed([*flow.processors.items()]):
        if name in before:
            before.update(processor.reads)
    part = {name: each for name, each in flow.processors.items() if name in before}
    sink = f"{_LOOK}{stream}"
    part[sink] = SinkSpec(sink, stream, foreach(_nothing))
    program = compile_program(spark, replanned(Plan(flow.name, {}, {}, {}, {}, {}), part), ON_SPARK)
    try:
        columns = program.units[program.plan.unit_of_sink(sink).name].columns
        return {field.name: field.dataType.simpleString() for field in columns.schema.fields}
    finally:
        program.close()


def check_query(view: View, processors: Mapping[str, Processor]) -> None:
    """Let Spark analyse a new query in SQL, if there is a session, and if it reads sources and such views.

    The columns of all other streams are known when they are compiled.

    Raises:
        InvalidError: `[BAD_VIEW]` Spark does not understand it.
    """
    spark = begun_session()
    if spark is None or not _is_plain(view, processors):
        return
    from pyspark.sql.types import StructType

    from boatlift.operators.view.queried import queried
    from boatlift.views.catalyst_plan import CatalystPlan

    nodes, schemas = CatalystPlan(spark), dict[str, StructType]()

    def schema_of(name: str) -> StructType:
        if name not in schemas:
            read = processors[name]
            schemas[name] = read.source.schema(spark) if isinstance(read, SourceSpec) else analysed(read).schema
        return schemas[name]

    def analysed(processor: Processor) -> DataFrame:
        assert isinstance(processor, View), "_is_plain lets no other pass"
        frames = {name: nodes.empty(schema_of(name)) for name in processor.reads}
        return queried(processor.name, processor.query, frames, nodes)

    analysed(view)


def _is_plain(view: View, processors: Mapping[str, Processor]) -> bool:
    """Return whether a view is SQL over sources, and over such views."""
    return isinstance(view.query, str) and all(
        isinstance(read, SourceSpec) or (isinstance(read, View) and _is_plain(read, processors))
        for read in (processors[name] for name in view.reads)
    )


def _nothing(rows: object, step: int) -> None:
    """The function of a sink whose steps never run."""
