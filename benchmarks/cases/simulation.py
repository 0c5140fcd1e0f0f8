"""The number of dataflows, with their failures, simulated in a minute on one core. No JVM, no peer."""

from __future__ import annotations

import statistics
import time

from benchmarks.harness.measuring import Effort, Figure, Result
from boatlift.simulation.faults import FaultKind
from boatlift.simulation.simulation import Simulation

__all__ = ["measure"]

SEEDS = 400
FAILURES = ("CRASH", "CRASH_IN_ACT", "ZOMBIE", "FAIL")


def measure(effort: Effort) -> Result:
    """Run the first seeds, each round the same ones, with all that machine and oracle check."""
    rates, steps, failures = [], [], []
    for _ in range(effort.rounds):
        seconds, acts, lost = 0.0, [], []
        for seed in range(SEEDS):
            began = time.perf_counter()
            simulation = Simulation(seed)
            simulation.run()
            seconds += time.perf_counter() - began
            acts.append(sum(line.startswith("Execute(") for line in simulation.trace))
            lost.append(sum(map(_is_failure, simulation.trace)))
        rates.append(60 * SEEDS / seconds)
        steps.append(statistics.mean(acts))
        failures.append(statistics.mean(lost))
    rate = statistics.median(rates)
    return Result(
        name="simulation",
        target="at least 1,000 seeds a minute, of about 50 steps and 3 failures each",
        met=rate >= 1000,
        ratios={"seeds a minute": float(f"{rate:.4g}")},
        figures={
            "seeds a minute": Figure.of("", rates),
            "steps a seed": Figure.of("", steps),
            "failures a seed": Figure.of("", failures),
        },
    )


def _is_failure(line: str) -> bool:
    """Return whether memory was lost; a sink that does not answer, or a source that answers twice, is no failure."""
    return line.startswith("after ") and any(FaultKind[kind].value in line for kind in FAILURES)
