"""How long a small step takes: 1M keys of state, 1,000 rows a step."""

from __future__ import annotations

import statistics
from contextlib import ExitStack

from benchmarks import data
from benchmarks.harness import Effort, Figure, Result, cycled, intervals_ms, median_ratio, percentile, rounds
from benchmarks.side import Side

__all__ = ["measure"]

WARM_UP, TURN, SINGLE = 20, 41, 10
ROWS = 1000


def measure(effort: Effort) -> Result:
    """Measures, in turns, steps whose input waits already, and then single steps from input to output."""
    keys = effort.keys(1_000_000)
    state = data.all_keys(keys, keys)
    small = data.drawn_keys(ROWS, keys, 100)
    fed = dict.fromkeys(("boatlift", "rocksdb", "memory"), 0)
    waiting: dict[str, list[float]] = {name: [] for name in fed}

    def take(name: str, side: Side, count: int) -> list[float]:
        answer = side.run(cycled(small, fed[name], count))
        fed[name] += count
        return intervals_ms(answer) if count > 1 else [1000 * answer["visible"][0]]

    def turn(name: str, side: Side) -> list[float]:
        steps = take(name, side, TURN)
        waiting[name] += [take(name, side, 1)[0] for _ in range(SINGLE)]
        return steps

    with ExitStack() as stack:
        sides = {
            "boatlift": stack.enter_context(Side("benchmarks.boatlift_side", every=20)),
            "rocksdb": stack.enter_context(Side("benchmarks.streaming_peer", state="rocksdb")),
            "memory": stack.enter_context(Side("benchmarks.streaming_peer", state="memory")),
        }
        for name, side in sides.items():
            side.run(state)
            take(name, side, WARM_UP)
        steps = rounds(effort.rounds, sides, turn)
    middle = {name: [statistics.median(turn) for turn in turns] for name, turns in steps.items()}
    figures = {}
    for name, turns in steps.items():
        figures[f"{name} p50"] = Figure.of("ms", middle[name])
        figures[f"{name} p99"] = Figure.of("ms", [percentile(turn, 0.99) for turn in turns])
        figures[f"{name} mean"] = Figure.of("ms", [statistics.fmean(turn) for turn in turns])
        figures[f"{name} single step, from input to output"] = Figure.of("ms", waiting[name])
    ratios = {
        "Structured Streaming, RocksDB": median_ratio(middle["boatlift"], middle["rocksdb"]),
        "Structured Streaming, in memory": median_ratio(middle["boatlift"], middle["memory"]),
    }
    return Result(
        name="step_latency",
        target="p50 of a step: at most half of Structured Streaming's",
        met=max(ratios.values()) <= 0.5,
        ratios=ratios,
        figures=figures,
    )
