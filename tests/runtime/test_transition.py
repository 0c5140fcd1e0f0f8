"""The plan of a transition: what is kept, computed and handed to sinks, and what keeps it from being carried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import boatlift as bl
from boatlift.connectors.kit import SinkBase
from boatlift.dataflow import Delivery, Plan, plan
from boatlift.dataflow.evolution import Mode
from boatlift.runtime.planning import plan_transition
from boatlift.runtime.transition import Transition, new_edges
from boatlift.storage.records.facts import Checkpoint, Determinant, StepDigest
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, SinkCommit, Stopped
from support.any_connector import ANY
from support.engine.memory_engine import identity_in_memory, recorded
from support.worlds.facts import payload_with
from support.worlds.transitions import Readable, Rescanned


class Delivering(SinkBase):
    delivery = Delivery.AT_LEAST_ONCE

    def describe(self) -> dict[str, Any]:
        return {"kind": "delivering"}


def planned(
    *,
    source: Any = None,
    sinks: tuple[str, ...] = ("totals",),
    sink: Any = None,
    second: bool = False,
    more: bool = False,
) -> Plan:
    """Rows that are cleaned and summed; perhaps a source of its own beside them, or a further sum."""
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", source or Rescanned()).transform("clean", ANY)
    sums = clean.group_by("k").agg("sums", ANY)
    for name in sinks:
        (clean if name == "copy" else sums).sink(name, sink or Readable())
    if more:
        clean.group_by("k").agg("more", ANY).sink("more_out", Readable())
    if second:
        flow.source("other", Rescanned()).transform("apart", ANY).sink("apart_out", Readable())
    return plan(flow)


def history_of(old: Plan, *, steps: int = 5, stopped: bool = True) -> LogHistory:
    records: list[Any] = [Claim("here", 1, 0, recorded(old), {})]
    outcome = {"position": {}, "clock": 0, "seed": 0}
    ends: dict[str, int] = {}
    for name in old.sources:
        records += [Determinant(name, time, None, outcome) for time in range(steps)]
        ends[name] = steps - 1
        steps += 3  # each source is somewhere else
    for name, unit in old.units.items():
        last = max(ends[source] for source in old.sources_of(name))
        records += [StepDigest(name, last, "d")] if last >= 0 else []
        records += [SinkCommit(sink.name, last) for sink in unit.sinks]
        records += [Checkpoint(name, (last,), payload_with([]))] if last >= 0 and unit.keeps_state else []
    return LogHistory.of([*records, *([Stopped()] if stopped else [])])


def transition(
    old: Plan,
    new: Plan,
    *,
    differs: str = "",
    layout: str = "",
    not_at_once: Callable[[str], str] = lambda _unit: "",
    not_again: Callable[[str], str] = lambda _unit: "",
    steps: int = 5,
    stopped: bool = True,
    **modes: str,
) -> Transition:
    """Plan a transition; the operator `differs` has other expressions in the new program, and `sums` another layout."""
    history = history_of(old, steps=steps, stopped=stopped)
    identity = identity_in_memory(new)
    if layout:
        history.program["processor sums"] = {**history.program["processor sums"], "layout": "old"}
        identity["processor sums"] = {**identity["processor sums"], "layout": layout}
    if differs:
        identity[f"processor {differs}"] = {**identity[f"processor {differs}"], "plan": "other"}
    return plan_transition(history, history.program, new, identity, modes, not_at_once, not_again=not_again)


def obstacles(made: Transition) -> dict[str, str]:
    return {each.name: each.error.condition for each in made.obstacles}


def test_nothing_is_planned_for_the_same_program() -> None:
    made = transition(planned(), planned())
    assert (made.comparison.is_changed, made.computed, made.sinks) == (False, [], {})


def test_a_changed_operator_is_computed_from_the_past_and_its_sinks_corrected() -> None:
    made = transition(planned(), planned(), differs="sums")
    assert made.cuts == {"rows": 4}
    assert made.fills == made.computed == ["sums"]
    assert made.sinks == {"totals": Mode.FILL}
    assert set(made.forgotten) == {"sums", "totals"}
    assert made.edges == ["rows->sums", "sums->totals"]
    assert new_edges(made, planned()) == {"sums->totals"}
    assert obstacles(made) == {}


def test_a_further_sink_leaves_the_other_one_alone() -> None:
    made = transition(planned(), planned(sinks=("totals", "again")))
    assert made.fills == []
    assert (made.computed, made.sinks, made.forgotten) == (["sums"], {"again": Mode.FILL}, ["again"])


def test_a_sink_in_the_middle_divides_a_unit_whose_state_stays() -> None:
    made = transition(planned(), planned(sinks=("totals", "copy")), stopped=False)
    assert made.fills == []
    assert made.sinks == {"copy": Mode.FILL}
    assert "sums" not in made.forgotten
    assert made.edges == ["rows->sums"]
    assert obstacles(made) == {}


def test_what_has_no_step_in_common_with_a_change_is_not_touched() -> None:
    made = transition(planned(second=True), planned(second=True), differs="sums")
    assert made.cuts == {"rows": 4}
    made = transition(planned(second=True), planned(second=True), differs="apart")
    assert made.cuts == {"other": 7}
    assert made.sinks == {"apart_out": Mode.FILL}


def test_a_store_without_steps_computes_nothing() -> None:
    made = transition(planned(), planned(sinks=("others",)), differs="sums", steps=0)
    assert (made.cuts, made.computed, made.sinks) == ({"rows": -1}, [], {})


@pytest.mark.parametrize("mode", ["now", "carry"])
def test_what_is_kept_needs_a_clean_stop(mode: str) -> None:
    made = transition(planned(), planned(), differs="clean", stopped=False, clean=mode)
    assert obstacles(made)["clean"] == "NEEDS_CLEAN_STOP"
    if mode == "carry":
        assert obstacles(transition(planned(), planned(), differs="clean", clean=mode)) == {}


def test_a_sink_goes_on_from_now_on_after_a_clean_stop() -> None:
    made = transition(planned(), planned(), differs="sums", totals="now", sums="fill")
    assert made.sinks == {"totals": Mode.NOW}
    made = transition(planned(), planned(), differs="sums", totals="now", stopped=False)
    assert obstacles(made) == {"totals": "NEEDS_CLEAN_STOP"}


def test_a_past_that_nothing_gives_again_is_named() -> None:
    made = transition(planned(source=ANY), planned(source=ANY), differs="sums")
    assert "source rows cannot be read again" in made.obstacles[0].error.message
    made = transition(planned(), planned(), differs="sums", not_at_once=lambda unit: f"{unit} tosses a coin")
    assert "because sums tosses a coin" in made.obstacles[0].error.message
    assert obstacles(made) == {"sums": "HISTORY_GONE"}


def test_a_sink_that_cannot_be_asked_is_named() -> None:
    deaf = SinkBase()
    deaf.describe = dict  # type: ignore[attr-defined]
    for sink in (Delivering(), deaf):
        made = transition(planned(sink=sink), planned(sink=sink), differs="sums")
        assert obstacles(made) == {"totals": "SINK_NOT_READABLE"}
        assert obstacles(transition(planned(sink=sink), planned(sink=sink), differs="sums", totals="now")) == {}


def test_another_key_of_a_sink_needs_another_place() -> None:
    keyed = Readable()
    keyed.key = ("k",)
    made = transition(planned(), planned(sink=keyed))
    assert obstacles(made) == {"totals": "OTHER_COLUMNS"}


def test_a_further_operator_beside_another_divides_their_unit() -> None:
    made = transition(planned(), planned(more=True))
    assert made.fills == ["more"]
    assert set(made.computed) == {"clean", "more"}
    assert made.sinks == {"more_out": Mode.FILL}
    assert replace(made, computed=[]).renamed == {}


def test_an_operator_without_state_that_begins_now_empties_no_state() -> None:
    made = transition(planned(), planned(), differs="clean", clean="now")
    assert (made.empties, made.fills, made.sinks) == ([], [], {})
    made = transition(planned(), planned(), differs="sums", sums="now")
    assert made.empties == ["sums"]


def windows() -> Plan:
    """Counted rows of a user's function, which depend on steps, and their sums."""
    flow = bl.Dataflow("flow")
    keyed = flow.source("rows", Rescanned()).group_by("k")
    told = keyed.process("told", lambda *_: (), state="n LONG", output="k INT, n LONG")
    told.group_by("k").agg("sums", ANY).sink("totals", Readable())
    return plan(flow)


