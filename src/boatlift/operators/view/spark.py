"""The view on Spark: Catalyst analyses and optimises the query, and its plan becomes stages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import xxhash
from pyspark.sql import DataFrame
from pyspark.sql.types import MapType, StringType, StructField, StructType, TimeType

from boatlift.dataflow.columns import OF, column_of
from boatlift.errors import InvalidError
from boatlift.operators.view.appending import AppendingSteps
from boatlift.operators.view.cuts import CurrentTimeCut, CutQuery, CutsFound
from boatlift.operators.view.frames import ViewFrames
from boatlift.operators.view.kept import kept_rows_of
from boatlift.operators.view.meeting import Meeting
from boatlift.operators.view.mutual import check_columns
from boatlift.operators.view.operator import View
from boatlift.operators.view.queried import queried
from boatlift.operators.view.steps import ViewSteps
from boatlift.operators.view.trial import refused_by_spark, try_stages
from boatlift.spark.compile.keyed import declared_columns
from boatlift.spark.compile.operator import Columns, Compiled, KeptRows, Kit, with_least_watermark
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.compile.united import compile_meeting
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.plan_cache import SmallStep
from boatlift.spark.jobs.steps import Empty, HasSteps
from boatlift.spark.plans.catalyst import analysed, items
from boatlift.spark.plans.column_rules import holds, in_sql, is_refused, type_refused
from boatlift.spark.plans.common_plan import NotRowByRowError
from boatlift.spark.plans.fingerprint import canonical_text, content_of, note_tables, written
from boatlift.spark.plans.watermarks import refusing_watermarks
from boatlift.storage.records.payloads import StepClock
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node
from boatlift.views.deterministic import check_deterministic
from boatlift.views.job_making import jobs_of, layout_of
from boatlift.views.joins import words
from boatlift.views.query import Query, QueryKit, loop_of, query_of
from boatlift.views.same_ids import same_ids
from boatlift.views.unique_keys import unique_keys
from boatlift.views.view_job import ViewJob, in_words, layout_lines


@dataclass(frozen=True, kw_only=True)
class CompiledView(Compiled, HasSteps):
    """A view, divided into stages.

    Attributes:
        query: The stages.
        jobs: The jobs of a step.
        nodes: Makes Catalyst nodes in the session of the program.
        result: The schema of the view's rows, as tasks see it.
    """

    opaque: ClassVar[bool] = True
    selects: ClassVar[bool] = True

    query: Query
    jobs: tuple[ViewJob, ...]
    nodes: CatalystPlan
    result: pa.Schema

    @property
    def layout(self) -> str:
        lines = "\n".join(line for job in self.jobs for line in layout_lines(job))
        return xxhash.xxh3_128_hexdigest(canonical_text("", lines).encode())

    @property
    def kept_rows(self) -> KeptRows | None:
        return kept_rows_of(self.columns, self.query, self.jobs)

    def frame(self, inputs: Sequence[DataFrame | None], clock: StepClock, state: Any) -> DataFrame:
        """Return an empty frame with the view's columns: the frames of a step are made stage by stage."""
        del inputs, clock, state
        return self.nodes.empty(self.columns.weighted_schema)

    def small_frames(self, unit: CompiledUnit, rows: Mapping[str, DataFrame], empty: Empty) -> Iterator[DataFrame]:
        frames = ViewFrames(unit, self.query, self.jobs, self.nodes)
        for number, job in enumerate(self.jobs, 1):
            try:
                frame = frames.small(job, SmallStep(rows, None, lambda _, columns: empty(columns)))
            except NotRowByRowError as error:
                raise NotRowByRowError(f"of its job {number}: {error}" if len(self.jobs) > 1 else str(error)) from error
            if frame is not None:
                yield frame

    def steps(self, unit: CompiledUnit, jobs: Jobs) -> ViewSteps:
        steps = AppendingSteps if self.query.only_appends else ViewSteps
        return steps(unit, jobs, self.query, self.jobs, self.nodes, self.result)


def compile_view(operator: View, inputs: Sequence[Columns], kit: Kit) -> CompiledView:
    """Compile a view.

    Raises:
        InvalidError: `[BAD_VIEW]` Spark does not understand the query; `[NOT_INCREMENTAL]`, `[SCHEMA_MISMATCH]`,
            `[TYPE_REFUSED]`.
        UserCodeError: `[USER_CODE]` the function raised.
        CutsFound: The query is to be cut.
    """
    with same_ids(kit.spark):
        return _compiled(operator, inputs, kit)


