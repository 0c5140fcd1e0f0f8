"""A loop that is killed among its rounds, for real: the next process goes on from the rounds that were kept."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.tasks.loop_checkpoint_files import MANIFEST
from support.commands import begun
from support.waiting import until

LENGTH = 32
BEFORE = 3
"""So many steps come before the one that is killed."""

FLOW = """
import os
import time

import boatlift as bl
from pyspark.sql import functions as F

from boatlift.spark.jobs import planner
from boatlift.storage.local import LocalStore

planner.ONE_TASK_BYTES = 0  # every step is a large one
create = LocalStore.create


def never_durable(store, name, content):
    if b"chain.parquet" in content:
        time.sleep(1e6)
    return create(store, name, content)


def reach(reach, edges):
    further = reach.alias("r").join(edges.alias("e"), F.col("r.b") == F.col("e.a")).select("r.a", "e.b")
    return edges.select("a", "b").union(further).distinct()


if "HELD" in os.environ:
    LocalStore.create = never_durable
flow = bl.Dataflow("killed-loop")
files = bl.files("edges", format="parquet", schema="a LONG, b LONG", max_files_per_step=1)
paths = flow.source("edges", files).iterate("paths", reach, output="a LONG, b LONG", keep_every="0 seconds")
paths.sink("out", bl.parquet("out"))
"""


def test_a_killed_step_goes_on_from_the_rounds_that_were_kept(tmp_path: Path) -> None:
    """Two tasks; the crash tests of the flow of event time kill a loop of one task, which keeps each round.

    The steps before are no part of a checkpoint, so that each process executes them again.
    """
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "edges").mkdir()
    for step in range(BEFORE):
        _write(tmp_path / "edges" / f"{step}.parquet", {(-1 - step, -10 - step)})
    chain = tmp_path / "edges" / "chain.parquet"
    _write(chain, {(at, at + 1) for at in range(1000, 1000 + LENGTH)})

    assert _killed_after(tmp_path, 6, HELD="")["began"] == 0
    _write(chain, {(at, at + 1) for at in range(LENGTH)})  # the log does not have the step that was killed
    assert _killed_after(tmp_path, 12)["began"] == 0, "rounds of other input"
    assert _killed_after(tmp_path, 22)["began"] > 12
    with begun(tmp_path, "run", "flow:flow", "--store", "store", "--available-now") as process:
        _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    rows = pq.read_table(sorted((tmp_path / "out").glob("step-*.parquet"))).to_pylist()
    assert len(rows) == BEFORE + LENGTH * (LENGTH + 1) // 2
    expected = {(a, b) for a in range(LENGTH) for b in range(a + 1, LENGTH + 1)}
    assert {(row["a"], row["b"]) for row in rows} == expected | {(-1 - step, -10 - step) for step in range(BEFORE)}
    assert list((tmp_path / "store" / "scratch" / "rounds").iterdir()) == []


def _write(file: Path, edges: set[tuple[int, int]]) -> None:
    a, b = zip(*sorted(edges), strict=True)
    pq.write_table(pa.table({"a": a, "b": b}), file)


def manifests(rounds: Path) -> set[Path]:
    """Return the manifests that are there; folders may go meanwhile."""
    return {Path(folder) / MANIFEST for folder, _, files in os.walk(rounds) if MANIFEST in files}


def _killed_after(folder: Path, number: int, **environment: str) -> dict[str, Any]:
    """Run the flow until it has kept a round, and kill it; return what was kept last."""
    rounds = folder / "store" / "scratch" / "rounds"
    before = manifests(rounds)
    variables = {**os.environ, **environment}
    with begun(folder, "run", "flow:flow", "--store", "store", "--available-now", environment=variables) as process:

        def kept() -> dict[str, Any] | None:
            assert process.poll() is None, process.communicate()
            for file in manifests(rounds) - before:
                with suppress(FileNotFoundError):  # that of a replayed step, whose folder has gone since
                    found: dict[str, Any] = json.loads(file.read_bytes())["content"]
                    if f"/{BEFORE}-" in str(file) and found["round"] >= number:
                        return found
            return None

        found = until(kept, seconds=300)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return found
