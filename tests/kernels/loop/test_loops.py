"""The node of a loop under the laws of nodes: after each step it has what recomputing the loop gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.kernels.aggregate import AggregateColumn, AggregateNode, Layout
from boatlift.kernels.aggregate.node import DistinctNode
from boatlift.kernels.loop.expressions import Constant, FunctionCall, Place
from boatlift.kernels.loop.node import Apply, Circuit, KeyedOperation, LoopNode, Result, Sum
from boatlift.kernels.network.join import JoinNode, SemiJoinNode
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side
from kernels.node_laws import NodeCase, NodeLaws, Rows, Tasks

PAIRS = pa.schema([("a", pa.int64()), ("b", pa.int64())])
ONES = pa.schema([("a", pa.int64())])

some_edge = st.tuples(st.integers(0, 5), st.integers(0, 5))


def fixed_point(body: Callable[[set[Any]], set[Any]]) -> Rows:
    rows: set[Any] = set()
    while (made := body(rows)) != rows:
        rows = made
    return Counter(rows)


def join(left_key: int, right_key: int, left_kept: tuple[int, ...], right_kept: tuple[int, ...]) -> JoinNode:
    codec = ArrangementCodec(PAIRS)
    return JoinNode("p", "INNER JOIN", Side(codec, (left_key,), left_kept), Side(codec, (right_key,), right_kept))


def loop(*operations: Any, inputs: int = 1, variable: pa.Schema = PAIRS, most: int = 50) -> LoopNode:
    circuit = Circuit((PAIRS,) * inputs, frozenset(), variable, operations, inputs + len(operations))
    return LoopNode("p", "a loop", circuit, Result.FIXED_POINT, most)


class LoopLaws(NodeLaws):
    """The laws of nodes; the tasks of a step run at once, in threads."""

    most_tasks = 2


class TestPathsOfAGraph(LoopLaws):
    """Pairs (a, c) such that c can be reached from a: L = distinct(edges + L ⋈ edges)."""

    case = NodeCase(
        loop(
            KeyedOperation("0", join(1, 0, (0,), (1,)), (1, 0)),
            Sum((0, 2)),
            KeyedOperation("1", DistinctNode("p", "DISTINCT", PAIRS), (3,)),
        ),
        (PAIRS,),
        (some_edge,),
        lambda edges: fixed_point(lambda have: set(edges) | {(a, d) for a, b in have for c, d in edges if b == c}),
    )


class TestPathsByDoubling(LoopLaws):
    """The same by L ⋈ L, in which both sides of the join go round."""

    case = NodeCase(
        loop(
            KeyedOperation("0", join(1, 0, (0,), (1,)), (1, 1)),
            Sum((0, 2)),
            KeyedOperation("1", DistinctNode("p", "DISTINCT", PAIRS), (3,)),
        ),
        (PAIRS,),
        (some_edge,),
        lambda edges: fixed_point(lambda have: set(edges) | {(a, d) for a, b in have for c, d in have if b == c}),
    )


LEAST = Layout(
    (("v", pa.int64()),),
    (AggregateColumn("min", "x", "least", pa.int64(), pa.int64()),),
    weighted=True,
    ordered=True,
)


def components(edges: Rows) -> Rows:
    """Return each vertex that an edge leaves, with the least number from which a path of edges leads to it."""

    def body(have: set[Any]) -> set[Any]:
        offers = {(a, a) for a, _ in edges} | {(b, least) for v, least in have for a, b in edges if a == v}
        return {(v, min(x for w, x in offers if w == v)) for v, _ in offers}

    return fixed_point(body)


class TestComponents(LoopLaws):
    """Labels of vertices: L = for each vertex the least of itself and what its neighbours have."""

    case = NodeCase(
        loop(
            Apply(0, (Place(0), Place(0))),
            KeyedOperation("0", join(0, 0, (1,), (1,)), (1, 0)),
            Apply(3, (Place(1), Place(0))),
            Sum((2, 4)),
            KeyedOperation("1", AggregateNode("p", LEAST, ("v",)), (5,)),
        ),
        (PAIRS,),
        (some_edge,),
        components,
    )


def distances(starts: Rows, edges: Rows) -> Rows:
    def body(have: set[Any]) -> set[Any]:
        offers = {(a, 0) for a, _ in starts}
        offers |= {(b, far + 1) for v, far in have if far < 4 for a, b in edges if a == v}
        return {(v, min(x for w, x in offers if w == v)) for v, _ in offers}

    return fixed_point(body)


class TestDistances(LoopLaws):
    """Steps from some vertices, at most five, with a column that is computed at each round."""

    case = NodeCase(
        loop(
            Apply(0, (Place(0), Constant(0, pa.int64()))),
            Apply(2, (Place(0), Place(1)), FunctionCall("<", (Place(1), Constant(4, pa.int64())), pa.bool_())),
            KeyedOperation("0", join(0, 0, (1,), (1,)), (4, 1)),
            Apply(5, (Place(1), FunctionCall("+", (Place(0), Constant(1, pa.int64())), pa.int64()))),
            Sum((3, 6)),
            KeyedOperation("1", AggregateNode("p", LEAST, ("v",)), (7,)),
            inputs=2,
        ),
        (PAIRS, PAIRS),
        (some_edge, some_edge),
        distances,
    )


def unblocked(edges: Rows, blocked: Rows) -> Rows:
    walls = {a for a, _ in blocked}
    return fixed_point(
        lambda have: {
            row for row in set(edges) | {(a, d) for a, b in have for c, d in edges if b == c} if row[1] not in walls
        }
    )


class TestPathsAroundWalls(LoopLaws):
    """Paths that enter no blocked vertex, by an anti join within the loop."""

    case = NodeCase(
        loop(
            KeyedOperation("0", join(1, 0, (0,), (1,)), (2, 0)),
            Sum((0, 3)),
            Apply(1, (Place(0),)),
            KeyedOperation(
                "1",
                SemiJoinNode("p", "LEFT ANTI", Side(ArrangementCodec(PAIRS), (1,), (0, 1)), ONES, "unmatched"),
                (4, 5),
            ),
            KeyedOperation("2", DistinctNode("p", "DISTINCT", PAIRS), (6,)),
            inputs=2,
        ),
        (PAIRS, PAIRS),
        (some_edge, st.tuples(st.integers(4, 8), st.just(0))),
        unblocked,
    )


COUNTED = Layout(
    (("v", pa.int64()),), (AggregateColumn("sum", "x", "total", pa.int64(), pa.int64()),), weighted=True, ordered=True
)


def parts_of(edges: Rows) -> Rows:
    def body(have: set[Any]) -> set[Any]:
        weights: Counter[int] = Counter({a: 0 for a, b in edges if a < b})
        for a, b in edges:
            weights[a] += (1 + sum(total for v, total in have if v == b)) * edges[a, b] if a < b else 0
        return {(a, weights[a]) for a in {a for a, b in edges if a < b}}

    return fixed_point(body)


class TestSumsOfParts(LoopLaws):
    """A bill of materials: L(a) = the sum over the parts b of a of 1 + L(b). Edges lead upwards, so it ends."""

    case = NodeCase(
        loop(
            Apply(0, (Place(0), Place(1)), FunctionCall("<", (Place(0), Place(1)), pa.bool_())),
            Apply(2, (Place(0), Constant(1, pa.int64()))),
            KeyedOperation("0", join(1, 0, (0,), (1,)), (2, 1)),
            Sum((3, 4)),
            KeyedOperation("1", AggregateNode("p", COUNTED, ("v",)), (5,)),
        ),
        (PAIRS,),
        (some_edge,),
        parts_of,
    )


def upwards(edges: Rows) -> Rows:
    return Counter({(a, b): count for (a, b), count in edges.items() if a < b})


def all_levels(first: Rows, partners: Callable[[Rows], Rows]) -> Rows:
    """Return the rows of all levels, each the last one joined with its partners, as UNION ALL gives them: a bag."""
    total: Rows = Counter()
    level = upwards(first)
    while level:
        total.update(level)
        following: Rows = Counter()
        for (a, b), count in level.items():
            for (c, d), other in partners(level).items():
                if b == c:
                    following[a, d] += count * other
        level = following
    return total


class TestWalks(LoopLaws):
    """The rows of all rounds, each made of those of the last: WITH RECURSIVE."""

    case = NodeCase(
        LoopNode(
            "p",
            "a loop",
            Circuit(
                (PAIRS, PAIRS),
                frozenset({0}),
                PAIRS,
                (
                    Apply(0, (Place(0), Place(1)), FunctionCall("<", (Place(0), Place(1)), pa.bool_())),
                    Apply(1, (Place(0), Place(1)), FunctionCall("<", (Place(0), Place(1)), pa.bool_())),
                    KeyedOperation("0", join(1, 0, (0,), (1,)), (2, 4)),
                    Sum((3, 5)),
                ),
                6,
            ),
            Result.ALL_ITERATIONS,
            50,
        ),
        (PAIRS, PAIRS),
        (some_edge, some_edge),
        lambda first, edges: all_levels(first, lambda _: upwards(edges)),
    )


class TestWalksByDoubling(LoopLaws):
    """The rows of all rounds, each made of pairs of those of the last: both sides of the join change at once."""

    case = NodeCase(
        LoopNode(
            "p",
            "a loop",
            Circuit(
                (PAIRS,),
                frozenset({0}),
                PAIRS,
                (
                    Apply(0, (Place(0), Place(1)), FunctionCall("<", (Place(0), Place(1)), pa.bool_())),
                    KeyedOperation("0", join(1, 0, (0,), (1,)), (1, 1)),
                    Sum((2, 3)),
                ),
                4,
            ),
            Result.ALL_ITERATIONS,
            50,
        ),
        (PAIRS,),
        (some_edge,),
        lambda first: all_levels(first, lambda level: level),
    )


def test_a_loop_that_does_not_end_says_what_still_changes(tmp_path: Path) -> None:
    node = loop(
        Apply(1, (Place(0), FunctionCall("+", (Place(1), Constant(1, pa.int64())), pa.int64()))),
        Sum((0, 2)),
        most=20,
    )
    with pytest.raises(DataError, match=r"\[LOOP_TOO_LONG\] .*still changes rows after 20 iterations.*'a': 3"):
        Tasks(node, (PAIRS,), tmp_path / "runs").take([Counter({(3, 4): 1})])


def test_a_cycle_under_all_rounds_does_not_end(tmp_path: Path) -> None:
    case = TestWalks.case.node
    assert isinstance(case, LoopNode)
    circuit = Circuit(
        (PAIRS, PAIRS), frozenset({0}), PAIRS, (KeyedOperation("0", join(1, 0, (0,), (1,)), (2, 1)), Sum((0, 3))), 4
    )
    node = LoopNode("p", "a loop", circuit, Result.ALL_ITERATIONS, 20)
    edges = Counter({(1, 1): 1})
    with pytest.raises(DataError, match=r"\[LOOP_TOO_LONG\]"):
        Tasks(node, (PAIRS, PAIRS), tmp_path / "runs").take([edges, edges])
