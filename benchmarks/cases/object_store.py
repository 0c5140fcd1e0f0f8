"""The keyed aggregation with its store in an object store behind a network of 50 ms, over that with a local folder.

Once with scratch on the local disk, and once with scratch in the store: tasks upload what they write.

SeaweedFS runs on this machine, and a proxy before it delays each request. In earnest both are elsewhere: so they have
the last processor for themselves, and each side the others.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from tempfile import TemporaryDirectory

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled, median_ratio, rounds, rows_per_second
from benchmarks.harness.side import Side
from boatlift.testing.fault_proxy import FaultProxy
from boatlift.testing.object_server import ObjectServer

__all__ = ["measure"]

DELAY = 0.05
"""Seconds for each request."""

WARM_UP, TURN = 4, 6
EVERY = 5  # so that each turn has a checkpoint
SMALL, SMALL_STEPS = 100, 40
"""Rows of a small step, and how many there are in a turn."""

OBJECTS, SCRATCH, DISK = "object store", "object store, scratch in it", "local folder"
LEAST = {OBJECTS: 0.95, SCRATCH: 0.8}


def measure(effort: Effort) -> Result:
    """Measure the throughput of all, in turns; then small steps, whose rows wait for the log."""
    rows = effort.keys(1_000_000)
    large = data.all_keys(rows, rows) + data.drawn_keys(rows, rows, 12)
    small = data.drawn_keys(SMALL, rows, SMALL_STEPS)
    fed = dict.fromkeys((OBJECTS, SCRATCH, DISK), 0)

    def turn(name: str, side: Side, count: int = TURN) -> float:
        answer = side.run(cycled(large, fed[name], count))
        fed[name] += count
        return rows_per_second(answer, rows)

    def small_step(_: str, side: Side) -> float:
        taken = []
        for file in small:
            (seconds,) = side.run([file])["visible"]
            taken.append(float(seconds))
        return sorted(taken)[len(taken) // 2] * 1000

    whole = os.sched_getaffinity(0)
    *others, last = sorted(whole)
    processors = others or [last]
    with ExitStack() as stack:
        stack.callback(os.sched_setaffinity, 0, whole)
        os.sched_setaffinity(0, {last})  # of this process, which has the proxy, and of the server
        server = stack.enter_context(ObjectServer())
        proxy = stack.enter_context(FaultProxy(server.port, delay=DELAY))
        environment = server.environment_at(proxy.port)
        folder = stack.enter_context(TemporaryDirectory())

        def far(name: str, scratch: str) -> Side:
            there = {**environment, "BOATLIFT_SCRATCH": scratch}
            return stack.enter_context(
                Side(
                    "benchmarks.sides.boatlift_side",
                    there,
                    processors=processors,
                    every=EVERY,
                    url=server.url(f"bench/{name}"),
                )
            )

        sides = {
            OBJECTS: far("sums", f"{folder}/local"),
            SCRATCH: far("scratch", f"store:{folder}/uploaded"),
            DISK: stack.enter_context(Side("benchmarks.sides.boatlift_side", processors=processors, every=EVERY)),
        }
        for name, side in sides.items():
            turn(name, side, WARM_UP)
        rates = rounds(effort.rounds, sides, turn)
        steps = rounds(effort.rounds, sides, small_step)
    ratios = {name: median_ratio(rates[name], rates[DISK]) for name in LEAST}
    figures = {name: Figure.of("rows/s", values) for name, values in rates.items()}
    figures |= {f"{name}, p50 of a step of {SMALL} rows": Figure.of("ms", values) for name, values in steps.items()}
    return Result(
        name="object_store",
        target=f"rows/s with the store {DELAY * 1000:.0f} ms away over those on the local disk: at least "
        + ", ".join(f"{least:g} ({name})" for name, least in LEAST.items()),
        met=all(ratios[name] >= least for name, least in LEAST.items()),
        ratios=ratios,
        figures=figures,
    )
