"""Makes the jobs of a view: stages become nodes, and one task may run several of them.

A node can read the result of another one in the same task if only columns are between them. So an expression over the
columns of a join is computed before the join, on the side that has its columns: Spark computes the rows of a job's
input, and nodes pass columns on. An expression that may fail is computed behind the join, because rows without a
partner are not in the result.

A step with many rows has several tasks, which divide rows by the key of one node. Then each node gets a job of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from boatlift.errors import InvalidError
from boatlift.kernels.aggregate import AggregateColumn, AggregateNode, Layout
from boatlift.kernels.aggregate.node import COUNTS, PARTIALS, DistinctNode
from boatlift.kernels.aggregate.single_values import distinct_part, part_of
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.join import JOIN_PARTS, KEYS, ROWS, JoinNode, OuterJoinNode, SemiJoinNode, keys_of
from boatlift.kernels.network.network import Feed
from boatlift.kernels.network.node import Node
from boatlift.kernels.network.not_in import NotInNode
from boatlift.kernels.network.rows_of_keys import (
    FIRST_ROWS,
    SESSION_ROWS,
    NumberedNode,
    RecomputeKeysNode,
    SessionsNode,
    TopNNode,
)
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side
from boatlift.state.expiry import ExpiryColumn
from boatlift.views.aggregates import KeptAggregates, KeptFunction
from boatlift.views.bounds import Bound
from boatlift.views.catalyst_plan import CatalystPlan, Expression
from boatlift.views.flows import Flow, Form, Linear, SchemaOf, StageResult, named_schema
from boatlift.views.joins import JOIN_GIVES, SIDES_ALONE
from boatlift.views.never_fails import never_fails
from boatlift.views.query import Query, Stage
from boatlift.views.view_job import FrameInput, PlacedNode, ViewJob, all_of


def layout_of(
    keys: Sequence[Expression],
    functions: Sequence[KeptFunction],
    grows: bool,
    *,
    schema_of: SchemaOf,
    null_on_overflow: bool,
) -> KeptAggregates | None:
    """Return the kernel's layout of an aggregate; None if the kernel does not support one of its types.

    Args:
        grows: Whether its input is append-only.
        null_on_overflow: Whether a sum that overflows is NULL, as without ANSI.
    """
    arguments: list[tuple[Expression, bool]] = []
    aggregates = []
    try:
        results = schema_of([each.result for each in functions]).types
        for number, (each, result) in enumerate(zip(functions, results, strict=True)):
            name, kind = None, None
            if each.argument is not None:
                name, kind = f"a{_place_of(each, arguments)}", schema_of([each.argument]).field(0).type
            aggregates.append(AggregateColumn(each.name, name, f"f{number}", kind, result, each.distinct))
        named = tuple((f"k{place}", kind) for place, kind in enumerate(schema_of(keys).types))
        layout = Layout(
            named, tuple(aggregates), null_on_overflow=null_on_overflow, weighted=True, grows=grows, ordered=True
        )
    except InvalidError:
        return None
    return KeptAggregates(layout, tuple(argument for argument, _ in arguments))


def _place_of(function: KeptFunction, arguments: list[tuple[Expression, bool]]) -> int:
    """Return the place of a function's argument in a list, to which a new argument is appended."""
    for place, (argument, distinct) in enumerate(arguments):
        if distinct == function.distinct and argument.semanticEquals(function.argument):
            return place
    arguments.append((function.argument, function.distinct))
    return len(arguments) - 1


def jobs_of(query: Query, nodes: CatalystPlan, view: str, schema_of: SchemaOf) -> list[ViewJob]:
    """Return the jobs of a query's steps, in the order in which they run; the last one emits the result."""
    making, job = _JobMaking(query, nodes, view, schema_of), _Job()
    result = making.feed(job, query.result, nodes.output(query.node))
    return [*making.jobs, job.done(result=result)]


