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
from boatlift.storage.records.facts import Checkpoint, Determinant, StepDigest
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, Stopped
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
    records += [Determinant("rows", t, None, None if idle and t == LAST else outcome) for t in range(LAST + 1)]
    for name in old.units:
        records.append(StepDigest(name, executed, "d"))
        records += [] if kept is None else [Checkpoint(name, (kept,), payload_with([]))]
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


def test_a_step_without_input_does_not_wait() -> None:
    history = history_of(sums(), executed=LAST - 1, kept=LAST - 1, idle=True)
    assert waiting_unit(history, ["rows"]) is None
    assert waiting_unit(history_of(sums(), executed=LAST - 2, kept=None, idle=True), ["rows"]) == "sums"
    assert waiting_unit(history_of(sums(), executed=LAST - 2, kept=None), ["other"]) is None


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