def _compiled(operator: View, inputs: Sequence[Columns], kit: Kit) -> CompiledView:
    nodes = CatalystPlan(kit.spark)
    leaves = [_leaf(columns, nodes) for columns in inputs]
    looped = _looped(operator, nodes)
    frames = dict(zip(operator.reads, leaves, strict=True))
    if looped is None:
        frame = _cut(operator, frames, nodes)
    else:
        with refusing_watermarks(looped, operator.name):
            frame = queried(operator.name, operator.query, {"": looped, **frames}, nodes)
        declared = [(field.name, field.dataType.simpleString()) for field in looped.schema.fields]
        check_columns(operator.name, declared, frame.schema)
    _refuse_maps_as_keys(nodes.without_ctes(nodes.analysed(frame)), operator.name)
    at_ticks = isinstance(operator.query, CutQuery) and operator.query.now is not None
    check_deterministic(frame, operator.name, deterministic=operator.deterministic_code, at_ticks=at_ticks)
    names = frame.columns
    if len({name.lower() for name in names}) < len(names):
        raise InvalidError("SCHEMA_MISMATCH", f"{operator.name} has two columns of one name: {', '.join(names)}")
    streams = {nodes.rdd_of(leaf): name for leaf, name in zip(leaves, operator.reads, strict=True)}
    plan = nodes.optimised(frame)
    schema_of = partial(_schema, kit, operator.name)
    growing = {name for name, columns in zip(operator.reads, inputs, strict=True) if not columns.changes}
    known = {nodes.rdd_of(leaf): columns.keys for leaf, columns in zip(leaves, inputs, strict=True)}
    query_kit = QueryKit(
        nodes,
        operator.name,
        streams,
        growing,
        _timed_columns(operator, inputs),
        schema_of,
        partial(layout_of, schema_of=schema_of, null_on_overflow=_conf(kit, "spark.sql.ansi.enabled") != "true"),
        int(_conf(kit, "spark.sql.cteRecursionLevelLimit")),
        known,
    )
    reads = dict(streams)
    schema = StructType([StructField(field.name, field.dataType) for field in frame.schema.fields])
    with refused_by_spark(f"the query of {operator.name}"):
        if operator.loop is None or looped is None:
            query = query_of(plan, query_kit)
        else:
            iterations = operator.loop.most_iterations
            query = loop_of(plan, nodes.rdd_of(looped), iterations, operator.loop.keep_every, query_kit)
            reads[nodes.rdd_of(looped)] = ""
        compared = not query.only_appends
        result = _result_schema(kit, operator.name, schema, compared=compared)
        jobs = tuple(jobs_of(query, nodes, operator.name, partial(schema_of, compared=compared)))
    rows = {name: frame.schema for name, frame in frames.items()}
    try_stages(query, jobs, rows, nodes, operator.name)
    keys = unique_keys(plan, nodes, known)
    columns = with_least_watermark(Columns(operator.name, schema, changes=True, keys=keys), inputs)
    bounded = None if query.bounded is None or not columns.has_watermark else names[query.bounded]
    return CompiledView(
        columns=replace(columns, watermark_column=bounded),
        fingerprint=_fingerprint(frame, jobs, reads, nodes),
        query=query,
        jobs=jobs,
        nodes=nodes,
        result=result,
        keys=None if query.only_appends else keys,
        compares=not query.only_appends,
        in_words=(*(in_words(job, query) for job in jobs[:-1]), in_words(jobs[-1], query) + _price_of_now(operator)),
    )


def _cut(operator: View, frames: Mapping[str, DataFrame], nodes: CatalystPlan) -> DataFrame:
    """Return the frame of a query.

    Raises:
        CutsFound: the query has calls or conditions about time, which need operators of their own.
    """
    if isinstance(operator.query, CutQuery):
        return operator.query(*frames.values())
    schemas = {name: frame.schema for name, frame in frames.items()}
    whole = CutQuery(operator.name, operator.query, schemas, now=operator.now)
    frame, cuts, reads = whole.cut(frames, nodes)
    if operator.now is not None and not any(isinstance(cut.does, CurrentTimeCut) for cut in cuts):
        check_deterministic(frame, operator.name, deterministic=operator.deterministic_code, at_ticks=True)
        raise InvalidError(
            "BAD_OPTION",
            f"{operator.name} says the period of now(), and its query has no now() that needs one: leave now= out",
        )
    if cuts:
        raise CutsFound(operator.name, cuts, reads, whole)
    return frame


def _price_of_now(operator: View) -> str:
    period = operator.query.now if isinstance(operator.query, CutQuery) else None
    return "" if period is None else f"; again for each row with now(), every {period / 10**6:g} seconds"


def _timed_columns(operator: View, inputs: Sequence[Columns]) -> dict[str, tuple[str, ...]]:
    """Return the streams with a watermark, each with the columns of its times."""
    streams = zip(operator.reads, inputs, strict=True)
    times = {name: (each.watermark_column, *each.further_times) for name, each in streams if each.has_watermark}
    known = {name: tuple(each for each in columns if each is not None) for name, columns in times.items()}
    return {name: columns for name, columns in known.items() if columns}


