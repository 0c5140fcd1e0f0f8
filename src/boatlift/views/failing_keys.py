"""Join keys and columns that fail beside an empty other side: no row has a partner there, whatever its key is.

Where the other side of a join is empty, Spark need not compute the rows of this one. A row whose key fails, or another
column if the join gives no rows without a partner, is taken with NULL for its key there: so it has no partner, now and
later. A row that goes is taken so beside any other side: it can only have come in this way.
"""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.kernels.network.join import JOIN_PARTS, KEYS, ROWS, keys_of
from boatlift.kernels.network.network import Feed
from boatlift.kernels.network.not_in import KINDS, VALUES
from boatlift.views.catalyst_plan import CatalystPlan, Expression
from boatlift.views.flows import Form, Linear
from boatlift.views.joins import JOIN_GIVES, SIDES_ALONE
from boatlift.views.never_fails import never_fails
from boatlift.views.query import Query, Stage
from boatlift.views.view_job import ChannelInput, FrameInput, PlacedNode, ViewJob

_PARTS = (
    frozenset({JOIN_PARTS[0], keys_of(0), ROWS}),
    frozenset({JOIN_PARTS[1], keys_of(1), KEYS, VALUES, KINDS}),
)
"""For each side of a join the parts of the state that its rows are in."""

_JOINS = frozenset({Form.JOIN, Form.OUTER, Form.SEMI, Form.NOT_IN})


@dataclass(frozen=True, slots=True)
class FailingInput:
    """An input of a job with columns that may fail, and that feeds a join."""

    number: int
    """The place of the input among those of the job."""
    given: FrameInput
    """The input, with the projections above its flow as columns."""
    keys: frozenset[int]
    """The places of the join's keys."""
    failing: frozenset[int]
    """The places of the columns that may fail, and may be NULL then."""
    node: PlacedNode
    """The node of the join."""
    partners: tuple[FrameInput | ChannelInput, ...] | None
    """The inputs of the job from which the other side's rows are made; None: it may have rows without input."""
    parts: frozenset[str]
    """The parts of the node's state with the other side's rows."""

    def tried(self, weight: Expression, nodes: CatalystPlan, *, also_coming: bool) -> list[Expression]:
        """Return the columns, without a key and a failure where one fails: in rows that go, or also in coming ones."""
        columns = self.given.columns
        tried = nodes.tried([columns[place] for place in sorted(self.failing)])
        made = list(columns)
        for place in self.keys | self.failing:
            value = nodes.only_if(nodes.negated(nodes.is_null(tried)), columns[place])
            made[place] = value if also_coming else nodes.if_negative(weight, value, columns[place])
        return made


def failing_inputs(job: ViewJob, query: Query, nodes: CatalystPlan) -> tuple[FailingInput, ...]:
    """Return the inputs of a job's joins with columns that may fail."""
    found = []
    for placed in job.nodes:
        stage = query.stages[placed.stage]
        for side, (feed, keys) in enumerate(zip(placed.feeds, stage.keys, strict=True)) if stage.form in _JOINS else ():
            given = job.inputs[feed.source] if feed.source >= 0 else None
            if not isinstance(given, FrameInput):
                continue
            own = frozenset(n for n, each in enumerate(given.columns) if any(map(each.semanticEquals, keys)))
            flat = _flat(given, nodes)
            failing = frozenset(n for n, each in enumerate(flat.columns) if not never_fails(each, nodes))
            if _gives_alone(stage, side, nodes):
                failing &= own
            if failing:
                parts = _PARTS[1 - side] & placed.node.parts.keys()
                found.append(
                    FailingInput(feed.source, flat, own, failing, placed, _made_of(placed.feeds[1 - side], job), parts)
                )
    return tuple(found)


def _made_of(feed: Feed, job: ViewJob) -> tuple[FrameInput | ChannelInput, ...] | None:
    if feed.source >= 0:
        return (job.inputs[feed.source],)
    placed = job.nodes[-1 - feed.source]
    below = [_made_of(each, job) for each in placed.feeds]
    if placed.node.whole or None in below:
        return None
    return tuple(given for each in below for given in each or ())


def _flat(given: FrameInput, nodes: CatalystPlan) -> FrameInput:
    flow, columns = given.flow, list(given.columns)
    while isinstance(flow, Linear) and nodes.kind(flow.node) == "Project":
        values = nodes.columns_of(flow.node)
        columns = [nodes.replaced(column, values) for column in columns]
        (flow,) = flow.inputs
    return FrameInput(flow, tuple(columns), given.schema)


def _gives_alone(stage: Stage, side: int, nodes: CatalystPlan) -> bool:
    """Return whether a join gives rows of a side that have no partner."""
    how = nodes.join_type(stage.nodes[0])
    if stage.form in (Form.JOIN, Form.OUTER):
        return SIDES_ALONE[how][side]
    return side == 0 and JOIN_GIVES[how] != "matched"
