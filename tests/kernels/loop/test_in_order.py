"""Keys with many values in a loop: few of these are read, and after each step the result is as if all were."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from boatlift.kernels.loop.by_iteration import IterationCodec
from boatlift.kernels.loop.node import LoopNode
from boatlift.state.arrangement.arranged import Arranged
from boatlift.state.segment import MappedSegment
from kernels.loop import test_kept_rounds as kept
from kernels.loop import test_loops as loops
from kernels.node_laws import Rows, Tasks

VERTICES = 120
HUBS = (3, 60, 117)
"""A hub takes the label of a neighbour at each of several rounds, and its own number is greater than most labels."""


def some_edge(chance: random.Random) -> tuple[int, int]:
    one = chance.choice(HUBS) if chance.random() < 0.5 else chance.randrange(VERTICES)
    return one, chance.randrange(VERTICES)


def changes(have: set[tuple[int, int]], chance: random.Random) -> Rows:
    """Return edges that come and go, in both directions; the edges that are there are changed."""
    gone = set(chance.sample(sorted(have), min(len(have), chance.randrange(9))))
    come = {some_edge(chance) for _ in range(chance.randrange(9))} - have
    have -= gone
    have |= come
    weights: Rows = Counter()
    for weight, edges in ((1, come), (-1, gone)):
        for a, b in edges:
            weights[a, b] += weight
            weights[b, a] += weight
    return Counter({row: count for row, count in weights.items() if count})


def components(have: set[tuple[int, int]]) -> Rows:
    """Return each vertex with the least one that it is connected with."""
    label = {at: at for edge in have for at in edge}
    moved = True
    while moved:
        moved = False
        for a, b in have:
            least = min(label[a], label[b])
            moved |= label[a] != label[b]
            label[a] = label[b] = least
    return Counter(label.items())


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_components_of_a_graph_with_hubs_are_kept(tmp_path: Path, seed: int, tasks: int) -> None:
    chance = random.Random(seed)
    loop = Tasks(loops.TestComponents.case.node, (loops.PAIRS,), tmp_path / "runs", tasks=tasks, seed=seed)
    have = {some_edge(chance) for _ in range(160)}
    total = loop.take([edges_of(have)])
    for _ in range(12):
        total.update(loop.take([changes(have, chance)]))
        assert Counter({row: count for row, count in total.items() if count}) == components(have)


def test_rounds_that_were_kept_go_on_with_what_was_read(tmp_path: Path) -> None:
    node = loops.TestComponents.case.node
    assert isinstance(node, LoopNode)
    chance = random.Random(5)
    have = {some_edge(chance) for _ in range(160)} | {(at, at + 1) for at in range(VERTICES, VERTICES + 20)}
    whole, killed = (kept.Steps(node, kept.make(tmp_path / name)) for name in ("whole", "killed"))
    assert killed.take([edges_of(have)], 1) == whole.take([edges_of(have)], 1)
    for number in range(8):
        step = changes(have, chance)
        step.update({(VERTICES, number): 1, (number, VERTICES): 1})  # the chain has other labels: many rounds
        have.add((VERTICES, number))
        with pytest.raises(kept.KilledError):
            killed.take([step], 2, token=1 + 2 * number, die_after=number % 4)
        assert killed.take([step], 2, token=2 + 2 * number) == whole.take([step], 1)
        assert min(killed.restored) >= number % 4


def test_of_a_key_with_many_values_few_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    star = {(0, at) for at in range(1, 5000)}
    node = loops.TestComponents.case.node
    loop = Tasks(node, (loops.PAIRS,), tmp_path / "runs")
    loop.take([edges_of(star)])
    values = sum(run.rows for run, _ in loop.runs["1/min.0"])
    read: list[int] = []
    take = MappedSegment.take

    def counted(self: MappedSegment[Any], codec: IterationCodec[Any, Any], places: npt.NDArray[np.int64]) -> Arranged:
        if codec == node.parts["1/min.0"]:
            read.append(len(places))
        return take(self, codec, places)

    monkeypatch.setattr(MappedSegment, "take", counted)
    gone = Counter({(0, 4711): -1, (4711, 0): -1})
    assert loop.take([gone]) == Counter({(4711, 0): -1})
    assert values > 9000
    assert 0 < sum(read) < 200


def edges_of(have: set[tuple[int, int]]) -> Rows:
    """Return edges in both directions, as changes that bring them."""
    weights: Rows = Counter()
    for a, b in have:
        weights[a, b] += 1
        weights[b, a] += 1
    return weights
