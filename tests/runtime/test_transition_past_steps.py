"""Steps that the old program left: those that wait after a stop, and those that a state without checkpoints repeats."""

from __future__ import annotations

from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, plan
from boatlift.errors import DataError
from boatlift.runtime.evolution import accepts_state
from boatlift.runtime.past_steps import resumes, waiting_unit
from boatlift.runtime.planning import plan_transition
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedMessage, StepDigest
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, SinkCommit, Stopped
from support.any_connector import ANY
from support.engine.memory_engine import identity_in_memory, recorded
from support.worlds.facts import payload_with
from support.worlds.transitions import OTHER_CODE, Readable, Rescanned, obstacles

LAST = 4  # the last step that the source has closed


def sums(*, behind: str = "sums") -> Plan:
    """Rows that are cleaned and summed; perhaps another sum behind, in a job of its own."""
    flow = bl.Dataflow("flow")
    made = flow.source("rows", Rescanned()).transform("clean", ANY).group_by("k").agg("sums", ANY)
    if behind != "sums":
        made = made.group_by("k").agg(behind, ANY)
    made.sink("totals", Readable())
    return plan(flow)


def history_of(old: Plan, *, executed: int = LAST, kept: int | None = LAST, idle: bool = False) -> LogHistory:
    """The log of a program that was stopped cleanly.

    Args:
        executed: The last step of each unit.
        kept: The step of each unit's checkpoint.
        idle: Whether the last step has no input.
    """
    outcome = {"position": {}, "clock": 0, "seed": 0}
    records: list[Any] = [Claim("here", 1, 0, recorded(old), {})]
    if "rows" in old.sources:
        records += [Determinant("rows", t, None, None if idle and t == LAST else outcome) for t in range(LAST + 1)]
    for name in old.units:
        records.append(StepDigest(name, executed, "d"))
        kept_at = [kept] if kept is not None and old.units[name].keeps_state else []
        records += [Checkpoint(name, (each,), payload_with([])) for each in kept_at]
        records += [SinkCommit(sink.name, executed) for sink in old.units[name].sinks]
    return LogHistory.of([*records, Stopped()])


def refused(history: LogHistory, new: Plan, changed: str = "", **modes: str) -> dict[str, str]:
    identity = identity_in_memory(new)
    if changed:
        identity[f"processor {changed}"] = {**identity[f"processor {changed}"], **OTHER_CODE}
    return obstacles(plan_transition(history, history.program, new, identity, modes, lambda _: ""))


# --- steps that wait ---


@pytest.mark.parametrize("modes", [{"sums": "now"}, {"totals": "now"}], ids=str)
def test_what_passes_over_steps_that_wait_is_refused(modes: dict[str, str]) -> None:
    """They would be in neither program; with an emptied state, its sinks would have a gap, and nothing could start."""
    history = history_of(sums(), executed=LAST - 1, kept=LAST - 1)
    assert set(refused(history, sums(), "sums", **modes).values()) == {"NEEDS_CLEAN_STOP"}
    assert refused(history_of(sums()), sums(), "sums", **modes) == {}


def test_a_state_that_stays_behind_one_that_is_computed_takes_no_message_from_before() -> None:
    new = sums(behind="more")
    history = history_of(new, executed=LAST - 1, kept=LAST - 1)
    assert refused(history, new, "sums", more="same") == {"more": "NEEDS_CLEAN_STOP"}
    assert refused(history_of(new), new, "sums", more="same") == {}


def test_steps_that_wait_are_no_obstacle_for_what_executes_or_computes_them() -> None:
    history = history_of(sums(), executed=LAST - 1, kept=LAST - 1)
    assert refused(history, sums(), "clean", clean="now") == {}
    assert refused(history, sums(), "sums") == {}


