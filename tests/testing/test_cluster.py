"""A cluster on loopback survives the death of its parts, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boatlift.testing.cluster import StandaloneCluster, _processes, alive_workers

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

# Tasks of the first job wait until the test has killed an executor under them, so the kill hits the middle of a job.
DRIVER = """
import json, pathlib, sys, time
from boatlift.processes.session import session
from pyspark import TaskContext

url, folder, settings = sys.argv[1], pathlib.Path(sys.argv[2]), json.loads(sys.argv[3])
spark = session(url, **settings)

def wait_for(name):
    while not (folder / name).exists():
        time.sleep(0.02)

def held(batches):
    task = TaskContext.get()
    (folder / f"began-{task.partitionId()}-{task.attemptNumber()}").touch()
    wait_for("executor-killed")
    yield from batches

def total(body):
    rows = spark.range(0, 1000, 1, 4).mapInArrow(body, "id long").selectExpr("sum(id)", "count(*)").collect()
    return list(rows[0])

first = total(held)
(folder / "first-done").touch()
wait_for("worker-killed")
print(json.dumps([first, total(lambda batches: batches)]))
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    with StandaloneCluster(workers=2) as made:
        yield made


def wait_for(condition: Callable[[], object], driver: subprocess.Popen[str]) -> None:
    """Waits for a sign of the driver, as long as it lives; pytest's own timeout bounds it."""
    while not condition():
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.02)


def test_a_job_is_right_though_an_executor_and_then_a_worker_are_killed(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    import json

    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, cluster.url, str(tmp_path), json.dumps(dict(cluster.settings))],
        env=os.environ | dict(cluster.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        # Both executors are at work when one of them dies.
        wait_for(lambda: len(list(tmp_path.glob("began-*"))) >= 2, driver)
        killed = cluster.kill_executor()
        assert killed not in cluster.executors()
        (tmp_path / "executor-killed").touch()
        wait_for((tmp_path / "first-done").exists, driver)
        assert [path for path in tmp_path.glob("began-*") if not path.name.endswith("-0")], "the kill hit no task"
        cluster.kill_worker(0)
        assert cluster.executors(0) == []
        (tmp_path / "worker-killed").touch()
        out, err = driver.communicate()
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 0, err
    assert json.loads(out) == [[499500, 1000], [499500, 1000]]


def test_a_worker_can_be_added(cluster: StandaloneCluster) -> None:
    before = alive_workers(cluster._web)
    assert before is not None
    index = cluster.start_worker()
    assert alive_workers(cluster._web) == before + 1
    cluster.kill_worker(index)


def test_no_executor_to_kill_is_an_error(cluster: StandaloneCluster) -> None:
    with pytest.raises(LookupError, match="no executor runs"):
        cluster.kill_executor()


def test_nothing_is_left_behind() -> None:
    with StandaloneCluster(workers=1) as cluster:
        folder = cluster._folder
        sessions = {process.pid for process in (cluster._master, *cluster._workers) if process is not None}
        assert len({pid for pid, session in _processes() if session in sessions}) == 2
    assert [pid for pid, session in _processes() if session in sessions] == []
    assert not folder.exists()
