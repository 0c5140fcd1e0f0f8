"""Runs the cluster test's dataflow in a process of its own: master, folder, settings (JSON), tasks a step."""

import json
import sys
import time
from pathlib import Path

import boatlift as bl
from boatlift.engine import spark_engine

master, folder, settings, tasks = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
spark_engine.ONE_TASK_BYTES = 0  # every step is shuffled, small as it is
spark_engine._power_of_two = lambda _: tasks
spark = bl.session(master, **settings)
from support.cluster_flow import SCHEMA, make_flow  # noqa: E402 - needs the session


def between_steps(progress: bl.Progress) -> None:
    """Waits after step 3 until the test has killed a worker."""
    if master.startswith("spark") and progress.what == "commit" and progress.time == 3:
        (folder / "between").touch()
        while not (folder / "worker-killed").exists():
            time.sleep(0.02)


bl.run(make_flow(), folder / "store", available_now=True, spark=spark, on_progress=between_steps)

# The control: Spark's own float sum over the same rows, divided and shuffled in several ways.
rows = spark.read.schema(SCHEMA).option("header", True).csv(str(folder / "data")).cache()
own = set()
for parts in range(1, 9):
    sums = rows.repartition(parts).groupBy("k").agg({"v": "sum"}).orderBy("k").collect()
    own.add(tuple(float(row[1]).hex() for row in sums))
(folder / "own.json").write_text(json.dumps(sorted(own)))
spark.stop()
