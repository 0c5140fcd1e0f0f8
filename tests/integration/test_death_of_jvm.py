"""Spark's JVM is killed, while a dataflow runs and while it starts: one line says so, and the same command goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

from boatlift.processes.jvm import death_of_jvm
from boatlift.processes.warm_jvm import WarmJvm
from support.commands import begun, boatlift, jvm_of
from support.waiting import until

pytestmark = pytest.mark.spark

STEPS, ROWS = 40, 10

FLOW = f"""
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.generator({{"n": "id"}}, rows_per_step={ROWS}, steps={STEPS}))
alone = rows.transform("alone", lambda df: df.withColumn("k", F.col("n") % 3).withColumn("at", bl.now()))
alone.group_by("k").agg("sums", F.sum("n").alias("total"), policy=bl.Lazy(every=4)).sink("out", bl.parquet("history"))
"""

IDLE = """
import boatlift as bl

flow = bl.Dataflow("idle")
rows = flow.source("rows", bl.generator({"n": "id"}, rows_per_step=1, steps=1))
rows.sink("out", bl.parquet("history"))
flow.source("none", bl.push("n LONG")).sink("other", bl.parquet("other"))
"""

RUN = ("run", "mine:flow", "--store", "store", "--available-now")

FROM_PYTHON = """
import os, signal
import boatlift as bl
from pyspark import SparkContext
spark = bl.session()
from mine import flow

def kill(progress):
    if progress.what == "commit":
        os.kill(SparkContext._gateway.proc.pid, signal.SIGKILL)

for watch in (kill, print):
    try:
        bl.run(flow, "store", available_now=True, on_progress=watch)
    except bl.BoatliftError as error:
        print(type(error).__name__, error.condition)
"""


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(FLOW)
    return tmp_path


def totals(folder: Path) -> dict[int, int]:
    """What a reader of the history sums up."""
    held: dict[int, int] = {}
    for path in sorted((folder / "history").glob("step-*.parquet")):
        held |= {row["k"]: row["total"] for row in pq.read_table(path).to_pylist() if row["_weight"] > 0}
    return held


EXPECTED = {k: sum(range(k, STEPS * ROWS, 3)) for k in range(3)}


def test_one_line_says_that_the_jvm_was_killed_and_the_same_command_goes_on(here: Path, warm_jvm: WarmJvm) -> None:
    with begun(here, *RUN) as process:
        until(lambda: len([*here.glob("history/step-*.parquet")]) > 2 or process.poll() is not None, seconds=300)
        os.kill(jvm_of(process) or 0, signal.SIGKILL)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 3, told
    lines = told.splitlines()
    assert all(line.startswith("boatlift: ") for line in lines), told
    assert lines[-1].startswith("boatlift: [JVM_DIED] the JVM of Spark died (killed by signal 9)"), told
    assert "run the same command again" in lines[-1]
    assert lines[:2] == ["boatlift: importing mine:flow", "boatlift: starting Spark (local[2,2])"]

    again = boatlift(here, *RUN, environment=warm_jvm.environment())
    assert again.returncode == 0, again.stderr
    assert totals(here) == EXPECTED

    finished = boatlift(here, *RUN, environment=warm_jvm.environment())
    assert finished.stderr.splitlines() == [
        "boatlift: importing mine:flow",
        "boatlift: compiling mine",
        "boatlift: opening the store and the sinks",
        f"boatlift: restoring sums from its checkpoint at step {STEPS - 1}",
        "boatlift: the input is exhausted",
    ]
    assert boatlift(here, *RUN, "--quiet", environment=warm_jvm.environment()).stderr == ""


@pytest.mark.parametrize(("flow", "attached"), [("mine", True), ("idle", True), ("idle", False)])
def test_the_death_is_reported_also_of_a_jvm_that_was_there_before_and_of_one_without_work(
    here: Path, flow: str, *, attached: bool
) -> None:
    (here / "idle.py").write_text(IDLE)
    with WarmJvm(warm_up=False) if attached else nullcontext() as jvm:
        environment = None if jvm is None else jvm.environment()
        with begun(here, "run", f"{flow}:flow", "--store", "store", environment=environment) as process:
            until(lambda: len([*here.glob("history/step-*.parquet")]) > 0 or process.poll() is not None, seconds=300)
            os.kill(jvm_of(process) or 0 if jvm is None else jvm.pid, signal.SIGKILL)
            _, told = process.communicate(timeout=120)
    assert process.returncode == 3, told
    assert told.splitlines()[-1].startswith("boatlift: [JVM_DIED] the JVM of Spark died"), told
    assert "Traceback" not in told


def test_a_jvm_that_a_signal_has_ended_is_not_advised_to_have_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {}
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen(["sleep", "100"]) as ended:
            ended.send_signal(number)
            ended.wait()
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=ended))
        said[number] = str(death_of_jvm(RuntimeError("a job was cancelled")))
    assert "killed by signal 15" in said[signal.SIGTERM]
    assert "memory" not in said[signal.SIGTERM]
    assert "spark.driver.memory" in said[signal.SIGKILL]


def test_from_python_it_is_an_error_of_ours(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FROM_PYTHON], cwd=here, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout == "UnavailableError JVM_DIED\n" * 2, done.stderr
    assert "Traceback" not in done.stderr


def test_a_jvm_that_is_killed_while_it_starts(here: Path) -> None:
    with begun(here, *RUN) as process:
        os.kill(until(lambda: jvm_of(process)), signal.SIGKILL)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 3, told
    assert told.splitlines()[-1].startswith("boatlift: [SPARK_NOT_STARTED] the JVM of Spark ended while it started")
    assert "Traceback" not in told


def test_ctrl_c_while_the_jvm_starts_leaves_no_jvm(here: Path) -> None:
    with begun(here, *RUN) as process:
        jvm = until(lambda: jvm_of(process))
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert told.splitlines()[-1].startswith("boatlift: stopped at once")
    until(lambda: not Path(f"/proc/{jvm}").exists())


def test_a_jvm_that_refuses_its_options_is_reported_in_its_own_words(here: Path) -> None:
    done = boatlift(here, *RUN, "--conf", "spark.driver.extraJavaOptions=-Xmx1g")
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith("boatlift: [SPARK_NOT_STARTED] the JVM of Spark ended while it started (")
    assert "Not allowed to specify max heap(Xmx) memory settings" in last
    assert "Traceback" not in done.stderr


def test_a_session_that_cannot_be_made_is_reported_with_its_first_cause(here: Path) -> None:
    done = boatlift(here, *RUN, "--conf", "spark.driver.bindAddress=203.0.113.1", "--conf", "spark.port.maxRetries=1")
    assert done.returncode == 3
    assert "boatlift: [SPARK_NOT_STARTED] Spark did not start: " in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
