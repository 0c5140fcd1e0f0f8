"""Dividing a dataflow into units, and what is refused."""

from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.dataflow.builder import Dataflow

ANY: Any = object()


def same(df: Any) -> Any:
    return df


def test_a_chain_of_transforms_is_fused_into_the_job_of_the_aggregate() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    counts = rows.transform("a", same).transform("b", same).group_by("k").agg("counts", ANY)
    counts.sink("out", ANY)
    units = plan(flow).units
    assert list(units) == ["counts"]
    unit = units["counts"]
    assert unit.root == "rows"
    assert [t.name for t in unit.chain] == ["a", "b"]
    assert [s.name for s in unit.sinks] == ["out"]
    assert not unit.materialised
    assert unit.changes_out
    assert not unit.changes_in


def test_a_transform_with_two_readers_is_materialised_once() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    clean.group_by("k").agg("one", ANY).sink("out1", ANY)
    clean.group_by("j").agg("two", ANY).sink("out2", ANY)
    units = plan(flow).units
    assert units["clean"].materialised
    assert units["one"].root == units["two"].root == "clean"
    assert units["one"].chain == ()


def test_a_source_with_two_readers_is_read_by_each() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.group_by("k").agg("one", ANY).sink("out1", ANY)
    rows.transform("t", same).sink("out2", ANY)
    units = plan(flow).units
    assert {u.root for u in units.values()} == {"rows"}
    assert not any(u.materialised for u in units.values())


def test_sinks_are_staged_in_the_job_that_makes_their_rows() -> None:
    flow = Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", same)
    clean.sink("one", ANY)
    clean.sink("two", ANY)
    units = plan(flow).units
    assert [s.name for s in units["clean"].sinks] == ["one", "two"]
    assert not units["clean"].materialised


def test_changes_flow_on_through_transforms_but_not_into_aggregates() -> None:
    flow = Dataflow("flow")
    counts = flow.source("rows", ANY).group_by("k").agg("counts", ANY)
    big = counts.transform("big", same)
    big.sink("out", ANY)
    unit = plan(flow).units["big"]
    assert unit.root == "counts"
    assert unit.changes_in
    assert unit.changes_out
    big.group_by("k").agg("again", ANY).sink("no", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[AGGREGATE_OVER_CHANGES\] again aggregates big"):
        plan(flow)


def test_a_dataflow_without_source_or_sink_or_with_a_dead_end_is_refused() -> None:
    flow = Dataflow("flow")
    with pytest.raises(bl.InvalidError, match=r"\[EMPTY_DATAFLOW\] flow has no source"):
        plan(flow)
    rows = flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match="has no sink"):
        plan(flow)
    rows.sink("out", ANY)
    rows.transform("dead", same)
    with pytest.raises(bl.InvalidError, match="nothing reads dead"):
        plan(flow)


def test_names_and_options_are_checked() -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[DUPLICATE_NAME\]"):
        flow.source("rows", ANY)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_NAME\]"):
        rows.transform("a/b", same)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        rows.group_by()
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.Lazy(every=0)
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\]"):
        rows.group_by("k").agg("counts", ANY, policy=bl.Ephemeral())  # type: ignore[arg-type]
