"""The jobs of a view's step: the input rows, the nodes that one task runs, and their output."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import pyarrow as pa

from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.network import Feed
from boatlift.kernels.network.node import Node
from boatlift.state.expiry import ExpiryColumn
from boatlift.views.bounds import Bound
from boatlift.views.catalyst_plan import CatalystPlan, Expression
from boatlift.views.flows import Flow, Form, Leaf, Linear
from boatlift.views.query import Query


def channel_name(stage: int, result: int = 0) -> str:
    """Return the name of the channel with a result of a stage's node."""
    return f"{stage}.{result}"


@dataclass(frozen=True, slots=True)
class FrameInput:
    """Input rows of a job that Spark computes."""

    flow: Flow
    columns: tuple[Expression, ...]
    """The columns, over the flow's result."""
    schema: pa.Schema
    """Their schema, named by position."""


@dataclass(frozen=True, slots=True)
class ChannelInput:
    """Input rows of a job that a node of an earlier job has written."""

    name: str
    whole: pa.Schema
    columns: tuple[int, ...]
    """The places of the columns that are read."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the columns that are read, named by position."""
        return pa.schema([self.whole.field(column).with_name(f"c{n}") for n, column in enumerate(self.columns)])


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node in a job."""

    stage: int
    node: Node
    feeds: tuple[Feed, ...]
    """Its inputs: a source from 0 on is an input of the job; −1 is the job's first node, −2 its second."""
    key: tuple[int, ...] | None = None
    """The columns of its result that contain the key by which tasks divide its rows; None if some are missing."""
    expiries: Mapping[str, tuple[ExpiryColumn, Bound]] = field(default_factory=dict)
    """Part of its state to the column by which its rows expire, and the bound that passes it."""


@dataclass(frozen=True, slots=True)
class ViewJob:
    """A job of a step."""

    inputs: tuple[FrameInput | ChannelInput, ...]
    nodes: tuple[PlacedNode, ...]
    """Its nodes, each after those that it reads."""
    leaves: tuple[int, ...] = ()
    """The stages whose results it writes for later jobs."""
    result: Feed | None = None
    """The columns of the view's result, in the job that emits it; see `PlacedNode.feeds`."""

    @property
    def reads_streams(self) -> bool:
        """Whether it reads rows of streams, and not only results of earlier jobs."""
        return any(isinstance(given, FrameInput) and _reads_streams(given.flow) for given in self.inputs)

    def apart(self) -> list[ViewJob]:
        """Return jobs of one node each, and one that emits the result, instead of this one."""
        jobs = []
        for placed in self.nodes:
            feeds = tuple(Feed(number, tuple(range(len(feed.columns)))) for number, feed in enumerate(placed.feeds))
            inputs = tuple(map(self._input, placed.feeds))
            jobs.append(ViewJob(inputs, (replace(placed, feeds=feeds),), leaves=(placed.stage,)))
        if self.result is not None and self._divided_by_result():
            last = jobs.pop()
            jobs.append(ViewJob(last.inputs, last.nodes, result=Feed(-1, self.result.columns)))
        elif self.result is not None:
            given = self._input(self.result)
            jobs.append(ViewJob((given,), (), result=all_of(0, given.schema)))
        return jobs

    def _divided_by_result(self) -> bool:
        """Return whether the last node's tasks can emit the result: equal rows have one key, so one task has them."""
        if not self.nodes or self.result is None or self.result.source != -len(self.nodes):
            return False
        key = self.nodes[-1].key
        return key is not None and set(key) <= set(self.result.columns)

    def _input(self, feed: Feed) -> FrameInput | ChannelInput:
        if feed.source >= 0:
            given = self.inputs[feed.source]
            assert feed.columns == tuple(range(len(given.schema))), "an input has the columns of its only reader"
            return given
        placed = self.nodes[-1 - feed.source]
        (schema,) = placed.node.schemas
        return ChannelInput(channel_name(placed.stage), schema, feed.columns)


def _reads_streams(flow: Flow) -> bool:
    match flow:
        case Leaf(read, _):
            return read is not None
        case Linear(_, inputs):
            return any(map(_reads_streams, inputs))
        case _:
            return False


def in_words(job: ViewJob, query: Query) -> str:
    """Return a description of a job for people: its stages, and whether it emits the result."""
    parts = []
    for placed in job.nodes:
        stage = query.stages[placed.stage]
        until = {CatalystPlan.name_of(each.column) for each in stage.expires if each is not None}
        if stage.sessions is not None:
            until = {"the end of their session"}
        some = "" if placed.expiries.keys() >= placed.node.parts.keys() else "some of it "
        ends = f", {some}until the watermark passes {', '.join(sorted(until))}" if placed.expiries else ""
        which = f"stage {placed.stage}: " if len(query.stages) > 1 else ""  # as `boatlift explain` names its state
        parts.append(f"{stage.place} ({which}{_KEPT[stage.form]}{ends})")
    if job.result is not None:
        parts.append("emit the change")
    return ", then ".join(parts)


def layout_lines(job: ViewJob) -> Iterator[str]:
    """Return the composition of the state of a job's nodes, line by line, with the ids of the input expressions.

    The names of processors and streams are left out: they may change while a state stays.
    """
    for given in job.inputs:
        if isinstance(given, ChannelInput):
            yield f"takes {given.columns} of {given.name}"
        else:
            yield f"takes {[str(column.toString()) for column in given.columns]} {given.schema.types}"
    for placed in job.nodes:
        node = placed.node
        if isinstance(node, LoopNode):  # these fields do not affect the state
            node = replace(node, most_iterations=0, keep_every=0.0)
        ends = [(part, placed.expiries[part][0]) for part in sorted(placed.expiries)]
        form = _IDENTITY_NAMES.sub(lambda name: _IN_IDENTITIES[name[0]], repr(_without_names(node)))
        yield f"{placed.stage} keeps {form} of {placed.feeds} by {placed.key} until {ends}"
    yield f"leaves {job.leaves}, hands out {job.result}"


def _without_names(part: Any) -> Any:
    """Return a part of a node without the texts that errors show."""
    if isinstance(part, tuple):
        return tuple(map(_without_names, part))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    given = {field.name: getattr(part, field.name) for field in fields(part) if field.init}
    return replace(part, **{name: "" if name in _NAMES else _without_names(each) for name, each in given.items()})


_NAMES = frozenset(("processor", "place"))

_IN_IDENTITIES = {
    "RecomputeKeysNode(": "TouchedNode(",
    "NumberedNode(": "FirstNode(",
    "TopNNode(": "FirstNode(",
    "most_iterations=": "most_rounds=",
    "Result.ALL_ITERATIONS": "Result.ALL_ROUNDS",
}
"""Names in the text of a node to the names in the identities that stores have recorded."""

_IDENTITY_NAMES = re.compile("|".join(map(re.escape, _IN_IDENTITIES)))

_KEPT = {
    Form.JOIN: "keeps both inputs by key",
    Form.OUTER: "keeps both inputs by key",
    Form.SEMI: "keeps the left input by key, and the keys of the right one",
    Form.NOT_IN: "keeps the left input by value, and the values of the right one",
    Form.DISTINCT: "keeps the rows",
    Form.AGGREGATE: "keeps exact sums by key",
    Form.FIRST: "keeps its input in order",
    Form.LOOP: "all iterations in one job: keeps the rows of its operators by iteration",
    Form.GENERAL: "recomputes changed keys: keeps its inputs by key",
}


def all_of(source: int, schema: pa.Schema) -> Feed:
    """Return a feed of all columns."""
    return Feed(source, tuple(range(len(schema))))
