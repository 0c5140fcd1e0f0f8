"""The laws of a picture's layout, on random graphs."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given
from hypothesis import strategies as st

from boatlift.runtime.inspect.layout import GAP_X, PictureLayout, layout

Sizes = dict[str, tuple[float, float]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Sizes, list[tuple[str, str]]]:
    names = [f"p{n}" for n in range(draw(st.integers(1, 14)))]
    sizes = {name: (draw(st.sampled_from([168.0, 208.0])), draw(st.integers(40, 160)) * 1.0) for name in names}
    pairs = list(combinations(names, 2))
    return sizes, draw(st.lists(st.sampled_from(pairs), max_size=30)) if pairs else []


def crosses(begin: tuple[float, float], end: tuple[float, float], box: tuple[float, float, float, float]) -> bool:
    """Whether a part of a way has a point inside a box; its curve stays between the heights of its ends."""
    left, top, right, bottom = box
    apart = max(begin[0], end[0]) <= left or min(begin[0], end[0]) >= right
    return not apart and not (max(begin[1], end[1]) <= top or min(begin[1], end[1]) >= bottom)


def boxes_of(found: PictureLayout, sizes: Sizes) -> dict[str, tuple[float, float, float, float]]:
    return {name: (x, y, x + sizes[name][0], y + sizes[name][1]) for name, (x, y) in found.places.items()}


@given(graphs())
def test_no_boxes_overlap_and_each_is_inside(graph: tuple[Sizes, list[tuple[str, str]]]) -> None:
    sizes, edges = graph
    found = layout(sizes, edges)
    boxes = boxes_of(found, sizes)
    assert boxes.keys() == sizes.keys()
    for left, top, right, bottom in boxes.values():
        assert left >= -1e-6
        assert top >= -1e-6
        assert right <= found.width + 1e-6
        assert bottom <= found.height + 1e-6
    for (a, b, c, d), (e, f, g, h) in combinations(boxes.values(), 2):
        assert c <= e or g <= a or d <= f + 1e-6 or h <= b + 1e-6


@given(graphs())
def test_edges_go_right_from_side_to_side_and_through_no_box(graph: tuple[Sizes, list[tuple[str, str]]]) -> None:
    sizes, edges = graph
    found = layout(sizes, edges)
    boxes = boxes_of(found, sizes)
    assert found.ways.keys() == set(edges)
    for (sender, reader), way in found.ways.items():
        _, top, right, bottom = boxes[sender]
        assert way[0] == (right, (top + bottom) / 2) or abs(way[0][1] - (top + bottom) / 2) < 1e-6
        assert way[0][0] == right
        left, top, _, bottom = boxes[reader]
        assert way[-1][0] == left
        assert abs(way[-1][1] - (top + bottom) / 2) < 1e-6
        for begin, end in pairwise(way):
            assert end[0] >= begin[0]
            assert end[1] == begin[1] or end[0] - begin[0] >= GAP_X - 1e-6
            for name, box in boxes.items():
                assert name in (sender, reader) or not crosses(begin, end, box), (sender, reader, name)


@given(graphs())
def test_equal_graphs_have_an_equal_layout(graph: tuple[Sizes, list[tuple[str, str]]]) -> None:
    sizes, edges = graph
    assert layout(sizes, edges) == layout(dict(sizes), list(edges))


def test_a_chain_is_a_row_and_a_source_stands_beside_its_reader() -> None:
    sizes = {
        "early": (100.0, 60.0),
        "a": (200.0, 100.0),
        "b": (200.0, 100.0),
        "late": (100.0, 60.0),
        "c": (200.0, 80.0),
    }
    found = layout(sizes, [("early", "a"), ("a", "b"), ("b", "c"), ("late", "c")])
    middles = {name: found.places[name][1] + sizes[name][1] / 2 for name in sizes}
    assert middles["early"] == middles["a"]
    assert found.places["late"][0] > found.places["a"][0]


def test_a_program_of_300_units_has_a_layout() -> None:
    sizes = {f"p{n}": (208.0, 112.0) for n in range(300)}
    edges = [(f"p{n // 3}", f"p{n}") for n in range(1, 300)]
    found = layout(sizes, edges)
    boxes = sorted(boxes_of(found, sizes).values())
    assert len(boxes) == 300
    for (a, b, c, d), (e, f, g, h) in combinations(boxes, 2):
        assert c <= e or g <= a or d <= f or h <= b


def test_nothing_has_an_empty_layout() -> None:
    assert layout({}, []) == PictureLayout(0.0, 0.0, {}, {})
