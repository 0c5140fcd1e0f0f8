"""Users' own dataflows are killed: right ones are right, wrong ones are told with their first row, and nothing else.

Each test runs real processes, in a folder with a program and with the sinks that it has written before.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import InvalidError, UnavailableError, UserCodeError
from boatlift.tasks.state_memory import MEMORY
from boatlift.testing import CrashTrial, crash_test
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

BOATLIFT = (sys.executable, "-m", "boatlift.console")

RIGHT = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("own")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v DOUBLE", max_files_per_step=1))
rows.sink("kept", bl.parquet("kept"))
rows.sink("told", bl.foreach(lambda rows, step: open("told.txt", "a").write(str(step))))
kept_in = bl.Lazy(every=2, state="in memory")
sums = rows.group_by("k").agg("sums", F.sum("v").alias("v"), F.count("*").alias("n"), policy=kept_in)
sums.sink("answers", bl.sqlite("answers.db", table="sums", key=["k"]))
sums.sink("shown", bl.stdout())
sums.sink("changes", bl.parquet("changes"))
sums.sink("newest", bl.parquet("newest", key=["k"]))
sums.sink("topic", bl.kafka.sink("localhost:9", topic="sums", key="k"))
"""

WRONG = """
import os
import boatlift as bl
from pyspark.sql import functions as F

open("count", "w").close()  # so each process counts anew

@F.udf("long")
def counted(k):
    with open(os.path.join(PLACE, "count"), "a") as file:
        file.write("x")
        return file.tell()

PLACE = os.getcwd()
flow = bl.Dataflow("own")
rows = flow.source("rows", bl.generator({"k": "id % 3"}, rows_per_step=10))
numbered = rows.transform("numbered", lambda df: df.withColumn("n", counted("k")), deterministic=True)
numbered.sink("kept", bl.parquet("kept"))
counts = rows.group_by("k").agg("counts", F.count("*").alias("n"), policy=bl.Lazy(2, state="in memory"))
counts.sink("counted", bl.stdout())
"""

