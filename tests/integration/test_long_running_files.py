"""Small steps of files have one plan, and share a job that lives; large ones, and files that differ, do not."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.files.source import FilesSource
from boatlift.spark.jobs.barrier import Slots
from support.rows.long_running_jobs import has_long_running_job
from support.waiting import until, within

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("soon")]

STEPS = 10
SCHEMA = "id LONG, item STRING, amount DOUBLE, cost DECIMAL(12, 2), day DATE, at TIMESTAMP"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows_of(step: int) -> pa.Table:
    """Return as many rows as from one to more than travel together."""
    numbers = [1000 * step + number for number in range((1, 3, 200, 64)[step % 4])]
    columns = {
        "id": pa.array(numbers, pa.int64()),
        "item": pa.array([None if number % 5 == 4 else f"item {number % 3}" for number in numbers], pa.string()),
        "amount": pa.array([number / 7 for number in numbers], pa.float64()),
        "cost": pa.array([Decimal(number) / 4 for number in numbers], pa.decimal128(12, 2)),
        "day": pa.array([number % 9000 for number in numbers], pa.int32()).cast(pa.date32()),
        "at": pa.array([number * 1_000_003 for number in numbers], pa.timestamp("us", "UTC")),
    }
    return pa.table(columns)


def write(kind: str, folder: Path, step: int, rows: pa.Table) -> None:
    draft, name = folder / "_draft", f"{step:04d}.{kind.removeprefix('sorted ')}"
    match kind.removeprefix("sorted "):
        case "parquet":
            pq.write_table(rows, draft)
        case "csv":
            rows = rows.set_column(5, "at", rows["at"].cast(pa.timestamp("us")))
            pa.csv.write_csv(rows, draft)
        case "jsonl":
            draft.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows.to_pylist()))
    draft.rename(folder / name)


@contextmanager
def fed(
    flow: bl.Dataflow, spark: SparkSession, store: str, visible: Callable[[], int], **options: Any
) -> Iterator[Any]:
    running = bl.start(flow, store, spark=spark, **options)
    try:
        yield lambda count: until(lambda: visible() >= count)
    finally:
        running.stop()


def flow_of(kind: str, folder: str, keyed: bool) -> tuple[bl.Dataflow, Path, Callable[[], int]]:
    """Return a dataflow, the folder of its input, and what tells how many of its steps are in the sink."""
    place = Path(folder) / "in"
    place.mkdir(parents=True)
    flow = bl.Dataflow("files")
    source = bl.files(place, format={"jsonl": "json"}.get(last := kind.rsplit(maxsplit=1)[-1], last), schema=SCHEMA)
    rows = flow.source("rows", source, **({"bad_rows": "dead_letters"} if kind.startswith("sorted") else {}))
    if kind.startswith("sorted"):
        rows.bad_rows("bad").sink("bad_out", bl.parquet(f"{folder}/bad"))

    def others() -> tuple[int, ...]:
        return (STEPS, files_in(f"{folder}/bad") if kind.startswith("sorted") else STEPS)

    if keyed:
        per = rows.group_by("item").agg("per", F.count("*").alias("n"), F.sum("amount").alias("sum"))
        per.sink("out", bl.sqlite(f"{folder}/out.db", table="per", key=["item"]))
        return flow, place, lambda: min(*others(), steps_in(Path(folder) / "out.db"))
    rows.transform("some", lambda df: df.where("id % 3 > 0")).sink("out", bl.parquet(f"{folder}/out"))
    return flow, place, lambda: min(*others(), files_in(f"{folder}/out"))


def files_in(folder: str) -> int:
    return len(list(Path(folder).glob("*.parquet")))


def steps_in(database: Path) -> int:
    if not database.exists():
        return 0
    connection = sqlite3.connect(database)
    try:
        return int(connection.execute("SELECT count(*) FROM _boatlift_ledger").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


@pytest.mark.parametrize("keyed", [False, True])
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "sorted csv"])
def test_the_bits_are_those_of_sparks_own_reader(
    spark: SparkSession,
    answered: list[int],
    bits: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    keyed: bool,
) -> None:
    def run(folder: str, *, long_running: bool) -> list[Any]:
        before = len(bits)
        flow, place, visible = flow_of(kind, folder, keyed)
        with fed(flow, spark, f"{folder}/store", visible, long_running=long_running) as wait_for:
            for step in range(STEPS):
                write(kind, place, step, rows_of(step))
                wait_for(step + 1)
                if long_running and step >= 2:
                    within(10, lambda: has_long_running_job(spark))  # one that fails to begin is begun by the next step
        return sorted(bits[before:])

    long_running = run("long-running", long_running=True)
    assert set(answered) >= {STEPS - 2, STEPS - 1}
    told = run("told", long_running=False)
    monkeypatch.setattr(FilesSource, "parameters_for", lambda *_: None)
    own = run("own", long_running=False)
    assert long_running == told == own
    assert len({number for _, number, *_ in own}) == STEPS


def test_a_step_of_several_tasks_gets_the_slot(
    spark: SparkSession, answered: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends for the large step, and begins again behind it."""
    monkeypatch.setattr("boatlift.spark.jobs.planner.ONE_TASK_BYTES", 50_000)
    flow, place, visible = flow_of("csv", "here", keyed=False)
    large = pa.concat_tables([rows_of(step) for step in range(1, 30)])
    with fed(flow, spark, "store", visible) as wait_for:
        for step in range(STEPS):
            write("csv", place, step, large if step == 5 else rows_of(step))
            wait_for(step + 1)
            if step == 5:
                until(lambda: not Slots.of(spark.sparkContext)._holders)  # type: ignore[attr-defined]
            if step in {2, 7}:
                until(lambda: has_long_running_job(spark))
    assert set(answered) >= {3, 4, 8, 9}
    assert 5 not in answered
    ids = [each for step in range(STEPS) for each in (large if step == 5 else rows_of(step))["id"].to_pylist()]
    found = pq.read_table("here/out")["id"].to_pylist()
    assert sorted(found) == sorted(each for each in ids if each % 3)


def test_a_bad_row_and_a_changed_file_stop_it_as_they_stop_a_job_of_their_step(
    spark: SparkSession, answered: list[int]
) -> None:
    flow, place, visible = flow_of("csv", "here", keyed=False)
    running = bl.start(flow, "store", spark=spark)
    for step in range(4):
        write("csv", place, step, rows_of(step))
        until(lambda step=step: visible() >= step + 1)
        if step == 2:
            until(lambda: has_long_running_job(spark))
    assert answered
    (place / "_draft").write_text("id,item,amount,cost,day,at\n1,a,1,1,2020-01-01,2020-01-01\n2,a,much,1,,\n")
    (place / "_draft").rename(place / "9.csv")
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] \S+9.csv line 3: column amount is 'much', which is no double"):
        running.wait(60)
    assert visible() == 4
