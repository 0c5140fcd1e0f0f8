"""The three kinds of operators, and the merges that may gather."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, Timing, plan
from boatlift.dataflow.order import OrderKind, order_of


def same(rows: Any) -> Any:
    return rows


def flow_with(behind: Callable[[bl.Dataflow, Any], Any]) -> Plan:
    flow = bl.Dataflow("flow")
    one, other = (flow.source(name, bl.generator({"k": "id"}, rows_per_step=1)) for name in ("one", "other"))
    behind(flow, one.merge("both", other))
    return plan(flow)


def table(flow: bl.Dataflow) -> Any:
    rows = flow.source("third", bl.generator({"k": "id", "v": "id"}, rows_per_step=1))
    return rows.group_by("k").agg("counts", "any column")  # type: ignore[arg-type]


def sums(_flow: bl.Dataflow, both: Any) -> None:
    kept = both.transform("more", same).group_by("k").agg("sums", "any column")
    kept.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))


GATHERS: dict[str, Callable[[bl.Dataflow, Any], Any]] = {
    "an aggregate behind a transform, into a table by key": sums,
    "rows that are appended": lambda _flow, both: both.sink("out", bl.parquet("out")),
    "rows for a function": lambda _flow, both: both.sink("out", bl.foreach(lambda rows, step: None)),
    "what is looked up for, row by row": lambda flow, both: both.lookup("asked", of=table(flow).by("k")).sink(
        "out", bl.parquet("out")
    ),
}

TAKES_IN_ORDER: dict[str, Callable[[bl.Dataflow, Any], Any]] = {
    "the newest row of each key": lambda _flow, both: both.sink("out", bl.sqlite("out.db", table="t", key=["k"])),
    "a batch, which counts steps": lambda _flow, both: both.gather("hours", policy=bl.Batch(epochs=9)).sink(
        "out", bl.parquet("out")
    ),
    "the newest row of each key, behind a lookup": lambda flow, both: both.lookup("asked", of=table(flow).by("k")).sink(
        "out", bl.sqlite("out.db", table="t", key=["k"])
    ),
    "the first row of each key": lambda _flow, both: (
        both.transform("more", same).drop_duplicates("once", ["k"]).sink("out", bl.parquet("out"))
    ),
}


def test_rows_that_have_an_order_keep_it_and_say_so_where_they_do_not() -> None:
    flow = bl.Dataflow("flow")
    one, other = (flow.source(name, bl.push("k LONG NOT NULL")) for name in ("one", "other"))
    one.merge("kept", other).sink("out", bl.parquet("out"))
    made = flow.source("made", bl.generator({"k": "id"}, rows_per_step=1))
    one.merge("some", made).transform("more", same).sink("some_out", bl.parquet("some"))
    one.merge("gathered", other).group_by("k").agg("sums", "any column").sink("sums_out", bl.parquet("sums"))
    one.merge("recognised", other).sink("desk", bl.foreach(lambda rows, step: None, key=["k"]))
    planned = plan(flow)
    operators = [each for unit in planned.units.values() for each in unit.operators]
    merges = {each.name: each.timing for each in operators if each.kind == "merge"}
    assert merges == {
        "kept": Timing.ARRIVAL,
        "some": Timing.ARRIVAL,
        "gathered": Timing.GATHERED,
        "recognised": Timing.GATHERED,
    }
    assert (planned.rows["kept"].ordered_within, planned.rows["gathered"].ordered_within) == ("push", None)


@pytest.mark.parametrize("behind", GATHERS.values(), ids=GATHERS)
def test_a_merge_gathers_where_nothing_minds_the_order(behind: Callable[[bl.Dataflow, Any], Any]) -> None:
    planned = flow_with(behind)
    (merge,) = (each for unit in planned.units.values() for each in unit.operators if each.name == "both")
    assert merge.timing is Timing.GATHERED
    assert order_of(merge) == (OrderKind.INSENSITIVE, "")


@pytest.mark.parametrize("behind", TAKES_IN_ORDER.values(), ids=TAKES_IN_ORDER)
def test_a_merge_is_taken_in_order_where_something_minds(behind: Callable[[bl.Dataflow, Any], Any]) -> None:
    planned = flow_with(behind)
    (merge,) = (each for unit in planned.units.values() for each in unit.operators if each.name == "both")
    assert merge.timing is Timing.ARRIVAL
    assert order_of(merge) == (OrderKind.DIVERGENT, "takes its inputs in the order of arrival")


def test_each_operator_has_the_kind_that_its_contract_says() -> None:
    def behind(_flow: bl.Dataflow, both: Any) -> None:
        both.drop_duplicates("once", ["k"]).transform("asked", same, deterministic=False).sink("out", bl.parquet("out"))
        both.group_by("k").agg("sums", "any column").sink("sums_out", bl.parquet("sums"))
        both.transform("more", same).sink("more_out", bl.parquet("more"))

    units = flow_with(behind).units.values()
    kinds = {each.name: order_of(each)[0] for unit in units for each in unit.operators}
    assert kinds == {
        "both": OrderKind.DIVERGENT,
        "once": OrderKind.DIVERGENT,
        "asked": OrderKind.DIVERGENT,
        "sums": OrderKind.CONVERGENT,
        "more": OrderKind.INSENSITIVE,
    }
