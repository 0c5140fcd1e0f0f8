"""Laws of transitions over drawn programs: what is planned, recorded, and left in the log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import boatlift as bl
from boatlift.dataflow import Plan, plan
from boatlift.dataflow.evolution import Mode, ProgramChange
from boatlift.runtime.graph import program_of
from boatlift.runtime.machine.build import build, refuse_unfit_sinks
from boatlift.runtime.planning import plan_transition
from boatlift.runtime.transition import Transition, new_edges
from boatlift.storage.records.codec import decode_group, encode_group
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import SinkCommit, edges_of, units_in
from support.any_connector import ANY, NO_ACCOUNT
from support.engine.memory_engine import identity_in_memory, recorded
from support.worlds.transitions import (
    HEADER,
    OTHER_CODE,
    Engine,
    Readable,
    Rescanned,
    carried_out,
    chain,
    history_of,
    obstacles,
    transition,
    with_schemas,
)

# --- laws ---


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Up to five operators over one or two sources, which may be united; what nothing reads has a sink."""
    flow = bl.Dataflow("flow")
    streams = [flow.source("rows", Rescanned())]
    heads: dict[str, Any] = {"rows": streams[0]}
    if draw(st.booleans()):
        other = flow.source("other", Rescanned())
        united = draw(st.booleans())
        heads["other"] = other
        if united:
            heads = {"both": streams[0].union("both", other)}
    count = draw(st.integers(1, 4))
    unread = set(heads)
    for number in range(count):
        name = f"n{number}"
        read = draw(st.sampled_from(sorted(heads)))
        if draw(st.booleans()) and read in ("rows", "other", "both"):
            made = heads[read].group_by("k").agg(name, ANY)
        else:
            made = heads[read].transform(name, ANY, policy=draw(st.sampled_from([None, bl.Eager()])))
        heads[name] = made
        unread = (unread | {name}) - {read}
    for name in sorted(heads):
        if name in unread or draw(st.booleans()):
            heads[name].sink(f"{name}_out", Readable())
    return plan(flow)


@st.composite
def modes_for(draw: st.DrawFn, new: Plan) -> dict[str, str]:
    operators = [each.name for unit in new.units.values() for each in unit.operators]
    modes = draw(st.dictionaries(st.sampled_from([*operators, "none"]), st.sampled_from(["same", "now"]), max_size=2))
    modes.pop("none", None)
    return {**modes, **draw(st.dictionaries(st.sampled_from(sorted(new.sinks)), st.sampled_from(["now", "new_rows"])))}


def drawn_transition(data: st.DataObject) -> tuple[Plan, Plan, LogHistory, Transition]:
    """A transition between two drawn programs, or between one and itself with other code somewhere."""
    old = data.draw(plans())
    new = data.draw(st.just(old) | plans())
    history = history_of(old)
    identity = identity_in_memory(new)
    for name in data.draw(st.lists(st.sampled_from(sorted(e for e in identity if e.startswith("p")) or [""]))):
        if name:
            identity[name] = {**identity[name], "plan": "other"}
    modes = data.draw(modes_for(new))
    added = {e.partition(" ")[2] for e in identity if e not in history.program}
    keep = {  # a state that comes or goes in an operator that is kept has a test of its own
        entry.partition(" ")[2]
        for entry, about in identity.items()
        if entry in history.program and about.get("keeps_state") != history.program[entry].get("keeps_state")
    }
    modes = {name: m for name, m in modes.items() if not (m == "same" and name in added) and name not in keep}
    return old, new, history, plan_transition(history, history.program, new, identity, modes, lambda _: "")


@given(st.data())
def test_what_a_transition_leaves_in_the_log_is_of_the_new_program(data: st.DataObject) -> None:
    """Or else the new program is refused by its own store once the transition is recorded, and so is the old one."""
    _, new, history, made = drawn_transition(data)
    if not made.comparison.is_changed or made.obstacles:
        return
    record = carried_out(history, made, Engine(new, dict.fromkeys(new.sinks, 3)))
    assert decode_group(encode_group(HEADER, [record]), "log/7")[1]
    program = program_of(new)
    build(program, history.live_records)
    refuse_unfit_sinks(program, history.committed)
    assert history.cursors.keys() <= new.sources.keys()
    assert LogHistory.of([history.snapshot()]).live_records == history.live_records