def by_steps(unit: str) -> str:
    return "told depends on steps" if unit == "told" else ""


def test_what_depends_on_steps_is_computed_only_by_a_replay() -> None:
    at_once = transition(windows(), windows(), differs="told", not_at_once=by_steps)
    assert obstacles(at_once) == {"told": "HISTORY_GONE"}
    assert "because told depends on steps: choose --change told=replay" in at_once.obstacles[0].error.message
    replayed = transition(windows(), windows(), differs="told", not_at_once=by_steps, told="replay")
    assert (obstacles(replayed), replayed.stepwise) == ({}, True)
    assert replayed.computed == replayed.fills == ["told", "sums"]
    assert replayed.tainted == []


def test_a_replay_is_refused_where_steps_cannot_be_executed_again() -> None:
    made = transition(
        windows(),
        windows(),
        differs="told",
        not_at_once=by_steps,
        not_again=lambda _: "it tosses a coin",
        told="replay",
    )
    assert obstacles(made) == {"told": "HISTORY_GONE"}
    assert "replay" not in made.obstacles[0].error.message


def test_what_stays_is_replayed_only_if_its_rows_may_become_others() -> None:
    """Its past is that of the steps as they were: what is downstream must not have another one."""
    made = transition(windows(), windows(), differs="sums", not_at_once=by_steps, sums="replay")
    assert obstacles(made) == {"told": "HISTORY_GONE"}
    assert "--change told=replay" in made.obstacles[0].error.message
    both = transition(windows(), windows(), differs="sums", not_at_once=by_steps, sums="replay", told="replay")
    assert (obstacles(both), both.computed) == ({}, ["told", "sums"])


