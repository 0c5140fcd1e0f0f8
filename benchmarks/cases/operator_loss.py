"""The silence at a sink after one Python worker, or one executor of two, was killed or stopped."""

from __future__ import annotations

import statistics

from benchmarks.harness.measuring import Effort, Figure, Result
from benchmarks.harness.side import Side
from boatlift.testing.cluster import StandaloneCluster

__all__ = ["measure"]

MOST = {
    ("worker", "SIGKILL"): 0.5,
    ("executor", "SIGKILL"): 1.0,
    ("worker", "SIGSTOP"): 10.0,
    ("executor", "SIGSTOP"): 20.0,
}
"""Seconds from the signal to a step that is done elsewhere."""

WITHIN = {"SIGKILL": 8.0, "SIGSTOP": 30.0}
"""The silence is looked for in so many seconds; until then everything is steady again."""


def measure(effort: Effort) -> Result:
    """Lose a part, wait until all is steady, and lose another one."""
    found: dict[tuple[str, str], list[float]] = {}
    settings = {"spark.driver.memory": "1g"}
    with Side("benchmarks.sides.loss_side", master="local[2,2]", settings=settings) as side:
        quiet = [side.ask("silence", seconds=5.0)["seconds"] for _ in range(effort.rounds)]
        for how in ("SIGKILL", "SIGSTOP"):
            found["worker", how] = [
                side.ask("silence", seconds=WITHIN[how] / 2, lose=how)["seconds"] for _ in range(2 * effort.rounds)
            ]
    with StandaloneCluster(workers=2, memory="2g") as cluster:
        settings = {**cluster.settings, "spark.executor.memory": "1g"}
        with Side("benchmarks.sides.loss_side", cluster.environment, master=cluster.url, settings=settings) as side:
            for how in ("SIGKILL", "SIGSTOP"):
                found["executor", how] = [
                    side.ask("silence", seconds=WITHIN[how], lose=how, pid=cluster.executors()[0])["seconds"]
                    for _ in range(effort.rounds)
                ]
    middle = {what: statistics.median(seconds) for what, seconds in found.items()}
    return Result(
        name="operator_loss",
        target=", ".join(f"{how} of one {what}: at most {most:g} s" for (what, how), most in MOST.items()),
        met=all(middle[what] <= most for what, most in MOST.items()),
        ratios={f"{how} of one {what}, s": middle[what, how] for what, how in MOST},
        figures={
            "no loss": Figure.of("s", quiet),
            **{f"{how} of one {what}": Figure.of("s", seconds) for (what, how), seconds in found.items()},
        },
    )