RANDOM = """
import random
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("own")
rows = flow.source("rows", bl.generator({"k": "id"}, rows_per_step=10, steps=2))
lucky = F.udf(lambda k: random.random(), "double")
tagged = rows.transform("tagged", lambda df: df.withColumn("luck", lucky("k")), deterministic=True)
tagged.sink("kept", bl.parquet("kept"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's, and beside it those for temporary files and for states in memory."""
    for name in ("tmp", "memory"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(MEMORY, str(tmp_path / "memory"))
    mine = tmp_path / "mine"
    (mine / "data").mkdir(parents=True)
    for number in range(4):
        rows = (f"{k % 5},{0.1 * k * (-1) ** number * 10**number}\n" for k in range(40))
        (mine / "data" / f"{number}.csv").write_text("k,v\n" + "".join(rows))
    monkeypatch.chdir(mine)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    return mine


def boatlift(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*BOATLIFT, "crash", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Return bytes and time of the last change of all files, and the times of all folders."""
    return {
        str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for name in ("tmp", "memory") for path in (folder.parent / name).iterdir())


def test_a_right_dataflow_is_right_and_nothing_of_the_users_is_touched(folder: Path) -> None:
    (folder / "own.py").write_text(RIGHT)
    for name in ("kept", "changes", "newest", "store"):
        (folder / name).mkdir()
        (folder / name / "mine.txt").write_text("mine")
    (folder / "answers.db").write_bytes(b"mine")
    (folder / "__pycache__").mkdir()
    before = everything(folder)
    trials: list[CrashTrial] = []
    points = ["sink.commit(kept):before:2", "sink.commit(told):after:2", "sink.stage(answers):after:3"]
    verdict = crash_test("own:flow", points=points, in_parquet="topic", on_trial=trials.append)
    verdict.assert_right()
    assert verdict.right
    assert verdict.text == "right: own:flow holds the same after 3 crashes, seed 0"
    assert trials == list(verdict.trials)
    assert [(str(trial.point), trial.killed) for trial in trials[1:]] == [(point, True) for point in points]
    sinks = {each.sink: each for each in verdict.trials[2].sinks}
    assert sinks.keys() == {"kept", "told", "answers", "shown", "changes", "newest", "topic"}
    assert {name: (each.rows, each.expected) for name, each in sinks.items()} == {
        "kept": (160, 160),
        "told": (160, 160),
        **dict.fromkeys(("answers", "shown", "changes", "newest", "topic"), (5, 5)),
    }
    assert sinks["told"].at_least_once
    assert sinks["told"].repeated == 1, "killed behind its delivery, and before the log has it"
    assert everything(folder) == before
    assert left_behind(folder) == []


def test_a_wrong_dataflow_is_told_with_its_first_row_and_the_command_that_repeats_it(folder: Path) -> None:
    (folder / "own.py").write_text(WRONG)
    done = boatlift("own:flow", "--at", "sink.commit(kept):before:2", "--steps", "4", "--timeout", "500")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-3] == "wrong: own:flow, 1 of 2 trials; 1 crash, seed 0"
    assert lines[-2].startswith("killed at sink.commit(kept):before:2: sink kept lost {")
    assert "1: killed at sink.commit(kept):before:2: WRONG" in done.stderr
    again = lines[-1].removeprefix("  again: ")
    assert again == "boatlift crash own:flow --at 'sink.commit(kept):before:2' --steps 4 --timeout 500"
    repeated = boatlift(*shlex.split(again)[2:], "--json", "--quiet")
    assert repeated.returncode == 1
    assert repeated.stderr == ""
    told: dict[str, Any] = json.loads(repeated.stdout)
    (wrong,) = [trial for trial in told["trials"] if not trial["right"]]
    assert told["verdict"] == "wrong"
    assert f"killed at {wrong['point']}: {wrong['first']}".partition("{")[0] == lines[-2].partition("{")[0]
    assert left_behind(folder) == []


def test_two_runs_without_a_crash_that_differ_are_told_as_such(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lucky.py").write_text(RANDOM)
    monkeypatch.syspath_prepend(folder)
    import lucky

    verdict = crash_test(lucky.flow)
    assert verdict.flow == "lucky:flow"
    assert len(verdict.trials) == 1, "nothing could be compared with either of them"
    with pytest.raises(AssertionError, match=r'two runs without a crash differ: sink kept lost \{"k": 0, "luck": 0'):
        verdict.assert_right()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_no_process_and_no_file(folder: Path, number: int, status: int) -> None:
    """It may come twice, to the whole group: as Ctrl-C does from an impatient user."""
    (folder / "own.py").write_text(WRONG)
    command = [*BOATLIFT, "crash", "own:flow", "--steps", "3"]
    with (folder / "said").open("w") as said:
        heeding = ["env", f"--default-signal={signal.Signals(number).name}", *command]  # under nohup one is ignored
        process = subprocess.Popen(heeding, stdout=said, stderr=said, start_new_session=True)
    until(lambda: "1: killed" in (folder / "said").read_text(), 240)
    os.killpg(process.pid, number)
    os.killpg(process.pid, number)
    assert process.wait(60) == status
    assert not any("boatlift.testing.crash" in each for each in processes_with(str(folder.parent)))
    assert left_behind(folder) == []
    until(lambda: processes_with(str(folder.parent)) == [], 30)


FOURTH = """
import pathlib
import time
import boatlift as bl

starts = pathlib.Path("starts")
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
if len(starts.read_text()) == 4:
    raise ValueError("no start after a crash")

flow = bl.Dataflow("own")
flow.source("rows", bl.generator({"k": "id"}, rows_per_step=10, steps=2)).sink("kept", bl.parquet("kept"))
"""


def test_a_run_that_does_not_go_on_after_its_crash_is_wrong(folder: Path) -> None:
    (folder / "own.py").write_text(FOURTH)
    verdict = crash_test("own:flow", points=["sink.commit(kept):before:1"])
    (wrong,) = verdict.wrong
    assert "the run ended with [USER_CODE]" in wrong.first
    assert "no start after a crash" in wrong.first
    assert wrong.sinks == ()
    assert wrong.first in verdict.text


def test_what_goes_wrong_without_a_crash_is_an_error(folder: Path) -> None:
    (folder / "own.py").write_text(FOURTH.replace("== 4", "== 1"))
    with pytest.raises(UserCodeError, match="no start after a crash"):
        crash_test("own:flow")
    (folder / "own.py").write_text(FOURTH)
    with pytest.raises(UnavailableError, match=r"\[RUN_DIED\] the run did not end within 0.1 s"):
        crash_test("own:flow", timeout=0.1)
    with pytest.raises(InvalidError, match=r"no run comes to crash point sink.comit.*sink.commit.kept.:before:1"):
        crash_test("own:flow", points=["sink.comit(kept):before:1"])
    assert left_behind(folder) == []


def processes_with(text: str) -> list[str]:
    """Return the command lines of all processes that name a path, in their arguments or their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except OSError:
            continue
        if text.encode() in words and path.name != str(os.getpid()):
            found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_what_cannot_be_tested_is_refused_by_name_and_nothing_is_left(folder: Path) -> None:
    (folder / "own.py").write_text(RIGHT)
    done = boatlift("own:flow", "--quiet")
    assert done.returncode == 2
    assert "[NO_TWIN] sink topic (kafka) has no twin" in done.stderr
    assert "--in-parquet topic" in done.stderr
    (folder / "own.py").write_text(WRONG)
    done = boatlift("own:flow", "--quiet")
    assert done.returncode == 2
    assert "[NO_TWIN] source rows has no end: give --steps" in done.stderr
    assert left_behind(folder) == []
