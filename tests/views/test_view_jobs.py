"""Jobs of views: the text of a node in the identity of a view stays when a class is renamed."""

from __future__ import annotations

import pyarrow as pa

from boatlift.kernels.loop.node import Circuit, LoopNode, Result
from boatlift.kernels.network.node import Node
from boatlift.kernels.network.rows_of_keys import NumberedNode, Numbering, RecomputeKeysNode, TopNNode
from boatlift.state.arrangement.ordered import FirstRows, Order
from boatlift.views.view_job import PlacedNode, ViewJob, layout_lines

ROWS = pa.schema([("a", pa.int64())])


def text_of(node: Node) -> str:
    line, _ = layout_lines(ViewJob((), (PlacedNode(0, node, ()),)))
    return line


def test_a_recomputation_has_its_recorded_name() -> None:
    text = text_of(RecomputeKeysNode("view", "GROUP BY a", (ROWS,), 1))
    assert text.startswith("0 keeps TouchedNode(processor='', place='', rows=")


def test_a_state_is_the_same_under_other_names_of_the_view_and_its_streams() -> None:
    text = text_of(RecomputeKeysNode("view", "GROUP BY rows.a", (ROWS,), 1))
    assert text == text_of(RecomputeKeysNode("other", "GROUP BY others.a", (ROWS,), 1))
    assert text != text_of(RecomputeKeysNode("view", "GROUP BY rows.a", (ROWS, ROWS), 1))


def test_first_rows_have_their_recorded_name() -> None:
    numbering = Numbering(((0, Order()),), 0, (0,), False)
    text = text_of(TopNNode("view", "LIMIT", ROWS, 0, Order(), FirstRows(1)))
    assert text == text_of(NumberedNode("view", "LIMIT", ROWS, 0, Order(), FirstRows(1), numbering=numbering))
    assert text.startswith("0 keeps FirstNode(processor='', place='', ")
    assert "first=FirstRows(count=1" in text


def test_a_loop_has_its_recorded_names_and_no_limits() -> None:
    circuit = Circuit((ROWS,), frozenset(), ROWS, (), 1)
    text = text_of(LoopNode("view", "a loop", circuit, Result.ALL_ITERATIONS, 1000, 5.0))
    assert "result=<Result.ALL_ROUNDS: 'all rounds'>, most_rounds=0, keep_every=0.0)" in text
