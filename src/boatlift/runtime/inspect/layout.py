"""The layout of a dataflow's picture: boxes in columns, and edges between them. Pure.

A column has the boxes that are equally far from the sources. Within a column, boxes are ordered so that few edges
cross, and each moves towards its neighbours as far as the boxes beside it let it. An edge that skips a column has a
lane of its own there.

Laws:
    * Equal input gives an equal layout: no number that changes while a dataflow runs is an input.
    * No two boxes overlap.
    * An edge begins at the right side of its sender, ends at the left side of its reader, goes to the right, and
      passes through no box.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

GAP_X, GAP_Y, LANE = 56.0, 16.0, 14.0
"""The gaps between columns and between boxes, and the height of an edge's lane."""

SWEEPS, MOVES = 24, 40
"""How often the boxes of all columns are ordered, and moved; even numbers end in both directions alike."""

EdgeEnds = tuple[str, str]
Slot = str | tuple[str, str, int]
"""A place in a column: a box, or the lane of an edge."""


@dataclass(frozen=True, slots=True)
class PictureLayout:
    """Where boxes and edges are.

    Attributes:
        places: Box to its left and upper side.
        ways: EdgeEnds to the points that it goes through.
    """

    width: float
    height: float
    places: dict[str, tuple[float, float]]
    ways: dict[EdgeEnds, list[tuple[float, float]]]


@dataclass(slots=True)
class _LayoutColumns:
    """The slots of each column, from top to bottom, and their neighbours in the columns beside."""

    sizes: dict[Slot, tuple[float, float]]
    slots: dict[int, list[Slot]] = field(default_factory=lambda: defaultdict(list))
    left: dict[Slot, list[Slot]] = field(default_factory=lambda: defaultdict(list))
    right: dict[Slot, list[Slot]] = field(default_factory=lambda: defaultdict(list))

    def sweeps(self, times: int) -> Iterator[tuple[list[int], dict[Slot, list[Slot]]]]:
        """Yield the columns in turn from the left and from the right, with the neighbours on that side."""
        columns = sorted(self.slots)
        for sweep in range(times):
            yield (columns[::-1], self.right) if sweep % 2 else (columns, self.left)


def layout(sizes: Mapping[str, tuple[float, float]], edges: Sequence[EdgeEnds]) -> PictureLayout:
    """Return the layout of boxes.

    Args:
        sizes: Box to width and height, senders before readers; among equals the first is above.
        edges: Sender and reader of each; those given twice count once.
    """
    if not sizes:
        return PictureLayout(0.0, 0.0, {}, {})
    edges = list(dict.fromkeys(edges))
    columns, chains = _divided(sizes, edges)
    _order(columns)
    middles = _settled(columns)
    top = min(middles[slot] - columns.sizes[slot][1] / 2 for slot in middles)
    places: dict[str, tuple[float, float]] = {}
    sides: dict[Slot, tuple[float, float]] = {}
    at = 0.0
    for column in sorted(columns.slots):
        slots = columns.slots[column]
        wide = max(columns.sizes[slot][0] for slot in slots)
        for slot in slots:
            sides[slot] = (at, at + wide)
            if isinstance(slot, str):
                width, height = columns.sizes[slot]
                places[slot] = (at + (wide - width) / 2, middles[slot] - height / 2 - top)
        at += wide + GAP_X
    ways = {}
    for (sender, reader), chain in chains.items():
        levels = [(side, middles[slot] - top) for slot in chain for side in sides[slot]]
        begin = (places[sender][0] + sizes[sender][0], levels[0][1])
        points = [begin, *levels[1:-1], (places[reader][0], levels[-1][1])]
        ways[sender, reader] = [point for n, point in enumerate(points) if n == 0 or point != points[n - 1]]
    height = max(middles[slot] + columns.sizes[slot][1] / 2 for slot in middles) - top
    return PictureLayout(at - GAP_X, height, {name: places[name] for name in sizes}, ways)