@pytest.mark.parametrize("modes", [{"sums": "now"}, {"clean": "now"}], ids=str)
def test_steps_that_sinks_hold_are_not_executed_by_other_code(modes: dict[str, str]) -> None:
    """An owner released them and died before it could record them, and the next one stopped before it came so far."""
    (changed,) = modes
    history = history_of(sums(), executed=LAST - 1, kept=LAST - 1)
    assert resumes(history, "sums")
    history.apply(SinkCommit("totals", LAST))
    history.apply(Stopped())
    assert not resumes(history, "sums")
    assert set(refused(history, sums(), changed, **modes).values()) == {"NEEDS_CLEAN_STOP"}
    idle = history_of(sums(), executed=LAST - 1, kept=LAST - 1, idle=True)
    idle.apply(SinkCommit("totals", LAST))
    assert resumes(idle, "sums")


def test_a_step_without_input_does_not_wait() -> None:
    history = history_of(sums(), executed=LAST - 1, kept=LAST - 1, idle=True)
    assert waiting_unit(history, ["rows"]) is None
    assert waiting_unit(history_of(sums(), executed=LAST - 2, kept=None, idle=True), ["rows"]) == "sums"
    assert waiting_unit(history_of(sums(), executed=LAST - 2, kept=None), ["other"]) is None


def test_a_message_that_a_unit_has_not_taken_waits_though_its_source_needs_no_step_of_it() -> None:
    new = sums(behind="more")
    history = history_of(new, kept=None)
    for executed, waits in ((LAST, None), (LAST - 1, "more")):
        history.live_records.results["more"] = {executed: StepDigest("more", executed, "d")}
        history.live_records.determinants.clear()
        history.live_records.apply(LoggedMessage("sums->more", LAST, payload_with([])))
        assert waiting_unit(history, ["rows"]) == waits


def test_what_reads_another_stream_from_now_on_has_none_of_the_steps_that_wait() -> None:
    def read_by_sums(name: str) -> Plan:
        flow = bl.Dataflow("flow")
        heads = {each: flow.source("rows_of_" + each, Rescanned()).transform(each, ANY) for each in ("one", "other")}
        for each, head in heads.items():
            head.sink(f"{each}_out", Readable())
        heads[name].transform("last", ANY).sink("totals", Readable())
        return plan(flow)

    history = history_of(read_by_sums("one"), kept=None)
    waiting = LogHistory.of(
        [history.snapshot(), Determinant("rows_of_one", LAST + 1, None, {"position": {}}), Stopped()]
    )
    assert refused(history, read_by_sums("other"), last="now") == {}
    assert refused(waiting, read_by_sums("other"), last="now") == {"last": "NEEDS_CLEAN_STOP"}


@pytest.mark.parametrize("held", [LAST, LAST - 1])
def test_a_sink_does_not_go_on_from_now_on_without_the_last_step_of_its_unit(held: int) -> None:
    """The owner died before it handed the step over, and the next one stopped before it had repeated the step."""
    history = history_of(sums(), kept=LAST - 1)
    history.committed["totals"] = held
    lacks = {} if held == LAST else {"totals": "NEEDS_CLEAN_STOP"}
    assert refused(history, sums(), "sums", totals="now") == lacks
    assert refused(history, sums(), "sums") == {}


# --- states without checkpoints ---


@pytest.mark.parametrize("kept", [None, LAST - 1])
def test_new_code_is_not_brought_about_over_a_state_that_is_computed_again_from_the_past(kept: int | None) -> None:
    """The new code would execute its old steps, and the store could not start any more."""
    history = history_of(sums(), kept=kept)
    assert not resumes(history, "sums")
    assert refused(history, sums(), "clean", clean="now") == {"sums": "NEEDS_CLEAN_STOP"}
    assert refused(history, sums(), "clean") == {}
    assert refused(history, sums(), "clean", clean="same") == {}


def test_nor_over_a_state_behind_it() -> None:
    new = sums(behind="more")
    history = history_of(new, kept=None)
    assert refused(history, new, "sums", sums="now") == {"more": "NEEDS_CLEAN_STOP"}


