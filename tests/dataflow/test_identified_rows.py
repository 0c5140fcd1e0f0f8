"""Which sinks wait for no log, and why others do though their receivers recognise rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.dataflow.identified_rows import waits_for_nothing, why_it_waits


def same(rows: Any) -> Any:
    return rows


def desk(**options: Any) -> Any:
    return bl.foreach(lambda rows, step: None, **{"key": ["k"], **options})


def rows(**options: Any) -> Any:
    return bl.generator({"k": "id"}, rows_per_step=1, **options)


def repeats(_unit: str) -> str:
    return ""


def union(flow: bl.Dataflow) -> Any:
    return flow.source("one", rows()).union("both", flow.source("other", rows()))


def merge(flow: bl.Dataflow) -> Any:
    return flow.source("one", rows()).merge("both", flow.source("other", rows()))


WAITS_FOR_NOTHING: dict[str, Callable[[bl.Dataflow], Any]] = {
    "a source": lambda flow: flow.source("one", rows()),
    "files": lambda flow: flow.source("one", bl.files("in/*.csv", schema="k INT")),
    "pushes that are recorded": lambda flow: flow.source("one", bl.push("k INT NOT NULL")),
    "transforms": lambda flow: flow.source("one", rows()).transform("more", same).transform("most", same),
    "a union": union,
    "a merge that gathers": merge,
}

WAITS: dict[str, tuple[Callable[[bl.Dataflow], Any], str]] = {
    "an aggregate": (
        lambda flow: flow.source("one", rows()).group_by("k").agg("sums", "any column"),  # type: ignore[arg-type]
        "sums gives changes, and a change has no identity",
    ),
    "the first row of each key": (
        lambda flow: flow.source("one", rows()).drop_duplicates("once", ["k"]).transform("more", same),
        "once .*",
    ),
    "a function that is not deterministic": (
        lambda flow: flow.source("one", rows()).transform("drawn", same, deterministic=False),
        "drawn calls a function that is not deterministic",
    ),
    "rows that are kept": (
        lambda flow: flow.source("one", rows()).transform("more", same, policy=bl.Eager()),
        r"more keeps its rows \(Eager\), and they are durable first",
    ),
    "a merge in the order of arrival": (
        lambda flow: flow.source("one", bl.push("k INT NOT NULL")).merge(
            "both", flow.source("other", bl.push("k INT NOT NULL"))
        ),
        "both takes its inputs in the order of arrival",
    ),
    "a batch": (
        lambda flow: flow.source("one", bl.generator({"k": "id"}, rows_per_step=1)).gather(
            "hours", policy=bl.Batch(epochs=9)
        ),
        "hours ends epochs by conditions on what has come",
    ),
}


@pytest.mark.parametrize("before", WAITS_FOR_NOTHING.values(), ids=WAITS_FOR_NOTHING)
def test_behind_a_row_wise_path_nothing_is_waited_for(before: Callable[[bl.Dataflow], Any]) -> None:
    flow = bl.Dataflow("flow")
    stream = before(flow)
    stream.sink("desk", desk())
    stream.sink("plain", desk(key=None))
    planned = plan(flow)
    assert why_it_waits(planned, "desk", repeats) == ""
    assert waits_for_nothing(planned, repeats) == {"desk"}, "a receiver without a key recognises nothing"


@pytest.mark.parametrize(("before", "said"), WAITS.values(), ids=WAITS)
def test_behind_another_path_the_log_is_waited_for_and_the_reason_is_told(
    before: Callable[[bl.Dataflow], Any], said: str
) -> None:
    flow = bl.Dataflow("flow")
    before(flow).sink("desk", desk())
    planned = plan(flow)
    why = why_it_waits(planned, "desk", repeats)
    assert re.fullmatch(said, why), why
    assert waits_for_nothing(planned, repeats) == frozenset()


def test_what_spark_finds_in_a_plan_counts_too() -> None:
    flow = bl.Dataflow("flow")
    flow.source("one", rows()).transform("timed", same).sink("desk", desk())
    planned = plan(flow)

    def not_again(unit: str) -> str:
        return f"{unit} uses bl.now()"

    assert why_it_waits(planned, "desk", not_again) == "timed uses bl.now()"
    assert waits_for_nothing(planned, not_again) == frozenset()


def test_rows_that_no_one_keeps_are_kept_before_such_a_sink_too() -> None:
    """The store keeps pushed rows before an at-least-once sink, so that they come again as they were."""
    flow = bl.Dataflow("flow")
    flow.source("one", bl.push("k INT NOT NULL", ack="stable")).sink("desk", desk())
    assert not plan(flow).keeps_no_rows("one")
