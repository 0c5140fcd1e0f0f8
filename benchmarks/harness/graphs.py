"""Graphs that grow and lose edges, as files of changes; every edge stands in both directions."""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.harness.data import written

__all__ = ["components_of", "graph", "graph_changes", "graph_now"]

Ints = npt.NDArray[np.int64]

_SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("_weight", pa.int64())])

EDGES_A_VERTEX = 5


@cache
def _edges(count: int, kind: str) -> Ints:
    """Return distinct edges (a, b), a < b.

    Args:
        count: About so many.
        kind: `attached`: each vertex brings five edges to earlier ones, the sooner the more edges these have, as pages
            and people do. `random`: between any two of as many vertices as half of the edges.
    """
    chance = np.random.default_rng((count, len(kind)))
    if kind == "random":
        ends = chance.integers(0, max(2, count // 2), (count, 2))
    else:
        tail = np.repeat(np.arange(1, max(2, count // EDGES_A_VERTEX)), EDGES_A_VERTEX)
        ends = np.stack([tail, _attached(tail, chance)], axis=1)
    pairs = np.unique(np.sort(ends, axis=1), axis=0)
    return pairs[pairs[:, 0] < pairs[:, 1]]


def _attached(tail: Ints, chance: np.random.Generator) -> Ints:
    """Return the vertex that each edge leads to: an end of an earlier edge, so that vertices with many get more."""
    earlier = 2 * EDGES_A_VERTEX * (tail - 1)
    drawn = (chance.random(len(tail)) * (earlier + 1)).astype(np.int64)  # 0: the first vertex; else an end
    head = np.where(drawn == 0, 0, -1)
    while (open_ := np.flatnonzero(head < 0)).size:
        edge, is_head = np.divmod(drawn[open_] - 1, 2)
        head[open_] = np.where(is_head == 0, tail[edge], head[edge])
    return head


def graph(edges: int, kind: str) -> Path:
    """Return a file with the edges that are there."""
    return written(f"graph-{kind}-{edges}", lambda: _changes(_edges(edges, kind), 1))


def graph_changes(edges: int, kind: str, changes: int, files: int) -> list[Path]:
    """Return files of changes: half of them are edges that go, half new ones between any two vertices."""
    return [
        written(f"graph-changes-{kind}-{edges}-{changes}-{index}", partial(_step, edges, kind, changes // 2, index))
        for index in range(files)
    ]


def graph_now(edges: int, kind: str, changes: int, index: int) -> Path:
    """Return a file with the edges that are there after so many files of changes, without weights."""

    def make() -> pa.Table:
        half = changes // 2
        gone = _order(edges, kind)[: index * half]
        new = [_new(edges, kind, half, each) for each in range(index)]
        pairs = np.concatenate([np.delete(_edges(edges, kind), gone, axis=0), *new])
        return _both(pairs)

    return written(f"graph-now-{kind}-{edges}-{changes}-{index}", make)


def components_of(table: pa.Table) -> tuple[Ints, Ints]:
    """Return the vertices of a graph, and of each the least vertex of its component."""
    vertices, ends = np.unique(np.concatenate([table["a"].to_numpy(), table["b"].to_numpy()]), return_inverse=True)
    a, b = ends[: len(table)], ends[len(table) :]
    least = np.arange(len(vertices))
    while True:
        before = least.copy()
        np.minimum.at(least, least[a], before[b])
        np.minimum.at(least, a, before[b])
        while (jumped := least[least] != least).any():
            least[jumped] = least[least[jumped]]
        if (least == before).all():
            return vertices, vertices[least]


@cache
def _order(edges: int, kind: str) -> Ints:
    return np.random.default_rng((edges, 1)).permutation(len(_edges(edges, kind)))


def _new(edges: int, kind: str, half: int, index: int) -> Ints:
    most = int(_edges(edges, kind).max())
    pairs = np.random.default_rng((edges, 2, index)).integers(0, most, (half, 2))
    return np.sort(pairs, axis=1)


def _step(edges: int, kind: str, half: int, index: int) -> pa.Table:
    gone = _edges(edges, kind)[_order(edges, kind)[index * half : (index + 1) * half]]
    return pa.concat_tables([_changes(gone, -1), _changes(_new(edges, kind, half, index), 1)])


def _both(pairs: Ints) -> pa.Table:
    return pa.table({"a": np.concatenate([pairs[:, 0], pairs[:, 1]]), "b": np.concatenate([pairs[:, 1], pairs[:, 0]])})


def _changes(pairs: Ints, weight: int) -> pa.Table:
    both = _both(pairs)
    return pa.table([*both.columns, np.full(len(both), weight, np.int64)], schema=_SCHEMA)
