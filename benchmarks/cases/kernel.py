"""The time that the aggregate's kernel takes, phase by phase: one task's part of a step, no Spark.

Two cases, as in the benchmarks of whole dataflows: large steps (500,000 rows a task, keys drawn from 500,000, a count
and a sum of doubles), and small steps (500 and 1,000 rows) against 5M keys a task in about 25 runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from boatlift.kernels import step_state as state_module
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate import kernel as kernel_module
from boatlift.kernels.kernel import ROWS_INPUT, StepOutput
from boatlift.kernels.step_state import STATE, StepState
from boatlift.state.key_groups import ALL_KEY_GROUPS
from boatlift.state.merge import merge_runs
from boatlift.state.opened import RunsOnDemand, forget_runs, open_run
from boatlift.storage.records.records import RunRef

LAYOUT = Layout(
    (("key", pa.int64()),),
    (
        AggregateColumn("count_all", None, "count", None, pa.int64()),
        AggregateColumn("sum", "value", "sum", pa.float64(), pa.float64()),
    ),
)
BATCH = 10_000
PHASES = (
    (kernel_module, "aggregate"),
    (kernel_module, "previous_of"),
    (kernel_module, "change_of"),
    (state_module, "write_run"),
)


def batches(keys: np.ndarray, hashes: np.ndarray, values: np.ndarray) -> list[pa.RecordBatch]:
    """Cut rows into batches as Spark does."""
    whole = pa.record_batch({"key": keys, "_hash": hashes, "value": values})
    return [whole.slice(start, BATCH) for start in range(0, whole.num_rows, BATCH)]


def take(
    kernel: AggregateKernel, rows: Sequence[pa.RecordBatch], runs: Sequence[RunRef], path: Path, time: int
) -> StepOutput:
    """Take a step of one task."""
    opened = {STATE: RunsOnDemand([(run, run.name) for run in runs], kernel.parts[STATE])}
    return kernel.step({ROWS_INPUT: rows}, StepState(opened, lambda _: path, time, ALL_KEY_GROUPS))


class Clock:
    """Adds up the time spent in each phase of the kernel, by putting a wrapper in the place of each."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        for module, phase in PHASES:
            setattr(module, phase, self._wrap(phase, getattr(module, phase)))

    def _wrap(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            result = function(*args, **options)
            self.spent[phase] = self.spent.get(phase, 0.0) + time.perf_counter() - begin
            return result

        return timed


def measure(
    name: str, clock: Clock, kernel: AggregateKernel, folder: Path, runs: Sequence[RunRef], rows: Sequence[Any]
) -> None:
    """Take one step a repeat, all against the same runs, and print medians in ms."""
    phases: dict[str, list[float]] = {}
    for number, step in enumerate(rows):
        clock.spent = {}
        begin = time.perf_counter()
        result = take(kernel, step, runs, folder / f"{name}-{number}", number)
        clock.spent["total"] = time.perf_counter() - begin
        for path in (folder / f"{name}-{number}",):
            path.unlink()
        if number:  # the first is not warm
            for phase, seconds in clock.spent.items():
                phases.setdefault(phase, []).append(seconds * 1e3)
    text = "  ".join(f"{phase} {statistics.median(ms):.2f}" for phase, ms in phases.items())
    sys.stdout.write(
        f"{name}: ms (median of {len(rows) - 1}): {text}  [min {min(phases['total']):.2f}]; "
        f"{len(runs)} runs, {sum(run.rows for run in runs):,} rows; gives {result.rows:,} rows\n"
    )


def large(clock: Clock, folder: Path, rows: int, repeats: int) -> None:
    """Measure a large step against what merging leaves of many such steps."""
    random = np.random.default_rng(1)
    keys, hashes = (random.integers(-(2**63), 2**63, rows) for _ in range(2))
    kernel = AggregateKernel(LAYOUT, "benchmark")

    def step() -> list[pa.RecordBatch]:
        drawn = random.integers(0, rows, rows)
        return batches(keys[drawn], hashes[drawn], random.random(rows))

    runs: list[RunRef] = []
    for number in range(8):
        runs.append(take(kernel, step(), runs, folder / f"large-run-{number}", number).runs[STATE])
    begin = time.perf_counter()
    codec = kernel.parts[STATE]
    opened = list(RunsOnDemand([(run, run.name) for run in runs[:6]], codec))
    merged = merge_runs(codec, opened, folder / "large-merged", processor="benchmark", share=ALL_KEY_GROUPS)
    assert merged is not None
    sys.stdout.write(f"merge 6 runs of {runs[0].rows:,} rows: {(time.perf_counter() - begin) * 1e3:.1f} ms\n")
    begin = time.perf_counter()
    open_run(merged.name, merged, codec=codec)
    sys.stdout.write(f"open {merged.size:,} bytes: {(time.perf_counter() - begin) * 1e3:.1f} ms\n")
    measure("first step", clock, kernel, folder, [], [step() for _ in range(repeats + 1)])
    measure("one run", clock, kernel, folder, [merged], [step() for _ in range(repeats + 1)])
    state = [merged, *runs[6:]]
    measure("three runs", clock, kernel, folder, state, [step() for _ in range(repeats + 1)])


def small(clock: Clock, folder: Path, keys: int, repeats: int) -> None:
    """Measure small steps against a large state in tiers."""
    random = np.random.default_rng(2)
    kernel = AggregateKernel(LAYOUT, "benchmark")
    all_keys, all_hashes = (random.integers(-(2**63), 2**63, keys) for _ in range(2))
    sizes = [keys, *[keys // 40] * 4, *[32_000] * 6, *[4_000] * 7, *[500] * 7]
    runs: list[RunRef] = []
    for number, size in enumerate(sizes):
        drawn = np.arange(keys) if size == keys else random.integers(0, keys, size)
        rows = batches(all_keys[drawn], all_hashes[drawn], random.random(size))
        runs.append(take(kernel, rows, [], folder / f"small-run-{number}", number).runs[STATE])
    for size in (500, 1_000):
        steps = []
        for _ in range(repeats + 1):
            drawn = random.integers(0, keys, size)
            steps.append(batches(all_keys[drawn], all_hashes[drawn], random.random(size)))
        measure(f"{size} rows", clock, kernel, folder, runs, steps)


def main() -> None:
    """Run both cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="rows and keys of a large step")
    parser.add_argument("--keys", type=int, default=5_000_000, help="keys of the state for small steps")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--only", choices=("large", "small"))
    options = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        if options.only != "small":
            large(clock, Path(folder), options.rows, options.repeats)
            forget_runs()
        if options.only != "large":
            small(clock, Path(folder), options.keys, options.repeats * 5)
            forget_runs()


if __name__ == "__main__":
    main()
