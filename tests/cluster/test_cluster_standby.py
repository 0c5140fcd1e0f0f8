"""On a real cluster the owner is killed, and an executor beside: the standby goes on, with the bits of one machine.

It alone has what the owner showed last, whose log took nothing more.
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from boatlift.testing.cluster import StandaloneCluster
from support.flow_processes import DoubleProcesses
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

FILES, ROWS = 9, 2000

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F
from boatlift.spark.jobs import planner

planner.tasks_for = lambda _weight, _parallelism: 4  # every step is shuffled, small as it is
flow = bl.Dataflow("mine", determinants="peers:1")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v DOUBLE", max_files_per_step=1))
sums = rows.group_by("k").agg("sums", F.sum("v").alias("v"), F.avg("v").alias("mean"), policy=bl.Lazy(every=3))
sums.sink("history", bl.parquet("history"))
"""


def test_a_standby_takes_over_with_an_executor_killed_beside(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alone = DoubleProcesses(tmp_path / "alone", stack, FLOW, "--available-now", "--master", "local[2]", rows=ROWS)
        for _ in range(FILES):
            alone.add()
        assert alone.run().wait(240) == 0, alone.said()

        cluster = stack.enter_context(StandaloneCluster(workers=2, cores=2))
        settings = {**cluster.settings, "spark.cores.max": "2", "spark.executor.cores": "1"}
        named = [each for name, value in settings.items() for each in ("--conf", f"{name}={value}")]
        spread = DoubleProcesses(tmp_path / "spread", stack, FLOW, "--master", cluster.url, *named, rows=ROWS)
        owner = spread.run(environment=cluster.environment)
        spread.feed(4)
        standby = spread.standby(environment=cluster.environment)
        both = set(cluster.executors())
        assert len(both) == 4, "two of each"
        spread.wait_for_members(1)
        spread.slow(owner.pid)
        spread.feed(2)
        assert spread.shows_more_than_its_log()
        spread.add()
        os.kill(owner.pid, signal.SIGKILL)
        cluster.kill_executor(1)
        until(lambda: len(spread.steps()) == spread.fed, 240)
        spread.feed(FILES - spread.fed)
        assert "is taken for dead" in spread.said()
        assert spread.took_over_what_was_held()
        standby.send_signal(signal.SIGTERM)
        assert standby.wait(120) == 0, spread.said()
    assert [path.name for path in spread.steps()] == [path.name for path in alone.steps()]
    assert spread.bits() == alone.bits()
    spread.command("verify")