def test_a_replay_needs_the_order_in_which_its_input_was_taken() -> None:
    source = Rescanned(ordered=False)
    flow = windows()
    made = transition(flow, _with_source(flow, source), differs="told", told="replay")
    assert obstacles(made) == {"told": "HISTORY_GONE"}
    assert "the order in which rows was taken is not known" in made.obstacles[0].error.message


def _with_source(of: Plan, source: Any) -> Plan:
    return replace(of, sources={"rows": replace(of.sources["rows"], source=source)})


def test_the_advice_of_a_refusal_is_a_mode_of_what_needs_the_past() -> None:
    """Of two operators that depend on steps the second one is downstream of the change."""
    flow = bl.Dataflow("flow")
    stream = flow.source("rows", Rescanned())
    for name in ("one", "two"):
        stream = stream.group_by("k").process(name, lambda *_: (), state="n LONG", output="k INT, n LONG")
    stream.group_by("k").agg("sums", ANY).sink("totals", Readable())
    chain = plan(flow)

    def by_steps(unit: str) -> str:
        return f"{unit} depends on steps" if unit in ("one", "two") else ""

    made = transition(chain, chain, differs="one", not_at_once=by_steps, one="replay")
    assert obstacles(made) == {"two": "HISTORY_GONE"}
    assert "choose --change two=replay" in (said := made.obstacles[0].error.message)
    assert "choose --change two=now" in said
    for mode in ("replay", "now"):
        assert obstacles(transition(chain, chain, differs="one", not_at_once=by_steps, one="replay", two=mode)) == {}


def test_a_state_of_another_form_is_computed_and_sinks_left_alone() -> None:
    made = transition(planned(), planned(), layout="new")
    assert (made.fills, made.relaid, made.computed, made.sinks) == (["sums"], ["sums"], ["sums"], {})
    assert set(made.forgotten) == {"sums"}
    assert obstacles(made) == {}
    assert obstacles(transition(planned(), planned(), layout="new", steps=0)) == {}


def test_a_state_of_another_form_is_not_carried_over() -> None:
    made = transition(planned(), planned(), differs="sums", layout="new", sums="carry")
    assert obstacles(made) == {"sums": "PROGRAM_CHANGED"}


def test_a_past_that_is_gone_keeps_a_state_from_its_new_form() -> None:
    made = transition(planned(source=ANY), planned(source=ANY), layout="new")
    assert obstacles(made) == {"sums": "HISTORY_GONE"}
    assert "choose --change sums=now" in made.obstacles[0].error.message


@pytest.mark.parametrize(("change", "modes"), [({"differs": "sums"}, {"sums": "now"}), ({"layout": "new"}, {})])
def test_what_begins_after_steps_that_its_sink_lacks_is_refused(change: dict[str, str], modes: dict[str, str]) -> None:
    """The other source of a union was further, and goes: no step between the two is anywhere."""

    def flow(*, other: bool) -> Plan:
        made = bl.Dataflow("flow")
        rows = made.source("rows", Rescanned())
        rows.group_by("k").agg("sums", ANY).sink("totals", Readable())
        if other:
            rows.union("all", made.source("other", Rescanned())).sink("all_out", Readable())
        return plan(made)

    made = transition(flow(other=True), flow(other=False), **change, **modes)
    assert made.cuts == {"rows": 7}
    assert obstacles(made) == {"sums": "HISTORY_GONE"}
    assert "sums is at step 4, and sums begins at step 7" in made.obstacles[0].error.message