@given(st.data())
def test_what_is_planned_is_of_the_new_program_and_in_its_order(data: st.DataObject) -> None:
    old, new, _, made = drawn_transition(data)
    units = list(new.units)
    for part in (made.fills, made.empties, made.computed):
        assert part == [name for name in units if name in part]
    assert not set(made.fills) & set(made.empties)
    assert set(made.begins) <= made.cuts.keys() <= new.sources.keys()
    assert made.sinks.keys() <= new.sinks.keys()
    known = {*old.units, *old.sources, *old.sinks, *(n for n in made.comparison.processors)}
    assert set(made.forgotten) <= known
    stay = {name for name, each in made.comparison.processors.items() if each.change is ProgramChange.UNCHANGED}
    assert not stay & set(made.sinks).difference(
        sink for sink in made.sinks if new.unit_of_sink(sink).name in made.fills
    )
    assert not {name for name in stay if name in new.sources} & set(made.forgotten)
    edges = edges_of(units_in(recorded(old))) | edges_of(units_in(recorded(new)))
    assert set(made.edges) | new_edges(made, new) <= edges


@given(st.data())
def test_all_that_is_computed_reads_what_is_computed_or_a_source(data: st.DataObject) -> None:
    """And each state and difference that is wanted is among it."""
    _, new, _, made = drawn_transition(data)
    for name in made.computed:
        assert all(read in made.computed or read in new.sources for read in new.units[name].reads)
    wanted = {new.unit_of_sink(sink).name for sink, mode in made.sinks.items() if mode is not Mode.NOW}
    past = {name for name in made.fills if any(made.cuts[source] >= 0 for source in new.sources_of(name))}
    wanted |= {name for name in past if new.units[name].keeps_state}  # without a past there is nothing to compute
    assert wanted <= set(made.computed)


@given(st.data())
def test_a_part_without_a_change_is_left_alone(data: st.DataObject) -> None:
    """Neither its sources nor its units nor its sinks occur in the plan."""

    def with_apart(other: bool) -> Plan:
        flow = bl.Dataflow("flow")
        sums = flow.source("rows", Rescanned()).group_by("k").agg("sums", ANY)
        sums.sink("totals", Readable())
        if other:
            sums.sink("again", Readable())
        flow.source("other", ANY).transform("apart", ANY).sink("apart_out", NO_ACCOUNT)
        return plan(flow)

    further = data.draw(st.booleans())
    mode = data.draw(st.sampled_from(["fill", "same", "now"]))
    made = transition(with_apart(False), with_apart(further), {"sums": OTHER_CODE}, sums=mode)
    named = [*made.cuts, *made.begins, *made.fills, *made.empties, *made.computed, *made.forgotten, *made.sinks]
    assert not {"other", "apart", "apart_out"} & {*named, *(part for edge in made.edges for part in edge.split("->"))}
    tainted = further and mode == "now"  # a further sink would hold the past of a state that begins empty
    assert obstacles(made) == ({"sums": "HISTORY_GONE"} if tainted else {})


# --- names that become something else ---


def a_source_named(name: str) -> Plan:
    flow = bl.Dataflow("flow")
    rows = flow.source(name, Rescanned())
    if name != "rows":
        rows = rows.transform("rows", ANY)
    rows.group_by("k").agg("sums", ANY).sink("totals", Readable())
    return plan(flow)


def a_sink_named(name: str) -> Plan:
    flow = bl.Dataflow("flow")
    sums = flow.source("rows", Rescanned()).group_by("k").agg("sums", ANY)
    if name != "totals":
        sums = sums.transform("totals", ANY)
    sums.sink(name, Readable())
    return plan(flow)


@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        (a_source_named("rows"), a_source_named("raw"), "rows"),
        (a_source_named("raw"), a_source_named("rows"), "raw"),
        (a_sink_named("totals"), a_sink_named("out"), "totals"),
        (a_sink_named("out"), a_sink_named("totals"), "out"),
    ],
    ids=["source to operator", "operator to source", "sink to operator", "operator to sink"],
)
def test_a_name_that_becomes_another_sort_of_processor_leaves_nothing_of_the_former(
    old: Plan, new: Plan, name: str
) -> None:
    history = history_of(old)
    identity = identity_in_memory(new)
    made = plan_transition(history, history.program, new, identity, {}, lambda _: "")
    assert obstacles(made) == {}
    assert name in made.forgotten
    carried_out(history, made, Engine(new))
    build(program_of(new), history.live_records)
    refuse_unfit_sinks(program_of(new), history.committed)


