"""Which rows a transition takes from states: of what stands, and what a sink at the cut is known to hold."""

from __future__ import annotations

from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, plan
from boatlift.runtime.planning import plan_transition
from boatlift.runtime.transition import Transition
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Override
from support.any_connector import ANY
from support.engine.memory_engine import identity_in_memory
from support.worlds.transitions import (
    CLOSED,
    OTHER_CODE,
    Engine,
    Readable,
    Rescanned,
    carried_out,
    chain,
    history_of,
    with_schemas,
)

LAST = CLOSED["rows"]


def planned(history: LogHistory, old: Plan, new: Plan, **differs: Any) -> Transition:
    history.program = {"units": history.program["units"], **with_schemas(identity_in_memory(old), {})}
    identity = with_schemas(identity_in_memory(new), differs)
    gives = lambda unit, _program: unit == "sums"  # noqa: E731
    return plan_transition(history, history.program, new, identity, {}, lambda _: "", gives_rows=gives)


def further() -> Plan:
    """The chain, with one more sink of its sums."""
    flow = bl.Dataflow("flow")
    sums = flow.source("rows", Rescanned()).transform("clean", ANY).group_by("k").agg("sums", ANY)
    sums.sink("totals", Readable())
    sums.sink("more", Readable())
    return plan(flow)


def test_a_further_sink_gets_the_rows_of_the_state() -> None:
    made = planned(history_of(chain()), chain(), further())
    assert (made.kept, made.computed, made.sinks.keys()) == (["sums"], [], {"more"})
    engine = Engine(further())
    history = history_of(chain())
    carried_out(history, planned(history, chain(), further()), engine)
    (past,) = engine.pasts
    assert past.time == {"sums": LAST}
    assert past.kept == {"sums": history_of(chain()).live_records.states["sums"][(LAST,)].payload}
    assert past.known == {"more": None}


@pytest.mark.parametrize("held", [LAST, LAST - 1, LAST + 1, -1])
def test_a_sink_is_known_at_the_cut_alone(held: int) -> None:
    history = history_of(chain())
    made = planned(history, chain(), chain(), sums=OTHER_CODE)
    assert (made.kept, made.known) == ([], ["totals"])
    state = history.live_records.states["sums"][(LAST,)].payload
    carried_out(history, made, engine := Engine(chain(), {"totals": held}))
    (past,) = engine.pasts
    assert past.known == ({"totals": state} if held == LAST else {"totals": None} if held < 0 else {})


@pytest.mark.parametrize("name", ["sums", "totals"])
@pytest.mark.parametrize("why", ["tainted", "skipped", "accepted"])
def test_a_past_that_was_no_plain_one_is_not_known(name: str, why: str) -> None:
    history = history_of(chain())
    if why == "tainted":
        history.tainted = frozenset({name})
    else:
        history.decisions[why, name, 1] = Override(why, name, 1, "as the user said")
    assert planned(history, chain(), chain(), sums=OTHER_CODE).known == []
    if name == "sums":
        assert planned(history, chain(), further()).kept == []


def test_a_state_that_is_not_there_is_computed() -> None:
    history = history_of(chain())
    payload = history.live_records.states["sums"].pop((LAST,))
    assert payload
    assert planned(history, chain(), further()).computed == ["sums"]
    assert planned(history, chain(), chain(), sums=OTHER_CODE).known == []


def test_facts_before_a_state_must_hold_too() -> None:
    history = history_of(chain())
    assert planned(history, chain(), further(), clean=OTHER_CODE).kept == []


def test_other_versions_make_other_rows_of_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    history = history_of(chain())
    made = planned(history, chain(), chain(), sums=OTHER_CODE)
    engine = Engine(chain(), {"totals": LAST})
    monkeypatch.setattr(engine, "environment", lambda: {"pyspark": "5"})
    carried_out(history, made, engine)
    assert engine.pasts[0].known == {}
