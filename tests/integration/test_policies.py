"""What a crash costs under each policy, on Spark; that it never costs a result."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.dataflow import Policy
from boatlift.runtime.host import term
from boatlift.spark.engine import SparkEngine
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, LoggedInput, LoggedMessage
from boatlift.storage.verify import verify
from support.crash.dying import DiesError
from support.running import running
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS, STEP = 60, 10
DIES_AT = 3


def flow_of(
    policy: Policy | None = None, *, cleaning: bl.Ephemeral | bl.Eager | None = None, steps: int = ROWS // STEP
) -> bl.Dataflow:
    """Six steps of ten numbers: cleaned, and summed up by their last digit."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("policies")
    numbers = flow.source("numbers", bl.generator({"value": "id"}, rows_per_step=STEP, steps=steps))
    clean = numbers.transform("clean", lambda df: df.withColumn("k", F.col("value") % 7), policy=cleaning)
    sums = clean.group_by("k").agg("sums", F.sum("value").alias("total"), policy=policy)  # type: ignore[arg-type]
    sums.sink("history", bl.parquet("history"))
    return flow


def history() -> dict[str, list[str]]:
    return {path.name: sorted(map(repr, pq.read_table(path).to_pylist())) for path in Path("history").glob("*.parquet")}


def dies(progress: bl.Progress) -> None:
    if progress.what == "commit" and progress.time == DIES_AT:
        raise DiesError


def run(flow: bl.Dataflow, spark: SparkSession) -> dict[str, list[int]]:
    """Run to the end, verify every byte, find nothing left over; return the steps that each unit executed."""
    executed: dict[str, list[int]] = {}

    def note(progress: bl.Progress) -> None:
        if progress.what == "step":
            executed.setdefault(progress.processor, []).append(progress.time)

    bl.run(flow, "store", available_now=True, spark=spark, on_progress=note)
    assert list(map(str, verify(LocalStore.open(Path("store"), create=False)))) == []
    return executed


def facts() -> list[object]:
    return list(Log.open(LocalStore.open(Path("store"), create=False), None).history.live_records.facts())


@pytest.fixture
def expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> dict[str, list[str]]:
    for place in ("undisturbed", "attacked"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "undisturbed")
    run(flow_of(), spark)
    held = history()
    assert len(held) == ROWS // STEP
    monkeypatch.chdir(tmp_path / "attacked")
    return held