def counted(*, keeps_state: bool) -> Plan:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", Rescanned())
    counts = rows.group_by("k").agg("counts", ANY) if keeps_state else rows.transform("counts", ANY)
    counts.sink("totals", Readable())
    return plan(flow)


@pytest.mark.parametrize(("before", "mode"), [(True, "same"), (True, "now"), (False, "same"), (False, "now")])
def test_a_state_that_comes_or_goes_is_refused_or_leaves_nothing_strange(before: bool, mode: str) -> None:
    old, new = counted(keeps_state=before), counted(keeps_state=not before)
    history = history_of(old)
    made = plan_transition(history, history.program, new, identity_in_memory(new), {"counts": mode}, lambda _: "")
    if made.obstacles:
        return
    carried_out(history, made, Engine(new))
    build(program_of(new), history.live_records)
    assert ("counts" in history.live_records.states) is (not before)


# --- cuts and beginnings ---


def two_sources(*, united: bool = True, third: bool = False, what: str = "rescanned") -> Plan:
    flow = bl.Dataflow("flow")
    rows, other = flow.source("rows", Rescanned(what)), flow.source("other", Rescanned())
    others = [other, flow.source("third", Rescanned())] if third else [other]
    if united:
        rows.union("both", *others).group_by("k").agg("sums", ANY).sink("totals", Readable())
    else:
        rows.group_by("k").agg("sums", ANY).sink("totals", Readable())
        other.transform("apart", ANY).sink("apart_out", Readable())
    return plan(flow)


def test_the_cut_of_a_part_is_the_last_step_of_any_of_its_sources() -> None:
    made = transition(two_sources(), two_sources(), {"sums": OTHER_CODE})
    assert (made.cuts, made.begins) == ({"rows": 7, "other": 7}, [])


def test_a_source_that_lags_behind_the_cut_gets_steps_without_input() -> None:
    new = two_sources()
    history = history_of(new)
    identity = {**identity_in_memory(new)}
    identity["processor sums"] = {**identity["processor sums"], **OTHER_CODE}
    made = plan_transition(history, history.program, new, identity, {}, lambda _: "")
    record = carried_out(history, made, Engine(new))
    assert [fact for fact in record.facts if isinstance(fact, Determinant)] == [
        Determinant("rows", time, None, None) for time in (5, 6, 7)
    ]
    assert history.last_closed("rows") == history.last_closed("other") == 7


def test_a_further_source_begins_at_the_cut_and_the_others_go_on() -> None:
    made = transition(two_sources(), two_sources(third=True))
    assert made.cuts == {"rows": 7, "other": 7, "third": 7}
    assert made.begins == ["third"]
    assert "third" not in made.forgotten  # it has no facts
    history = history_of(two_sources())
    new = two_sources(third=True)
    made = plan_transition(history, history.program, new, identity_in_memory(new), {}, lambda _: "")
    record = carried_out(history, made, Engine(new))
    assert record.cursors == {"third": (7, {"taken": 0})}
    assert history.last_closed("third") == 7


def test_a_source_that_changes_begins_anew_and_its_facts_are_void() -> None:
    made = transition(two_sources(), two_sources(what="else"))
    assert (made.begins, made.cuts) == (["rows"], {"rows": 7, "other": 7})
    assert "rows" in made.forgotten
    assert "other" not in made.forgotten


def test_parts_that_come_together_or_apart_have_one_cut() -> None:
    for old, new in ((False, True), (True, False)):
        made = transition(two_sources(united=old), two_sources(united=new))
        assert made.cuts == {"rows": 7, "other": 7}


def test_a_store_without_steps_has_nothing_to_compute_and_no_obstacle_but_the_place() -> None:
    old, new = two_sources(), two_sources(third=True)
    made = transition(old, new, {"sums": OTHER_CODE}, steps={}, stopped=False, not_at_once=lambda _: "it tosses a coin")
    assert (set(made.cuts.values()), made.computed, made.sinks, obstacles(made)) == ({-1}, [], {}, {})


# --- fills, and another division ---