def _leaf(columns: Columns, nodes: CatalystPlan) -> DataFrame:
    """Return an empty frame that the optimiser cannot see into. Any value may be NULL, as in the rows that are read."""
    fields = [StructField(field.name, field.dataType) for field in columns.schema.fields]
    return nodes.empty(StructType(fields).toNullable())


def _looped(operator: View, nodes: CatalystPlan) -> DataFrame | None:
    """Return an empty frame in the place of the rows of an iteration; None if the view is no loop."""
    if operator.loop is None:
        return None
    schemas = {
        stream: declared_columns(operator.name, f"output {stream}".strip(), output)
        for stream, output in operator.loop.outputs
    }
    if "" in schemas:  # a row may have a NULL in any column, whatever is declared
        return nodes.empty(
            StructType([StructField(each.name, each.dataType) for each in schemas[""].fields]).toNullable()
        )
    fields = [
        StructField(column_of(stream, field.name), field.dataType)
        for stream, schema in schemas.items()
        for field in schema.fields
    ]
    return nodes.empty(StructType([StructField(OF, StringType()), *fields]).toNullable())


def _conf(kit: Kit, name: str) -> str:
    return str(kit.spark.conf.get(name)).lower()


def _schema(kit: Kit, view: str, columns: Sequence[Expression], *, compared: bool = True) -> pa.Schema:
    """Return the schema of columns, named by their place.

    Args:
        compared: Whether rows with these columns are kept or compared.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    fields: list[pa.Field] = []
    for place, column in enumerate(columns):
        field = StructField(f"c{place}", CatalystPlan.type_of(column))
        fields.append(_arrow_of(kit, view, field, partial(_in_sql, column), compared=compared))
    return pa.schema(fields)


def _result_schema(kit: Kit, view: str, schema: StructType, *, compared: bool) -> pa.Schema:
    """Return the schema of the view's rows, as `_schema` does."""
    return pa.schema(
        [_arrow_of(kit, view, each, partial(in_sql, each.name), compared=compared) for each in schema.fields]
    )


def _arrow_of(kit: Kit, view: str, field: StructField, expression: Callable[[], str], *, compared: bool) -> pa.Field:
    kind = field.dataType
    if is_refused(kind, compared=compared) or (compared and holds(kind, (TimeType,))):
        raise type_refused(expression(), kind, f"the query of {view}")
    try:
        return kit.arrow_of(StructType([field])).field(0)
    except InvalidError as error:
        raise type_refused(expression(), kind, f"the query of {view}") from error


def _in_sql(column: Expression) -> str:
    is_attribute = CatalystPlan.kind(column) == "AttributeReference"
    return in_sql(CatalystPlan.name_of(column)) if is_attribute else words([column])


def _refuse_maps_as_keys(plan: Node, view: str) -> None:
    """Refuse maps in GROUP BY: the optimiser puts columns of its own in their place, or fails at their keys.

    Raises:
        InvalidError: `[TYPE_REFUSED]`.
    """
    keys = items(plan.groupingExpressions()) if CatalystPlan.kind(plan) == "Aggregate" else []
    for key in keys:
        kind = CatalystPlan.type_of(key)
        if holds(kind, (MapType,)):
            raise type_refused(_in_sql(key), kind, f"the query of {view}")
    for below in (*CatalystPlan.children(plan), *items(plan.subqueries())):
        _refuse_maps_as_keys(below, view)


def _fingerprint(frame: DataFrame, jobs: Sequence[ViewJob], streams: dict[int, str], nodes: CatalystPlan) -> str:
    """Return a hash of a query: its text or plan, its streams and static rows, and the layout of its state.

    Args:
        frame: The query.
        jobs: Its jobs, whose kernel nodes keep the state.
        streams: The number of the RDD of each empty frame, to its stream; "" is a loop's rows.
        nodes: Reads nodes.
    """
    query = written(frame, analysed(frame), "\n".join(line for job in jobs for line in layout_lines(job)))
    leaves = nodes.leaves(nodes.analysed(frame))
    places = {name: place for place, name in enumerate(dict.fromkeys(["", *streams.values()]))}  # names may change
    found = [_read_by(leaf, streams, nodes) for leaf in leaves]
    reads = [None if read is None else places[read] for read in found]
    tables = [content_of(nodes.frame_of(leaf)) for leaf, read in zip(leaves, found, strict=True) if read is None]
    note_tables(tables)
    return xxhash.xxh3_128_hexdigest(json.dumps([query, reads, tables], sort_keys=True).encode())


def _read_by(leaf: Any, streams: dict[int, str], nodes: CatalystPlan) -> str | None:
    """Return the stream of a leaf, "" for rows of the query itself; None for a static table."""
    match nodes.kind(leaf):
        case "LogicalRDD":
            return streams.get(int(leaf.rdd().id()))
        case "CTERelationRef" | "UnionLoopRef":
            return ""
        case _:
            return None


COMPILERS = {View: compile_view, Meeting: compile_meeting}