def _divided(
    sizes: Mapping[str, tuple[float, float]], edges: Sequence[EdgeEnds]
) -> tuple[_LayoutColumns, dict[EdgeEnds, list[Slot]]]:
    """Return the columns, and the slots of each edge from its sender to its reader."""
    senders, readers = defaultdict(list), defaultdict(list)
    for sender, reader in edges:
        senders[reader].append(sender)
        readers[sender].append(reader)
    rank: dict[str, int] = {}
    for name in sizes:
        rank[name] = 1 + max((rank[sender] for sender in senders[name]), default=-1)
    for name in reversed(list(sizes)):
        if readers[name] and not senders[name]:  # a source stands beside its nearest reader
            rank[name] = min(rank[reader] for reader in readers[name]) - 1
    columns = _LayoutColumns({name: sizes[name] for name in sizes})
    for name in sizes:
        columns.slots[rank[name]].append(name)
    chains: dict[EdgeEnds, list[Slot]] = {}
    for sender, reader in edges:
        lanes = [(sender, reader, column) for column in range(rank[sender] + 1, rank[reader])]
        for lane in lanes:
            columns.sizes[lane] = (0.0, LANE)
            columns.slots[lane[2]].append(lane)
        chains[sender, reader] = [sender, *lanes, reader]
        for before, after in pairwise(chains[sender, reader]):
            columns.right[before].append(after)
            columns.left[after].append(before)
    return columns, chains


def _order(columns: _LayoutColumns) -> None:
    """Order the slots of each column by the median of their neighbours; keep the order with the fewest crossings."""
    row = {slot: n for slots in columns.slots.values() for n, slot in enumerate(slots)}
    best, fewest = {column: list(slots) for column, slots in columns.slots.items()}, _crossings(columns, row)
    for order, near in columns.sweeps(SWEEPS):
        for column in order:
            slots = columns.slots[column]
            wanted = {s: median(row[each] for each in near[s]) if near[s] else row[s] for s in slots}
            slots.sort(key=lambda slot: (wanted[slot], row[slot]))
            row.update((slot, n) for n, slot in enumerate(slots))
        if (crossings := _crossings(columns, row)) < fewest:
            fewest, best = crossings, {column: list(slots) for column, slots in columns.slots.items()}
    columns.slots.update(best)


def _crossings(columns: _LayoutColumns, row: Mapping[Slot, int]) -> int:
    count = 0
    for slots in columns.slots.values():
        ends = [end for _, end in sorted((row[slot], row[end]) for slot in slots for end in columns.right[slot])]
        count += sum(1 for n, end in enumerate(ends) for later in ends[n + 1 :] if later < end)
    return count


def _settled(columns: _LayoutColumns) -> dict[Slot, float]:
    """Return the middle of each slot from the top."""
    middles: dict[Slot, float] = {}
    for slots in columns.slots.values():
        at = 0.0
        for slot in slots:
            height = columns.sizes[slot][1]
            middles[slot] = at + height / 2
            at += height + GAP_Y
    for order, near in columns.sweeps(MOVES):
        for column in order:
            _settle(columns.slots[column], middles, columns.sizes, near)
    return middles


@dataclass(slots=True)
class _Block:
    """Slots of a column that touch each other, and the middle that they want together."""

    slots: list[Slot]
    height: float
    middle: float
    weight: float


def _settle(
    slots: list[Slot],
    middles: dict[Slot, float],
    sizes: Mapping[Slot, tuple[float, float]],
    near: Mapping[Slot, list[Slot]],
) -> None:
    """Move the slots of a column to the medians of their neighbours, keeping their order and gaps.

    Slots that would overlap become a block, which moves as one (pool adjacent violators).
    """
    blocks: list[_Block] = []
    for slot in slots:
        beside = near.get(slot)
        wanted = median(middles[each] for each in beside) if beside else middles[slot]
        blocks.append(_Block([slot], sizes[slot][1], wanted, 1.0 if beside else 0.2))
        while len(blocks) > 1:
            above, below = blocks[-2:]
            if above.middle + above.height / 2 + GAP_Y <= below.middle - below.height / 2:
                break
            height, weight = above.height + GAP_Y + below.height, above.weight + below.weight
            of_above = above.middle + (height - above.height) / 2
            of_below = below.middle - (height - below.height) / 2
            middle = (of_above * above.weight + of_below * below.weight) / weight
            blocks[-2:] = [_Block(above.slots + below.slots, height, middle, weight)]
    for block in blocks:
        at = block.middle - block.height / 2
        for slot in block.slots:
            middles[slot] = at + sizes[slot][1] / 2
            at += sizes[slot][1] + GAP_Y