@pytest.mark.parametrize("policy", [bl.Lazy(every=2), bl.Lazy(every=None), bl.Eager(), bl.History()], ids=repr)
def test_no_policy_changes_a_result(policy: Policy, expected: dict[str, list[str]], spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        bl.run(flow_of(policy), "store", available_now=True, spark=spark, on_progress=dies)
    run(flow_of(policy), spark)
    assert history() == expected


def test_a_rule_for_checkpoints_that_raises_stops_the_run_and_loses_nothing(
    expected: dict[str, list[str]], spark: SparkSession
) -> None:
    def broken(step: int, since: bl.SinceCheckpoint) -> bool:
        return step > 0 and since.rows / (DIES_AT - step) > 0

    with pytest.raises(bl.InvalidError, match=r"\[WHEN_FAILED\] Lazy\(when=…\) of sums raised ZeroDivisionError"):
        run(flow_of(bl.Lazy(every=None, when=broken)), spark)
    executed = run(flow_of(bl.Lazy(every=None, when=lambda _step, since: since.rows >= 2 * STEP)), spark)
    assert executed["sums"][-1] == ROWS // STEP - 1
    assert history() == expected


def test_what_is_eager_is_never_executed_again(expected: dict[str, list[str]], spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        bl.run(flow_of(bl.Eager()), "store", available_now=True, spark=spark, on_progress=dies)
    durable = max(fact.frontier[0] for fact in facts() if isinstance(fact, Checkpoint))
    executed = run(flow_of(bl.Eager()), spark)
    assert executed.get("sums", []) == list(range(durable + 1, ROWS // STEP))
    assert history() == expected


def test_input_logging_keeps_nothing_but_determinants_and_begins_at_the_start(
    expected: dict[str, list[str]], spark: SparkSession
) -> None:
    policy = bl.Lazy(every=None)
    with pytest.raises(DiesError):
        bl.run(flow_of(policy), "store", available_now=True, spark=spark, on_progress=dies)
    assert not any(isinstance(fact, Checkpoint | LoggedMessage | LoggedInput) for fact in facts())
    assert run(flow_of(policy), spark)["sums"] == list(range(ROWS // STEP))
    assert not any(isinstance(fact, Checkpoint | LoggedMessage | LoggedInput) for fact in facts())
    assert history() == expected


def test_a_history_is_what_was_taken(expected: dict[str, list[str]], spark: SparkSession) -> None:
    with pytest.raises(DiesError):
        bl.run(flow_of(bl.History()), "store", available_now=True, spark=spark, on_progress=dies)
    assert any(isinstance(fact, LoggedInput) for fact in facts())
    assert not any(isinstance(fact, Checkpoint) for fact in facts())
    run(flow_of(bl.History()), spark)
    assert history() == expected


def test_an_eager_transform_is_a_firewall(expected: dict[str, list[str]], spark: SparkSession) -> None:
    """What comes after it goes back to its checkpoint, and takes what is durable: it does not run again itself."""
    flow = flow_of(bl.Lazy(every=None), cleaning=bl.Eager())
    with pytest.raises(DiesError):
        bl.run(flow, "store", available_now=True, spark=spark, on_progress=dies)
    durable = {fact.time for fact in facts() if isinstance(fact, LoggedMessage)}
    executed = run(flow, spark)
    assert durable >= set(range(DIES_AT + 1))
    assert not durable.intersection(executed.get("clean", []))
    assert executed["sums"] == list(range(ROWS // STEP))
    assert history() == expected


def test_a_changed_policy_goes_on_with_what_there_is(expected: dict[str, list[str]], spark: SparkSession) -> None:
    for at, policy in enumerate([bl.Lazy(every=1), bl.History(), bl.Eager()]):

        def stops(progress: bl.Progress, at: int = at) -> None:
            if progress.what == "commit" and progress.time == at:
                raise DiesError

        with pytest.raises(DiesError):
            bl.run(flow_of(policy), "store", available_now=True, spark=spark, on_progress=stops)
    run(flow_of(bl.Lazy(every=2)), spark)
    assert history() == expected


@pytest.mark.parametrize(
    ("policy", "again"),
    [(bl.Lazy(every=5), False), (bl.Eager(), False), (bl.Lazy(every=None), True), (bl.History(), True)],
    ids=repr,
)
def test_after_a_clean_stop_another_environment_is_refused_to_a_run_that_executes_steps_again(
    policy: Policy, again: bool, expected: dict[str, list[str]], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(flow_of(policy, steps=3), spark)
    real = SparkEngine.environment

    def upgraded(engine: SparkEngine) -> dict[str, Any]:
        return {**real(engine), "spark": "9.9"}

    if again:
        with monkeypatch.context() as patched:
            patched.setattr(SparkEngine, "environment", upgraded)
            for _ in range(2):
                with pytest.raises(bl.DataError, match=r"\[ENVIRONMENT_CHANGED\].* of sums .*by `Lazy\(every=1\)`"):
                    run(flow_of(policy), spark)
        run(flow_of(bl.Lazy(every=1), steps=3), spark)  # what the sentence says helps
    with monkeypatch.context() as patched:
        patched.setattr(SparkEngine, "environment", upgraded)
        run(flow_of(bl.Lazy(every=1) if again else policy), spark)
    assert history() == expected


def test_a_clean_stop_leaves_no_run_over_however_often_garbage_was_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """Garbage is collected while states in memory could be gone back to, and there is none at the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(term, "COLLECT_AFTER", 1)
    idle: list[bl.Progress] = []
    flow = flow_of(bl.Lazy(every=1), cleaning=bl.Eager(), steps=20)
    with running(flow, spark, on_progress=lambda progress: idle.append(progress) if progress.what == "idle" else None):
        until(lambda: len(idle) > 20)
    assert list(map(str, verify(LocalStore.open(Path("store"), create=False)))) == []
