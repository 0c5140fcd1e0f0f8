"""`boatlift status`: where each processor is, who runs it, and what a failure now would cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from boatlift.console.outlook import executed_again, known_from, sinks_of
from boatlift.console.tables import console, moment, table
from boatlift.recovery import Kind, RecoveryPlan
from boatlift.runtime.inspect.processes import Life, life_of
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import last_number
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim

__all__ = ["show_status", "status_of"]


def show_status(path: Path, *, as_json: bool) -> None:
    """Shows where each processor is, as the store knows it."""
    state = status_of(Log.open(LocalStore.open(path, create=False), None))
    if as_json:
        print(json.dumps(state, indent=2, default=str))
        return
    print(f"{state['dataflow']}: {_words(state)}")
    print(f"store: {state['store']}")
    if state["owner"] is not None:
        owner = state["owner"]
        print(f"last owner: process {owner['pid']} on {owner['host']}, since {moment(owner['at'])}")
        print(f"last record: {moment(state['last_record_at'])}")
    for source, time in state["closed"].items():
        print(f"{source}: steps up to {time} are closed and recorded")
    rows = table("processor", "executed", "checkpoint", "stable", "steps to replay if everything failed now")
    for name, at in state["processors"].items():
        told = ("none" if at[key] < 0 else str(at[key]) for key in ("executed", "checkpoint", "stable"))
        rows.add_row(name, *told, str(at["to_replay"]))
    console().print(rows)
    for sink, time in state["sinks"].items():
        holds = f"holds steps up to {time}" if time >= 0 else "holds nothing"
        print(f"{sink}: {holds}, as far as the log knows")
    if state["after_a_failure"]:
        print("\nIf everything failed now:")
    for line in state["after_a_failure"]:
        print(f"  {line}")


def status_of(log: Log) -> dict[str, Any]:
    """Gives all that `boatlift status` tells, as JSON."""
    history = log.history
    program, monitor = known_from(history)
    graph = program.graph
    kinds = {name: vertex.kind for name, vertex in graph.vertices.items()}
    after = monitor.plan(graph.vertices.keys())
    units = [name for name in graph.order if kinds[name] in (Kind.STATELESS, Kind.STATEFUL)]
    owner = log.last_claim()
    return {
        "dataflow": log.dataflow,
        "store": log.store_id,
        "stopped_cleanly": history.stopped,
        "state": _state(history, owner),
        "last_record_at": log.written_at,
        "closed": {name: history.last_closed(name) for name in graph.order if kinds[name] is Kind.SOURCE},
        "processors": {name: _unit(history, after, name) for name in units},
        "sinks": sinks_of(program, history),
        # Whoever stopped in good order has executed nothing that is not kept.
        "after_a_failure": [] if history.stopped else after.describe().splitlines(),
        "owner": None if owner is None else {key: msgspec.to_builtins(owner)[key] for key in ("host", "pid", "at")},
        "environment": history.environment,
    }


def _state(history: LogHistory, owner: Claim | None) -> str:
    """Return `stopped`, `alive`, `crashed`, `running or crashed` or, where no process ever claimed the store, `new`."""
    if owner is None:
        return "new"
    if history.stopped:
        return "stopped"
    return {Life.RUNNING: "alive", Life.ENDED: "crashed", Life.UNKNOWN: "running or crashed"}[life_of(owner)]


def _words(state: Mapping[str, Any]) -> str:
    match state["state"]:
        case "new":
            return "no process has run it yet"
        case "stopped":
            return "stopped in good order"
        case "alive":
            return "its process lives: it runs, or its run has ended with an error (a notebook)"
        case "crashed":
            return "crashed: its process has ended without a clean stop; run it again, and it goes on"
        case _:
            return "running or crashed: whether its process lives cannot be told from here"


def _unit(history: LogHistory, after: RecoveryPlan, name: str) -> dict[str, int]:
    standing = history.live_records
    return {
        "executed": history.last_executed(name),
        "checkpoint": max((last_number(frontier) for frontier in standing.states.get(name, ())), default=-1),
        "stable": last_number(standing.collected.states.get(name, ())),
        "to_replay": len(executed_again(history, after.processors[name])),
    }
