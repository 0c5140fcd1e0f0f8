"""Large steps that wait are run as one job if their unit keeps nothing: nothing that comes out tells so."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from xxhash import xxh64_intdigest

import boatlift as bl
from boatlift.connectors.parquet.step_file import read_record
from boatlift.operators.view.appending import AppendingSteps
from boatlift.operators.view.plans import ViewPlans, ViewStep
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.engine import SparkEngine
from boatlift.spark.jobs import planner, waiting
from boatlift.spark.jobs.planner import StepPlan
from boatlift.testing import crash_test
from boatlift.views.view_job import ViewJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES, ROWS = 6, 30_000
SCHEMA = (
    "id BIGINT, x DOUBLE, s STRING, d DECIMAL(30, 4), t TIMESTAMP, day DATE, b BINARY, "
    "l ARRAY<INT>, r STRUCT<a: INT, b: STRING>"
)
Made = Callable[[bl.Dataflow, bl.Stream], bl.Stream]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of more than 256 KiB, with rows of every kind of type, and NULLs."""
    folder = tmp_path_factory.mktemp("input")
    chance = np.random.default_rng(7)
    kinds = {"id": pa.int64(), "x": pa.float64(), "s": pa.string(), "d": pa.decimal128(30, 4), "day": pa.date32()}
    kinds |= {"t": pa.timestamp("us", "UTC"), "b": pa.binary(), "l": pa.list_(pa.int32())}
    kinds |= {"r": pa.struct({"a": pa.int32(), "b": pa.string()})}
    for number in range(FILES):
        ids = chance.integers(0, 1 << 40, ROWS).tolist()
        at = datetime(2026, 1, 1, tzinfo=UTC)
        columns: dict[str, list[Any]] = {
            "id": ids,
            "x": [None if each % 11 == 0 else each / 7 for each in ids],
            "s": [f"s{each % 1000}" if each % 5 else None for each in ids],
            "d": [Decimal(each) / 10000 for each in ids],
            "day": [date(2026, 1, 1) + timedelta(days=each % 400) for each in ids],
            "t": [at + timedelta(microseconds=each) for each in ids],
            "b": [each.to_bytes(8, "big") for each in ids],
            "l": [[each % 3] * (each % 4) for each in ids],
            "r": [{"a": each % 9, "b": None} for each in ids],
        }
        pq.write_table(pa.table(columns, pa.schema(kinds.items())), folder / f"{number}.parquet")
    return folder


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """The steps of each job that ran."""
    ran: list[range] = []
    run = StepPlan.run

    def noted(plan: StepPlan, *given: Any, **named: Any) -> Any:
        ran.append(plan.parameters.times)
        return run(plan, *given, **named)

    monkeypatch.setattr(StepPlan, "run", noted)
    return ran


