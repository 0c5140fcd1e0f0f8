"""What a state says is not computed again, and an untouched sink is not read back: with the same rows."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.runtime.host.points import change_points
from boatlift.spark.jobs.past import PastRows
from support.changes import Case, changes, evolve, run, table, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def least(function: str = "min", *, factor: int = 1, more: tuple[str, ...] = (), below: bool = False) -> bl.Dataflow:
    """The least or greatest value of each key, to Parquet and SQLite; perhaps to more sinks, and a view below it."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    value = getattr(F, function)(F.col("v") * factor).alias("total")
    totals = rows.group_by("k").agg("totals", value)
    totals.sink("history", bl.parquet("history"))
    totals.sink("keyed", bl.parquet("keyed", key=["k"]))
    totals.sink("answers", bl.sqlite("answers.db", table="totals", key=["k"]))
    for name in more:
        place = bl.sqlite(name, table="totals", key=["k"]) if name.endswith(".db") else bl.parquet(name)
        totals.sink(f"to_{name.replace('.', '_')}", place)
    if below:
        flow.sql("high", "SELECT k, total + 1 AS more FROM totals WHERE total > 2").sink("to_high", bl.parquet("high"))
    return flow


SINKS = ("history", "keyed", "answers.db")


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each sink whose rows are compared with those of steps."""
    names: list[str] = []
    plain: Callable[..., Any] = PastRows._difference

    def spied(self: PastRows, spark: Any, jobs: Any, unit: Any, name: str, sink: Any) -> Any:
        names.append(name)
        return plain(self, spark, jobs, unit, name, sink)

    monkeypatch.setattr(PastRows, "_difference", spied)
    return names


def check(case: Case, flow: Callable[[], bl.Dataflow], *more: str) -> None:
    """Hold the sinks against those of a fresh store; the one with a key by its newest rows."""
    case.check(flow, *(name for name in (*SINKS, *more) if name != "keyed"))
    with chdir(case.here / "fresh"):
        fresh = newest("keyed")
    assert newest("keyed") == fresh


def newest(folder: str) -> dict[Any, dict[str, Any]]:
    held: dict[Any, dict[str, Any]] = {}
    for path in sorted(Path(folder).glob("*.parquet")):
        for row in sorted(pq.read_table(path).to_pylist(), key=lambda row: row["_weight"]):
            held.pop(row["k"], None)
            if row.pop("_weight") > 0:
                held[row["k"]] = row
    return held


def test_an_untouched_sink_is_not_read_back(case: Case, spark: SparkSession, compared: list[str]) -> None:
    run(least(), spark)
    evolve(least(factor=-1), spark)
    assert compared == ["answers"]  # anybody may write to a table
    check(case, lambda: least(factor=-1))


def test_a_sink_that_was_touched_is_read_back_and_mended(case: Case, spark: SparkSession, compared: list[str]) -> None:
    run(least(), spark)
    file = min(Path("history").glob("*.parquet"))
    rows = pq.read_table(file)
    other = pa.array([value.as_py() + 1000 for value in rows["total"]], pa.int64())
    pq.write_table(rows.set_column(1, "total", other), file)
    evolve(least(factor=-1), spark)
    assert compared == ["history", "answers"]
    check(case, lambda: least(factor=-1))


def test_the_state_of_another_function_says_nothing(case: Case, spark: SparkSession, compared: list[str]) -> None:
    run(least("min"), spark)
    evolve(least("max"), spark)
    assert set(compared) == {"history", "keyed", "answers"}
    check(case, lambda: least("max"))


def test_a_state_that_began_later_than_its_sink_says_nothing(
    case: Case, spark: SparkSession, compared: list[str]
) -> None:
    run(least(), spark)
    evolve(least(factor=2), spark, totals="now")
    write(case.here, 6)
    run(least(factor=2), spark)
    evolve(least(factor=3), spark)
    assert {"history", "keyed"} <= set(compared)
    check(case, lambda: least(factor=3))


def test_a_further_sink_gets_the_rows_of_the_state(case: Case, spark: SparkSession, compared: list[str]) -> None:
    """Not one row of the input is read: there is none any more."""
    run(least(), spark)
    shutil.move("in", "away")
    Path("in").mkdir()
    more = ("further", "further.db")
    report = bl.evolution(least(more=more), "store", spark=spark)
    assert (report.computed, dict(report.obstacles)) == ((), {})
    evolve(least(more=more), spark)
    assert compared == []
    assert changes("further") == changes("history")
    assert table("further.db", "totals") == table("answers.db", "totals")
    shutil.rmtree("in")
    shutil.move("away", "in")
    check(case, lambda: least(more=more), *more)


def test_what_comes_below_a_state_is_computed_from_it(case: Case, spark: SparkSession) -> None:
    run(least(), spark)
    shutil.move("in", "away")
    Path("in").mkdir()
    assert bl.evolution(least(below=True), "store", spark=spark).computed == ("high",)
    evolve(least(below=True), spark)
    shutil.rmtree("in")
    shutil.move("away", "in")
    check(case, lambda: least(below=True), "high")


@pytest.mark.parametrize("touched", [False, True], ids=["untouched", "touched"])
def test_a_way_back_is_what_lies_between_two_states(
    case: Case, spark: SparkSession, compared: list[str], *, touched: bool
) -> None:
    run(least("max"), spark)
    assert list(change_points(Path("store"), "before"))
    held = [changes("history"), newest("keyed"), table("answers.db", "totals")]
    for number in (20, 21):
        write(case.here, number)
    run(least("max"), spark)
    if touched:  # the same rows in another file: to be read, and nothing is wrong with them
        pq.write_table(pq.read_table(file := sorted(Path("history").glob("*.parquet"))[-2]), file, compression="gzip")
    plan = bl.evolution(least("max"), "store", to="before", spark=spark)
    bl.rewind(least("max"), "store", to="before", evolve=plan.id, spark=spark)
    assert compared == (["history"] * touched + ["keyed", "answers"])
    assert [changes("history"), newest("keyed"), table("answers.db", "totals")] == held
    check(case, lambda: least("max"))


def odd(factor: int) -> bl.Dataflow:
    """Values of which some are equal and not the same."""
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.parquet", schema="k DOUBLE, v DOUBLE, d DECIMAL(20, 2)"))
    most = [F.max(F.col("v") * factor).alias("most"), F.sum(F.col("d") * factor).alias("of_d")]
    rows.group_by("k").agg("totals", *most).sink("history", bl.parquet("history"))
    return flow


def test_values_go_and_come_as_they_are_stored(case: Case, spark: SparkSession, compared: list[str]) -> None:
    shutil.rmtree("in")
    Path("in").mkdir()
    keys = [None, 0.0, -0.0, float("nan"), float("inf"), 1.5]
    values = [[0.0, -1.0, float("nan"), None, float("-inf"), 1e300], [-0.0, 5.0, 1.0, None, 2.0, -1e300]]
    for number, column in enumerate(values):
        cents = pa.array([None, 10**15, Decimal("-0.07"), 0, 1, 3], pa.decimal128(20, 2))
        rows = pa.table({"k": pa.array(keys, pa.float64()), "v": pa.array(column, pa.float64()), "d": cents})
        pq.write_table(rows, f"in/{number}.parquet")
    run(odd(1), spark)
    evolve(odd(-1), spark)
    assert compared == []
    held = as_stored("history")
    Path("fresh").mkdir()
    (case.here / "fresh" / "in").symlink_to(case.here / "in")
    with chdir("fresh"):
        run(odd(-1), spark)
        assert held == as_stored("history")
    assert len(held) == 5


def as_stored(folder: str) -> Counter[str]:
    """The rows that a folder of changes holds, in words that tell −0.0 from 0.0, and NaN from NULL."""
    held: Counter[str] = Counter()
    for path in Path(folder).glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            weight = row.pop("_weight")
            held[repr(row)] += weight
    return Counter({row: weight for row, weight in held.items() if weight})


def test_a_folder_is_proved_once_by_its_checksums(
    case: Case, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []
    plain = ParquetSink._untouched

    def told(self: ParquetSink, step: int) -> bool:
        asked.append(plain(self, step))
        return asked[-1]

    monkeypatch.setattr(ParquetSink, "_untouched", told)
    run(least(), spark)
    evolve(least(factor=-1), spark)
    assert asked == [True, True]
