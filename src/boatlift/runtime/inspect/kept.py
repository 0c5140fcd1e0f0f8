"""The things that a store keeps, and the processors that may ask for them; from the store alone.

Nothing is deleted here: the process that runs the dataflow does that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from boatlift.recovery import RecoveryGraph
from boatlift.runtime.recorded_program import recorded_program
from boatlift.storage.input_log import INPUT
from boatlift.storage.input_objects import COMPACTED
from boatlift.storage.log import Log
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.remembered_keys import KEYS_FOLDER
from boatlift.storage.store import Store

__all__ = ["KeptReport", "kept_in"]


_OF_PUSHES = (INPUT, COMPACTED, KEYS_FOLDER)

_OF_THE_LOG = {
    "log": "every owner: to know what was done",
    "facts": "the log: facts that stand, written once",
    "names": "sources: to know the names that they have taken",
}
"""The folders of a store that belong to the log, and the reader of each."""


class KeptReport(msgspec.Struct, frozen=True):
    """One kind of thing that is kept of one processor or edge.

    Attributes:
        what: `positions`, `pushes`, `choices`, `state`, `messages`, `inputs`; `log`, `facts` or `names` for the log's
            objects; or `nothing` for objects that no record names.
        whose: The processor, or the edge; a dash if the things are of all.
        times: The number of times that it is kept of.
        runs: The number of runs that it names and no report before it names; of `pushes` and of the log, the number of
            objects.
        size: The bytes of these.
        why: The processor that may ask for it, and the reason.
    """

    what: str
    whose: str
    times: int
    runs: int
    size: int
    why: str


def kept_in(store: Store, log: Log) -> list[KeptReport]:
    """Return all that a store keeps.

    Reports come by processor, those before their readers; then by edge; then of the log; then of what no record names.

    Raises:
        DataError: `[CORRUPT]` the log records no program.
    """
    graph, live = recorded_program(log.history.program).graph, log.history.live_records
    tally = _Tally(store)
    reports = []
    for name in graph.order:
        readers = " and ".join(edge.target for edge in graph.outputs[name])
        if determinants := live.determinants.get(name):
            source = not graph.inputs[name]
            why = f"{readers}: to read the same again" if source else f"{name}: to choose the same again"
            reports.append(KeptReport("positions" if source else "choices", name, len(determinants), 0, 0, why))
        if pushed := [each for folder in _OF_PUSHES for each in store.list(f"{folder}{name}/")]:
            why = f"{readers}; and to know keys again"
            reports.append(KeptReport("pushes", name, 0, len(pushed), tally.size_of(pushed), why))
        if states := live.states.get(name):
            why = f"{name}: to go back to" + (", the last of them surely" if len(states) > 1 else "")
            runs = tally.new_runs(state.payload for state in states.values())
            reports.append(KeptReport("state", name, len(states), *runs, why))
        if taken := live.taken.get(name):
            runs = tally.new_runs(payload for each in taken.values() for _, _, payload in each.messages)
            reports.append(KeptReport("inputs", name, len(taken), *runs, f"{name}: to make its state of"))
    for edge in graph.edges.values():
        if sent := live.sent.get(edge.name):
            runs = tally.new_runs(each.message for each in sent.values())
            reports.append(KeptReport("messages", edge.name, len(sent), *runs, _readers_of(graph, edge.target)))
    for what, why in _OF_THE_LOG.items():
        if objects := [*store.list(f"{what}/")]:
            reports.append(KeptReport(what, "-", 0, len(objects), tally.size_of(objects), why))
    if garbage := tally.unnamed_runs():
        why = "no processor: the next process that runs the dataflow deletes them"
        reports.append(KeptReport("nothing", "-", 0, len(garbage), tally.size_of(garbage), why))
    return reports


class _Tally:
    """The runs of a store that some report has named."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._named: set[str] = set()

    def new_runs(self, payloads: Iterable[Any]) -> tuple[int, int]:
        """Return the number and the bytes of the runs in payloads that are named for the first time."""
        sizes = {run.name: run.size for each in payloads for run in runs_of(each) if run.name not in self._named}
        self._named.update(sizes)
        return len(sizes), sum(sizes.values())

    def unnamed_runs(self) -> list[str]:
        return [name for name in self._store.list("runs/") if name not in self._named]

    def size_of(self, names: Iterable[str]) -> int:
        return sum(self._store.size(name) or 0 for name in names)


def _readers_of(graph: RecoveryGraph, receiver: str) -> str:
    """Return the processors that may ask for messages: the receiver, or those behind it if it keeps nothing."""
    behind = [edge.target for edge in graph.outputs[receiver]]
    return f"{receiver}, if it goes back" + (f", or {' or '.join(behind)} behind it" if behind else "")
