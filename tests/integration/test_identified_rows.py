"""Processes on Spark that post rows with identities over a log that is slow, and are killed: nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from boatlift.storage.log import Log
from support.engine.hosts import open_store
from support.flow_processes import SumProcesses
from support.push.receiver import Receiver, receiving
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

PROGRAM = """
import time
from pathlib import Path

import boatlift as bl
from boatlift.storage.local import LocalStore

create = LocalStore.create

def slow(self, name, content):
    while name.startswith("log/") and Path("slow").exists():
        time.sleep(0.05)
    create(self, name, content)

LocalStore.create = slow

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v INT", max_files_per_step=PER_STEP))
named = rows.transform("named", lambda df: df.selectExpr("concat(k, '/', v) AS id", "k", "v"))
named.sink("desk", bl.http_post("URL", rows_per_request=1, key=["id"]))
"""


def last_recorded(folder: Path) -> int:
    return Log.open(open_store(folder / "store"), "mine").history.held("desk")


def feed(flow: SumProcesses, files: int) -> None:
    for _ in range(files):
        draft = flow.folder / "draft"
        draft.write_text("k,v\n" + "".join(f"{key},{flow.fed}\n" for key in range(3)))
        draft.rename(flow.folder / "data" / f"{flow.fed:03d}.csv")
        flow.fed += 1


def known_rows(receiver: Receiver) -> dict[str, dict[str, int]]:
    """Return the rows of a receiver that ignores a key that it knows; each comes with one content alone."""
    known: dict[str, dict[str, int]] = {}
    for key, body in receiver.requests:
        (row,) = json.loads(body)
        assert known.setdefault(key, row) == row, f"{key} came with another content"
    return known


def test_rows_are_posted_ahead_of_the_log_and_after_a_kill_come_again_in_other_steps(tmp_path: Path) -> None:
    with receiving() as receiver, ExitStack() as stack:
        text = PROGRAM.replace("URL", receiver.url)
        flow = SumProcesses(tmp_path, stack, text.replace("PER_STEP", "1"))
        owner = flow.run()
        feed(flow, 2)
        until(lambda: len(known_rows(receiver)) == 3 * flow.fed, 120)
        until(lambda: last_recorded(tmp_path) == flow.fed - 1, 60)

        (tmp_path / "slow").touch()
        feed(flow, 9)
        until(lambda: len(known_rows(receiver)) == 3 * flow.fed, 60)
        assert last_recorded(tmp_path) < flow.fed - 2, "the log knew all that was shown"
        os.kill(owner.pid, signal.SIGKILL)
        owner.wait()
        (tmp_path / "slow").unlink()

        (tmp_path / "mine.py").write_text(text.replace("PER_STEP", "4"))  # the rows come again in other steps
        feed(flow, 2)
        again = flow.run("--available-now")
        assert again.wait(120) == 0, flow.said()[-2000:]
        known = known_rows(receiver)
        assert sorted((row["k"], row["v"]) for row in known.values()) == [
            (key, file) for key in range(3) for file in range(flow.fed)
        ]
        repeated = [key for key, count in Counter(key for key, _ in receiver.requests).items() if count > 1]
        assert repeated, "rows that the log did not know come again"
        assert all(int(key.rpartition("%2F")[2]) >= 2 for key in repeated), "rows that the log knew came again"
        flow.command("verify")