@dataclass(slots=True)
class _Job:
    inputs: list[FrameInput] = field(default_factory=list)
    nodes: list[PlacedNode] = field(default_factory=list)

    def place(
        self,
        stage: Stage,
        node: Node,
        feeds: Sequence[Feed],
        key: Sequence[int] | None = None,
        expiries: Mapping[str, tuple[ExpiryColumn, Bound]] | None = None,
    ) -> int:
        places = None if key is None else tuple(key)
        own = {part: each for part, each in (expiries or {}).items() if part in node.parts}
        self.nodes.append(PlacedNode(stage.number, node, tuple(feeds), places, own))
        return -len(self.nodes)

    def done(self, leaves: tuple[int, ...] = (), result: Feed | None = None) -> ViewJob:
        return ViewJob(tuple(self.inputs), tuple(self.nodes), leaves, result)


class _JobMaking:
    def __init__(self, query: Query, nodes: CatalystPlan, view: str, schema_of: SchemaOf) -> None:
        self._query, self._nodes, self._view, self._schema_of = query, nodes, view, schema_of
        self._named = partial(named_schema, schema_of=schema_of)
        self._never_fails = partial(never_fails, nodes=nodes)
        self.jobs: list[ViewJob] = []

    def feed(self, job: _Job, flow: Flow, columns: Sequence[Expression]) -> Feed:
        """Return the feed with columns over a flow: a node of this job, or an input that Spark computes."""
        found = self._kernel(flow, columns)
        if found is not None:
            return self._kernel_feed(job, *found)
        self._jobs_before(flow)
        job.inputs.append(FrameInput(flow, tuple(columns), self._schema_of(columns)))
        return all_of(len(job.inputs) - 1, job.inputs[-1].schema)

    def _kernel(self, flow: Flow, columns: Sequence[Expression]) -> tuple[Stage, list[Expression]] | None:
        """Return the stage whose kernel can compute columns, and these over its result; None if Spark computes them."""
        match flow:
            case StageResult(number):
                stage = self._query.stages[number]
                return (stage, list(columns)) if self._gives(stage, columns) else None
            case Linear(node, (below,)) if self._nodes.kind(node) == "Project":
                values = self._nodes.columns_of(node)
                return self._kernel(below, [self._nodes.replaced(column, values) for column in columns])
            case _:
                return None

    def _gives(self, stage: Stage, columns: Sequence[Expression]) -> bool:
        """Return whether a stage's kernel can compute columns over its result."""
        if not all(map(self._never_fails, columns)):
            return False
        match stage.form:
            case Form.GENERAL | Form.FIRST:
                return False
            case Form.JOIN:
                if stage.condition is not None:
                    return False
                sides = [set(map(self._nodes.id, self._nodes.output(child))) for child in stage.children]
                return all(any(self._nodes.references(each) <= side for side in sides) for each in columns)
            case Form.SEMI | Form.NOT_IN:
                return all(self._of_left(stage, each) or self._is_existence(stage, each) for each in columns)
            case _:  # a column over the NULLs of an outer join may have another value than NULL
                return all(self._nodes.kind(each) == "AttributeReference" for each in columns)

    def _of_left(self, stage: Stage, column: Expression) -> bool:
        """Return whether a column is computed from the left side of a join only."""
        return self._nodes.references(column) <= set(map(self._nodes.id, self._nodes.output(stage.children[0])))

    def _is_existence(self, stage: Stage, column: Expression) -> bool:
        """Return whether a column is the one that an existence join adds."""
        added = len(stage.output) > len(self._nodes.output(stage.children[0]))
        return added and column.semanticEquals(stage.output[-1])

    def _kernel_feed(self, job: _Job, stage: Stage, columns: Sequence[Expression]) -> Feed:
        if stage.form in (Form.JOIN, Form.OUTER):
            return self._join(job, stage, columns)
        if stage.form in (Form.SEMI, Form.NOT_IN):
            return self._semi(job, stage, columns)
        place = (self._loop if stage.form is Form.LOOP else self._simple)(job, stage)
        places = {self._nodes.id(attribute): at for at, attribute in enumerate(stage.output)}
        return Feed(place, tuple(places[self._nodes.id(column)] for column in columns))

    def _loop(self, job: _Job, stage: Stage) -> int:
        body = stage.loop
        assert body is not None
        feeds = [self.feed(job, each.flow, each.columns) for each in body.inputs]
        node = LoopNode(self._view, stage.place, body.circuit, body.result, body.most_iterations, body.keep_every)
        return job.place(stage, node, feeds, range(len(stage.output)))

    def _simple(self, job: _Job, stage: Stage) -> int:
        feed = self.feed(job, stage.inputs[0], [*stage.keys[0], *stage.arguments])
        if stage.layout is not None:
            names = tuple(self._named(stage.keys[0]).names)
            expires, keys = stage.expires[0], enumerate(stage.keys[0])
            expiring = None  # the place of the key column by which the state expires
            if expires is not None:
                expiring = next(at for at, key in keys if key.semanticEquals(expires.column))
            aggregate = AggregateNode(self._view, stage.layout, names, expiring)
            columns = dict.fromkeys((*map(distinct_part, stage.layout.distinct), PARTIALS), (0, stage.keys[0]))
            if expiring is not None:
                for pair in stage.layout.first_values:
                    columns[part_of(pair)] = 0, (stage.arguments[pair[1]], stage.keys[0][expiring])
            return job.place(stage, aggregate, [feed], range(len(names)), _expiries(stage, columns))
        schema = self._named(stage.keys[0])
        node = DistinctNode(self._view, stage.place, schema)
        return job.place(stage, node, [feed], range(len(schema)), _expiries(stage, {COUNTS: (0, stage.keys[0])}))

    def _join(self, job: _Job, stage: Stage, columns: Sequence[Expression]) -> Feed:
        """Place the node of a join with these columns, each of which one side can compute."""
        of_left = [self._of_left(stage, column) for column in columns]
        alone = SIDES_ALONE[self._nodes.join_type(stage.nodes[0])]
        sides: list[Side] = []
        feeds: list[Feed] = []
        places: dict[int, int] = {}
        key: dict[int, int] = {}
        rows: dict[str, tuple[int, Sequence[Expression]]] = {}
        for number, keys in enumerate(stage.keys):
            mine = [at for at, left in enumerate(of_left) if left == (number == 0)]
            wanted = [columns[at] for at in mine]
            taken, found = _without_doubles([*wanted, *keys])
            kept = sorted(set(found[: len(mine)]))
            first = len(sides[0].kept) if sides else 0
            places |= {at: first + kept.index(place) for at, place in zip(mine, found, strict=False)}
            for at, place in enumerate(found[len(mine) :]):
                if place in kept and not alone[1 - number]:  # a row without a partner would have NULL there
                    key.setdefault(at, first + kept.index(place))
            rows |= {JOIN_PARTS[number]: (number, taken), keys_of(number): (number, keys)}
            feeds.append(self.feed(job, stage.inputs[number], taken))
            sides.append(Side(ArrangementCodec(self._named(taken)), tuple(found[len(mine) :]), tuple(kept)))
        key_places = tuple(key.values()) if len(key) == len(stage.keys[0]) else None
        left, right = sides
        node: Node = JoinNode(self._view, stage.place, left, right)
        if any(alone):
            node = OuterJoinNode(self._view, stage.place, (left, right), alone)
        place = job.place(stage, node, feeds, key_places, _expiries(stage, rows))
        return Feed(place, tuple(places[at] for at in range(len(columns))))

    def _semi(self, job: _Job, stage: Stage, columns: Sequence[Expression]) -> Feed:
        """Place the node of a semi, anti or existence join with these columns of the left side."""
        own = [column for column in columns if not self._is_existence(stage, column)]
        taken, found = _without_doubles([*own, *stage.keys[0]])
        kept = sorted(set(found[: len(own)]))
        keys = tuple(found[len(own) :])
        left = Side(ArrangementCodec(self._named(taken)), keys, tuple(kept))
        feeds = [self.feed(job, stage.inputs[0], taken), self.feed(job, stage.inputs[1], stage.keys[1])]
        partners = self._named(stage.keys[1])
        gives = JOIN_GIVES[self._nodes.join_type(stage.nodes[0])]
        node: Node = SemiJoinNode(self._view, stage.place, left, partners, gives)
        key_places = tuple(kept.index(place) for place in keys) if set(keys) <= set(kept) else None
        if stage.form is Form.NOT_IN:
            node, key_places = NotInNode(self._view, stage.place, left, partners), ()
        rows = {ROWS: (0, taken), KEYS: (1, stage.keys[1])}
        place = job.place(stage, node, feeds, key_places, _expiries(stage, rows))
        places = iter(found)
        wanted = [len(kept) if self._is_existence(stage, each) else kept.index(next(places)) for each in columns]
        return Feed(place, tuple(wanted))

    def _jobs_before(self, flow: Flow) -> None:
        """Make the jobs that write the results that a flow reads."""
        match flow:
            case Linear(_, inputs):
                for each in inputs:
                    self._jobs_before(each)
            case StageResult(number):
                self._job_of(self._query.stages[number])

    def _job_of(self, stage: Stage) -> None:
        job = _Job()
        if stage.form is Form.GENERAL:
            self._touched(job, stage)
        elif stage.form is Form.FIRST:
            self._first(job, stage)
        elif stage.form in (Form.JOIN, Form.OUTER):
            self._join(job, stage, stage.output)
        elif stage.form in (Form.SEMI, Form.NOT_IN):
            self._semi(job, stage, stage.output)
        elif stage.form is Form.LOOP:
            self._loop(job, stage)
        else:
            self._simple(job, stage)
        self.jobs.append(job.done(leaves=(stage.number,)))

    def _touched(self, job: _Job, stage: Stage) -> None:
        rows, feeds, kept = [], [], {}
        for number, (child, flow, keys) in enumerate(zip(stage.children, stage.inputs, stage.keys, strict=True)):
            own = self._nodes.output(child)
            feeds.append(self.feed(job, flow, [*own, *keys]))
            rows.append(self._named(own))
            kept[str(number)] = (number, own)
        session, key_count = stage.sessions, len(stage.keys[0])
        if session is None:
            node = RecomputeKeysNode(self._view, stage.place, tuple(rows), key_count)
            job.place(stage, node, feeds, expiries=_expiries(stage, kept))
            return
        own = self._nodes.output(stage.children[0])
        place = next(at for at, each in enumerate(own) if each.semanticEquals(session.column))
        until = ExpiryColumn("rows", len(own), later=1), session.bound
        sessions = SessionsNode(self._view, stage.place, rows[0], key_count, place)
        job.place(stage, sessions, feeds[:1], expiries={SESSION_ROWS: until})

    def _first(self, job: _Job, stage: Stage) -> None:
        (child,), (flow,), (keys,) = stage.children, stage.inputs, stage.keys
        own = self._nodes.output(child)
        assert stage.first is not None
        column, order = stage.first.order
        feed = self.feed(job, flow, [*own, *keys, column])
        rows = self._named(own)
        given = self._view, stage.place, rows, len(keys), order, stage.first.rows, stage.grows
        numbering = stage.first.numbering
        node = TopNNode(*given) if numbering is None else NumberedNode(*given, numbering=numbering)
        job.place(stage, node, [feed], expiries=_expiries(stage, {FIRST_ROWS: (0, own)}))


def _expiries(
    stage: Stage, parts: Mapping[str, tuple[int, Sequence[Expression]]]
) -> dict[str, tuple[ExpiryColumn, Bound]]:
    """Return for each part whose rows expire the column with the time of expiry, and the bound that passes it.

    The parts are given with the input whose rows they have, and their columns (the keys, for partial aggregates).
    """
    made = {}
    for part, (number, columns) in parts.items():
        expires = stage.expires[number]
        if expires is not None:
            places = (at for at, each in enumerate(columns) if each.semanticEquals(expires.column))
            place = next(places, None)
            if place is not None:
                of: Literal["keys", "rows"] = "keys" if part == PARTIALS else "rows"
                made[part] = ExpiryColumn(of, place, later=1, field=expires.field), expires.bound
    return made


def _without_doubles(columns: Sequence[Expression]) -> tuple[list[Expression], list[int]]:
    """Return columns without duplicates, and the place of each given column among these."""
    kept: list[Expression] = []
    places = []
    for column in columns:
        found = next((place for place, each in enumerate(kept) if each.semanticEquals(column)), None)
        if found is None:
            found = len(kept)
            kept.append(column)
        places.append(found)
    return kept, places