def linear(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
    del rows
    return flow.sql("made", "SELECT *, map('third', id % 3) AS m FROM rows WHERE id % 2 = 0")


def united(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
    rows.transform("odd", lambda df: df.where("id % 2 = 1").select("id", "x"))
    return flow.sql("made", "SELECT id, x FROM odd UNION ALL SELECT id, -x FROM rows WHERE id % 3 = 0")


def chained(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
    del flow
    chosen = rows.transform("chosen", lambda df: df.where("id % 2 = 0"))
    return chosen.transform("made", lambda df: df.selectExpr("id", "explode(l) AS l", "r", "b", "d"))


def as_read(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
    del flow
    return rows


def flow_of(made: Made, files: Path, *, per_step: int = 1, **others: Callable[[], Any]) -> bl.Dataflow:
    flow = bl.Dataflow("linear")
    rows = flow.source("rows", bl.files(files, format="parquet", schema=SCHEMA, max_files_per_step=per_step))
    result = made(flow, rows)
    result.sink("out", bl.parquet("out"))
    for name, sink in others.items():
        result.sink(name, sink())
    return flow


def outcome(flow: bl.Dataflow, spark: SparkSession) -> list[tuple[int, str, pa.Table]]:
    """Return rows, digest and content of each step's file."""
    for folder in ("store", "out", "kept"):
        shutil.rmtree(folder, ignore_errors=True)
    bl.run(flow, store="store", available_now=True, spark=spark)
    return held()


def held() -> list[tuple[int, str, pa.Table]]:
    paths = sorted(Path("out").glob("*.parquet"))
    records = [read_record(path, step) for step, path in enumerate(paths)]
    return [(each.rows, each.digest, pq.read_table(path)) for each, path in zip(records, paths, strict=True)]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("made", "per_step"), [(linear, 1), (linear, 2), (united, 1), (chained, 1), (chained, 2), (as_read, 1)]
)
def test_each_step_leaves_what_it_leaves_alone(
    here: Path,
    spark: SparkSession,
    files: Path,
    jobs: list[range],
    monkeypatch: pytest.MonkeyPatch,
    made: Made,
    per_step: int,
) -> None:
    """The same rows in the same order, and the same digest."""
    (here / "input").mkdir()
    for path in files.iterdir():
        for copy in range(per_step):
            (here / "input" / f"{path.stem}-{copy}.parquet").symlink_to(path)
    flow = flow_of(made, here / "input", per_step=per_step)
    together = outcome(flow, spark)
    assert max(map(len, jobs)) > 1, "no steps were run together"
    monkeypatch.setattr(SparkEngine, "steps_per_job", lambda *_: 1)
    jobs.clear()
    assert outcome(flow, spark) == together
    assert max(map(len, jobs)) == 1
    assert len(together) == FILES
    assert all(rows for rows, _, _ in together)


def test_all_sinks_of_a_unit_get_the_steps(here: Path, spark: SparkSession, files: Path, jobs: list[range]) -> None:
    pytest.importorskip("deltalake")
    from deltalake import DeltaTable

    flow = flow_of(linear, files, kept=lambda: bl.delta("kept"))
    rows = pa.concat_tables([table for _, _, table in outcome(flow, spark)])
    assert max(map(len, jobs)) > 1
    found = DeltaTable("kept").to_pyarrow_table()
    assert sorted(found["id"].to_pylist()) == sorted(rows["id"].to_pylist())
    assert set(found["_weight"].to_pylist()) == {1}


@pytest.mark.parametrize("made", [linear, chained])
def test_a_replay_may_divide_the_steps_otherwise(
    here: Path, spark: SparkSession, files: Path, jobs: list[range], monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    """The sink compares each step of a replay with the file that it holds, and its digest with that of the log."""
    flow = flow_of(made, files)
    expected = outcome(flow, spark)
    shutil.rmtree("store")
    shutil.rmtree("out")

    class Stops(Exception):  # noqa: N818
        pass

    def watch(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.time == 3:
            raise Stops

    with monkeypatch.context() as alone:
        alone.setattr(SparkEngine, "steps_per_job", lambda *_: 1)
        with pytest.raises(Stops):
            bl.run(flow, store="store", available_now=True, spark=spark, on_progress=watch)
    jobs.clear()
    bl.run(flow, store="store", available_now=True, spark=spark)
    assert max(map(len, jobs)) > 1
    assert held() == expected


def test_small_steps_have_jobs_of_their_own(
    here: Path, spark: SparkSession, files: Path, jobs: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "LONG_RUNNING_BYTES", 1 << 30)
    outcome(flow_of(linear, files), spark)
    assert max(map(len, jobs)) == 1


def test_a_job_has_no_more_input_than_the_bound(
    here: Path, spark: SparkSession, files: Path, jobs: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = max(path.stat().st_size for path in files.iterdir())
    monkeypatch.setattr(waiting, "WAITING_BYTES", 2 * largest)
    outcome(flow_of(chained, files), spark)
    assert max(map(len, jobs)) == 2


def test_changes_are_no_rows_that_only_come(
    here: Path, spark: SparkSession, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view over changes keeps their weights, so its steps never share a job."""
    appends: list[object] = []
    monkeypatch.setattr(AppendingSteps, "__init__", lambda steps, *_: appends.append(steps))

    def made(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
        from pyspark.sql import functions as F

        rows.group_by("s").agg("sums", F.count("*").alias("n"), policy=bl.Lazy(every=2))
        return flow.sql("made", "SELECT s, n FROM sums WHERE n > 1")

    found = outcome(flow_of(made, files), spark)
    assert {-1, 1} == {weight for _, _, table in found for weight in table["_weight"].to_pylist()}
    assert not appends


def test_a_step_that_fails_is_named_and_those_before_it_hold(
    here: Path, spark: SparkSession, files: Path, jobs: list[range]
) -> None:
    for path in files.iterdir():
        shutil.copy(path, here / path.name)
    bad = pq.read_table(here / "3.parquet", columns=["id"])["id"][7].as_py()

    def failing(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
        del rows
        return flow.sql("made", f"SELECT id, 1 / (id - {bad}) AS inverse FROM rows")

    with pytest.raises(bl.BoatliftError, match="made failed at step 3"):
        outcome(flow_of(failing, here), spark)
    assert any(3 in times and len(times) > 1 for times in jobs), "it was not among steps that ran together"
    assert len(held()) == 3


def test_input_that_changes_under_the_job_is_refused(
    here: Path, spark: SparkSession, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "input").mkdir()
    for path in files.iterdir():
        shutil.copy(path, here / "input" / path.name)
    run = StepPlan.run

    def changing(plan: StepPlan, *given: Any, **named: Any) -> Any:
        receipts = run(plan, *given, **named)
        if 4 in plan.parameters.times:
            shutil.copy(here / "input" / "1.parquet", here / "input" / "4.parquet")
        return receipts

    monkeypatch.setattr(StepPlan, "run", changing)
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\]"):
        outcome(flow_of(linear, here / "input"), spark)
    assert len(held()) == 4


def test_a_large_step_is_planned_while_the_one_before_it_runs(
    here: Path, spark: SparkSession, files: Path, jobs: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = flow_of(linear, files)
    expected = outcome(flow, spark)
    monkeypatch.setattr(SparkEngine, "steps_per_job", lambda *_: 1)
    monkeypatch.setattr(planner, "ONE_TASK_BYTES", 1)
    planned: list[int] = []
    together, of = ViewPlans.together, ViewPlans.of

    def ahead(plans: ViewPlans, takes: Sequence[StepInput]) -> StepPlan:
        planned.append(takes[0].time)
        return together(plans, takes)

    at_their_turn: list[int] = []

    def late(plans: ViewPlans, job: ViewJob, step: ViewStep, **named: Any) -> StepPlan:
        at_their_turn.append(step.number)
        return of(plans, job, step, **named)

    monkeypatch.setattr(ViewPlans, "together", ahead)
    monkeypatch.setattr(ViewPlans, "of", late)
    jobs.clear()
    assert outcome(flow, spark) == expected
    assert [len(times) for times in jobs] == [1] * FILES, "a step had two jobs"
    assert planned
    assert sorted(planned + at_their_turn) == list(range(FILES)), "a plan was made twice"


def test_the_digest_is_that_of_the_formats_page(here: Path, spark: SparkSession, files: Path) -> None:
    """docs/formats/digest.md, in plain Python."""

    def made(flow: bl.Dataflow, rows: bl.Stream) -> bl.Stream:
        del rows
        return flow.sql("made", "SELECT id, s, IF(id % 2 = 0, -0.0D, x) AS x FROM rows WHERE id % 100 = 0")

    def bytes_of(value: str | float) -> bytes:
        if isinstance(value, str):
            return value.encode()
        return struct.pack("<d", value + 0.0) if isinstance(value, float) else struct.pack("<q", value)

    def row_hash(row: dict[str, Any]) -> int:
        word = 42
        for value in (row["id"], row["s"], row["x"], row["_weight"]):
            word = xxh64_intdigest(int(value is None).to_bytes(4, "little"), word)
            if value is not None:
                word = xxh64_intdigest(bytes_of(value), word)
        return word

    for _, digest, table in outcome(flow_of(made, files), spark):
        assert table.num_rows
        assert digest == f"{sum(map(row_hash, table.to_pylist())) % 2**64:016x}"


LINEAR = f"""
import boatlift as bl

flow = bl.Dataflow("linear")
rows = flow.source("rows", bl.files("input", format="parquet", schema="{SCHEMA}", max_files_per_step=1))
flow.sql("viewed", "SELECT id, x / 3 AS x FROM rows WHERE id % 2 = 0").sink("from_view", bl.parquet("from_view"))
chosen = rows.transform("chosen", lambda df: df.where("id % 3 = 0").select("id", "x"))
chosen.sink("from_chain", bl.parquet("from_chain"))
chosen.sink("beside", bl.sqlite("beside.db", table="chosen", key=["id"]))
"""


@pytest.mark.crash
@pytest.mark.timeout(600)
def test_a_crash_among_steps_that_share_a_job_leaves_no_trace(here: Path, files: Path) -> None:
    (here / "input").symlink_to(files)
    (here / "linear.py").write_text(LINEAR)
    points = ["sink.stage(from_view):after:3", "sink.commit(from_view):before:3", "sink.commit(from_chain):after:4"]
    verdict = crash_test("linear:flow", points=points)
    verdict.assert_right()
    assert [trial.killed for trial in verdict.trials[1:]] == [True] * 3, [str(each) for each in verdict.trials]