def test_a_state_gets_no_further_columns_if_it_is_computed_again_from_the_past() -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", Rescanned())
    numbered = rows.group_by("k").process("numbered", lambda *_: (), output="n INT", state="n INT")
    numbered.sink("totals", Readable())
    before = identity_in_memory(plan(flow))["processor numbered"]
    old, new = ({**before, "state": {"value": dict.fromkeys(names, "int")}} for names in ("n", "nm"))
    history = history_of(plan(flow), kept=None)
    with pytest.raises(DataError, match=r"PROGRAM_CHANGED.*numbered gets further columns, and has no checkpoint"):
        accepts_state(history, "processor numbered", old, new)
    assert accepts_state(history_of(plan(flow)), "processor numbered", old, new)


@pytest.mark.parametrize("held", [LAST, LAST - 1])
def test_nor_over_a_step_that_was_executed_before_a_crash_and_that_no_sink_holds(held: int) -> None:
    """A run that was stopped as it repeated steps leaves the result of the old code, and the new one diverges."""
    flow = bl.Dataflow("flow")
    flow.source("rows", Rescanned()).transform("clean", ANY).sink("totals", Readable())
    history = history_of(plan(flow), kept=None)
    history.committed["totals"] = held
    waits = {} if held == LAST else {"clean": "NEEDS_CLEAN_STOP"}
    assert refused(history, plan(flow), "clean", clean="now") == waits


# --- parts that come together ---


def test_a_state_that_stays_is_not_led_on_by_sources_that_have_come_further() -> None:
    """Nobody has the steps from its last one up to the cut."""

    def read_from(name: str, *, both: bool) -> Plan:
        flow = bl.Dataflow("flow")
        heads = {each: flow.source(each, Rescanned()) for each in (("rows", "other") if both else (name,))}
        clean = heads[name].transform("clean", ANY, policy=bl.Eager())
        clean.group_by("k").agg("sums", ANY).sink("totals", Readable())
        if both:
            heads["other"].transform("apart", ANY).sink("apart_out", Readable())
        return plan(flow)

    old, new = read_from("rows", both=True), read_from("other", both=False)
    assert refused(history_of(old), new, sums="same") == {}
    further = LogHistory.of([history_of(old).snapshot(), Determinant("other", LAST, None, None), Stopped()])
    assert refused(further, new, sums="same") == {}
    further = LogHistory.of(
        [further.snapshot(), Determinant("other", LAST + 1, None, {}), StepDigest("apart", LAST + 1, ""), Stopped()]
    )
    assert refused(further, new, sums="same") == {"sums": "HISTORY_GONE"}
    assert refused(further, new) == {}


def test_what_stays_needs_the_steps_without_input_too() -> None:
    """After Ctrl-C a sink may lack a step without input that nobody sends any more."""
    flow = bl.Dataflow("flow")
    sums = flow.source("rows", Rescanned()).group_by("k").agg("sums", ANY)
    sums.transform("last", ANY, policy=bl.Eager()).sink("totals", Readable())
    new = plan(flow)
    history = history_of(new, idle=True)
    assert refused(history, new, "sums", last="same") == {}
    history.committed["totals"] = LAST - 1
    assert refused(history, new, "sums", last="same").keys() == {"last"}


def test_what_reads_other_sources_from_now_on_lacks_the_steps_that_they_are_ahead() -> None:
    def read_from(name: str) -> Plan:
        flow = bl.Dataflow("flow")
        heads = {each: flow.source(each, Rescanned()) for each in ("rows", "other")}
        heads["rows"].transform("first", ANY).sink("first_out", Readable())
        heads["other"].transform("apart", ANY).sink("apart_out", Readable())
        heads[name].transform("last", ANY).sink("totals", Readable())
        return plan(flow)

    old = read_from("rows")
    news = [Determinant("other", LAST + 1, None, {}), StepDigest("apart", LAST + 1, ""), SinkCommit("apart_out", 9)]
    history = LogHistory.of([history_of(old).snapshot(), *news, Stopped()])
    assert refused(history, read_from("other"), last="now") == {"last": "HISTORY_GONE"}
    assert refused(history_of(old), read_from("other"), last="now") == {}
