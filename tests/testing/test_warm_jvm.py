"""A warm JVM serves one driver after another, whatever became of the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm

pytestmark = pytest.mark.spark

KILLED_INSIDE_A_JOB = """
import os, pathlib, signal, sys, time
from boatlift.processes.session import session

spark = session()
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
spark.range(3).createOrReplaceTempView("left_behind")
sign = pathlib.Path(sys.argv[1])

def slow(batches):
    for batch in batches:
        sign.touch()
        time.sleep(120)
        yield batch

import threading
def die():
    while not sign.exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
threading.Thread(target=die, daemon=True).start()
spark.range(0, 2, 1, 1).mapInArrow(slow, "id long").collect()
"""

SUCCESSOR = """
import os, time
import pyarrow as pa
from boatlift.processes.session import session

spark = session()
tracker = spark.sparkContext._jsc.sc().statusTracker()
while tracker.getActiveJobIds():
    time.sleep(0.01)

def who(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"id": batch.column("id"), "pid": pa.array([os.getpid()] * batch.num_rows)})

rows = spark.range(0, 100, 1, 2).mapInArrow(who, "id long, pid long").collect()
views = [table.name for table in spark.catalog.listTables()]
print(sum(row.id for row in rows), len(views), spark.conf.get("spark.sql.session.timeZone"))
print(*sorted({row.pid for row in rows}))
"""


LEAVES_OBJECTS = """
import os, signal
from boatlift.processes.session import session

spark = session()
frames = [spark.range(10).selectExpr(f"id + {n} AS id") for n in range(100)]
table = spark.sparkContext._gateway.java_gateway_server.getGateway().getBindings()
numbers = [int(str(key)[1:]) for key in table.keySet().toArray() if str(key)[1:].isdigit()]
print(len(numbers) > len(frames), min(numbers), max(numbers), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def drive(jvm: WarmJvm, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, env=jvm.environment(), capture_output=True, text=True, timeout=100, check=False)


def test_a_driver_works_after_its_predecessor_was_killed_inside_a_job(warm_jvm: WarmJvm, tmp_path: Path) -> None:
    killed = drive(warm_jvm, KILLED_INSIDE_A_JOB, str(tmp_path / "inside"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    resumed = drive(warm_jvm, SUCCESSOR)

    assert resumed.returncode == 0, resumed.stderr
    # Its job ends (the wait above would run into the time limit), its view and time zone are gone.
    assert resumed.stdout.splitlines()[0] == "4950 0 UTC"


def test_python_workers_stay_warm_from_driver_to_driver(warm_jvm: WarmJvm) -> None:
    first = drive(warm_jvm, SUCCESSOR)
    second = drive(warm_jvm, SUCCESSOR)

    # Which idle worker takes a task is chance; none of a new session's would be among the old ones.
    old, new = (set(answer.stdout.splitlines()[1].split()) for answer in (first, second))
    assert old & new, (first.stderr, second.stderr)


def test_objects_of_killed_drivers_do_not_fill_the_jvm(warm_jvm: WarmJvm) -> None:
    before = 0
    for _ in range(3):
        counts, first, last = drive(warm_jvm, LEAVES_OBJECTS).stdout.split()
        assert counts == "True"
        assert int(first) > before, "objects of a driver that is gone are kept"
        before = int(last)


def test_a_stopped_context_can_be_started_again_and_the_jvm_ends_with_its_owner() -> None:
    with WarmJvm(warm_up=False) as jvm:
        os.kill(jvm.pid, 0)
        stopped = drive(jvm, "from boatlift.processes.session import session; session().stop()")
        again = drive(jvm, SUCCESSOR)
    assert stopped.returncode == 0, stopped.stderr
    assert again.stdout.startswith("4950 0 UTC"), again.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(jvm.pid, 0)


def test_a_gateway_that_does_not_answer_is_said_to_be_dead(warm_jvm: WarmJvm) -> None:
    environment = {**warm_jvm.environment(), "PYSPARK_GATEWAY_PORT": "1"}
    program = "from boatlift.processes.session import session; session()"
    answer = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert "[STEP_FAILED] no JVM answers on port 1" in answer.stderr
