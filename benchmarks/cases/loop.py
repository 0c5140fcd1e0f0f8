"""Connected components of a graph of 1M edges: 50 steps of 1,000 changes, next to computing them anew.

Half of the changes are edges that go. The graph has grown by attachment, so that few vertices have very many edges. A
graph with edges between any two vertices is reported: there a step moves labels through half of it.

The cost of lazy checkpoints is that of the same steps with a checkpoint every 20 steps over those with none, in five
pairs of ten steps each, of two dataflows.
"""

from __future__ import annotations

import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness.graphs import graph, graph_changes, graph_now
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from benchmarks.harness.side import Side

__all__ = ["measure"]

PAIRS, TURN, CHANGES = 5, 10, 1000
RANDOM_STEPS = 5


def measure(effort: Effort) -> Result:
    """Measure: the steps of both dataflows in turns, then the peers on the graph as it is at the end."""
    edges = effort.keys(1_000_000)
    changes = min(CHANGES, edges // 20)
    steps = graph_changes(edges, "attached", changes, PAIRS * TURN)
    turns: dict[str, list[list[float]]] = {"lazy": [], "none": []}
    with ExitStack() as stack:
        options = {"lazy": 20, "none": None}
        sides = {
            name: stack.enter_context(Side("benchmarks.sides.loop_side", every=each)) for name, each in options.items()
        }
        first = {
            name: side.ask("one_by_one", files=[str(graph(edges, "attached"))])["ms"] for name, side in sides.items()
        }
        for pair in range(PAIRS):
            files = [str(file) for file in steps[pair * TURN :][:TURN]]
            for name in list(sides)[:: 1 if pair % 2 else -1]:
                turns[name].append(sides[name].ask("one_by_one", files=files)["ms"])
        now = graph_now(edges, "attached", changes, len(steps))
        for name, side in sides.items():
            _check(name, side.ask("answer", files=str(now))["wrong"])
    anew = _anew(effort, now)
    harder = _random(effort, edges, changes)
    middle = {name: [statistics.median(turn) for turn in each] for name, each in turns.items()}
    whole = {name: [sum(turn) for turn in each] for name, each in turns.items()}
    step = statistics.median(middle["lazy"])
    ratio = round(statistics.median(anew["Spark"]) / step, 1)
    cost = median_ratio(whole["lazy"], whole["none"])
    return Result(
        name="loop",
        target="a step at least 20 times faster than computing anew with Spark; lazy checkpoints cost at most 1% "
        "beyond noise (over none, median of five pairs); the rest is reported",
        met=ratio >= 20 and cost <= 1.01,
        ratios={
            "Spark, anew": ratio,
            "lazy checkpoints over none": cost,
            "NumPy, anew, one thread in memory": round(statistics.median(anew["NumPy"]) / step, 3),
            "random graph: Spark, anew": round(
                statistics.median(harder["Spark"]) / statistics.median(harder["step"]), 2
            ),
        },
        figures={
            "first step, 1M edges": Figure.of("ms", [*first["lazy"], *first["none"]]),
            **{f"step, {name}": Figure.of("ms", values) for name, values in middle.items()},
            **{f"{name}, anew": Figure.of("ms", values) for name, values in anew.items()},
            **{f"random graph: {name}": Figure.of("ms", values) for name, values in harder.items()},
        },
    )


def _anew(effort: Effort, edges: Path) -> dict[str, list[float]]:
    """Return the milliseconds of each peer."""
    found: dict[str, list[float]] = {"Spark": [], "NumPy": []}
    with Side("benchmarks.peers.loop_peer") as peer:
        peer.ask("spark", file=str(edges))  # warms up
        for _ in range(effort.rounds):
            answer = peer.ask("spark", file=str(edges))
            _check("Spark", answer["wrong"])
            found["Spark"].append(answer["ms"])
            found["NumPy"].append(peer.ask("numpy", file=str(edges))["ms"])
    return found


def _random(effort: Effort, edges: int, changes: int) -> dict[str, list[float]]:
    """Return the milliseconds of steps, and of Spark, on a graph with edges between any two vertices."""
    steps = graph_changes(edges, "random", changes, RANDOM_STEPS)
    with Side("benchmarks.sides.loop_side", every=20) as side:
        first = side.ask("one_by_one", files=[str(graph(edges, "random"))])["ms"]
        taken = side.ask("one_by_one", files=[str(file) for file in steps])["ms"]
        now = graph_now(edges, "random", changes, len(steps))
        _check("random graph", side.ask("answer", files=str(now))["wrong"])
    return {"first step": first, "step": taken, "Spark": _anew(Effort(1, effort.scale), now)["Spark"]}


def _check(name: str, wrong: int) -> None:
    if wrong:
        print(f"loop: {name}: {wrong} rows differ from the answer", file=sys.stderr, flush=True)
        raise SystemExit(1)
