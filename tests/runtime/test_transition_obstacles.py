"""What keeps a transition from being carried out, and the way out of it."""

from __future__ import annotations

from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, plan
from support.any_connector import ANY, NO_ACCOUNT
from support.worlds.transitions import (
    OTHER_CODE,
    Mute,
    Readable,
    Rescanned,
    chain,
    obstacles,
    transition,
)

# --- obstacles ---


def test_a_past_that_cannot_be_read_again_is_gone_and_each_mode_is_a_way_out() -> None:
    made = transition(chain(source=ANY), chain(source=ANY), {"sums": OTHER_CODE})
    assert obstacles(made) == {"sums": "HISTORY_GONE"}
    assert "source rows cannot be read again" in made.obstacles[0].error.message
    for mode in ("same", "now"):
        assert obstacles(transition(chain(source=ANY), chain(source=ANY), {"sums": OTHER_CODE}, sums=mode)) == {}
    user = {"code": "new"}
    assert obstacles(transition(chain(source=ANY), chain(source=ANY), {"sums": user}, sums="carry")) == {}


@pytest.mark.parametrize("unit", ["clean", "sums"])
def test_each_unit_that_is_computed_is_asked_whether_it_can_be(unit: str) -> None:
    """Also one that stays, above what changes."""
    new = chain(eager=True)
    made = transition(new, new, {"sums": OTHER_CODE}, not_at_once=lambda name: "of a coin" if name == unit else "")
    assert obstacles(made) == {unit: "HISTORY_GONE"}
    assert f"the past of {unit} cannot be computed, because of a coin" in made.obstacles[0].error.message
    kept = transition(new, new, {"sums": OTHER_CODE}, sums="now", not_at_once=lambda _: "of a coin")
    assert obstacles(kept) == {}


@pytest.mark.parametrize(
    ("differs", "modes", "name"),
    [
        ({"clean": OTHER_CODE}, {"clean": "now"}, "clean"),
        ({"sums": OTHER_CODE}, {"sums": "now"}, "sums"),
        ({"sums": {"code": "new"}}, {"sums": "carry"}, "sums"),
        ({"sums": OTHER_CODE}, {"totals": "now"}, "totals"),
        ({"clean": OTHER_CODE}, {"sums": "same"}, "sums"),
    ],
)
def test_what_goes_on_with_older_steps_needs_a_clean_stop(
    differs: dict[str, Any], modes: dict[str, str], name: str
) -> None:
    new = chain(eager=True)
    assert obstacles(transition(new, new, differs, stopped=False, **modes)) == {name: "NEEDS_CLEAN_STOP"}
    assert obstacles(transition(new, new, differs, **modes)) == {}


def test_a_fill_and_a_vouched_change_need_no_clean_stop() -> None:
    for modes in ({}, {"sums": "same"}, {"totals": "new_rows"}):
        assert obstacles(transition(chain(), chain(), {"sums": OTHER_CODE}, stopped=False, **modes)) == {}


@pytest.mark.parametrize("sink", [NO_ACCOUNT, Mute()], ids=["at least once", "cannot tell"])
@pytest.mark.parametrize("mode", ["fill", "new_rows"])
def test_a_sink_that_cannot_report_its_step_can_only_go_on(sink: Any, mode: str) -> None:
    new = chain(sink=sink)
    assert obstacles(transition(new, new, {"sums": OTHER_CODE}, totals=mode)) == {"totals": "SINK_NOT_READABLE"}
    assert obstacles(transition(new, new, {"sums": OTHER_CODE}, totals="now")) == {}
    assert obstacles(transition(new, new, {"sums": OTHER_CODE}, sums="same")) == {}


def test_a_sink_that_is_added_holds_nothing_that_would_have_to_be_read() -> None:
    def further(sink: Any) -> Plan:
        flow = bl.Dataflow("flow")
        sums = flow.source("rows", Rescanned()).transform("clean", ANY).group_by("k").agg("sums", ANY)
        sums.sink("totals", Readable())
        sums.sink("again", sink)
        return plan(flow)

    assert obstacles(transition(chain(), further(Mute()), stopped=False)) == {}
    assert obstacles(transition(chain(), further(NO_ACCOUNT))) == {"again": "SINK_NOT_READABLE"}
    assert obstacles(transition(chain(), further(NO_ACCOUNT), stopped=False, again="now")) == {}


COLUMNS = {
    "struct<k:string,n:bigint,more:int>": False,
    "struct<n:bigint,k:string>": False,
    "struct<k:string>": True,
    "struct<k:string,n:int>": True,
    "struct<k:string,m:bigint>": True,
}


@pytest.mark.parametrize(("schema", "refused"), COLUMNS.items())
def test_a_sink_gets_further_columns_and_never_loses_one(schema: str, refused: bool) -> None:
    made = transition(chain(), chain(), {"sums": {"schema": schema}})
    assert obstacles(made) == ({"totals": "OTHER_COLUMNS"} if refused else {})


@pytest.mark.parametrize("mode", ["carry", "same", "now"])
def test_a_sink_loses_no_column_either_if_its_operator_is_kept(mode: str) -> None:
    """Its rows have other columns from now on, although nothing of its past changes."""
    new = chain(copy=True)
    made = transition(new, new, {"clean": {"schema": "struct<k:string>", "code": "c"}}, clean=mode)
    assert obstacles(made) == {"copy": "OTHER_COLUMNS"}


def test_another_key_or_another_receiver_needs_another_place() -> None:
    keyed = Readable()
    keyed.key = ("k",)
    assert obstacles(transition(chain(), chain(sink=keyed))) == {"totals": "OTHER_COLUMNS"}
    assert obstacles(transition(chain(), chain(sink=NO_ACCOUNT))) == {"totals": "OTHER_COLUMNS"}
