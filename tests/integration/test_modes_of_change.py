"""The ways in which a change is brought about, and the changes that are refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import BoatliftError, DataError, InvalidError
from support.changes import Case, changes, evolve, plan_id, run, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def rows_of(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))


def filtered(where: str = "v % 3 > 0", *, sinks: tuple[str, ...] = ("copy",)) -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    kept = rows_of(flow).transform("kept", lambda df: df.where(where))
    for name in sinks:
        kept.sink(name, bl.parquet(name))
    return flow


def values(folder: str) -> list[int]:
    return sorted(dict(row)["v"] for row, n in changes(folder).items() for _ in range(n))


OLD = [v for n in range(6) for v in (n * 10 + k for k in range(7)) if v % 3 > 0]
NEW = [v for n in range(6) for v in (n * 10 + k for k in range(7)) if v % 2 > 0]
NEXT = [v for v in (70 + k for k in range(7)) if v % 2 > 0]


def test_a_sink_of_new_rows_cannot_take_rows_back(case: Case, spark: SparkSession) -> None:
    run(filtered(), spark)
    changed = filtered("v % 2 > 0")
    with pytest.raises(InvalidError, match=r"\[CANNOT_TAKE_BACK\] copy holds 16 rows .*--change copy=new_rows"):
        evolve(changed, spark)
    assert values("copy") == sorted(OLD)
    run(filtered(), spark)  # nothing was changed: the old program goes on


@pytest.mark.parametrize(("mode", "shown"), [("new_rows", sorted({*OLD, *NEW})), ("now", sorted(OLD))])
def test_a_sink_of_new_rows_gets_what_comes_or_nothing_of_the_past(
    case: Case, spark: SparkSession, mode: str, shown: list[int]
) -> None:
    run(filtered(), spark)
    evolve(filtered("v % 2 > 0"), spark, copy=mode)
    assert values("copy") == shown
    write(case.here, 7)
    run(filtered("v % 2 > 0"), spark)
    assert values("copy") == sorted([*shown, *NEXT])


def test_a_wider_filter_only_adds_rows(case: Case, spark: SparkSession) -> None:
    run(filtered(), spark)
    evolve(filtered("v >= 0"), spark)
    case.check(lambda: filtered("v >= 0"), "copy")


def test_a_sink_that_comes_gets_the_past_or_begins_now(case: Case, spark: SparkSession) -> None:
    run(filtered(), spark)
    evolve(filtered(sinks=("copy", "whole", "later")), spark, later="now")
    assert values("whole") == sorted(OLD)
    assert changes("later") == {}
    write(case.here, 7)
    run(filtered(sinks=("copy", "whole", "later")), spark)
    assert values("later") == [v for v in (70 + k for k in range(7)) if v % 3 > 0]
    assert values("whole") == values("copy")


def test_a_sink_that_goes_leaves_its_place_alone(case: Case, spark: SparkSession) -> None:
    run(filtered(sinks=("copy", "other")), spark)
    evolve(filtered(), spark)
    case.check(filtered, "copy")
    assert values("other") == sorted(OLD)
    evolve(filtered(sinks=("copy", "other")), spark)  # it comes back, and gets what it lacks
    assert values("other") == values("copy")


def test_the_plan_of_another_program_is_refused(case: Case, spark: SparkSession) -> None:
    run(filtered(), spark)
    consent = plan_id(filtered("v > 100"), spark, {})
    with pytest.raises(InvalidError, match=r"\[PLAN_CHANGED\] .* and not " + consent):
        run(filtered("v % 2 > 0"), spark, evolve=consent)
    with pytest.raises(InvalidError, match="PLAN_CHANGED"):
        run(filtered("v > 100"), spark, evolve=consent, change={"copy": "now"})
    run(filtered(), spark)


def test_the_command_of_a_transition_that_is_done_goes_on(case: Case, spark: SparkSession) -> None:
    run(filtered(), spark)
    consent = plan_id(filtered("v >= 0"), spark, {})
    for _ in range(2):
        run(filtered("v >= 0"), spark, evolve=consent)
    assert len(values("copy")) == 42
    with pytest.raises(DataError, match="PROGRAM_CHANGED"):
        run(filtered(), spark)
    del case


def delivered(where: str = "v % 3 > 0") -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    kept = rows_of(flow).transform("kept", lambda df: df.where(where))
    mail = str(Path("mail.txt").absolute())

    def deliver(rows: Any, step: int) -> None:
        with Path(mail).open("a") as file:
            file.write(f"{step} {rows.num_rows}\n")

    kept.sink("mail", bl.foreach(deliver))
    return flow


def test_a_receiver_that_cannot_be_asked_goes_on_from_now_on(case: Case, spark: SparkSession) -> None:
    run(delivered(), spark)
    with pytest.raises(InvalidError, match=r"\[SINK_NOT_READABLE\] the receiver of mail .* --change mail=now"):
        evolve(delivered("v >= 0"), spark)
    evolve(delivered("v >= 0"), spark, mail="now")
    write(case.here, 7)
    run(delivered("v >= 0"), spark)
    assert Path("mail.txt").read_text().splitlines()[-1].endswith(" 7")
    assert len(Path("mail.txt").read_text().splitlines()) == 7


def test_a_past_that_is_gone_is_refused_by_name(case: Case, spark: SparkSession) -> None:
    run(filtered(), spark)
    (case.here / "in" / "002.csv").unlink()
    with pytest.raises(BoatliftError, match=r"002\.csv"):
        evolve(filtered("v >= 0"), spark)
    write(case.here, 2)
    evolve(filtered("v >= 0"), spark)
    assert len(values("copy")) == 42


def latest(columns: str = "k, v") -> bl.Dataflow:
    flow = bl.Dataflow("flow")
    rows_of(flow)
    flow.sql("view", f"SELECT {columns} FROM rows WHERE v > 20").sink("view_out", bl.parquet("view"))
    return flow


def test_a_column_that_goes_needs_another_place(case: Case, spark: SparkSession) -> None:
    run(latest(), spark)
    with pytest.raises(InvalidError, match=r"\[OTHER_COLUMNS\] view_out would lose or change the columns k int"):
        evolve(latest("v"), spark)
    evolve(latest("v, k, v + 1 AS w"), spark)
    case.check(lambda: latest("v, k, v + 1 AS w"), "view")


PROGRAMS: list[Callable[[], bl.Dataflow]] = [filtered, delivered, latest]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_store_without_steps_takes_any_program(case: Case, spark: SparkSession, program: Any) -> None:
    for path in (case.here / "in").iterdir():
        path.unlink()
    run(filtered("v > 1"), spark)
    consent = bl.evolution(program(), "store", change={"all": "now"} if program is delivered else {}, spark=spark)
    change = {"all": "now"} if program is delivered else {}
    run(program(), spark, evolve=consent.id, change=change)
    write(case.here, 0)
    run(program(), spark)


def totals(*, dead_letters: bool, where: str = "v >= 0") -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    source = bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1)
    rows = flow.source("rows", source, bad_rows="dead_letters") if dead_letters else flow.source("rows", source)
    kept = rows.transform("kept", lambda df: df.where(where))
    kept.group_by("k").agg("sums", F.sum("v").alias("total")).sink("sums_out", bl.parquet("sums"))
    rows.sink("copy", bl.parquet("copy"))
    if dead_letters:
        rows.bad_rows("bad").sink("bad_out", bl.parquet("bad"))
    return flow


@pytest.mark.parametrize("where", ["v >= 0", "v > 20"])
def test_dead_letters_mend_a_dataflow_that_a_bad_row_has_stopped(case: Case, spark: SparkSession, where: str) -> None:
    run(totals(dead_letters=False), spark)
    (case.here / "in" / "006.csv").write_text("k,v\n1,60\nnone,61\n3,62\n")
    with pytest.raises(DataError, match=r"\[BAD_ROW\]"):
        run(totals(dead_letters=False), spark)
    changed = partial(totals, dead_letters=True, where=where)
    report = bl.evolution(changed(), "store", spark=spark)
    assert {name for name, each in report.processors.items() if each.change == "unchanged"} >= {"rows", "copy"}
    assert [each.change for name, each in report.processors.items() if name in ("bad", "bad_out")] == ["added"] * 2
    before = len(list(Path("sums").glob("*.parquet")))
    evolve(changed(), spark)
    assert len(list(Path("sums").glob("*.parquet"))) == before + 1
    case.check(changed, "sums", "copy", "bad")


def counted(add: int = 0) -> bl.Dataflow:
    """Each step has the number of rows of a key so far, and a further number added to it."""
    flow = bl.Dataflow("flow")

    def count(key: Any, rows: Any, state: Any, _context: Any) -> Any:
        state.n = (state.n or 0) + len(rows)
        yield key.k, state.n + add

    counts = rows_of(flow).group_by("k").process("counts", count, state="n LONG", output="k INT, n LONG")
    counts.sink("told", bl.parquet("told"))
    return flow


def told() -> list[int]:
    return sorted(row["n"] for row in map(dict, changes("told").elements()) if row["k"] == 0)


def test_an_order_dependent_processor_is_never_computed_in_one_step(case: Case, spark: SparkSession) -> None:
    run(counted(), spark)
    with pytest.raises(DataError, match=r"\[HISTORY_GONE\] .* counts gives other rows if its input comes in other"):
        evolve(counted(100), spark)
    del case


@pytest.mark.parametrize(("mode", "then"), [("carry", 107), ("now", 101), ("same", 107)])
def test_its_state_is_carried_or_begins_anew(case: Case, spark: SparkSession, mode: str, then: int) -> None:
    run(counted(), spark)
    assert told() == [1, 2, 3, 4, 5, 6]
    evolve(counted(100), spark, counts=mode)
    write(case.here, 7)
    run(counted(100), spark)
    assert told() == [1, 2, 3, 4, 5, 6, then]


def test_the_newest_row_of_a_key_is_not_guessed_from_the_whole_past(case: Case, spark: SparkSession) -> None:
    def newest(sink: str) -> bl.Dataflow:
        flow = bl.Dataflow("flow")
        rows_of(flow).sink(sink, bl.sqlite(f"{sink}.db", table="newest", key=["k"]))
        return flow

    run(newest("old"), spark)
    with pytest.raises(InvalidError, match=r"\[SINK_NOT_READABLE\] new keeps the newest row of each key"):
        evolve(newest("new"), spark)
    evolve(newest("new"), spark, new="now")
    del case
