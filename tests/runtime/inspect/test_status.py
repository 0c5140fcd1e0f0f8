"""The status of stores in known states."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest

from boatlift.runtime.graph import program_of, recorded_program
from boatlift.runtime.host.ownership import this_process
from boatlift.runtime.host.run_report import FILE, ActivityReport, RunReport
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.runtime.inspect.status import InFlightStatus, OwnerStatus, UnitStatus, reported_status, status_of
from boatlift.storage.log import Log
from boatlift.storage.records.facts import LoggedMessage
from boatlift.storage.records.records import Claim, SinkCommit, Stopped
from support.engine.hosts import RaisingEngine, open_store, process_of, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World, make_plan, recorded
from support.engine.memory_flows import stateless
from support.worlds.facts import gave, made, payload_with, run_of, saved, stable
from support.worlds.logs import claimed

STATELESS = recorded(stateless())


def claim(program: dict[str, Any], pid: int = 1) -> Claim:
    return Claim("host", pid, 1_700_000_000_000, program, {"spark": "4.3.0"})


def test_the_report_of_an_earlier_owner_is_not_that_of_this_one(tmp_path: Path) -> None:
    """A computer that sees a bucket may have scratch of an owner that died there, while another one runs elsewhere."""
    store = open_store(tmp_path)
    log = claimed(store, claim(PROGRAM))
    written = msgspec.json.encode(RunReport(1, activity=ActivityReport(1, 1, {}, {"all": 50})))
    (store.scratch(log.owner) / FILE).write_bytes(written)
    mine = reported_status(log, store).activity
    assert mine is not None
    assert mine.sinks == {"all": 50}
    assert reported_status(claimed(store, claim(PROGRAM, 2)), store).activity is None


def crashed(root: Path, program: dict[str, Any]) -> Log:
    """Steps 0…6 are recorded and executed, a checkpoint is of step 3, the sinks hold all but the newest of `totals`."""
    log = claimed(open_store(root), claim(program))
    log.append([*(made(time, "rows") for time in range(7)), *(gave(time, "clean") for time in range(7))])
    log.append([SinkCommit("all", 6)])
    if "processor sums" in program:
        log.append([*(gave(time, "sums") for time in range(7)), SinkCommit("totals", 5)])
        log.append([saved(3, run_of(b"state", "runs/1"))])
    return log


def test_a_stateful_unit_goes_back_to_its_checkpoint_and_what_feeds_it_too(tmp_path: Path) -> None:
    state = status_of(crashed(tmp_path, PROGRAM))
    assert state.store == Log.open(open_store(tmp_path), None).store_id
    assert state.closed == {"rows": 6}
    assert state.processors == {
        "clean": UnitStatus(executed=6, checkpoint=-1, stable=-1, to_replay=3),
        "sums": UnitStatus(executed=6, checkpoint=3, stable=-1, to_replay=3),
    }
    assert "sums restores its checkpoint of step 3, replays 4…6" in state.after_a_failure
    (clean,) = (line for line in state.after_a_failure if line.startswith("clean "))
    assert clean.startswith("clean executes step 4 next, replays 4…6; it cannot begin later, because sums")


def test_the_data_in_flight_that_the_store_keeps_is_counted_by_edge(tmp_path: Path) -> None:
    log = crashed(tmp_path, PROGRAM)
    sent = [LoggedMessage("clean->sums", time, payload_with([run_of(b"rows", f"runs/{time}")])) for time in (4, 5)]
    log.append([*sent, LoggedMessage("clean->sums", 6, None)])
    assert status_of(log).in_flight == [InFlightStatus("clean", "sums", messages=3, bytes=8)]


def test_a_stateless_unit_whose_sink_holds_everything_replays_nothing(tmp_path: Path) -> None:
    state = status_of(crashed(tmp_path, STATELESS))
    assert state.processors == {"clean": UnitStatus(executed=6, checkpoint=-1, stable=-1, to_replay=0)}
    assert state.after_a_failure[0] == "rows reads step 7 next"
    assert "replays" not in "".join(state.after_a_failure)


def test_after_a_clean_stop_nothing_is_replayed_though_more_is_recorded(tmp_path: Path) -> None:
    log = crashed(tmp_path, PROGRAM)
    log.append([made(7, "rows"), saved(6, run_of(b"more", "runs/2")), SinkCommit("totals", 6), Stopped()])
    state = status_of(log)
    assert state.stopped_cleanly
    assert {unit.to_replay for unit in state.processors.values()} == {0}
    assert state.after_a_failure == []


def test_it_replays_as_many_steps_as_explain_says(tmp_path: Path) -> None:
    log = crashed(tmp_path, PROGRAM)
    log.append([made(time, "rows") for time in range(7, 20)])  # recorded, and never executed
    for stopped in (False, True):
        if stopped:
            log.append([Stopped()])
        explained = explanation_of(log, frozenset()).processors
        shown = {name: unit.to_replay for name, unit in status_of(log).processors.items()}
        assert shown == {name: explained[name].steps for name in shown} == {"clean": 3, "sums": 3}


def test_its_words_replay_the_steps_that_its_number_counts(tmp_path: Path) -> None:
    log = crashed(tmp_path, PROGRAM)
    log.append([made(time, "rows") for time in range(7, 20)])  # recorded, and never executed
    told = status_of(log).after_a_failure
    assert told == [cost.does for cost in explanation_of(log, frozenset()).processors.values()]
    assert "sums restores its checkpoint of step 3, replays 4…6, then executes 7…19 as recorded" in told
    (clean,) = (line for line in told if line.startswith("clean "))
    assert clean.startswith(
        "clean executes step 4 next, replays 4…6, then executes 7…19 as recorded; it cannot begin later, because"
    )


def test_steps_that_no_process_has_executed_are_not_replayed(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), claim(PROGRAM))
    log.append([made(time, "rows") for time in range(3)])
    state = status_of(log)
    assert {unit.to_replay for unit in state.processors.values()} == {0}
    assert "sums starts with empty state, executes 0…2 as recorded" in state.after_a_failure


def test_a_sink_holds_what_was_collected_though_no_record_says_so(tmp_path: Path) -> None:
    """Older versions did not record the steps that a process found in its sinks."""
    log = crashed(tmp_path, PROGRAM)
    log.append([saved(6, run_of(b"more", "runs/2")), stable({"rows": 6, "clean": 6, "sums": 6, "all": 6, "totals": 6})])
    assert status_of(log).sinks == {"all": 6, "totals": 6}


def test_the_owner_is_known_after_manifests_too(tmp_path: Path) -> None:
    log = crashed(tmp_path, PROGRAM)
    log.append([stable({"rows": 3, "clean": 3, "sums": 3})])
    log.checkpoint()
    log.truncate()
    before = status_of(log)
    assert before.owner == OwnerStatus("host", 1, 1_700_000_000_000, 0)
    assert before.processors["sums"] == UnitStatus(executed=6, checkpoint=3, stable=3, to_replay=3)
    claimed(open_store(tmp_path), claim(PROGRAM, pid=2))
    assert status_of(Log.open(open_store(tmp_path), None)).owner.pid == 2


def test_what_a_whole_run_leaves(tmp_path: Path) -> None:
    run(MemoryEngine(World(rows=20)), open_store(tmp_path))
    log = Log.open(open_store(tmp_path), None)
    state = status_of(log)
    assert state.store == log.store_id
    assert state.closed == {"rows": 6}
    assert state.processors["sums"] == UnitStatus(executed=6, checkpoint=6, stable=6, to_replay=0)
    assert state.sinks == {"all": 6, "totals": 6}
    assert state.state == "stopped"
    assert state.last_record_at > state.owner.at - 1000


@pytest.mark.parametrize(
    ("process", "where", "state"),
    [
        (process_of(os.getppid()), socket.gethostname(), "alive"),
        (f"{this_process().rpartition('/')[0]}/1", socket.gethostname(), "crashed"),
        (this_process(), "elsewhere", "running or crashed"),
        ("", socket.gethostname(), "running or crashed"),
    ],
    ids=["alive", "crashed", "elsewhere", "of an older version"],
)
def test_a_process_that_lives_and_one_that_crashed_are_distinguished_where_that_can_be_known(
    tmp_path: Path, process: str, where: str, state: str
) -> None:
    log = Log.open(open_store(tmp_path), "flow", clock=lambda: 1_700_000_009_000)
    log.claim(Claim(where, os.getppid(), 1_700_000_000_000, PROGRAM, {}, process))
    assert (status_of(log).state, status_of(log).last_record_at) == (state, 1_700_000_009_000)


def test_a_run_that_has_ended_with_an_error_is_alive_no_more_though_its_process_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        run(RaisingEngine(World(rows=3)), open_store(tmp_path))
    assert status_of(Log.open(open_store(tmp_path), None)).state == "crashed"


def test_a_store_that_no_process_claimed(tmp_path: Path) -> None:
    log = Log.open(open_store(tmp_path), "flow")
    state = status_of(log)
    assert (state.owner, state.processors, state.after_a_failure) == (None, {}, [])


def test_the_recorded_graph_is_that_of_the_plan() -> None:
    graph, planned = recorded_program(PROGRAM).graph, program_of(make_plan()).graph
    assert graph.vertices == planned.vertices
    assert graph.edges == planned.edges
