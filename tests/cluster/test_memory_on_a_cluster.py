"""On a cluster a state in memory is refused by name, and in place the same program runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.testing.cluster import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(600)]

DRIVER = """
import json
import sys

import boatlift as bl
from pyspark.sql import functions as F

spark = bl.session(sys.argv[1], **json.loads(sys.argv[2]))


def run(policy):
    flow = bl.Dataflow("counts")
    rows = flow.source("rows", bl.generator({"k": "id % 3"}, rows_per_step=6, steps=2))
    rows.group_by("k").agg("counts", F.count("*").alias("n"), policy=policy).sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)


try:
    run(bl.Lazy(20, state="in memory"))
except bl.InvalidError as error:
    print(error)
run(bl.Lazy(20))
print("ran")
spark.stop()
"""


def test_a_state_in_memory_needs_tasks_on_the_drivers_computer(tmp_path: Path) -> None:
    with StandaloneCluster(workers=1) as cluster:
        ran = subprocess.run(
            [sys.executable, "-c", DRIVER, cluster.url, json.dumps(dict(cluster.settings))],
            env={**os.environ, **cluster.environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
    told = ran.stdout.splitlines()
    assert told[-1:] == ["ran"], ran.stderr[-3000:]
    assert told[0].startswith(
        f"[BAD_POLICY] counts has its state in memory, which tasks on {cluster.url} do not share: "
    )
