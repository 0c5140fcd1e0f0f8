"""Input logging, checkpoint and restore, persistent state: the same bits at every prefix, whatever dies or changes."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api.rehearsal import Rehearsals
from boatlift.connectors.kit import SinkWrapper
from boatlift.console.contents import show_status
from boatlift.dataflow import plan
from boatlift.state.run_file import METADATA_KEY
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from boatlift.tasks.state_memory import MEMORY
from support.crash.dying import DiesError, dying_at
from support.small_memory import small_memory
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STEPS, EVERY = 9, 3
IN_MEMORY = bl.Lazy(EVERY, state="in memory")
APPROACHES = {
    "input logging": bl.Lazy(None),
    "checkpoint and restore": IN_MEMORY,
    "persistent state": bl.Lazy(EVERY),
}
by_approach = pytest.mark.parametrize("policy", APPROACHES.values(), ids=APPROACHES.keys())


def feed(*steps: int) -> None:
    Path("data").mkdir(exist_ok=True)
    for step in steps:
        lines = [f"{(step * 7 + n) % 11},{n % 5},{(n - 3) / 7 * 10 ** (n % 4)}" for n in range(40)]
        Path(f"data/{step:03}.csv").write_text("\n".join(lines) + "\n")


def flow_of(policy: bl.Lazy) -> bl.Dataflow:
    """Sums, minima and distinct counts by key: as an aggregate, and as a view."""
    flow = bl.Dataflow("approaches")
    rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, w INT, v DOUBLE", header=False,
                                        max_files_per_step=1))  # fmt: skip
    sums = rows.group_by("k").agg("sums", F.sum("v").alias("total"), F.min("v").alias("least"), policy=policy)
    sums.sink("history", bl.parquet("history"))
    query = "SELECT k, count(DISTINCT w) AS kinds FROM rows GROUP BY k"
    flow.sql("kinds", query, policy=policy).sink("view", bl.parquet("view"))
    return flow


def shown() -> dict[str, list[str]]:
    """Return what each step showed, with the bits of its numbers."""
    files = [*Path("history").glob("*.parquet"), *Path("view").glob("*.parquet")]
    return {str(path): sorted(map(repr, pq.read_table(path).to_pylist())) for path in files}


def on_disk(folder: str) -> list[str]:
    """Return the files with rows of a state."""
    found = []
    for path in Path(folder).rglob("*.arrow"):
        with suppress(pa.ArrowInvalid, FileNotFoundError):
            found += [str(path)] if METADATA_KEY in (pa.ipc.open_file(path).schema.metadata or {}) else []
    return found


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of this test in the memory file system, so that runs are copied from one file system to another."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(prefix="boatlift-test-", dir=shared if shared.is_dir() else tmp_path) as root:
        monkeypatch.setenv(MEMORY, root)
        yield Path(root)


@pytest.fixture
def expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, memory: Path
) -> dict[str, list[str]]:
    (tmp_path / "undisturbed").mkdir()
    monkeypatch.chdir(tmp_path / "undisturbed")
    feed(*range(STEPS))
    run(flow_of(bl.Lazy(EVERY)), spark=spark)
    held = shown()
    assert len(held) >= STEPS + 1
    (tmp_path / "attacked").mkdir()
    monkeypatch.chdir(tmp_path / "attacked")
    return held


run = partial(bl.run, store="store", available_now=True)


DEATHS = [("commit", "history", 5), ("step", "kinds", 7)]


@pytest.mark.parametrize(
    ("policy", "die"),
    [*((policy, die) for policy in APPROACHES.values() for die in DEATHS), (IN_MEMORY, ("checkpoint", "sums", 2))],
)
def test_the_bits_are_the_same_at_every_prefix_after_a_death(
    policy: bl.Lazy, die: tuple[str, str, int], expected: dict[str, list[str]], spark: SparkSession
) -> None:
    feed(*range(STEPS))
    with pytest.raises(DiesError):
        run(flow_of(policy), spark=spark, on_progress=dying_at(*die))
    run(flow_of(policy), spark=spark)
    assert shown() == expected
    assert list(map(str, verify(LocalStore.open(Path("store"), create=False)))) == []


def test_an_approach_may_change_at_every_start(expected: dict[str, list[str]], spark: SparkSession) -> None:
    order = [*APPROACHES.values(), *reversed(APPROACHES.values()), APPROACHES["input logging"], *APPROACHES.values()]
    for at, policy in enumerate(order[:STEPS]):
        feed(at)
        run(flow_of(policy), spark=spark)
    assert shown() == expected


@pytest.mark.adopts
@pytest.mark.parametrize("other", APPROACHES.values(), ids=APPROACHES.keys())
def test_what_was_in_memory_is_computed_again_under_any_approach(
    other: bl.Lazy, expected: dict[str, list[str]], spark: SparkSession
) -> None:
    feed(*range(STEPS))
    for first, second in ((IN_MEMORY, other), (other, IN_MEMORY)):
        with pytest.raises(DiesError):
            run(flow_of(first), spark=spark, on_progress=dying_at("commit", "history", 2))
        with pytest.raises(DiesError):
            run(flow_of(second), spark=spark, on_progress=dying_at("commit", "history", 1))
    run(flow_of(other), spark=spark)
    assert shown() == expected


def test_in_memory_a_step_writes_nothing_of_its_state_to_disk(
    expected: dict[str, list[str]], spark: SparkSession, memory: Path
) -> None:
    feed(*range(STEPS))
    held = dict[int, tuple[int, int]]()

    def note(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "sums":
            held[progress.time] = len(on_disk("store/scratch")), len(on_disk(str(memory)))

    run(flow_of(IN_MEMORY), spark=spark, on_progress=note)
    assert {scratch for scratch, _ in held.values()} == {0}
    assert all(runs for _, runs in held.values())
    assert on_disk("store/runs"), "the checkpoints"
    assert list(memory.iterdir()) == [], "the memory is given back"
    assert shown() == expected


def test_a_start_loads_the_last_checkpoint_into_memory(
    expected: dict[str, list[str]], spark: SparkSession, memory: Path
) -> None:
    feed(*range(6))
    run(flow_of(IN_MEMORY), spark=spark)
    checkpoints = {Path(each).name for each in on_disk("store/runs")}
    feed(6, 7, 8)
    first: list[list[str]] = []

    def note(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "sums" and not first:
            first.append(on_disk(str(memory)))

    run(flow_of(IN_MEMORY), spark=spark, on_progress=note)
    assert checkpoints & {Path(each).name for each in first[0]}
    assert shown() == expected


def workers() -> Iterator[int]:
    """Yield the Python workers of all sessions of this process."""
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout.split()[2:]
    parents = dict(zip(map(int, listed[::2]), map(int, listed[1::2]), strict=True))
    for pid in parents:
        above, at = list[int](), pid
        while at in parents and at != os.getpid():
            at = parents[at]
            above.append(at)
        with suppress(OSError):
            if at == os.getpid() and len(above) >= 3 and b"daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                yield pid


@by_approach
def test_the_bits_are_the_same_when_workers_die(
    policy: bl.Lazy, expected: dict[str, list[str]], spark: SparkSession
) -> None:
    feed(*range(STEPS))
    killed: list[int] = []

    def kill(progress: bl.Progress) -> None:
        if progress.what == "step" and progress.processor == "sums" and progress.time in (2, 5):
            for pid in workers():
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    run(flow_of(policy), spark=spark, on_progress=kill)
    assert killed
    assert shown() == expected


def test_memory_that_is_full_is_told_and_in_place_the_state_goes_on(
    expected: dict[str, list[str]], spark: SparkSession, memory: Path
) -> None:
    with small_memory(memory, 24 << 10):
        feed(*range(STEPS))
        with pytest.raises(bl.UnavailableError, match=r"\[MEMORY_FULL\] .*: leave state=\"in memory\" out"):
            run(flow_of(IN_MEMORY), spark=spark)
        run(flow_of(bl.Lazy(EVERY)), spark=spark)
        assert shown() == expected


class Unclosable(SinkWrapper):
    def close(self) -> None:
        self.sink.close()
        raise OSError("the sink does not close")


def test_the_memory_is_given_back_even_if_another_part_does_not_close(
    expected: dict[str, list[str]], spark: SparkSession, memory: Path
) -> None:
    feed(*range(STEPS))
    flow = bl.Dataflow("unclosable")
    rows = flow.source("rows", bl.files("data/*.csv", schema="k INT, w INT, v DOUBLE", header=False))
    sink: Any = Unclosable(bl.parquet("history"))
    rows.group_by("k").agg("sums", F.sum("w").alias("total"), policy=IN_MEMORY).sink("history", sink)
    with pytest.raises(OSError, match="the sink does not close"):
        run(flow, spark=spark)
    assert list(memory.iterdir()) == []


def test_a_rehearsal_keeps_its_states_in_place(
    expected: dict[str, list[str]],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed(*range(STEPS))
    run(flow_of(IN_MEMORY), spark=spark)
    monkeypatch.setenv(MEMORY, "/there is none")
    with caplog.at_level(logging.DEBUG, "boatlift.api.rehearsal"):
        rehearsals = Rehearsals(plan(flow_of(IN_MEMORY)), LocalStore.open(Path("store"), create=False), spark, 1 << 30)
        until(rehearsals.are_done)
        rehearsals.end(wait=True)
    assert [str(record.exc_info) for record in caplog.records] == []


def test_without_a_memory_file_system_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(MEMORY, str(tmp_path / "none"))
    feed(0)
    with pytest.raises(
        bl.InvalidError, match=rf"\[BAD_OPTION\] a state in memory needs .*: set {MEMORY} to the folder"
    ):
        run(flow_of(IN_MEMORY), spark=spark)
    monkeypatch.setenv(MEMORY, str(tmp_path))
    run(flow_of(IN_MEMORY), spark=spark)


def test_status_counts_what_is_in_memory(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
    memory: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    feed(0, 1)
    running = bl.start(flow_of(IN_MEMORY), "store", spark=spark)
    try:

        def counted() -> int:
            activity = running.status().activity
            return 0 if activity is None else activity.process.state_bytes

        until(lambda: counted() > 0 and counted() == sum(Path(each).stat().st_size for each in on_disk(str(memory))))
        capsys.readouterr()
        show_status("store", as_json=False)
        assert "states in memory: " in capsys.readouterr().out
    finally:
        running.stop()
    assert running.status().activity is None
