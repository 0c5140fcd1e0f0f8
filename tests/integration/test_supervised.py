"""`boatlift run --supervised`: the run, its JVM, or its event loop dies, and each step is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from boatlift.console import supervisor
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLOW = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, v INT", max_files_per_step=1))
rows.group_by("k").agg("sums", F.sum("v").alias("v"), policy=bl.Lazy(every=3)).sink("history", bl.parquet("history"))
"""

DIES = "import os\nos.kill(os.getpid(), 9)\n"


@contextmanager
def supervised(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    command = [
        sys.executable,
        "-m",
        "boatlift.console",
        "run",
        "mine:flow",
        "--store",
        "store",
        "--supervised",
        *options,
    ]
    process = subprocess.Popen(
        command, cwd=folder, stderr=(folder / "err").open("a"), stdout=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()  # its JVM ends with it, and the run with the JVM
        process.communicate()


def feed(folder: Path, number: int) -> None:
    (folder / "data").mkdir(exist_ok=True)
    draft = folder / f"draft-{number}"
    draft.write_text("k,v\n" + "".join(f"{key},{number}\n" for key in range(3)))
    draft.rename(folder / "data" / f"{number:03d}.csv")


def told(folder: Path) -> str:
    return (folder / "err").read_text()


def steps(folder: Path) -> list[Path]:
    return sorted((folder / "history").glob("step-*.parquet"))


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def child_of(process: subprocess.Popen[str], sign: bytes, nth: int = 0) -> int:
    """Return the child of the supervisor with some text in its command line: its run, or its JVM."""
    return until(lambda: next(iter(_children_of(process, sign)[nth:]), 0))


def spare_of(process: subprocess.Popen[str]) -> int:
    """Return the child that waits until it is needed; it is younger than the run."""
    return child_of(process, b"boatlift.console", 1)


def _children_of(process: subprocess.Popen[str], sign: bytes) -> list[int]:
    living = filter(runs, children(process.pid))
    return sorted(pid for pid in living if sign in Path(f"/proc/{pid}/cmdline").read_bytes())


def runs(pid: int) -> bool:
    """Return whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_whatever_dies_is_started_again_and_each_step_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FLOW)
    fed = 0

    def feed_and_wait(files: int) -> None:
        nonlocal fed
        for _ in range(files):
            feed(tmp_path, fed)
            fed += 1
        until(lambda: len(steps(tmp_path)) == fed)

    with supervised(tmp_path) as process:
        feed_and_wait(4)
        for number in range(2):
            os.kill(child_of(process, b"boatlift.console"), signal.SIGKILL)
            feed_and_wait(2)
            assert told(tmp_path).count("the run was killed by signal 9: it is started again in 0.1 s\n") == number + 1
        os.kill(child_of(process, b"boatlift.console"), signal.SIGSTOP)
        until(lambda: "the run hung, and was killed: it is started again in 0.1 s\n" in told(tmp_path))
        feed_and_wait(2)
        os.kill(child_of(process, b"java"), signal.SIGKILL)
        feed_and_wait(2)
        assert "[JVM_DIED]" in told(tmp_path)
        os.kill(child_of(process, b"java"), signal.SIGSTOP)
        until(lambda: told(tmp_path).count("the run hung, and was killed: it is started again in 0.1 s\n") == 2)
        feed_and_wait(2)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, told(tmp_path)
        assert "mine: stopped cleanly" in out
    rows = [row for path in steps(tmp_path) for row in pq.read_table(path).to_pylist()]
    totals: dict[tuple[int, int], int] = {}
    for row in rows:
        totals[row["k"], row["v"]] = totals.get((row["k"], row["v"]), 0) + row["_weight"]
    assert {key: weight for key, weight in totals.items() if weight} == {(k, sum(range(fed))): 1 for k in range(3)}


def test_a_spare_takes_the_place_of_a_run_that_dies(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(FLOW)

    def feed_and_wait(upto: int) -> None:
        for number in range(len(steps(tmp_path)), upto):
            feed(tmp_path, number)
        until(lambda: len(steps(tmp_path)) == upto)

    with supervised(tmp_path) as process:
        feed_and_wait(2)
        run, spare = child_of(process, b"boatlift.console"), spare_of(process)
        os.kill(run, signal.SIGKILL)
        feed_and_wait(4)
        assert child_of(process, b"boatlift.console") == spare
        assert "replays" not in told(tmp_path), "no recorded step is executed again"

        os.kill(spare_of(process), signal.SIGKILL)  # the spare dies: the run that is started is a new one
        until(lambda: len(_children_of(process, b"boatlift.console")) == 1)
        os.kill(spare, signal.SIGKILL)
        feed_and_wait(6)

        before, spare = child_of(process, b"java"), spare_of(process)
        os.kill(before, signal.SIGKILL)  # the spare knew the JVM that died
        feed_and_wait(8)
        assert not runs(spare)
        last, spare = child_of(process, b"boatlift.console"), spare_of(process)
        process.kill()
        until(lambda: not runs(last) and not runs(spare))


def test_a_run_that_dies_at_each_start_ends_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DIES)
    with supervised(tmp_path) as process:
        process.communicate(timeout=300)
    assert process.returncode == 128 + signal.SIGKILL
    lines = [line for line in told(tmp_path).splitlines() if "the run was" in line]
    assert len(lines) == supervisor.MOST_DEATHS
    assert lines[2] == "boatlift: the run was killed by signal 9: it is started again in 0.4 s"
    assert lines[-1].startswith("boatlift: the run was killed by signal 9, for the 10th time without a new step")


@pytest.mark.parametrize(
    ("program", "code", "condition"),
    [(FLOW.replace("mine", "no name"), 2, "[BAD_NAME]"), ("raise ValueError('of mine')", 7, "[USER_CODE]")],
)
def test_what_a_new_start_repeats_ends_the_run(tmp_path: Path, program: str, code: int, condition: str) -> None:
    (tmp_path / "mine.py").write_text(program)
    with supervised(tmp_path) as process:
        process.communicate(timeout=300)
    assert process.returncode == code
    assert condition in told(tmp_path)
    assert "started again" not in told(tmp_path)
