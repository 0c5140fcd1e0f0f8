"""The time of a small step with a log whose objects take 50 ms, over that with a log on the local disk.

Once with sinks that wait for the log, once with sinks that carry what it lacks, once with other processes that hold it;
for Kafka and for a function also with the store in a real object store, behind a proxy that delays each request.
The sink is a folder of Parquet, then a topic of Kafka, then a function, which can carry nothing, then a function of
rows without an aggregate, once with a key, by which it recognises them. One step at a time, from input to output.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, percentile, rounds
from benchmarks.harness.side import Side
from boatlift.testing.fault_proxy import FaultProxy
from boatlift.testing.kafka_broker import KafkaBroker
from boatlift.testing.object_server import ObjectServer

__all__ = ["measure"]

DELAY = 0.05
"""Seconds for each object of the log; of the object store, for each request."""

WARM_UP, SINGLE, ROWS = 20, 40, 1000
MOST = 1.15
DISK, WAITS, RIDES, HELD = "local disk", "50 ms, waits", "50 ms, carries", "50 ms, held by one"
BY_ROW = "50 ms, by row"
FAR_WAITS, FAR_RIDES, FAR_HELD = "object store, waits", "object store, carries", "object store, held by one"

STORES: dict[str, dict[str, Any]] = {
    DISK: {"rides": False},
    WAITS: {"delay": DELAY, "rides": False},
    RIDES: {"delay": DELAY, "rides": True},
    HELD: {"delay": DELAY, "rides": False, "peers": 1},
    BY_ROW: {"delay": DELAY, "rides": False, "identified": True},
    FAR_WAITS: {"rides": False},
    FAR_RIDES: {"rides": True},
    FAR_HELD: {"rides": False, "peers": 1},
}
"""What a sink waits for, each with the options of the side."""

SINKS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "folder": ({}, [DISK, WAITS, HELD, RIDES]),
    "Kafka": ({}, [DISK, WAITS, HELD, RIDES]),
    "Kafka, far": ({}, [DISK, FAR_WAITS, FAR_HELD, FAR_RIDES]),
    "function": ({"delivers": True}, [DISK, WAITS, HELD, FAR_WAITS, FAR_HELD]),
    "rows": ({"delivers": True, "row_wise": True}, [DISK, WAITS, HELD, BY_ROW]),
}
"""The sinks, each with the options of the side, and what it is measured with."""

MEANT = {
    "folder": [RIDES, HELD],
    "Kafka": [RIDES, HELD],
    "Kafka, far": [FAR_RIDES, FAR_HELD],
    "function": [HELD, FAR_HELD],
    "rows": [BY_ROW],
}


def measure(effort: Effort) -> Result:
    """Measure steps one at a time, in turns, for each sink."""
    ratios, figures = dict[str, float](), dict[str, Figure]()
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker())
        server = stack.enter_context(ObjectServer())
        proxy = stack.enter_context(FaultProxy(server.port, delay=DELAY))
        far = server.environment_at(proxy.port)
        for sink, (options, stores) in SINKS.items():
            given = {**options, "kafka": broker.bootstrap} if sink.startswith("Kafka") else options
            sides = {store: {**given, **STORES[store]} for store in stores}
            for store in (FAR_WAITS, FAR_RIDES, FAR_HELD):
                if store in sides:
                    sides[store]["url"] = server.url(f"{sink}/{store}".replace(" ", "-").replace(",", ""))
            made, found = _measured(effort, sides, far)
            ratios |= {f"{sink}: {name}": ratio for name, ratio in made.items()}
            figures |= {f"{sink}: {name}": figure for name, figure in found.items()}
    return Result(
        name="causal",
        target=f"p50 of a step with a log of {DELAY * 1000:.0f} ms over the local disk's: at most {MOST:g} where the "
        "sink carries, another process holds, or the sink recognises rows",
        met=all(ratios[f"{sink}: {store}"] <= MOST for sink, stores in MEANT.items() for store in stores),
        ratios=ratios,
        figures=figures,
    )


def _measured(
    effort: Effort, options: Mapping[str, dict[str, Any]], environment: Mapping[str, str]
) -> tuple[dict[str, float], dict[str, Figure]]:
    keys = effort.keys(100_000)
    state, small = data.all_keys(keys, keys), data.drawn_keys(ROWS, keys, 100)
    fed = dict.fromkeys(options, 0)

    def take(name: str, side: Side) -> float:
        visible = side.run(cycled(small, fed[name], 1))["visible"]
        fed[name] += 1
        return 1000 * float(visible[-1])

    def turn(name: str, side: Side) -> list[float]:
        take(name, side)  # a process that was stopped has to wake up
        return [take(name, side) for _ in range(SINGLE)]

    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name, given in options.items():  # a side that is stopped while it opens its sink finds its requests late
            side = sides[name] = stack.enter_context(Side("benchmarks.sides.boatlift_side", environment, **given))
            side.run(state)
            for _ in range(WARM_UP):
                take(name, side)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(each) for each in made] for name, made in turns.items()}
    late = {name: [percentile(each, 0.99) for each in made] for name, made in turns.items()}
    figures = {f"{name}, p50": Figure.of("ms", values) for name, values in middle.items()}
    figures |= {f"{name}, p99": Figure.of("ms", values) for name, values in late.items()}
    return {name: median_ratio(middle[name], middle[DISK]) for name in options if name != DISK}, figures
