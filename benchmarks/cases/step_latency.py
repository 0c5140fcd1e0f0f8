"""The time of a small step: 1M keys of state, 1,000 rows a step.

One step at a time, from input to output: the next step's file comes once the output of the step before is visible.
Where many files wait, the mean of the whole is taken: Boatlift runs small steps that wait as one job, so that their
median says nothing.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, percentile, rounds
from benchmarks.harness.side import Side

__all__ = ["measure"]

WARM_UP, SINGLE, WAITING = 20, 40, 41
ROWS = 1000

MIDDLE, LATE = 0.25, 0.4


def measure(effort: Effort) -> Result:
    """Measure, in turns, steps one at a time, and then steps whose input waits already."""
    keys = effort.keys(1_000_000)
    state = data.all_keys(keys, keys)
    small = data.drawn_keys(ROWS, keys, 100)
    fed = dict.fromkeys(("boatlift", "rocksdb", "memory"), 0)

    def take(name: str, side: Side, count: int) -> float:
        """Feed files; return the milliseconds until all their output is visible."""
        visible = side.run(cycled(small, fed[name], count))["visible"]
        fed[name] += count
        return 1000 * float(visible[-1])

    def turn(name: str, side: Side) -> tuple[list[float], float]:
        take(name, side, 1)  # a process that was stopped has to wake up
        alone = [take(name, side, 1) for _ in range(SINGLE)]
        return alone, take(name, side, WAITING) / WAITING

    with ExitStack() as stack:
        sides = {
            "boatlift": stack.enter_context(Side("benchmarks.sides.boatlift_side", every=20)),
            "rocksdb": stack.enter_context(Side("benchmarks.peers.streaming_peer", state="rocksdb")),
            "memory": stack.enter_context(Side("benchmarks.peers.streaming_peer", state="memory")),
        }
        for name, side in sides.items():
            side.run(state)
            take(name, side, WARM_UP)
            for _ in range(WARM_UP):
                take(name, side, 1)
        turns = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(alone) for alone, _ in made] for name, made in turns.items()}
    waiting = {name: [each for _, each in made] for name, made in turns.items()}
    late = {name: [percentile(alone, 0.99) for alone, _ in made] for name, made in turns.items()}
    figures = {}
    for name in turns:
        figures[f"{name} p50"] = Figure.of("ms", middle[name])
        figures[f"{name} p99"] = Figure.of("ms", late[name])
        figures[f"{name}, input waiting, mean"] = Figure.of("ms", waiting[name])
    peers = {"rocksdb": "Structured Streaming, RocksDB", "memory": "Structured Streaming, in memory"}
    ratios = {told: median_ratio(middle["boatlift"], middle[name]) for name, told in peers.items()}
    latest = {f"{told}, p99": median_ratio(late["boatlift"], late[name]) for name, told in peers.items()}
    together = {
        f"{told}, input waiting": median_ratio(waiting["boatlift"], waiting[name]) for name, told in peers.items()
    }
    return Result(
        name="step_latency",
        target=f"a step, from input to output, over Structured Streaming's: at most {MIDDLE:g}, p99 at most {LATE:g}",
        met=max(ratios.values()) <= MIDDLE and max(latest.values()) <= LATE,
        ratios=ratios | latest | together,
        figures=figures,
    )
