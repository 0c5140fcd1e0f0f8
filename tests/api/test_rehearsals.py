"""Which dataflows a standby rehearses, and what a copy of a store consists of."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.api.rehearsal import (
    FOLDER,
    IDLE_SECONDS,
    MOST_SECONDS,
    SECONDS,
    STEPS,
    Rehearsals,
    _link,
    _RehearsalEnd,
    remove_leftovers,
)
from boatlift.dataflow import plan
from boatlift.runtime.host.progress import Progress
from boatlift.storage.local import LocalStore

NO_SESSION: Any = None


def asking(frame: Any) -> Any:
    return frame


@pytest.mark.parametrize("what", ["pushed", "asks", "no folder"])
def test_what_is_not_rehearsed_is_ready_at_once(tmp_path: Path, what: str) -> None:
    flow = bl.Dataflow("flow")
    source = bl.push("k INT", listen=None) if what == "pushed" else bl.files("data/*.csv", schema="k INT")
    rows = flow.source("rows", source)
    if what == "asks":
        rows = rows.transform("asked", asking, deterministic=False, policy=bl.Eager())
    rows.sink("out", bl.parquet("out"))
    store: Any = object() if what == "no folder" else LocalStore.open(tmp_path, create=True)
    rehearsals = Rehearsals(plan(flow), store, NO_SESSION, 1)
    assert rehearsals.are_done()
    rehearsals.end(wait=True)
    assert not list(tmp_path.glob("scratch/*"))


def test_a_copy_is_made_of_links_until_the_rehearsal_is_over(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    for number in range(3):
        (tmp_path / "log" / str(number)).write_text(str(number))
    _link(tmp_path / "log", tmp_path / "copy", lambda: False)
    assert [each.stat().st_nlink for each in sorted((tmp_path / "copy").iterdir())] == [2, 2, 2]
    _link(tmp_path / "log", tmp_path / "none", lambda: True)
    assert not list((tmp_path / "none").iterdir())
    _link(tmp_path / "absent", tmp_path / "nothing", lambda: False)
    assert not (tmp_path / "nothing").exists()


def test_copies_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    here = socket.gethostname()
    for name in (f"{here}-{os.getpid()}", f"{here}-999999999", "elsewhere-999999999"):
        (tmp_path / f"{FOLDER}{name}").mkdir()
    remove_leftovers(tmp_path, FOLDER)
    left = {each.name for each in tmp_path.iterdir()}
    assert left == {f"{FOLDER}{here}-{os.getpid()}", f"{FOLDER}elsewhere-999999999"}


@pytest.mark.parametrize(
    ("events", "ends"),
    [
        ([(0.0, "step", 0), (SECONDS, "beat", 0), (SECONDS + 1, "beat", 0)], SECONDS + 1),
        ([(40.0, "beat", 0), (50.0, "step", 0), (MOST_SECONDS + 1, "beat", 0)], MOST_SECONDS + 1),
        ([(0.5, "idle", 0), (IDLE_SECONDS, "idle", 0)], IDLE_SECONDS),
        ([(0.5, "step", 0), (IDLE_SECONDS, "idle", 0), (IDLE_SECONDS + 0.6, "idle", 0)], IDLE_SECONDS + 0.6),
        ([(5.0, "idle", 3), (5.5, "idle", 0), (6.5, "idle", 0)], 6.5),
        ([(number / 100, "step", 0) for number in range(STEPS)], (STEPS - 1) / 100),
    ],
    ids=["after its first step", "in all", "without input", "input has ended", "a step is under way", "steps"],
)
def test_when_a_rehearsal_ends(events: list[tuple[float, str, int]], ends: float) -> None:
    end = _RehearsalEnd(0.0)
    due = [at for at, what, behind in events if end.is_due(Progress(what, "rows", -1, behind=behind), at)]
    assert due == [ends]
