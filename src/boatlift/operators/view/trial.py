"""The plans of a view's stages, tried without rows before anything runs.

Spark optimises a query whole, and at each step its stages one by one. A trial plans the stages and binds their columns.
So a stage that Spark refuses is an error before the first step; no job runs over rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from pyspark.sql.types import LongType, StructField, StructType

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import BoatliftError, InternalError
from boatlift.processes.jvm import death_of_jvm
from boatlift.spark.jobs.diagnosis import first_line
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.flows import Flow, Leaf, Linear
from boatlift.views.query import Query
from boatlift.views.realise import StepFrames
from boatlift.views.view_job import FrameInput, ViewJob, channel_name, in_words


@contextmanager
def refused_by_spark(what: str) -> Iterator[None]:
    """Raise an error of Spark's as a fault of Boatlift's plan (`[PLAN_REFUSED]`)."""
    try:
        yield
    except BoatliftError:
        raise
    except Exception as error:
        message = f"Boatlift has no plan that Spark takes for {what}: {first_line(error)}"
        raise death_of_jvm(error) or InternalError("PLAN_REFUSED", message) from error


def try_stages(
    query: Query, jobs: Sequence[ViewJob], streams: Mapping[str, StructType], nodes: CatalystPlan, view: str
) -> None:
    """Let Spark plan the stages of a view, and raise `[PLAN_REFUSED]` if it refuses one of them."""
    placed = [each for job in jobs for each in job.nodes]
    general = frozenset(each.stage for each in placed if len(each.node.schemas) > 1)
    results = (2 * len(each.inputs) if each.number in general else 1 for each in query.stages)
    channels = frozenset(channel_name(stage, place) for stage, count in enumerate(results) for place in range(count))
    rows = {name: nodes.empty(_weighted(schema)) for name, schema in streams.items()}

    static = any(stage.whole for stage in query.stages) or any(
        isinstance(given, FrameInput) and _is_static(given.flow) for job in jobs for given in job.inputs
    )
    for first in (False, True) if static else (False,):
        frames = StepFrames(
            query, general, nodes, rows, channels, lambda _, columns: nodes.empty(_weighted(columns)), first
        )
        for job in jobs:
            with refused_by_spark(f"the part of {view} that is to {in_words(job, query)}"):
                for given in job.inputs:
                    frame = frames.of(given)
                    if frame is not None:
                        frame._jdf.queryExecution().toRdd()


def _weighted(schema: StructType) -> StructType:
    return StructType([*schema.fields, StructField(WEIGHT, LongType())])


def _is_static(flow: Flow) -> bool:
    match flow:
        case Leaf(read, _):
            return read is None
        case Linear(_, inputs):
            return any(map(_is_static, inputs))
        case _:
            return False
