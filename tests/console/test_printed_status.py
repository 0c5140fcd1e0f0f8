"""What `boatlift status` prints of a store."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

from boatlift.console import tables
from boatlift.console.contents import show_status
from boatlift.dataflow import WaitingInput
from boatlift.operators.watermark.operator import EventTimeStatus
from boatlift.runtime.host.deadlines import StuckCall
from boatlift.runtime.host.ownership import is_stopped, this_process
from boatlift.runtime.host.run_report import FILE, InputReport, RunReport
from boatlift.runtime.inspect.contents import log_at
from boatlift.runtime.inspect.status import status_at
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim
from support.engine.hosts import crashed, open_store, process_of, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World, recorded
from support.engine.memory_flows import lookup
from support.waiting import until
from support.worlds.logs import claimed


def test_status_counts_the_steps_executed_again_in_one_line_and_leaves_the_rest_to_explain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed(tmp_path)
    show_status(tmp_path, as_json=False)
    told = f"if everything failed now, 6 steps would be executed again: `boatlift explain --store {tmp_path}` shows"
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if "failed now" in line] == [f"{told} which, and why"]
    assert "restores its checkpoint" not in text


def test_status_says_of_which_inputs_a_processor_takes_the_steps_one_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, recorded(lookup()), {}))
    show_status(tmp_path, as_json=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if "one after the other" in line]
    assert lines == ["asked: its steps are those of queries and sums together, one after the other"]


def test_status_prints_equal_numbers_of_processors_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed(tmp_path)
    same, other = EventTimeStatus(11, 1_700_000_000_000, 0), EventTimeStatus(11, 1_700_000_000_000, 3)
    numbers = {"event_times": {"late": same, "timely": same, "more": other}}
    known = msgspec.structs.replace(status_at(tmp_path), numbers=numbers)
    monkeypatch.setattr("boatlift.console.contents.status_at", lambda _: known)
    show_status(tmp_path, as_json=False)
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines() if "were late" in line] == [
        "late and timely",
        "more",
    ]


def test_status_of_a_source_of_which_no_step_is_recorded_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, PROGRAM, {}))
    show_status(tmp_path, as_json=False)
    text = capsys.readouterr().out
    assert "\nrows: no step is recorded\n" in text
    assert " -1 " not in text, "-1 stands for no step in the JSON alone"


def test_status_after_a_clean_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(MemoryEngine(World(rows=20)), open_store(tmp_path))
    show_status(tmp_path, as_json=False)
    text = capsys.readouterr().out
    assert text.startswith(f"flow: stopped cleanly\nstore: {log_at(tmp_path).store_id}\nlast owner: process ")
    assert "failed now" not in text


def test_times_of_any_year_are_printed_and_a_clock_that_is_behind_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables.moment(1_700_000_000_000_000) == "+55840-11-08 22:13:20 UTC"
    assert tables.moment(-100_000_000_000_000) == "-1199-02-15 14:13:20 UTC"
    assert tables.moment(1_700_000_000_999) == "2023-11-14 22:13:20 UTC"
    later = int(time.time() + 3600) * 1000
    log = Log.open(open_store(tmp_path), "flow", clock=lambda: later)
    log.claim(Claim("host", 1, later, PROGRAM, {}))
    show_status(tmp_path, as_json=False)
    assert "the clock of this machine is 0:59:" in capsys.readouterr().out.replace("1:00:00", "0:59:60")


@pytest.mark.parametrize(
    ("process", "where", "sentence"),
    [
        (process_of(os.getppid()), socket.gethostname(), "running (or, in a notebook, its run has ended with an error"),
        (
            f"{this_process().rpartition('/')[0]}/1", socket.gethostname(),
            "crashed: its process has ended without a clean stop",
        ),
        (this_process(), "elsewhere", "running or crashed: this machine cannot tell whether its process is alive"),
    ],
    ids=["alive", "crashed", "elsewhere"],
)  # fmt: skip
def test_status_of_a_process_that_has_not_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], process: str, where: str, sentence: str
) -> None:
    log = Log.open(open_store(tmp_path), "flow", clock=lambda: 1_700_000_009_000)
    log.claim(Claim(where, os.getppid(), 1_700_000_000_000, PROGRAM, {}, process))
    show_status(tmp_path, as_json=False)
    text = capsys.readouterr().out
    assert text.startswith(f"flow: {sentence}")
    assert "\nlast record: 2023-11-14 22:13:29 UTC\n" in text


def test_a_living_process_shows_the_bytes_in_flight_and_their_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(tmp_path)
    mine = Claim(socket.gethostname(), os.getppid(), 1_700_000_000_000, PROGRAM, {}, process_of(os.getppid()), 5_000)
    claimed(store, mine)
    folder = store.scratch(1)
    (folder / "read-1").mkdir()
    (folder / "edge").write_bytes(b"1234567")
    (folder / "read-1" / "rows").write_bytes(b"12345")
    show_status(tmp_path, as_json=False)
    assert "in scratch: 12 bytes; with 5,000 or more, sources are asked for no further step" in capsys.readouterr().out
    report = InputReport(1_700_000_001_000, {"rows": WaitingInput(1234, "files", 5_000_000, 1_700_000_000_000)})
    (folder / FILE).write_bytes(msgspec.json.encode(RunReport(report.at, report)))
    show_status(tmp_path, as_json=False)
    told = capsys.readouterr().out
    assert "rows: 1,234 files wait to be taken, 5.0 MB, the oldest since 2023-11-14 22:13:20" in told
    assert status_at(tmp_path).input == report


def test_what_is_stuck_is_shown_and_since_when(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = open_store(tmp_path)
    claimed(store, Claim(socket.gethostname(), os.getppid(), 1_700_000_000_000, PROGRAM, {}, process_of(os.getppid())))
    now = time.time_ns() // 1_000_000
    stuck = StuckCall("sums", 7, 1_700_000_001_000, "job 3, stage 4, task 5 on a.example, executor 6")
    (store.scratch(1) / FILE).write_bytes(msgspec.json.encode(RunReport(now, stuck=[stuck])))
    show_status(tmp_path, as_json=False)
    assert capsys.readouterr().out.startswith(
        "flow: stuck: it makes no progress\nstuck since 2023-11-14 22:13:21 UTC: step 7 of sums: job 3, stage 4, "
        "task 5 on a.example, executor 6\n"
    )
    show_status(tmp_path, as_json=True)
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["stuck"]) == ("stuck", [msgspec.to_builtins(stuck)])


def test_a_process_that_is_stopped_and_one_that_reports_nothing_are_stuck(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with subprocess.Popen(["sleep", "600"]) as owner:
        try:
            store = open_store(tmp_path)
            claim = Claim(socket.gethostname(), owner.pid, 1_700_000_000_000, PROGRAM, {}, process_of(owner.pid))
            claimed(store, claim)
            now = time.time_ns() // 1_000_000
            written = store.scratch(1) / FILE

            def shown(at: int) -> str:
                written.write_bytes(msgspec.json.encode(RunReport(at)))
                show_status(tmp_path, as_json=False)
                return capsys.readouterr().out

            assert shown(now).startswith("flow: running")
            late = shown(now - 60_000)
            assert late.startswith("flow: stuck: ")
            assert f": flow: process {owner.pid} reports nothing: its run has ended with an error, or hangs" in late
            owner.send_signal(signal.SIGSTOP)
            until(lambda: is_stopped(owner.pid))
            assert f": flow: process {owner.pid} is stopped: kill -CONT {owner.pid} lets it go on" in shown(now)
        finally:
            owner.kill()
    assert shown(now).startswith("flow: crashed")
