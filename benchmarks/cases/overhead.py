"""The cost of durability: throughput with log and checkpoints over that with log, manifests and fsync off.

And that of a standby: throughput with one that waits over that without; its processor time and memory.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, step_rates
from benchmarks.harness.side import Side
from benchmarks.harness.steady import Steady
from benchmarks.harness.usage import cores_used, resident_bytes

__all__ = ["measure"]

WARM_UP, TURN = 4, 11
EVERY = 5  # two checkpoints a turn

LEAST, LEAST_WITH_STANDBY, MOST_CORES = 0.95, 0.97, 0.05

DRAINED, REHEARSED, IDLE = 40, 30.0, 30.0
"""Steps of a turn; seconds until a standby that is ready has ended its rehearsal; seconds in which it is watched."""


def measure(effort: Effort) -> Result:
    """Measure each pair in turns."""
    durable, volatile = _durability(effort)
    alone, beside, cores, memory = _standby(effort)
    over, with_standby = median_ratio(durable, volatile), median_ratio(beside, alone)
    return Result(
        name="overhead",
        target=(
            f"throughput with durability over without: at least {LEAST:g}; with a standby over without: at least "
            f"{LEAST_WITH_STANDBY:g}, and at most {MOST_CORES:g} of a core while it is idle"
        ),
        met=over >= LEAST and with_standby >= LEAST_WITH_STANDBY and max(cores) <= MOST_CORES,
        ratios={"log, manifests and fsync off": over, "no standby": with_standby},
        figures={
            "durable": Figure.of("rows/s", durable),
            "volatile": Figure.of("rows/s", volatile),
            "no standby": Figure.of("rows/s", alone),
            "a standby": Figure.of("rows/s", beside),
            "processor time of an idle standby": Figure.of("cores", cores),
            "memory of an idle standby": Figure.of("GB", [each / 1e9 for each in memory]),
        },
    )


def _durability(effort: Effort) -> tuple[list[float], list[float]]:
    """Return the rates with log and checkpoints, and without."""
    rows = effort.keys(1_000_000)
    files = data.all_keys(rows, rows) + data.drawn_keys(rows, rows, 12)
    with ExitStack() as stack:
        sides = {
            "durable": stack.enter_context(Side("benchmarks.sides.boatlift_side", every=EVERY)),
            "volatile": stack.enter_context(Side("benchmarks.sides.boatlift_side", durable=False)),
        }
        rates = step_rates(effort, sides, files, rows, warm_up=WARM_UP, count=TURN)
    return rates["durable"], rates["volatile"]


def _standby(effort: Effort) -> tuple[list[float], list[float], list[float], list[int]]:
    """Return the rates without a standby, and with one; its cores, and its bytes, while neither has work."""
    rows = effort.keys(200_000)
    alone, beside, cores, memory = list[float](), list[float](), list[float](), list[int]()
    with tempfile.TemporaryDirectory() as folder:
        steady = Steady(Path(folder))
        with steady.running():
            steady.drain(WARM_UP, rows)
            for number in range(effort.rounds):
                if number % 2:
                    alone.append(steady.drain(DRAINED, rows))
                with steady.running("--standby") as standby:
                    while not steady.says(standby, "is ready"):
                        time.sleep(0.1)
                    time.sleep(REHEARSED)
                    cores.append(cores_used(standby.pid, IDLE))
                    memory.append(resident_bytes(standby.pid))
                    beside.append(steady.drain(DRAINED, rows))
                if not number % 2:
                    alone.append(steady.drain(DRAINED, rows))
    return alone, beside, cores, memory
