"""On a real cluster executors are stopped and killed in a step; between steps a worker is killed, another one started.

The bits are those of one machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from boatlift.testing.cluster import StandaloneCluster
from boatlift.testing.object_server import ObjectServer
from support.buckets import upload
from support.cluster.data import FILES, make_data
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(900)]

SUPPORT = Path(__file__).parents[1]


def driver(
    master: str, folder: Path, settings: Mapping[str, str], extra: Mapping[str, str], tasks: int
) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **extra, "PYTHONPATH": str(SUPPORT), "BOATLIFT_TEST_FOLDER": str(folder)}
    command = [
        sys.executable,
        "-m",
        "support.cluster.driver",
        master,
        str(folder),
        json.dumps(dict(settings)),
        str(tasks),
    ]
    return subprocess.Popen(command, env=environment, stderr=(folder / "driver.log").open("wb"))


History = dict[str, set[tuple[object, ...]]]


def history(folder: Path) -> History:
    """What was put out step by step, each float with all of its bits; the order of rows in a step is no part of it."""
    return {
        path.name: {
            tuple(v.hex() if isinstance(v, float) else v for v in row.values())
            for row in pq.read_table(path).to_pylist()
        }
        for path in folder.glob("*.parquet")
    }


def rounded(history: History) -> History:
    """The same to nine digits."""
    return {
        name: {tuple(f"{float.fromhex(v):.9g}" if isinstance(v, str) else v for v in row) for row in rows}
        for name, rows in history.items()
    }


def wait_for(sign: Callable[[], object], process: subprocess.Popen[bytes], folder: Path) -> None:
    while not sign():
        assert process.poll() is None, (folder / "driver.log").read_text()[-3000:]
        time.sleep(0.02)


def test_bits_are_the_same_though_executors_and_workers_go_and_come(tmp_path: Path) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    for folder in (alone, spread):
        make_data(folder / "data")
    (alone / "killed").touch()
    local = driver("local[2,4]", alone, {}, {}, tasks=2)
    assert local.wait() == 0, (alone / "driver.log").read_text()[-3000:]

    with StandaloneCluster(workers=2) as cluster:
        process = driver(cluster.url, spread, cluster.settings, cluster.environment, tasks=4)
        try:
            wait_for(lambda: list(spread.glob("began-*")), process, spread)
            frozen = cluster.executors()[0]
            os.kill(frozen, signal.SIGSTOP)
            until(lambda: frozen not in cluster.executors(), seconds=60)  # Spark's own settings take 120 and more
            until(lambda: len(cluster.executors()) == 2)
            cluster.kill_executor()
            (spread / "killed").touch()
            wait_for((spread / "worker-to-be-killed").exists, process, spread)
            cluster.kill_worker(0)
            (spread / "worker-killed").touch()
            wait_for((spread / "worker-to-be-started").exists, process, spread)
            further = cluster.start_worker()
            wait_for(lambda: cluster.executors(further), process, spread)
            (spread / "worker-started").touch()
            assert process.wait() == 0, (spread / "driver.log").read_text()[-3000:]
        finally:
            process.kill()
            process.wait()

    expected = history(alone / "history")
    assert len(expected) == FILES
    assert history(spread / "history") == expected
    for name in ("windows", "first", "reminders", "walks"):
        of_one_machine = history(alone / name)
        assert len(of_one_machine) == FILES
        assert sum(map(len, of_one_machine.values())) > FILES
        assert history(spread / name) == of_one_machine

    # Worth something only if it can fail: with Spark's own float sum put into the engine it does.
    control, other = history(alone / "control"), history(spread / "control")
    assert rounded(other) == rounded(control)
    assert other != control


def test_executors_go_from_three_to_one_between_runs(tmp_path: Path) -> None:
    alone, spread = tmp_path / "alone", tmp_path / "spread"
    for folder in (alone, spread):
        make_data(folder / "data")
        for reached in ("killed", "worker-killed", "worker-started"):
            (folder / reached).touch()
    local = driver("local[2,4]", alone, {}, {}, tasks=2)
    assert local.wait() == 0, (alone / "driver.log").read_text()[-3000:]

    later = sorted((spread / "data").iterdir())[FILES // 2 :]
    held = [path.rename(spread / path.name) for path in later]
    for workers, tasks in ((3, 4), (1, 2)):
        with StandaloneCluster(workers=workers) as cluster:
            process = driver(cluster.url, spread, cluster.settings, cluster.environment, tasks)
            assert process.wait() == 0, (spread / "driver.log").read_text()[-3000:]
        for path in held:
            path.rename(spread / "data" / path.name)
        held = []

    for name in ("history", "windows", "first", "reminders", "walks"):
        of_one_machine = history(alone / name)
        assert len(of_one_machine) == FILES
        assert history(spread / name) == of_one_machine


def test_machines_share_nothing_but_the_store(tmp_path: Path, object_server: ObjectServer) -> None:
    """Input, store and scratch are in the bucket, and each worker has a disk of its own.

    Spark takes and gives back executors as it needs them. One is killed, a worker is, and another worker comes.
    """
    alone, spread, scratch = tmp_path / "alone", tmp_path / "spread", tmp_path / "scratch"
    for folder in (alone, spread):
        make_data(folder / "data")
    scratch.mkdir()
    upload(spread / "data", "cluster/data")
    shutil.rmtree(spread / "data")
    dynamic = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.shuffleTracking.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "1",
        "spark.dynamicAllocation.executorIdleTimeout": "3s",
    }
    (alone / "killed").touch()
    local = driver("local[2,4]", alone, {}, {}, tasks=2)
    assert local.wait() == 0, (alone / "driver.log").read_text()[-3000:]

    with StandaloneCluster(workers=2, private=[scratch]) as cluster:
        places = {
            "BOATLIFT_TEST_STORE": object_server.url("cluster/store"),
            "BOATLIFT_TEST_DATA": object_server.url("cluster"),
            "BOATLIFT_SCRATCH": f"store:{scratch}",
        }
        settings = {**cluster.settings, **dynamic}
        process = driver(cluster.url, spread, settings, {**cluster.environment, **places}, tasks=4)
        try:
            wait_for(lambda: list(spread.glob("began-*")), process, spread)
            cluster.kill_executor()
            (spread / "killed").touch()
            wait_for((spread / "worker-to-be-killed").exists, process, spread)
            cluster.kill_worker(0)
            (spread / "worker-killed").touch()
            wait_for((spread / "worker-to-be-started").exists, process, spread)
            cluster.start_worker()
            (spread / "worker-started").touch()
            assert process.wait() == 0, (spread / "driver.log").read_text()[-3000:]
        finally:
            process.kill()
            process.wait()

    for name in ("history", "windows", "first", "reminders", "walks"):
        of_one_machine = history(alone / name)
        assert len(of_one_machine) == FILES
        assert history(spread / name) == of_one_machine
