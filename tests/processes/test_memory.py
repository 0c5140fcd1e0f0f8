"""The memory of Spark's processes: theirs, and no other's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import SparkContext

from boatlift.processes.memory import PAUSE, SparkMemory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MEGABYTES = 64

PARENT = """
import subprocess, sys
code = "import sys; held = b'x' * ({size} << 20); print('there', flush=True); sys.stdin.read()"
with subprocess.Popen([sys.executable, "-c", code], stdin=sys.stdin) as child:
    pass
"""


def test_processes_below_it_are_workers_and_others_are_not() -> None:
    """A process with a child stands for the JVM with a worker."""
    code = PARENT.format(size=MEGABYTES)
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        found = SparkMemory(lambda: process.pid).resident_bytes()
        assert MEGABYTES << 20 < found["workers"] < (MEGABYTES + 64) << 20
        assert 1 << 20 < found["jvm"] < 64 << 20
        process.communicate()
    assert SparkMemory(lambda: process.pid).resident_bytes() == {}
    assert SparkMemory(lambda: None).resident_bytes() == {}


def test_many_processes_are_looked_at_seldom() -> None:
    now = 0.0
    looks: list[float] = []

    def jvm() -> None:
        nonlocal now
        looks.append(now)
        now += 0.25  # a look takes that long

    memory = SparkMemory(jvm, lambda: now)
    for _ in range(3):
        memory.resident_bytes()
        now += PAUSE * 0.25 / 2
    assert looks == [0.0, 0.25 + PAUSE * 0.25]


@pytest.mark.spark
def test_the_jvm_of_a_session_and_its_workers_are_found(spark: SparkSession) -> None:
    assert spark.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).collect() == [1, 2, 3, 4]
    found = SparkMemory().resident_bytes()
    (resident,) = [
        int(line.split()[1]) << 10
        for line in Path(f"/proc/{SparkContext._gateway.proc.pid}/status").read_text("utf-8").splitlines()
        if line.startswith("VmRSS")
    ]
    assert found["jvm"] == pytest.approx(resident, rel=0.2)
    assert found["workers"] > 10 << 20
