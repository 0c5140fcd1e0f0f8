"""What comes out differently on replay: refused, or accepted, on the record and once."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, plan
from boatlift.errors import DataError, DivergedError
from boatlift.runtime.engine import StepResult
from boatlift.runtime.graph import program_of
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Override
from support.crash.dying import DiesError, dying_at
from support.engine.hosts import open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.engine.memory_flows import ANY

AT = 2


class Changed(MemoryEngine):
    """One step of a unit gives another digest than it gave in the process before."""

    def __init__(self, world: World, unit: str) -> None:
        super().__init__(world, every=100)
        self.unit = unit

    def _step(self, unit: str, take: StepInput, state: Any) -> StepResult:
        made = super()._step(unit, take, state)
        if (unit, take.time) != (self.unit, AT):
            return made
        sent = {edge: {**payload, "digest": "other"} for edge, payload in made.sent.items()}
        return replace(made, digest="other", sent=sent)


def crash(world: World, root: Path) -> None:
    with pytest.raises(DiesError):
        run(MemoryEngine(world, every=100), open_store(root), dying_at("commit", "totals", time=5))


def accepted(root: Path) -> set[tuple[str, int]]:
    return Log.open(open_store(root), "flow").history.decided("accepted")


def test_it_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    world = World(rows=30)
    crash(world, tmp_path)
    held = [*world.held["totals"]]
    with pytest.raises(DivergedError, match=r"\[DIVERGED\]"):
        run(Changed(world, "sums"), open_store(tmp_path))
    assert world.held["totals"] == held
    assert not accepted(tmp_path)
    run(MemoryEngine(world, every=100), open_store(tmp_path))
    world.check()


def test_accepted_it_goes_on_and_what_was_released_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(rows=30)
    crash(world, tmp_path)
    held = [*world.held["totals"]]
    with caplog.at_level(logging.WARNING):
        run(Changed(world, "sums"), open_store(tmp_path), accept_released=True)
    assert "accepted, and on the record: sums gave digest other at time 2 on replay" in caplog.text
    assert world.held["totals"][: len(held)] == held
    assert len(world.held["totals"]) == 10
    assert accepted(tmp_path) == {("totals", AT), ("sums", AT)}


def test_what_was_accepted_is_asked_for_only_once(tmp_path: Path) -> None:
    """Another crash before the next checkpoint: the step is replayed again, and its sink still holds something else."""
    world = World(rows=30)
    crash(world, tmp_path)

    with pytest.raises(DiesError):
        run(Changed(world, "sums"), open_store(tmp_path), dying_at("commit", "totals", time=8), accept_released=True)
    assert ("totals", AT) in accepted(tmp_path)
    run(Changed(world, "sums"), open_store(tmp_path))
    assert len(world.held["totals"]) == 10


def test_differences_that_were_not_accepted_are_refused_after_that(tmp_path: Path) -> None:
    world = World(rows=30)
    crash(world, tmp_path)
    with pytest.raises(DiesError):
        run(Changed(world, "sums"), open_store(tmp_path), dying_at("commit", "totals", time=8), accept_released=True)
    with pytest.raises(DivergedError, match=r"\[DIVERGED\]"):
        run(Changed(world, "clean"), open_store(tmp_path))


def merged(policy: bl.Ephemeral | bl.Eager) -> Plan:
    flow = bl.Dataflow("flow")
    both = flow.source("rows", ANY).merge("both", flow.source("others", ANY))
    both.transform("first", ANY, policy=policy).transform("second", ANY).sink("all", ANY)
    return plan(flow)


def decided(record: Override, policy: bl.Ephemeral | bl.Eager) -> Overrides:
    planned = merged(policy)
    graph = program_of(planned).graph
    return Overrides(LogHistory.of([record]), RunOptions(), {}, planned, graph)


def test_a_step_that_failed_of_a_unit_that_other_policies_make_refuses_no_program() -> None:
    failed = Override("failed", "first", 3, "it always fails", (("rows->first", 2),))
    assert list(merged(bl.Eager()).units) == ["first", "second"]
    assert list(merged(bl.Ephemeral()).units) == ["second"]
    for policy in (bl.Eager(), bl.Ephemeral()):
        decisions = decided(failed, policy)
        assert not decisions.skips.messages, "the step may be skipped, but it is not"


def test_a_skipped_step_of_a_unit_that_other_policies_make_is_refused_with_what_to_do() -> None:
    skipped = Override("skipped", "first", 3, "step 3 of first gives nothing", (("rows->first", 2),))
    assert decided(skipped, bl.Eager()).skips.messages == {("first", "rows->first", 2)}
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] step 3 of first was skipped.*: run it with those under"):
        decided(skipped, bl.Ephemeral())
