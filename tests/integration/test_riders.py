"""Processes on Spark that are killed while sinks show what the log does not explain yet."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from boatlift.storage.log import Log
from support.engine.hosts import open_store
from support.flow_processes import FlowProcesses
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
import time

import boatlift as bl
from boatlift.storage.local import LocalStore
from boatlift.storage.store import Requests
from pyspark.sql import functions as F

create, written = LocalStore.create, []

def slow(self, name, content):
    if name.startswith("log/"):
        written.append(name)
        time.sleep(2 if len(written) > 3 else 0)
    create(self, name, content)

LocalStore.requests, LocalStore.create = Requests(rides=True), slow

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="i INT, k INT", max_files_per_step=1))
drawn = rows.transform("drawn", lambda df: df.withColumn("x", (bl.rand("i") * 1000000).cast("long")))
drawn.sink("all", bl.sqlite("all.db", table="drawn", key=["i"]))
sums = drawn.group_by("k").agg("sums", F.sum("x").alias("x"), F.count("*").alias("n"), policy=bl.Lazy(every=5))
sums.sink("history", bl.parquet("history", key=["k"]))
"""

FILES, ROWS, KEYS = 24, 10, 7


def drawn(folder: Path) -> list[tuple[int, int, int]]:
    if not (folder / "all.db").exists():
        return []
    with closing(sqlite3.connect(folder / "all.db")) as database:
        there = database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'drawn'").fetchone()[0]
        return database.execute("SELECT i, k, x FROM drawn").fetchall() if there else []


def steps_of(folder: Path) -> list[list[tuple[object, ...]]]:
    files = sorted((folder / "history").glob("step-*.parquet"))
    return [[tuple(row.values()) for row in pq.read_table(file).to_pylist()] for file in files]


def add(folder: Path, file: int) -> None:
    rows = [f"{i},{i % KEYS}\n" for i in range(file * ROWS, (file + 1) * ROWS)]
    draft = folder / f"{file:04}.draft"
    draft.write_text("i,k\n" + "".join(rows))
    draft.rename(folder / "data" / f"{file:04}.csv")


def test_killed_while_sinks_show_more_than_the_log_explains_nothing_is_lost_doubled_or_changed(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    ahead, shown, steps = 0, dict[int, int](), list[list[tuple[object, ...]]]()
    with ExitStack() as stack:
        flow = FlowProcesses(tmp_path, stack, PROGRAM)
        process = flow.run()
        for file in range(FILES):
            add(tmp_path, file)
            until(lambda file=file: len(drawn(tmp_path)) == (file + 1) * ROWS)
            if file % 6 != 5:
                continue
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            known = Log.open(open_store(tmp_path / "store"), "mine").history.last_closed("rows")
            ahead += known < file
            now = {i: x for i, _, x in drawn(tmp_path)}
            assert shown.items() <= now.items(), "a row that was seen is another one"
            assert steps_of(tmp_path)[: len(steps)] == steps, "a step that was seen is another one"
            shown, steps = now, steps_of(tmp_path)
            process = flow.run(*(("--available-now",) if file == FILES - 1 else ()))
        assert process.wait() == 0, (tmp_path / "said").read_text()
    rows = drawn(tmp_path)
    assert ahead > 1, "the log explained all that was shown"
    assert sorted(i for i, _, _ in rows) == list(range(FILES * ROWS))
    assert shown.items() <= {i: x for i, _, x in rows}.items()
    sums, counts = Counter[int](), Counter[int]()
    for _, k, x in rows:
        sums[k] += x
        counts[k] += 1
    newest = {row[0]: row[1:3] for step in steps_of(tmp_path) for row in step if row[3] > 0}
    assert newest == {k: (sums[k], counts[k]) for k in range(KEYS)}
    assert steps_of(tmp_path)[: len(steps)] == steps
