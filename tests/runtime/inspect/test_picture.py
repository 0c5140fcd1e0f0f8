"""The picture of recorded programs."""

from __future__ import annotations

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.runtime.inspect.picture import MOST_UNITS, Picture, SinkRow, SourceBox, UnitBox, picture_of
from support.any_connector import ANY, NO_ACCOUNT
from support.engine.memory_engine import PROGRAM, recorded
from support.engine.memory_flows import FLOWS, batch, lookup


def drawn(picture: Picture) -> set[str]:
    return {box.name for box in picture.boxes}


def test_a_unit_has_a_box_and_a_sink_a_row_of_it() -> None:
    picture = picture_of(PROGRAM)
    assert picture.sources == [SourceBox("rows", "source", {})]
    assert picture.units == [
        UnitBox(
            "clean",
            ["clean"],
            ["transform"],
            ["rows"],
            [],
            "Ephemeral()",
            [],
            "epochs",
            keeps_state=False,
            sinks=["all"],
        ),
        UnitBox(
            "sums",
            ["sums"],
            ["aggregate"],
            ["clean"],
            [],
            "Lazy(every=2)",
            ["when", "log_messages", "state"],
            "epochs",
            keeps_state=True,
            sinks=["totals"],
        ),
    ]
    assert picture.sinks == {
        "all": SinkRow("clean", [], exactly_once=True),
        "totals": SinkRow("sums", [], exactly_once=True),
    }
    assert drawn(picture) == {"rows", "clean", "sums"}
    assert [(edge.sender, edge.reader, edge.table) for edge in picture.edges] == [
        ("rows", "clean", False), ("clean", "sums", False),
    ]  # fmt: skip


def test_the_options_of_a_policy_that_no_program_records_are_named() -> None:
    named = {}
    for policy in (bl.Lazy(None, state="in memory"), bl.Lazy(None), bl.Eager()):
        flow = bl.Dataflow("flow")
        flow.source("rows", ANY).group_by("k").agg("sums", ANY, policy=policy).sink("out", ANY)
        (unit,) = picture_of(recorded(plan(flow))).units
        named[policy] = unit.policy, unit.unrecorded
    assert list(named.values()) == [
        ("Lazy(every=None)", ["when", "log_messages", "state"]),
        ("Lazy(every=None)", ["when", "log_messages", "state"]),
        ("Eager()", []),
    ]


@pytest.mark.parametrize("flow", FLOWS, ids=lambda flow: flow.__name__)
def test_every_program_has_a_box_for_each_source_and_unit_and_an_edge_for_each_input(flow: object) -> None:
    planned = flow()  # type: ignore[operator]
    picture = picture_of(recorded(planned))
    assert drawn(picture) == {*planned.sources, *planned.units}
    inputs = {(read, unit.name) for unit in planned.units.values() for read in unit.reads}
    assert {(edge.sender, edge.reader) for edge in picture.edges} == inputs
    assert set(picture.sinks) == set(planned.sinks)


def test_tables_of_a_lookup_and_orders_of_steps_are_told() -> None:
    asked = next(unit for unit in picture_of(recorded(lookup())).units if unit.name == "asked")
    assert (asked.reads, asked.looks_up, asked.order) == (["queries"], ["sums"], "arrival order")
    assert {(e.sender, e.table) for e in picture_of(recorded(lookup())).edges if e.reader == "asked"} == {
        ("queries", False), ("sums", True),
    }  # fmt: skip
    assert [unit.order for unit in picture_of(recorded(batch())).units] == ["epochs", "batch"]


def test_a_sink_without_an_account_is_at_least_once() -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).transform("clean", ANY).sink("desk", NO_ACCOUNT)
    assert not picture_of(recorded(plan(flow))).sinks["desk"].exactly_once


def test_a_large_program_is_drawn_around_a_chosen_unit_alone() -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    for n in range(300):
        rows.group_by("k").agg(f"sums{n}", ANY).transform(f"after{n}", ANY).sink(f"out{n}", ANY)
    program = recorded(plan(flow))
    whole = picture_of(program)
    assert len(whole.units) > MOST_UNITS
    assert (whole.boxes, whole.edges) == ([], [])
    near = picture_of(program, "sums7")
    assert near.around == "sums7"
    assert {"rows", "sums7"} <= drawn(near)
    assert near.units == whole.units
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_OPTION\] the program has no source or unit nobody: choose from rows"
    ):
        picture_of(program, "nobody")


def test_no_program_has_an_empty_picture() -> None:
    assert picture_of({}).boxes == []
