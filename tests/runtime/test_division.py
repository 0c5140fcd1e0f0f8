"""A store that is opened with another division of the same program into units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, plan
from boatlift.errors import DataError
from boatlift.runtime.evolution import refuse_other_division
from boatlift.runtime.graph import division_of, policy_of
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, GarbageCollection, LoggedMessage, StepDigest
from boatlift.storage.records.records import Claim, SinkCommit, Stopped, units_in
from support.any_connector import ANY
from support.engine.hosts import open_store
from support.engine.memory_engine import recorded
from support.worlds.facts import made, payload_with, run_of


def chain(policy: Any = None, *, deterministic: bool | None = None) -> Plan:
    """A transform before keyed state: with `Eager` it is a unit of its own."""
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", ANY, policy=policy, deterministic=deterministic)
    clean.group_by("k").agg("sums", ANY).sink("totals", ANY)
    return plan(flow)


def opened(root: Path, planned: Plan) -> Log:
    log = Log.open(open_store(root), "flow")
    log.claim(
        Claim("host", 1, 0, recorded(planned), {}),
        lambda history: refuse_other_division(history, recorded(planned)),
    )
    return log


def test_a_policy_is_recorded_as_it_is() -> None:
    for policy in (bl.Lazy(every=None), bl.Eager(), bl.History()):
        flow = bl.Dataflow("flow")
        flow.source("rows", ANY).group_by("k").agg("sums", ANY, policy=policy).sink("out", ANY)
        assert policy_of(units_in({"units": division_of(plan(flow))})["sums"]) == policy
    batch = bl.Batch(epochs=3, seconds=1.5)
    for policy in (batch, bl.History(batch)):
        flow = bl.Dataflow("flow")
        flow.source("rows", ANY).gather("more", policy=policy).sink("out", ANY)
        assert policy_of(units_in({"units": division_of(plan(flow))})["more"]) == policy


def test_another_policy_of_a_transform_is_the_same_program_in_other_units() -> None:
    one, two = recorded(chain()), recorded(chain(bl.Eager()))
    assert one.pop("units").keys() == {"sums"}
    assert two.pop("units").keys() == {"clean", "sums"}
    assert one == two


def test_after_a_clean_stop_stateless_units_come_and_go_and_their_facts_are_forgotten(tmp_path: Path) -> None:
    log = opened(tmp_path, chain(bl.Eager()))
    log.append([made(0, "rows"), StepDigest("clean", 0, "d", 1, 1.0), SinkCommit("totals", 0)])
    log.append([LoggedMessage("clean->sums", 0, payload_with([run_of(b"x", "runs/1")], rows=1, digest="0" * 16))])
    log.append([Checkpoint("sums", (0,), payload_with([])), Stopped()])
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* messages wait on clean->sums"):
        opened(tmp_path, chain())
    log = opened(tmp_path, chain(bl.Eager()))
    log.append([GarbageCollection({"clean": (0,)}, {}, {"clean->sums": (0,)}), Stopped()])
    log = opened(tmp_path, chain())
    live = log.history.live_records
    assert not live.results.get("clean")
    assert not live.sent
    assert live.states["sums"]
    assert log.history.live_runs() == set()
    log.append([Stopped()])
    assert units_in(opened(tmp_path, chain(bl.Eager())).history.program).keys() == {"clean", "sums"}


def test_an_owner_that_died_after_its_claim_may_have_done_work_that_no_record_shows(tmp_path: Path) -> None:
    opened(tmp_path, chain()).append([made(0, "rows"), Stopped()])
    opened(tmp_path, chain())
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* its last run did not stop cleanly"):
        opened(tmp_path, chain(bl.Eager()))


def test_messages_that_wait_on_an_edge_that_goes_are_not_forgotten(tmp_path: Path) -> None:
    """A union waits for its slower source: the faster one's messages are in the log, and cannot be made again."""

    def united(policy: Any) -> Plan:
        flow = bl.Dataflow("flow")
        east = flow.source("east", ANY).transform("read-east", ANY)
        both = east.union("both", flow.source("west", ANY)).transform("doubled", ANY, policy=policy)
        both.group_by("k").agg("sums", ANY).sink("totals", ANY)
        return plan(flow)

    log = opened(tmp_path, united(None))
    message = payload_with([run_of(b"x", "runs/1")], rows=1, digest="0" * 16)
    log.append([made(0, "east"), made(1, "east"), made(0, "west"), LoggedMessage("read-east->sums", 1, message)])
    log.append([Checkpoint("sums", (0,), payload_with([])), Stopped()])
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* messages wait on read-east->sums: run it once more"):
        opened(tmp_path, united(bl.Eager()))
    assert log.history.live_runs() == {"runs/1"}
    opened(tmp_path, united(None))


def test_without_a_clean_stop_another_division_is_refused_and_nothing_is_claimed(tmp_path: Path) -> None:
    opened(tmp_path, chain()).append([made(0, "rows")])
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* \(clean, sums\).* run it once more as it was"):
        opened(tmp_path, chain(bl.Eager()))
    assert units_in(Log.open(open_store(tmp_path), "flow").history.program).keys() == {"sums"}


def two_ways(behind: Callable[[Any, Any], Any], *, eager: bool) -> Plan:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY).transform("clean", ANY, policy=bl.Eager() if eager else None)
    behind(flow, rows).sink("out", ANY)
    return plan(flow)


@pytest.mark.parametrize(
    "behind",
    [
        lambda _flow, rows: rows.gather("epoch", policy=bl.Batch(epochs=2)),
        lambda flow, rows: rows.lookup("asked", live=flow.source("more", ANY).group_by("k").agg("n", ANY).by("k")),
    ],
    ids=["gather", "lookup"],
)
def test_units_with_times_of_their_own_are_not_divided_otherwise(tmp_path: Path, behind: Any) -> None:
    before, now = (two_ways(behind, eager=eager) for eager in (False, True))
    opened(tmp_path, before).append([made(0, "rows"), Stopped()])
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* give the transforms the policies that they had"):
        opened(tmp_path, now)


def test_recorded_inputs_name_edges_and_are_not_divided_otherwise(tmp_path: Path) -> None:
    from boatlift.storage.records.facts import LoggedInput

    def history(policy: Any) -> Plan:
        flow = bl.Dataflow("flow")
        clean = flow.source("rows", ANY).transform("clean", ANY, policy=policy)
        clean.group_by("k").agg("sums", ANY, policy=bl.History()).sink("totals", ANY)
        return plan(flow)

    log = opened(tmp_path, history(None))
    log.append([made(0, "rows"), LoggedInput("sums", 0, (0,), (("rows->sums", 0, {"position": {}}),), None), Stopped()])
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* sums keeps state, messages or times of its own"):
        opened(tmp_path, history(bl.Eager()))
