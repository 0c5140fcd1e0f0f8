"""On a real cluster the owner is killed, and an executor beside: the standby goes on, with the bits of one machine."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from boatlift.testing.cluster import StandaloneCluster
from support.flow_processes import FlowProcesses
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

FILES, ROWS = 9, 2000

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F
from boatlift.spark.jobs import planner

planner.tasks_for = lambda _weight, _parallelism: 4  # every step is shuffled, small as it is
flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v DOUBLE", max_files_per_step=1))
sums = rows.group_by("k").agg("sums", F.sum("v").alias("v"), F.avg("v").alias("mean"), policy=bl.Lazy(every=3))
sums.sink("history", bl.parquet("history"))
"""


class Doubles(FlowProcesses):
    """Sums of doubles of many magnitudes, over files that come one by one."""

    def __init__(self, folder: Path, stack: ExitStack, *options: str) -> None:
        folder.mkdir()
        super().__init__(folder, stack, FLOW, *options)
        self._draw, self.fed = random.Random(5), 0
        (folder / "data").mkdir()

    def add(self) -> None:
        rows = (
            f"{self._draw.randrange(8)},{self._draw.uniform(-1, 1) * 10.0 ** self._draw.randrange(-6, 7)!r}"
            for _ in range(ROWS)
        )
        (self.folder / "draft").write_text("k,v\n" + "\n".join(rows) + "\n")
        (self.folder / "draft").rename(self.folder / "data" / f"{self.fed:03d}.csv")
        self.fed += 1

    def feed(self, files: int) -> None:
        for _ in range(files):
            self.add()
            until(lambda: len(self.steps()) == self.fed, 240)

    def bits(self) -> list[tuple[object, ...]]:
        return sorted(tuple(v.hex() if isinstance(v, float) else v for v in row.values()) for row in self.rows())


def test_a_standby_takes_over_with_an_executor_killed_beside(tmp_path: Path) -> None:
    with ExitStack() as stack:
        alone = Doubles(tmp_path / "alone", stack, "--available-now", "--master", "local[2]")
        for _ in range(FILES):
            alone.add()
        assert alone.run().wait(240) == 0, alone.said()

        cluster = stack.enter_context(StandaloneCluster(workers=2, cores=2))
        settings = {**cluster.settings, "spark.cores.max": "2", "spark.executor.cores": "1"}
        named = [each for name, value in settings.items() for each in ("--conf", f"{name}={value}")]
        spread = Doubles(tmp_path / "spread", stack, "--master", cluster.url, *named)
        owner = spread.run(environment=cluster.environment)
        spread.feed(4)
        standby = spread.standby(environment=cluster.environment)
        both = set(cluster.executors())
        assert len(both) == 4, "two of each"
        spread.add()
        os.kill(owner.pid, signal.SIGKILL)
        cluster.kill_executor(1)
        until(lambda: len(spread.steps()) == spread.fed, 240)
        spread.feed(FILES - spread.fed)
        assert "is taken for dead" in spread.said()
        standby.send_signal(signal.SIGTERM)
        assert standby.wait(120) == 0, spread.said()
    assert [path.name for path in spread.steps()] == [path.name for path in alone.steps()]
    assert spread.bits() == alone.bits()
    spread.command("verify")
