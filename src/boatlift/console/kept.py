"""`boatlift gc`: what a store keeps, and for whom; from the store alone. It deletes nothing: a running dataflow does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from boatlift.console.tables import console, table
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.recorded_program import recorded_program
from boatlift.storage.input_log import INPUT
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.store import Store

__all__ = ["KeptReport", "kept_in", "show_kept"]


@dataclass(frozen=True, slots=True)
class KeptReport:
    """Something that is kept.

    Attributes:
        what: `positions`, `pushes`, `choices`, `state`, `messages`, `inputs` or `nothing` (no fact names it).
        whose: The processor, or the edge.
        times: How many times it is kept of.
        runs, size: How many runs it names that nothing before it in the list does, or objects with pushed rows there are, and their bytes.
        why: Who may ask for it.
    """

    what: str
    whose: str
    times: int
    runs: int
    size: int
    why: str


def show_kept(path: Path, *, as_json: bool) -> None:
    """Shows what a store keeps."""
    store = LocalStore.open(path, create=False)
    kept = kept_in(store, Log.open(store, None))
    if as_json:
        print(json.dumps([asdict(each) for each in kept], indent=2))
        return
    rows = table("kept", "of", "times", "runs", "bytes", "for whom")
    for each in kept:
        rows.add_row(each.what, each.whose, *(f"{n:,}" for n in (each.times, each.runs, each.size)), each.why)
    console().print(rows)
    print(
        f"{sum(each.size for each in kept):,} bytes in runs and pushes; positions, choices and digests are in the log"
    )


def kept_in(store: Store, log: Log) -> list[KeptReport]:
    """Gives all that a store keeps, sources first."""
    graph, standing = recorded_program(log.history.program).graph, log.history.live_records
    counted: set[str] = set()

    def fresh(contents: Iterable[Any]) -> tuple[int, int]:
        runs = {run.name: run.size for content in contents for run in runs_of(content) if run.name not in counted}
        counted.update(runs)
        return len(runs), sum(runs.values())

    kept = []
    for name in graph.order:
        readers = " and ".join(edge.target for edge in graph.outputs[name])
        if chosen := standing.chosen.get(name):
            source = not graph.inputs[name]
            why = f"{readers}: to read the same again" if source else f"{name}: to choose the same again"
            kept.append(KeptReport("positions" if source else "choices", name, len(chosen), 0, 0, why))
        if pushed := [*store.list(f"{INPUT}{name}/")]:
            size = sum(store.size(each) or 0 for each in pushed)
            kept.append(KeptReport("pushes", name, 0, len(pushed), size, f"{readers}; and to know keys again"))
        if states := standing.states.get(name):
            why = f"{name}: to go back to" + (", the last of them surely" if len(states) > 1 else "")
            kept.append(KeptReport("state", name, len(states), *fresh(state.content for state in states.values()), why))
        if taken := standing.taken.get(name):
            contents = (content for each in taken.values() for _, _, content in each.messages)
            kept.append(KeptReport("inputs", name, len(taken), *fresh(contents), f"{name}: to make its state of"))
    for edge in graph.edges.values():
        if sent := standing.sent.get(edge.name):
            contents = (each.message for each in sent.values())
            kept.append(KeptReport("messages", edge.name, len(sent), *fresh(contents), _asker(graph, edge.target)))
    garbage = [name for name in store.list("runs/") if name not in counted]
    if garbage:
        size = sum(store.size(name) or 0 for name in garbage)
        kept.append(
            KeptReport("nothing", "-", 0, len(garbage), size, "nobody: deleted by whoever runs the dataflow next")
        )
    return kept


def _asker(graph: RecoveryGraph, receiver: str) -> str:
    """Tells who may ask for messages: the receiver, or who comes after it, if it keeps nothing itself."""
    behind = [edge.target for edge in graph.outputs[receiver]]
    return f"{receiver}, if it goes back" + (f", or {' or '.join(behind)} behind it" if behind else "")
