"""`boatlift plan` says where a sink will leave many files, and is silent where it will not, or does not know."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.errors import InvalidError
from boatlift.runtime.inspect.program import many_files, requests_a_day


def pushed(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.push("k LONG"))


def consumed(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.kafka.source("localhost:1", topic="t"))


def found(flow: bl.Dataflow) -> bl.Stream:
    return flow.source("rows", bl.files("rows/*.csv", schema="k LONG"))


def ticks(flow: bl.Dataflow) -> bl.Stream:
    return flow.tick


def said(
    source: Callable[[bl.Dataflow], bl.Stream],
    behind: Callable[[bl.Stream], bl.Stream] = lambda rows: rows,
    *,
    every: str | None = None,
    tick: str = "1 second",
) -> str | None:
    flow = bl.Dataflow("flow", tick=tick)
    behind(source(flow)).sink("out", bl.parquet("out", every=every))
    return many_files(plan(flow)).get("out")


@pytest.mark.parametrize("source", [pushed, consumed])
def test_a_step_as_soon_as_something_comes_is_a_file_each(source: Callable[[bl.Dataflow], bl.Stream]) -> None:
    words = said(source)
    assert words is not None
    assert "up to some hundred thousand files a day; gather them with every='1 minute'" in words
    assert said(source, lambda rows: rows.transform("clean", lambda df: df)) == words
    assert said(source, every="1 minute") is None
    assert said(source, lambda rows: rows.gather("minutes", policy=bl.Batch(seconds=60))) is None
    assert said(source, lambda rows: rows.gather("asked", policy=bl.Batch(when="count(*) > 5"))) is None
    assert said(source, lambda rows: rows.gather("few", policy=bl.Batch(epochs=10))) == words
    minutes = lambda rows: rows.gather("minutes", policy=bl.Batch(seconds=60))  # noqa: E731
    assert said(source, lambda rows: minutes(rows).transform("clean", lambda df: df)) == words, "empty steps are files"
    assert said(source, lambda rows: minutes(rows).gather("hours", policy=bl.Batch(seconds=3600))) is None


def test_a_period_says_how_many_files_a_day(tmp_path: Path) -> None:
    assert (said(pushed, every="10 seconds") or "").startswith("some 8,640 files a day")
    assert (said(ticks) or "").startswith("some 86,400 files a day")
    assert said(ticks, tick="1 minute") is None
    assert said(ticks, lambda rows: rows.gather("few", policy=bl.Batch(epochs=60))) is None


def test_files_that_come_with_each_write_are_not_counted() -> None:
    assert said(found) is None
    both = lambda rows: rows.merge("both", rows.dataflow.source("more", bl.push("k LONG")))  # noqa: E731
    assert said(found, both) is not None


def test_changes_cannot_be_gathered() -> None:
    words = said(pushed, lambda rows: rows.changes("changes", weight="k"))
    assert words is not None
    assert "its rows are changes, which cannot be gathered" in words


def test_a_sink_without_files_is_not_counted() -> None:
    flow = bl.Dataflow("flow")
    pushed(flow).sink("out", bl.sqlite("out.db", table="t", key=["k"]))
    assert many_files(plan(flow)) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": "soon"}, "every='soon': write a number and a unit"),
        ({"every": 60}, "every=60: write a number and a unit"),
        ({"every": "0 seconds"}, "every='0 seconds': write a number and a unit"),
        ({"every": "1 minute", "key": ["k"]}, "every gathers new rows, and a sink with a key takes changes"),
    ],
)
def test_a_period_that_is_none_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {message}"):
        bl.parquet("out", **options)  # type: ignore[arg-type]


def test_changes_before_a_sink_that_gathers_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_RECOMPUTATION\] out_gathered reads changes"):
        said(pushed, lambda rows: rows.changes("changes", weight="k"), every="1 minute")


def test_requests_a_day_are_those_of_a_step_a_second() -> None:
    flow = bl.Dataflow("flow", tick="1 minute")
    rows, columns = pushed(flow), cast("Any", "any column")
    rows.transform("forgotten", lambda df: df, policy=bl.Ephemeral()).sink("each", bl.parquet("s3://b/each"))
    rows.group_by("k").agg("often", columns, policy=bl.Eager()).sink("kept", bl.sqlite("kept.db", table="t", key=["k"]))
    rows.group_by("k").agg("seldom", columns, policy=bl.Lazy(every=20)).sink("folder", bl.parquet("folder"))
    rows.group_by("k").agg("timed", columns, policy=bl.Lazy(every=None, seconds=60)).sink("x", bl.parquet("x"))
    rows.sink("minutes", bl.parquet("s3://b/minutes", every="1 minute"))
    ticks(flow).transform("rare", lambda df: df, policy=bl.Eager()).sink("slow", bl.parquet("s3://b/slow"))
    assert requests_a_day(plan(flow)) == {
        "log": 86_400,
        "often": 86_400,
        "seldom": 4_320,
        "timed": 1_440,
        "minutes_gathered": 1_440,
        "rare": 1_440,
        "each": 86_400,
        "minutes": 1_440,
        "slow": 1_440,
    }
