"""A loop that is killed among its rounds, for real: the next process goes on from the rounds that were kept."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.spark.tasks.round_files import MANIFEST
from support.commands import begun

LENGTH = 60

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

from boatlift.spark.jobs import planner

planner.ONE_TASK_BYTES = 0  # every step is a large one


def reach(reach, edges):
    further = reach.alias("r").join(edges.alias("e"), F.col("r.b") == F.col("e.a")).select("r.a", "e.b")
    return edges.select("a", "b").union(further).distinct()


flow = bl.Dataflow("killed-loop")
edges = flow.source("edges", bl.files("edges", format="parquet", schema="a LONG, b LONG"))
paths = edges.iterate("paths", reach, output="a LONG, b LONG", keep_every="0 seconds")
paths.sink("out", bl.parquet("out"))
"""


def test_a_killed_step_goes_on_from_the_rounds_that_were_kept(tmp_path: Path) -> None:
    """Two tasks; the crash tests of the flow of event time kill a loop of one task, which keeps each round."""
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "edges").mkdir()
    table = pa.table({"a": list(range(LENGTH)), "b": list(range(1, LENGTH + 1))})
    pq.write_table(table, tmp_path / "edges" / "0.parquet")

    assert _killed_after(tmp_path, 10)["began"] == 0
    again = _killed_after(tmp_path, 37)
    assert again["began"] > 10
    assert not list((tmp_path / "out").glob("step-*"))
    with begun(tmp_path, "run", "flow:flow", "--store", "store", "--available-now") as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    rows = pq.read_table(sorted((tmp_path / "out").glob("step-*.parquet"))).to_pylist()
    assert len(rows) == LENGTH * (LENGTH + 1) // 2
    assert {(row["a"], row["b"]) for row in rows} == {(a, b) for a in range(LENGTH) for b in range(a + 1, LENGTH + 1)}
    assert not list((tmp_path / "store" / "scratch" / "rounds").rglob(MANIFEST))


def _killed_after(folder: Path, number: int) -> dict[str, int]:
    """Run the flow until a round is kept, and kill it; return what was kept last."""
    with begun(folder, "run", "flow:flow", "--store", "store", "--available-now") as process:
        until = time.monotonic() + 120
        while (kept := _manifest(folder)) is None or kept["round"] < number:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until, f"no round {number} was kept"
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    found = _manifest(folder)
    assert found is not None
    return found


def _manifest(folder: Path) -> dict[str, int] | None:
    for file in (folder / "store" / "scratch" / "rounds").rglob(MANIFEST):
        found: dict[str, int] = json.loads(file.read_bytes())
        return found
    return None
