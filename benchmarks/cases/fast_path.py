"""The fast path beside a failing batch: p99 of answers while the batch is killed, over p99 while it runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import mean, median
from typing import Any

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, percentile, rounds
from benchmarks.harness.side import Side
from benchmarks.sides.boatlift_side import SETTINGS
from boatlift.testing.cluster import StandaloneCluster

__all__ = ["measure"]

QUESTIONS, IN_A_FILE = 2_000, 10
EVERY = 0.5
"""Seconds from one file of questions to the next."""

KILL_EVERY = 7.0
KEYS = 1_000
CONDITIONS: Mapping[str, float | None] = {"undisturbed": None, "killed": KILL_EVERY}


def measure(effort: Effort) -> Result:
    """Measure on one machine's slots and on two executors; the conditions take turns."""
    files = QUESTIONS // IN_A_FILE // effort.rounds // effort.scale + 1
    questions = data.drawn_keys(IN_A_FILE, 2 * KEYS, 100)  # half of them are of unknown keys
    history = data.drawn_keys(effort.keys(400_000), KEYS, 1)
    ticks = [str(path) for path in cycled(data.drawn_keys(100, KEYS, 20, seed=1), 0, 200)]
    ratios, figures, busy = {}, {}, []
    for where, platform in {"local": _local, "two executors": _two_executors}.items():
        with platform(history=[str(path) for path in history]) as side:

            def turn(name: str, side: Side) -> Mapping[str, Any]:
                asked = [str(path) for path in cycled(questions, 0, files)]
                return side.ask("ask", questions=asked, every=EVERY, history=ticks, kill_every=CONDITIONS[name])

            turn("killed", side)  # a warm-up, of failures too
            turns = rounds(effort.rounds, dict.fromkeys(CONDITIONS, side), turn)
        late = {}
        for name, answers in turns.items():
            seconds = [second for answer in answers for second in answer["seconds"]]
            late[name] = percentile(seconds, 0.99)
            figures[f"{where}, {name}: p99"] = Figure.of("s", [percentile(a["seconds"], 0.99) for a in answers])
            figures[f"{where}, {name}: p50"] = Figure.of("s", [median(a["seconds"]) for a in answers])
        figures[f"{where}: kills"] = Figure.of("", [answer["kills"] for answer in turns["killed"]])
        figures[f"{where}: batch busy"] = Figure.of("", [answer["busy"] for answer in turns["undisturbed"]])
        busy.append(mean(answer["busy"] for answer in turns["undisturbed"]))
        ratios[where] = float(f"{late['killed'] / late['undisturbed']:.4g}")
    return Result(
        name="fast_path",
        target="p99 of answers while the batch fails and re-executes over p99 while it runs: at most 1.2; "
        "batch busy at least 0.9",
        met=max(ratios.values()) <= 1.2 and min(busy) >= 0.9,
        ratios=ratios,
        figures=figures,
    )


@contextmanager
def _local(**options: Any) -> Iterator[Side]:
    with Side("benchmarks.sides.fast_path_side", master="local[2]", settings=SETTINGS, **options) as side:
        yield side


@contextmanager
def _two_executors(**options: Any) -> Iterator[Side]:
    with StandaloneCluster(workers=2, memory="2g") as cluster:
        settings = {**cluster.settings, "spark.executor.memory": "1g"}
        with Side(
            "benchmarks.sides.fast_path_side", cluster.environment, master=cluster.url, settings=settings, **options
        ) as side:
            yield side
