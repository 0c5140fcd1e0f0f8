"""The rows of a view from its state: those that its last node keeps, and what the query does row by row behind it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from boatlift.dataflow.columns import WEIGHT
from boatlift.kernels.network.network import Network, OutputCollector
from boatlift.kernels.network.rows_of_keys import NumberedNode
from boatlift.operators.view.frames import with_weight
from boatlift.spark.compile.operator import Columns, KeptRows
from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.flows import Flow, Linear, StageResult
from boatlift.views.query import Query
from boatlift.views.realise import StepFrames
from boatlift.views.view_job import ChannelInput, FrameInput, PlacedNode, ViewJob, all_of, channel_name


def kept_rows_of(columns: Columns, query: Query, jobs: Sequence[ViewJob]) -> KeptRows | None:
    """Return the rows that the state of a view has, if it has all that hold; else None.

    The last operator with a state has to keep its result, and to keep it for ever.
    """
    last = jobs[-1]
    result = last.result
    assert result is not None
    given = last.inputs[result.source] if result.source >= 0 else None
    if given is None:
        stage = last.nodes[-1 - result.source].stage
    elif isinstance(given, FrameInput):
        found = _only_stage(given.flow)
        if found is None or len(last.inputs) > 1:
            return None
        stage = found
    else:
        return None
    placed = next(each for job in jobs for each in job.nodes if each.stage == stage)
    if placed.expiries or len(placed.node.schemas) > 1:
        return None
    (whole,) = placed.node.schemas
    schema = ChannelInput(channel_name(stage), whole, tuple(range(len(whole)))).schema
    output = OutputCollector((all_of(0, schema),), schema)
    kernel = Network(columns.origin, (), (str(stage),), (placed.node,), ((),), {}, (), output)
    if not kernel.gives_rows:
        return None
    staged = with_weight(from_arrow_schema(schema))
    if given is None:
        made = partial(_chosen, result.columns, columns.names)
    else:
        made = partial(_applied, query, given, channel_name(stage), columns.names)
    key = tuple(f"c{place}" for place in _key(placed, query))
    return KeptRows(kernel, staged, made, key, hashed_by_spark=False)


def _key(placed: PlacedNode, query: Query) -> Sequence[int]:
    """Return the places of the columns by which a node's state is divided, among those of its result, if all are there.

    The stored rows of a node that numbers them are without the key, which may be a column of them.
    """
    if not isinstance(placed.node, NumberedNode):
        return placed.key or ()
    stage, emitted = query.stages[placed.stage], placed.node.numbering.columns
    own = items(stage.children[0].output())
    places = [at for key in stage.keys[0] for at, each in enumerate(own) if each.semanticEquals(key)]
    found = [emitted.index(place) for place in places if place in emitted]
    return found if len(found) == len(stage.keys[0]) else ()


def _only_stage(flow: Flow) -> int | None:
    match flow:
        case Linear(_, (below,)):
            return _only_stage(below)
        case StageResult(number):
            return number
        case _:
            return None


def _chosen(places: Sequence[int], names: Sequence[str], staged: DataFrame) -> DataFrame:
    return staged.select(*(f"c{place}" for place in places), WEIGHT).toDF(*names, WEIGHT)


def _applied(query: Query, given: FrameInput, channel: str, names: Sequence[str], staged: DataFrame) -> DataFrame:
    nodes = CatalystPlan(staged.sparkSession)
    frames = StepFrames(query, frozenset(), nodes, {}, frozenset({channel}), lambda *_: staged, first=False)
    frame = frames.of(given)
    assert frame is not None
    return frame.toDF(*names, WEIGHT)
