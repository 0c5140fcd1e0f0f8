"""A plan with gaps, made once and filled with the rows of sources at each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from boatlift.dataflow.columns import WEIGHT
from boatlift.views.catalyst_plan import CatalystPlan, Expression, Node


@dataclass(frozen=True, slots=True)
class _Gap:
    source: str
    columns: tuple[tuple[str, Expression], ...]
    """The name of each column of the gap, and the id of its attribute."""


@dataclass(frozen=True, slots=True)
class _Branch:
    node: Node
    children: tuple[_Branch | _Gap | Node, ...]


class Template:
    """A plan whose leaves may be gaps.

    Args:
        gaps: The RDD number of each empty frame that represents a source, to the source.
    """

    def __init__(self, frame: DataFrame, gaps: Mapping[int, str], nodes: CatalystPlan) -> None:
        self._nodes, self._gaps = nodes, gaps
        self._root = self._read(nodes.analysed(frame))

    @property
    def has_gaps(self) -> bool:
        return isinstance(self._root, _Branch | _Gap)

    def filled(self, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Return the plan with rows in its gaps.

        Args:
            frames: Source to its rows; a row without `_weight` counts once.
        """
        return self._nodes.frame_of(self._fill(self._root, frames))

    def _read(self, node: Node) -> _Branch | _Gap | Node:
        """Read a node; nodes without gaps below are kept whole."""
        if self._nodes.kind(node) == "LogicalRDD" and (source := self._gaps.get(int(node.rdd().id()))):
            return _Gap(source, tuple((each.name(), each.exprId()) for each in self._nodes.output(node)))
        children = tuple(map(self._read, self._nodes.children(node)))
        return _Branch(node, children) if any(isinstance(each, _Branch | _Gap) for each in children) else node

    def _fill(self, place: _Branch | _Gap | Node, frames: Mapping[str, DataFrame]) -> Node:
        match place:
            case _Branch(node, children):
                return self._nodes.over(node, [self._fill(each, frames) for each in children])
            case _Gap(source, columns):
                plan = self._nodes.analysed(frames[source])
                own = {each.name(): each for each in self._nodes.output(plan)}
                own.setdefault(WEIGHT, self._nodes.long(1))
                named = [self._nodes.alias(own[name], name, own_id) for name, own_id in columns]
                return self._nodes.project(named, plan)
            case _:
                return place
