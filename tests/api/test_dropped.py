"""What is defined again, as by a cell of a notebook, and sources that nothing reads."""

from __future__ import annotations

import logging
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import plan


def same(df: Any) -> Any:
    return df


def csv() -> Any:
    return bl.files("data/*.csv", schema="k STRING, at TIMESTAMP")


@pytest.fixture
def flow() -> bl.Dataflow:
    """Rows with a lateness, what reads them and does not, and two sinks of which one has a part ahead of it."""
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", csv(), lateness={"at": "10 minutes"})
    rows.late_rows("late").sink("late_out", bl.parquet("late"))
    rows.transform("clean", same).sink("out", bl.parquet("out", every="1 minute"))
    flow.source("others", csv()).sink("others_out", bl.parquet("others"))
    return flow


def test_what_reads_the_dropped_is_dropped_and_a_cell_runs_again(flow: bl.Dataflow) -> None:
    for _ in range(2):
        gone = flow.drop("clean")
        flow.sql("clean", "SELECT * FROM rows").sink("out", bl.parquet("out"))
    assert gone == ["clean", "out"]
    assert plan(flow).processors["clean"].kind == "view"
    assert flow.drop("none") == []


def test_a_source_and_a_sink_go_with_their_parts(flow: bl.Dataflow) -> None:
    assert flow.drop("out") == ["out_gathered", "out"]
    assert flow.drop("rows") == ["rows_source", "rows", "late", "late_out", "clean"]
    assert list(flow.processors) == ["others", "others_out"]
    flow.source("rows", csv(), lateness={"at": "1 hour"}).sink("out", bl.parquet("out"))
    assert list(plan(flow).sinks) == ["others_out", "out"]


def test_late_rows_go_with_the_stream_that_drops_them() -> None:
    """They do not read it, and would go on by the lateness that it had."""
    flow = bl.Dataflow("mine")
    timely = flow.source("rows", csv()).with_watermark("timely", "at", "10 minutes")
    timely.late_rows("late").sink("late_out", bl.parquet("late"))
    assert flow.drop("timely") == ["timely", "late", "late_out"]


def test_no_stream_goes_on_from_what_was_dropped(flow: bl.Dataflow) -> None:
    clean = bl.Stream(flow, "clean")
    flow.drop("clean")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] more reads clean, which mine has no more"):
        clean.transform("more", same)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] out_gathered reads clean"):
        clean.sink("out", bl.parquet("out", every="1 minute"))


def test_a_name_that_is_taken_says_how_a_cell_runs_again(flow: bl.Dataflow) -> None:
    before = list(flow.processors)
    with pytest.raises(bl.InvalidError, match=r"\[DUPLICATE_NAME\] .* write flow\.drop\('rows'\) before"):
        flow.source("rows", csv())
    with pytest.raises(bl.InvalidError, match=r"\[DUPLICATE_NAME\]"):
        flow.source("clean", csv(), lateness={"at": "1 hour"})
    assert list(flow.processors) == before, "what is refused leaves nothing behind"
    assert flow.drop("rows")[0] == "rows_source"


@pytest.mark.parametrize("options", [{}, {"lateness": {"at": "1 hour"}}, {"bad_rows": "dead_letters"}])
def test_a_source_that_nothing_reads_is_reported_and_left_out(
    flow: bl.Dataflow, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    flow.source("weather", csv(), **options)
    for _ in range(2):
        planned = plan(flow)
        assert list(planned.sources) == ["rows_source", "others"]
        assert not [name for name in planned.processors if "weather" in name]
    (told,) = caplog.records
    assert (told.levelno, told.getMessage()) == (logging.WARNING, "nothing reads weather: mine runs without it")


def test_changes_of_a_pushed_source_that_nothing_reads_are_left_out(flow: bl.Dataflow) -> None:
    flow.source("stock", bl.push("item STRING, pieces INT", upsert=["item"]))
    assert not [name for name in plan(flow).processors if "stock" in name]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] nothing reads stock, so mine runs without it"):
        flow.push("stock", [{"item": "boat", "pieces": 3}])


def test_a_dataflow_without_a_sink_and_a_stream_that_nothing_reads_are_refused(flow: bl.Dataflow) -> None:
    bl.Stream(flow, "rows").transform("dead", same)
    with pytest.raises(bl.InvalidError, match=r"\[EMPTY_DATAFLOW\] nothing reads dead"):
        plan(flow)
    without = bl.Dataflow("without")
    without.source("rows", csv())
    with pytest.raises(bl.InvalidError, match=r"\[EMPTY_DATAFLOW\] without has no sink"):
        plan(without)


def test_lateness_is_the_old_name_of_with_watermark() -> None:
    made = [bl.Dataflow("old"), bl.Dataflow("new")]
    old, new = (flow.source("rows", bl.generator({"at": "id"}, rows_per_step=1)) for flow in made)
    assert old.lateness("timely", "at", "1 hour").name == new.with_watermark("timely", "at", "1 hour").name == "timely"
    assert made[0].processors["timely"] == made[1].processors["timely"]