def test_a_change_above_fills_all_units_below_it_and_its_edges_are_new() -> None:
    new = chain(eager=True)
    made = transition(new, new, {"clean": OTHER_CODE})
    assert made.fills == made.computed == ["clean", "sums"]
    assert made.edges == ["clean->sums", "rows->clean", "sums->totals"]
    assert new_edges(made, new) == {"clean->sums", "sums->totals"}
    assert set(made.forgotten) == {"clean", "sums", "totals"}


def test_a_change_below_leaves_the_unit_above_it_alone() -> None:
    new = chain(eager=True, copy=True)
    made = transition(new, new, {"sums": OTHER_CODE})
    assert made.fills == ["sums"]
    assert made.computed == ["clean", "sums"]
    assert set(made.forgotten) == {"sums", "totals"}
    assert not {"rows->clean", "clean->copy"} & set(made.edges)
    assert new_edges(made, new) == {"clean->sums", "sums->totals"}


def test_a_unit_that_goes_with_its_sink_is_forgotten_and_the_state_stays() -> None:
    made = transition(chain(copy=True), chain())
    assert (made.fills, made.computed, made.sinks) == ([], [], {})
    assert set(made.forgotten) == {"clean", "copy"}
    assert made.edges == ["clean->copy", "clean->sums", "rows->clean"]
    assert obstacles(made) == {"sums": "NEEDS_CLEAN_STOP"}  # a message waits on an edge that goes


def test_a_kept_mode_within_a_job_that_is_filled_is_refused() -> None:
    made = transition(chain(), chain(), {"clean": OTHER_CODE, "sums": OTHER_CODE}, clean="same")
    assert made.fills == ["sums"]
    assert obstacles(made) == {"clean": "HISTORY_GONE"}


def test_sources_that_sort_out_bad_rows_go_on_under_their_new_name() -> None:
    """By the identities that such programs have."""
    old = chain()
    history = history_of(old)
    flow = bl.Dataflow("flow")
    source = flow.source("rows_source", Rescanned())
    rows = source.transform("rows", ANY)
    source.transform("bad", ANY).sink("bad_out", Readable())
    rows.transform("clean", ANY).group_by("k").agg("sums", ANY).sink("totals", Readable())
    new = plan(flow)
    identity = identity_in_memory(new)
    for name in ("rows", "bad"):
        identity[f"processor {name}"] = {**identity[f"processor {name}"], "kind": "bad_rows"}
    made = plan_transition(history, history.program, new, identity, {}, lambda _: "")
    assert made.renamed == {"rows": "rows_source"}
    assert (made.fills, made.sinks, made.begins) == (["bad"], {"bad_out": Mode.FILL}, [])
    assert obstacles(made) == {}
    carried_out(history, made, Engine(new))
    assert history.last_closed("rows_source") == 4
    build(program_of(new), history.live_records)


# --- the numbers of sinks ---


@pytest.mark.parametrize("held", [-1, 0, 4])
@pytest.mark.parametrize("mode", ["fill", "now"])
def test_a_sink_counts_on_from_the_step_that_it_holds(held: int, mode: str) -> None:
    """A difference is its next step, and stands for the cut; without one, the step that it holds does."""
    new = chain()
    history = history_of(new)
    identity = identity_in_memory(new)
    identity["processor sums"] = {**identity["processor sums"], **OTHER_CODE}
    made = plan_transition(history, history.program, new, identity, {"totals": mode}, lambda _: "")
    record = carried_out(history, made, Engine(new, {"totals": held}))
    numbers = record.sinks["totals"]
    assert record.committed == {"totals": 4}
    assert 4 - numbers.ahead == (held + 1 if mode == "fill" else held)
    assert (numbers.difference is not None) is (mode == "fill")
    assert 5 - numbers.ahead == history.own_number("totals") + 1


def test_a_sink_keeps_its_own_numbers_before_the_first_step_after_a_way_back() -> None:
    flow = chain()
    history, identity = history_of(flow), identity_in_memory(flow)
    there = history.at("", {})
    back = plan_transition(there, there.program, flow, identity, {}, lambda _: "", "", history.program)
    carried_out(history, back, Engine(flow, {"totals": 4}))
    history.apply(SinkCommit("totals", -1))
    changed = with_schemas(identity, {"sums": OTHER_CODE})
    made = plan_transition(history, history.program, flow, changed, {}, lambda _: "")
    assert made.sinks == {"totals": Mode.FILL}
    assert carried_out(history, made, Engine(flow, {"totals": 5})).sinks["totals"].ahead == -1 - 5 - 1
