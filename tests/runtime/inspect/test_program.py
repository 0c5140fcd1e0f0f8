"""A program before it runs, as data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.runtime.inspect.determinants import DeterminantRate
from boatlift.runtime.inspect.program import JobReport, plan_of

KEYED = {"kind": "aggregate", "policy": "Lazy(every=20, seconds=60)", "keys": ["k"], "reads": "odd"}


def same(df: Any) -> Any:
    return df


def rows() -> Any:
    return bl.generator({"n": "id"}, rows_per_step=1)


@pytest.fixture
def report(tmp_path: Any) -> Any:
    flow = bl.Dataflow("mine")
    first, second = flow.source("first", rows()), flow.source("second", rows())
    pushed = flow.source("pushed", bl.push("k LONG NOT NULL", ack="stable"))
    pushed.sink("raw", bl.parquet(tmp_path / "raw"))
    odd = first.transform("odd", same, deterministic=False)
    sums: Any = odd.group_by("k").agg("sums", "any column")  # type: ignore[arg-type]
    fit = odd.recompute("fit", same, over="batch", policy=bl.Batch(epochs=4))
    first.merge("both", second).gather("hours", policy=bl.Batch(epochs=9)).sink("out", bl.parquet(tmp_path / "out"))
    first.union("all", second).sink("one", bl.parquet(tmp_path / "one"))
    second.lookup("asked", sums=sums.by("k"), fit=fit.by("k")).sink("told", bl.parquet(tmp_path / "told"))
    return plan_of(plan(flow), {"identity": 1})


def test_each_processor_is_described_by_its_kind_options_and_input(report: Any) -> None:
    described = report.processors
    assert described["odd"] == {"kind": "transform", "policy": "Eager()", "deterministic": False, "reads": "first"}
    assert described["sums"] == KEYED
    assert described["both"].items() >= {"kind": "merge", "with": ["second"]}.items()
    assert described["all"].items() >= {"kind": "union", "with": ["second"]}.items()
    assert described["hours"].items() >= {"kind": "gather", "reads": "both"}.items()
    assert described["fit"].items() >= {"kind": "recompute", "over": "batch", "policy": "Batch(epochs=4)"}.items()
    assert described["asked"]["tables"] == {
        "sums": {"reads": "sums", "keys": ["k"]}, "fit": {"reads": "fit", "keys": ["k"]}
    }  # fmt: skip
    assert described["out"].items() >= {"kind": "parquet", "delivery": "exactly once", "reads": "hours"}.items()
    assert "reads" not in described["first"]


def test_each_unit_is_a_job(report: Any) -> None:
    assert report.jobs["asked"] == JobReport(
        reads=["second"],
        executes=["asked"],
        looks_up=["sums", "fit"],
        stages_for=["told"],
        keeps_output=False,
        history=[],
        everything=False,
        deterministic=True,
        policy="Lazy(every=20, seconds=60)",
        order="divergent",
        order_why="asked takes its inputs in the order of arrival",
        approach="persistent state",
    )
    orders = {name: job.order for name, job in report.jobs.items()}
    assert orders["odd"] == "divergent", "it is not deterministic"
    assert orders["sums"] == "convergent"
    assert report.jobs["odd"].keeps_output
    assert not report.jobs["odd"].deterministic
    assert report.units == {name: job.executes for name, job in report.jobs.items()}


def test_determinants_are_positions_orders_of_arrival_ends_of_epochs_and_rows_that_cannot_be_made_again(
    report: Any,
) -> None:
    assert report.recorded == {
        "first": ["position", "clock", "seed"],
        "second": ["position", "clock", "seed"],
        "pushed": ["keys", "clock", "seed"],
        "odd": ["rows"],
        "fit": ["epoch ends"],
        "both": ["arrival order"],
        "hours": ["epoch ends"],
        "asked": ["arrival order"],
    }


def test_the_determinants_of_a_unit_follow_from_how_its_messages_arrive(report: Any) -> None:
    rates = {name: (each.arrival, each.least, each.most) for name, each in report.rates.items()}
    assert rates.keys() == report.jobs.keys()
    assert {name: rates[name] for name in ("odd", "sums", "fit", "both", "hours", "all", "asked")} == {
        "odd": ("none", 1000, 1000),  # each step's rows are recorded
        "sums": ("none", 0, 0),
        "fit": ("batch", 1, 250),
        "both": ("each", 1000, 1000),
        "hours": ("batch", 1, 112),
        "all": ("none", 0, 0),
        "asked": ("each", 1000, 1000),
    }


def test_a_merge_that_gathers_records_an_epoch_and_not_a_message() -> None:
    flow = bl.Dataflow("flow")
    one, other, third = (flow.source(name, rows()) for name in ("one", "other", "third"))
    one.merge("both", other, third).sink("out", bl.foreach(lambda rows, step: None, key=["n"]))
    report = plan_of(plan(flow), {})
    assert report.rates == {"both": DeterminantRate("gathered", 6, 1000)}, "1000 / (3 * 64), rounded up"
    assert report.unawaited == {"out": ""}
    waits = plan_of(plan(flow), {}, not_again=lambda unit: f"{unit} uses bl.now()").unawaited
    assert waits == {"out": "both uses bl.now()"}


def test_a_report_is_json(report: Any) -> None:
    data = msgspec.to_builtins(report, enc_hook=str)
    assert (data["dataflow"], data["program"], data["at_least_once"]) == ("mine", {"identity": 1}, [])
    assert data["executed_again"]["sums"] == {"sums": 20}
    assert msgspec.json.decode(msgspec.json.encode(data)) == data


def test_the_pasts_that_go_are_reported_beforehand() -> None:
    flow = bl.Dataflow("flow")
    for name, source in {"gone": bl.push("k INT"), "kept": bl.push("k INT", retain=True)}.items():
        flow.source(name, source).sink(f"{name}_out", bl.parquet(f"{name}_out"))
    assert plan_of(plan(flow), {}).forgets == {
        "gone": "its rows go once they are acknowledged: bl.push(…, retain=True) keeps them"
    }


def test_rows_that_are_recorded_nowhere_are_not_retained() -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] retain keeps rows.*choose ack='recorded'"):
        bl.push("k INT", ack="stable", retain=True)
