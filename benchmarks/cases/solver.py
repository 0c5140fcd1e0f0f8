"""The time to choose frontiers: all anew, and when one record arrives. No JVM, no peer.

1,000 processors in 100 layers of ten, 2,000 edges, 100 checkpoints each. A layer takes its checkpoints just after
those of the layer it sends to, so that a processor must go back one checkpoint further than its receivers, and so on up
to the sources.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

from benchmarks.harness.measuring import Effort, Figure, Result, percentile
from boatlift.recovery import Edge, Kind, Knowledge, Monitor, RecoveryGraph, Vertex, solve
from boatlift.times import Frontier, TimeSet

__all__ = ["measure"]

LAYERS, WIDTH, CHECKPOINTS = 100, 10, 100
PERIODS = 3


def measure(effort: Effort) -> Result:
    """Solve anew, and let records arrive one by one."""
    graph = _graph()
    knowledge = _knowledge(graph)
    whole = [_milliseconds(lambda: solve(graph, knowledge, graph.vertices.keys())) for _ in range(5 * effort.rounds)]
    records = [_arrivals(graph) for _ in range(effort.rounds)]
    medians = [statistics.median(each) for each in records]
    late = [percentile(each, 0.99) for each in records]
    ratios = {
        "ms, whole": statistics.median(whole),
        "ms a record, median": statistics.median(medians),
        "ms a record, p99": statistics.median(late),
    }
    return Result(
        name="solver",
        target="whole at most 100 ms, a record at most 1 ms, median and p99",
        met=ratios["ms, whole"] <= 100 and ratios["ms a record, median"] <= 1 and ratios["ms a record, p99"] <= 1,
        ratios={name: float(f"{value:.3g}") for name, value in ratios.items()},
        figures={
            "whole": Figure.of("ms", whole),
            "record, median": Figure.of("ms", medians),
            "record, p99": Figure.of("ms", late),
            "record, longest": Figure.of("ms", [max(each) for each in records]),
            "records": Figure.of("", [len(each) for each in records]),
        },
    )


def _name(layer: int, place: int) -> str:
    return f"{layer}.{place}"


def _graph() -> RecoveryGraph:
    vertices, edges = [], []
    for layer in range(LAYERS):
        kind = Kind.SOURCE if layer == 0 else Kind.SINK if layer == LAYERS - 1 else Kind.STATEFUL
        for place in range(WIDTH):
            vertices.append(Vertex(_name(layer, place), kind))
            senders = (0, 1, 2) if layer in {1, 2} else (0, 1) if layer else ()
            for step in senders:
                sender = _name(layer - 1, (place + step) % WIDTH)
                edges.append(Edge(f"{sender}-{_name(layer, place)}", sender, _name(layer, place)))
    assert (len(vertices), len(edges)) == (1000, 2000)
    return RecoveryGraph(vertices, edges)


def _knowledge(graph: RecoveryGraph) -> dict[str, Knowledge]:
    end = CHECKPOINTS * LAYERS
    known = {}
    for name, vertex in graph.vertices.items():
        layer = int(name.partition(".")[0])
        match vertex.kind:
            case Kind.SOURCE:
                known[name] = Knowledge.of(graph, name, determinants=TimeSet(range(end + 1)))
            case Kind.SINK:
                known[name] = Knowledge.of(graph, name, checkpoints=[end])
            case _:
                times = [-1, *(LAYERS * number - layer for number in range(1, CHECKPOINTS + 1))]
                known[name] = Knowledge.of(graph, name, checkpoints=times)
    return known


def _arrivals(graph: RecoveryGraph) -> list[float]:
    """Run the dataflow for some periods of checkpoints, and time each record: its arrival, and the answer after it."""
    monitor = Monitor(graph)
    taken = []
    for report, processor in _records(graph, monitor):
        taken.append(_milliseconds(lambda: (report(), monitor.stable(processor))))  # noqa: B023 used at once
    first = len(taken) // (PERIODS + 1)
    return taken[first:]  # the first period fills what all others find


def _records(graph: RecoveryGraph, monitor: Monitor) -> Iterator[tuple[Callable[[], None], str]]:
    for at in range((PERIODS + 1) * LAYERS):
        for name, vertex in graph.vertices.items():
            layer = int(name.partition(".")[0])
            monitor.completed(name, Frontier.up_to(at))
            match vertex.kind:
                case Kind.SOURCE:
                    yield (lambda p=name: monitor.durable_determinants(p, at)), name  # type: ignore[misc]  # noqa: B023
                case Kind.SINK:
                    yield (lambda p=name: monitor.committed(p, Frontier.up_to(at))), name  # type: ignore[misc]  # noqa: B023
                case _ if (at + layer) % LAYERS == 0:
                    yield (lambda p=name: monitor.durable_checkpoint(p, Frontier.up_to(at))), name  # type: ignore[misc]  # noqa: B023


def _milliseconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1000
