"""Owners come and go.

An older one ends soon though it has nothing to do, a newer one says from which process it has taken over.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.errors import BoatliftError, FencedError, InvalidError
from boatlift.runtime.host import term
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.ownership import Life, life_of, this_process
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.inspect.status import status_of
from boatlift.storage.log import Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.codec import FORMAT_VERSION
from boatlift.storage.records.records import Claim
from support.engine.hosts import PATIENCE, Background, RaisingEngine, open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.waiting import until
from support.worlds.hostile_stores import in_format
from support.worlds.logs import claimed


def claim_of(process: str, pid: int, host_name: str = "") -> Claim:
    return Claim(host_name or socket.gethostname(), pid, 1_700_000_000_000, PROGRAM, {"python": "3"}, process)


def whole(content: bytes) -> bytes:
    return content


def of_a_newer_format(content: bytes) -> bytes:
    return in_format(FORMAT_VERSION + 1, content)


def damaged(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("written", "condition", "said"),
    [
        (whole, "FENCED", "process 4711 on elsewhere has taken flow over"),
        (of_a_newer_format, "FENCED", "a newer process has taken flow over"),
        (damaged, "CORRUPT", "fails its checksum"),
    ],
)
def test_an_idle_owner_ends_soon_after_another_process_has_taken_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    written: Callable[[bytes], bytes],
    condition: str,
    said: str,
) -> None:
    monkeypatch.setattr(term, "LOOK_SECONDS", 0.01)
    seen: list[str] = []
    idle = Host(
        MemoryEngine(World(rows=3)),
        open_store(tmp_path / "store"),
        RunOptions(on_progress=lambda p: seen.append(p.what)),
    )
    older = Background(idle.run)
    try:
        until(lambda: seen.count("idle") > 3)
        # The claim is made on a copy, so that its object comes as it is to be.
        shutil.copytree(tmp_path / "store", tmp_path / "copy", ignore=shutil.ignore_patterns("tmp", "scratch"))
        copy = open_store(tmp_path / "copy")
        name = name_of(claimed(copy, claim_of("", 4711, "elsewhere")).last)
        open_store(tmp_path / "store").create(name, written(copy.read(name)))
        error = older.result()
    finally:
        idle.stop()
    assert isinstance(error, BoatliftError)
    assert (error.condition, said in error.message) == (condition, True)


def test_an_owner_that_is_the_newest_runs_on_however_often_it_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(term, "LOOK_SECONDS", 0.0)
    world = World(rows=60)
    run(MemoryEngine(world), open_store(tmp_path))
    world.check()


def takeovers(root: Path, world: World) -> list[str]:
    seen: list[Progress] = []
    run(MemoryEngine(world), open_store(root), seen.append)
    return [progress.said for progress in seen if progress.what == "takeover"]


def test_a_newer_owner_says_from_which_process_it_has_taken_over_unless_that_stopped_in_good_order(
    tmp_path: Path,
) -> None:
    world = World(rows=3)
    with pytest.raises(ZeroDivisionError):
        run(RaisingEngine(world), open_store(tmp_path))
    (said,) = takeovers(tmp_path, world)
    assert re.fullmatch(
        rf"taken over from process {os.getpid()} on {socket.gethostname()}, owner since [\d: -]+ UTC, which "
        rf"has ended without a clean stop",
        said,
    )
    assert takeovers(tmp_path, world) == []


@pytest.mark.parametrize(
    ("process", "where", "said"),
    [
        (f"{this_process().rpartition('/')[0]}/1", "", "which has ended without a clean stop"),
        ("", "", "which has not stopped cleanly: if it still runs, it ends by itself"),
        (this_process(), "elsewhere", "which has not stopped cleanly: if it still runs, it ends by itself"),
    ],
    ids=["another process has its number", "not recorded", "elsewhere"],
)
def test_it_says_what_became_of_that_process_as_far_as_that_is_known(
    tmp_path: Path, process: str, where: str, said: str
) -> None:
    claimed(open_store(tmp_path), claim_of(process, os.getpid(), where))
    (told,) = takeovers(tmp_path, World(rows=3))
    assert said in told


def test_a_process_is_known_by_when_it_began() -> None:
    code = "from boatlift.runtime.host.ownership import this_process; print(this_process(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        claim = claim_of(other.stdout.readline().strip(), other.pid)
        assert life_of(claim, "", 1) is Life.RUNNING
        other.kill()
        until(lambda: life_of(claim, "", 1) is Life.ENDED)  # dead, and not buried yet
    assert life_of(claim, "", 1) is Life.ENDED
    assert life_of(claim_of(claim.process, os.getpid()), "", 1) is Life.ENDED, "its number is another's now"
    assert life_of(claim_of("another-boot/pid:[1]/7", os.getpid()), "", 1) is Life.UNKNOWN
    assert life_of(claim_of("", os.getpid()), "", 1) is Life.UNKNOWN


def test_a_run_of_this_host_is_taken_over_only_on_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(rows=20)
    owning, ended = threading.Event(), threading.Event()

    def watch(progress: Progress) -> None:
        if progress.what == "checkpoint":
            owning.set()
            assert ended.wait(PATIENCE)

    older = Background(lambda: run(MemoryEngine(world), open_store(tmp_path), watch))
    assert owning.wait(PATIENCE)
    assert status_of(Log.open(open_store(tmp_path), None)).state == "alive"
    refused = r"\[STORE_IN_USE\] this process has run flow on this store since .*take_over=True"
    with pytest.raises(InvalidError, match=refused):
        run(MemoryEngine(world), open_store(tmp_path))
    log = Log.open(open_store(tmp_path), None)
    assert {group.header.token for group in log.groups()} == {1}, "the older one alone has written"
    assert open_store(tmp_path).scratches().keys() == {1}
    options = RunOptions(available_now=True, take_over=True)
    Host(MemoryEngine(world), open_store(tmp_path), options).run()
    ended.set()
    assert isinstance(older.result(), FencedError)
    (told,) = [record.message for record in caplog.records if "taken over" in record.message]
    assert "which is still alive: if it runs the dataflow, it ends by itself within seconds" in told
    run(MemoryEngine(world), open_store(tmp_path))
    world.check()


def test_a_paused_source_takes_nothing_new_until_a_run_without_the_pause(tmp_path: Path) -> None:
    world = World(rows=20)
    taken: list[str] = []

    def watch(progress: Progress) -> None:
        taken.extend([progress.processor] if progress.what == "take" else [])

    Host(MemoryEngine(world), open_store(tmp_path), RunOptions(True, on_progress=watch, pause=["rows"])).run()
    assert taken == []
    with pytest.raises(InvalidError, match=r"flow has no source row: choose from rows"):
        Host(MemoryEngine(world), open_store(tmp_path), RunOptions(True, pause=["row"])).run()
    run(MemoryEngine(world), open_store(tmp_path), watch)
    assert set(taken) == {"rows"}
    world.check()


def test_objects_of_the_log_say_when_they_were_written(tmp_path: Path) -> None:
    engine = MemoryEngine(World(rows=3))
    Host(engine, open_store(tmp_path), RunOptions(available_now=True), clock=lambda: 1_700_000_000_000).run()
    log = Log.open(open_store(tmp_path), None)
    assert {group.header.at for group in log.groups()} == {1_700_000_000_000} == {log.written_at}
