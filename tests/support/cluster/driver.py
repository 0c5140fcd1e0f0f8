"""Runs the cluster test's dataflow in a process of its own: master, folder, settings (JSON), tasks a step.

Then once more, undisturbed, with Spark's own float sum put into the engine: a control that must go wrong.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs import planner as step_plans

master, folder, settings, tasks = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
step_plans.tasks_for = lambda _weight, _parallelism: tasks  # every step is shuffled, small as it is

build = CompiledUnit.frame


def build_with_the_sum_of_spark(unit: CompiledUnit, *step: Any) -> DataFrame:
    """What the engine must never do: the rows of each task are summed by Spark before the state sees them."""
    rows = build(unit, *step)
    keys = ["k", "_hash"]
    arguments = [F.sum(name).alias(name) for name in rows.columns if name not in keys]
    return rows.repartition(tasks).groupBy(*keys).agg(*arguments)


spark = bl.session(master, **settings)
from support.cluster.flow import make_flow  # noqa: E402 - needs the session

AWAITED = {3: "killed", 4: "started"}
"""The step of the sink behind which the test kills a worker, or starts one."""


def between_steps(progress: bl.Progress) -> None:
    """Waits until the test has done what it does behind a step."""
    awaited = (
        AWAITED.pop(progress.time, None) if progress.what == "commit" and progress.processor == "history" else None
    )
    if awaited is not None and master.startswith("spark"):
        (folder / f"worker-to-be-{awaited}").touch()
        while not (folder / f"worker-{awaited}").exists():
            time.sleep(0.02)


flow = make_flow(folder / "history", event_time=folder)
bl.run(
    flow,
    os.environ.get("BOATLIFT_TEST_STORE", folder / "store"),
    available_now=True,
    spark=spark,
    on_progress=between_steps,
)
CompiledUnit.frame = build_with_the_sum_of_spark  # type: ignore[method-assign]
bl.run(make_flow(folder / "control"), folder / "control-store", available_now=True, spark=spark)
spark.stop()
