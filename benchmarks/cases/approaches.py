"""The three approaches to fault tolerance beside one another: rate, resumption, bytes of each part of storage.

The work is a view with sum, min and count distinct by key. Its state is filled, 1,000-row steps make it older, and it
is killed by SIGKILL with its computer's scratch: at each age the first new output is waited for, in a warm session. The
steady rate is that of steps of 100,000 rows, in turns. With `BENCHMARK_LARGE=1` also 10M keys, and an age of 2,000
steps.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Answer, Side
from benchmarks.sides.approaches_side import APPROACHES
from benchmarks.sides.boatlift_side import SETTINGS
from boatlift.processes.warm_jvm import WarmJvm

__all__ = ["measure"]

LARGE = os.environ.get("BENCHMARK_LARGE") == "1"
KEYS = (10_000, 1_000_000, *((10_000_000,) if LARGE else ()))
AGES = (20, 200, *((2_000,) if LARGE else ()))
PARTS = ("input", "log", "deltas", "snapshots", "output", "memory")
SMALL, STEP, TURN = 1_000, 100_000, 12
MOST_AGED, LEAST_RATE = 1.1, 1.0
RESTORE, PERSISTENT = APPROACHES[1:]
"""The targets: resumption of persistent state with 100 times the keys; rate of checkpoint and restore over it."""


def measure(effort: Effort) -> Result:
    """Measure resumption and storage for each approach, number of keys and age; then the rates, in turns."""
    figures: dict[str, Figure] = {}
    seconds: dict[tuple[str, int], list[float]] = {}
    with WarmJvm(conf=SETTINGS) as jvm, tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        environment = {**jvm.environment(), "BOATLIFT_MEMORY": memory}
        _aged(environment, APPROACHES[0], 1_000, (1,), Effort(1))  # a JVM that has compiled nothing yet counts for none
        for keys in map(effort.keys, KEYS):
            for approach in APPROACHES:
                for age, answers, kept in _aged(environment, approach, keys, AGES, effort):
                    print(approach, keys, age, answers, kept, file=sys.stderr, flush=True)  # it takes some minutes
                    where = f"{approach}, {keys:,} keys, {age} steps"
                    figures[f"{where}: resumed"] = Figure.of("s", [float(each["seconds"]) for each in answers])
                    figures[f"{where}: replayed"] = Figure.of("steps", [float(each["replayed"]) for each in answers])
                    for part in PARTS:
                        figures[f"{where}: {part}"] = Figure.of("MB", [kept[part] / 1e6])
                    seconds.setdefault((approach, keys), []).append(min(float(each["seconds"]) for each in answers))
        rates, peaks = _rates(environment, effort)
    figures |= {f"{name}: peak": Figure.of("MB", [size / 1e6]) for name, size in peaks.items()}
    figures |= {f"{name}: rate": Figure.of("rows/s", values) for name, values in rates.items()}
    few, many = (min(seconds[PERSISTENT, effort.keys(keys)]) for keys in KEYS[:2])
    ratios = {
        "persistent state resumed with 100 times the keys": float(f"{many / few:.4g}"),
        "rate of checkpoint and restore over persistent state": median_ratio(rates[RESTORE], rates[PERSISTENT]),
    }
    return Result(
        name="approaches",
        target=f"resumption of persistent state with 100 times the keys at most {MOST_AGED:g} times as long; rate of "
        f"checkpoint and restore at least {LEAST_RATE:g} times that of persistent state",
        met=many / few <= MOST_AGED and list(ratios.values())[1] >= LEAST_RATE,
        ratios=ratios,
        figures=figures,
    )


def _aged(
    environment: dict[str, str], approach: str, keys: int, ages: tuple[int, ...], effort: Effort
) -> list[tuple[int, list[Answer], Answer]]:
    """Return for each age what the resumptions took, and the bytes that were kept just before the first."""
    small, found = data.drawn_keys(SMALL, keys, 100), []
    with Side("benchmarks.sides.approaches_side", environment, approach=approach) as side:
        side.run(data.all_keys(keys, min(keys, 1_000_000)))
        steps = 0
        for age in ages:
            side.run(cycled(small, steps, age + 9 - steps))  # the last checkpoint is some nine steps old
            steps = age + 9
            kept = side.ask("kept")
            answers = []
            for _ in range(effort.rounds):
                side.kill()
                side.start(start=False)
                answers.append(side.ask("resume", files=[str(path) for path in cycled(small, steps, 1)]))
                steps += 1
            found.append((age, answers, kept))
    return found


def _rates(environment: dict[str, str], effort: Effort) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Return the rates of each approach, and the resident bytes of its driver, JVM and workers at most."""
    keys, memory = effort.keys(KEYS[1]), {"BOATLIFT_MEMORY": environment["BOATLIFT_MEMORY"]}
    files = data.drawn_keys(STEP, keys, TURN)
    with ExitStack() as stack:
        sides = {
            approach: stack.enter_context(Side("benchmarks.sides.approaches_side", memory, approach=approach))
            for approach in APPROACHES
        }
        for side in sides.values():
            side.run(data.all_keys(keys, min(keys, 1_000_000)))
            side.run(files[:4])
        rates = rounds(effort.rounds, sides, lambda _, side: rows_per_second(side.run(files), STEP))
        return rates, {name: side.ask("kept")["peak"] for name, side in sides.items()}
