"""Ctrl-C and SIGTERM, to the process and all that it started: in a step, twice in one, when idle, if Spark hangs."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import fsum
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from boatlift.processes.warm_jvm import WarmJvm
from support.crash.data import FILES, make_data

pytestmark = pytest.mark.spark

FLOW = """
import time
from pathlib import Path

import boatlift as bl
from pyspark.sql import functions as F

here = Path(__file__).parent


def wait(value):
    (here / "waiting").touch()
    while not (here / "go").exists():
        time.sleep(0.02)
    return value


flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, g INT, v DOUBLE", null_value="NA"))
waited = rows.transform("waited", lambda df: df.withColumn("v", F.udf(wait, "double")("v")), deterministic=True)
waited = waited.transform("dated", lambda df: df.withColumn("at", bl.now()))  # so that each step is a job of its own
waited.group_by("k").agg("sums", F.sum("v").alias("total")).sink("history", bl.parquet("history"))
"""


@contextmanager
def running(folder: Path, environment: Mapping[str, str] = os.environ) -> Iterator[subprocess.Popen[str]]:
    """`boatlift run` in a process group of its own, as a shell starts it."""
    command = [sys.executable, "-u", "-m", "boatlift.console", "run", "mine:flow", "--store", "store"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, env=environment, text=True, start_new_session=True, **pipes)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def wait_for_line(process: subprocess.Popen[str], begin: str) -> list[str]:
    """Reads until a line begins so; gives the lines read."""
    lines = []
    stream = process.stderr if begin.startswith("boatlift: ") else process.stdout
    assert stream is not None
    for line in stream:
        lines.append(line)
        if line.startswith(begin):
            return lines
    raise AssertionError(f"it ended without a line {begin!r}: {lines}, {process.communicate()}")


def wait_for_file(process: subprocess.Popen[str], path: Path) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


def steps(folder: Path) -> int:
    return len(list((folder / "history").glob("step-*.parquet")))


def sums(folder: Path) -> dict[str | None, float | None]:
    """What a reader of the history sums up: the rows that were not taken back."""
    held: dict[tuple[str | None, float | None], int] = defaultdict(int)
    for path in (folder / "history").glob("step-*.parquet"):
        for row in pq.read_table(path).to_pylist():
            held[row["k"], row["total"]] += row["_weight"]
    assert set(held.values()) <= {0, 1}
    return dict(row for row, weight in held.items() if weight)


def expected(folder: Path) -> dict[str | None, float]:
    values: dict[str | None, list[float]] = defaultdict(list)
    for path in (folder / "data").glob("*.csv"):
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["v"] != "NA":
                    values[None if row["k"] == "NA" else row["k"]].append(float(row["v"]))
    return {key: fsum(of_key) for key, of_key in values.items()}


def test_twice_ends_at_once_and_once_after_the_step_under_way(tmp_path: Path, warm_jvm: WarmJvm) -> None:
    make_data(tmp_path / "data")
    (tmp_path / "mine.py").write_text(FLOW)
    go, waiting = tmp_path / "go", tmp_path / "waiting"

    with running(tmp_path) as process:  # with a JVM of its own, which Ctrl-C reaches too
        wait_for_file(process, waiting)
        os.killpg(process.pid, signal.SIGINT)
        wait_for_line(process, "boatlift: mine: finishing the steps under way")
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert err.endswith("boatlift: stopped at once; run the same command again to go on\n")
        assert "Traceback" not in err
    assert steps(tmp_path) == 0
    waiting.unlink()

    with running(tmp_path) as process:  # SIGTERM, as a supervisor sends it, reaches a JVM of its own too
        wait_for_file(process, waiting)
        os.killpg(process.pid, signal.SIGTERM)
        wait_for_line(process, "boatlift: mine: finishing the steps under way")
        go.touch()
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "mine: stopped cleanly after " in out
    assert steps(tmp_path) == 1, "it began a step though it was to stop"

    with running(tmp_path, warm_jvm.environment()) as process:
        told = wait_for_line(process, f"sums: step {FILES - 1},")
        assert told[0].startswith("sums: step 1,"), "it replays, though nothing was lost"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert "mine: stopped cleanly" in out
        assert "boatlift: restoring sums from its checkpoint at step 0\n" in err
    assert sums(tmp_path) == pytest.approx(expected(tmp_path), rel=1e-9)


def test_twice_ends_a_run_whose_jvm_hangs(tmp_path: Path, warm_jvm: WarmJvm) -> None:
    make_data(tmp_path / "data")
    (tmp_path / "mine.py").write_text(FLOW)
    with running(tmp_path) as process:
        wait_for_file(process, tmp_path / "waiting")
        (jvm,) = (int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
        os.kill(jvm, signal.SIGSTOP)
        os.killpg(process.pid, signal.SIGINT)
        wait_for_line(process, "boatlift: mine: finishing the steps under way")
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert f"boatlift: the JVM of Spark (process {jvm}) does not answer, and is killed\n" in err
        assert err.endswith("boatlift: stopped at once; run the same command again to go on\n")
    (tmp_path / "go").touch()
    with running(tmp_path, warm_jvm.environment()) as process:
        wait_for_line(process, f"sums: step {FILES - 1},")
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    assert sums(tmp_path) == pytest.approx(expected(tmp_path), rel=1e-9)
