"""Which sinks wait for no log, and why others do though their receivers recognise rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import SinkCapabilities, plan
from boatlift.dataflow.identified_rows import waits_for_nothing, why_it_waits
from boatlift.runtime.inspect.program import plan_of
from support.any_connector import ANY
from support.engine.memory_engine import identity_in_memory


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


def merge_of_pushes(flow: bl.Dataflow) -> Any:
    return flow.source("one", bl.push("k INT NOT NULL")).merge("both", flow.source("other", bl.push("k INT NOT NULL")))


def beside_a_table(stream: Any) -> Any:
    stream.sink("newest", bl.sqlite("out.db", table="newest", key=["k"]))
    return stream


WAITS_FOR_NOTHING: dict[str, Callable[[bl.Dataflow], Any]] = {
    "a source": lambda flow: flow.source("one", rows()),
    "files": lambda flow: flow.source("one", bl.files("in/*.csv", schema="k INT")),
    "pushes that are recorded": lambda flow: flow.source("one", bl.push("k INT NOT NULL")),
    "transforms": lambda flow: flow.source("one", rows()).transform("more", same).transform("most", same),
    "a union": union,
    "a merge that gathers": merge,
    "a merge of rows that have an order": merge_of_pushes,
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
    "a merge in the order of arrival, for a table beside it": (
        lambda flow: beside_a_table(merge(flow)),
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
    planned = plan(flow)
    assert why_it_waits(planned, "desk", repeats) == ""
    assert waits_for_nothing(planned, repeats) == {"desk"}


@pytest.mark.parametrize(
    "sink",
    [
        desk(key=None),
        SimpleNamespace(**{**vars(ANY), "capabilities": SinkCapabilities(identified_by=("k",))}),
    ],
    ids=["without a key", "with a ledger"],
)
def test_a_sink_of_another_kind_waits(sink: Any) -> None:
    """A ledger that knew steps ahead of the log would meet other steps after a crash."""
    flow = bl.Dataflow("flow")
    flow.source("one", rows()).sink("desk", sink)
    planned = plan(flow)
    assert waits_for_nothing(planned, repeats) == frozenset()
    assert plan_of(planned, {}).unawaited == {}


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


def identity_of_desk(sink: Any) -> Any:
    flow = bl.Dataflow("flow")
    flow.source("one", rows()).sink("desk", sink)
    return identity_in_memory(plan(flow))["sink desk"]


def test_what_a_receiver_knows_rows_by_is_a_part_of_the_program() -> None:
    plain = {"reads": "one", "key": [], "account": False}
    assert identity_of_desk(desk(key=None)) == plain, "a program without keys is the one that stores have"
    assert identity_of_desk(desk(key=["k", "v"])) == {**plain, "identified_by": ["k", "v"], "requests": "of rows"}

    def posted(**options: Any) -> Any:
        return identity_of_desk(bl.http_post("http://127.0.0.1:1/", **options))

    assert posted(rows_per_request=1) == plain
    assert posted(key=["k"])["requests"] == posted(key=["k"], rows_per_request=2)["requests"] == "of rows"
    assert posted(key=["k"], rows_per_request=1)["requests"] == "of a row"
