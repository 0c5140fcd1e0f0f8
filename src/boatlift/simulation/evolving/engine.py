"""The engine of a simulated process: it executes steps, and computes pasts against what simulated sinks hold."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import xxhash

from boatlift.dataflow import Committed, Delivery, Json, Outcome
from boatlift.dataflow.units import OperatorTree
from boatlift.errors import FencedError, InvalidError
from boatlift.runtime.engine import FromPast, Past
from boatlift.runtime.graph import edge_name, position_of
from boatlift.runtime.machine.instructions import StepInput
from boatlift.simulation.disk import DATAFLOW
from boatlift.simulation.evolving.operators import HashingOperator, RowWeights, Summed, minus, mixed, total
from boatlift.simulation.evolving.outside import Outside, in_steps
from boatlift.simulation.evolving.programs import EvolvingProgram
from boatlift.simulation.mounts import Mount
from boatlift.storage.log_reader import LogReader
from boatlift.storage.records.payloads import RunsPayload, runs_of, to_json
from boatlift.storage.records.records import RunRef


class ProcessStore(Mount):
    """A store as one process sees it, with the process's files.

    Attributes:
        files: The name of each run in scratch to its content; gone with the process.
    """

    files: dict[str, bytes]

    def create(self, name: str, content: bytes | Path) -> None:
        super().create(name, self.files[content.name] if isinstance(content, Path) else content)


class EvolvingEngine:
    """An engine of one owner.

    Args:
        program: Of the process.

    Attributes:
        token: Of the owner.
        for_sinks: The owner's token for sinks.
    """

    def __init__(self, program: EvolvingProgram, outside: Outside, store: ProcessStore) -> None:
        self._program, self._outside, self._store = program, outside, store
        self.plan, self.token = replace(program, take_back=self._take_back, newest_owner=outside.newest_owner).plan, 0
        self.for_sinks = 0
        self._made = 0
        store.files = {}

    def program(self) -> dict[str, Any]:
        return self._program.identity

    def environment(self) -> dict[str, Any]:
        return {}

    def not_at_once(self, unit: str) -> str:
        """Return why a unit cannot be executed over its whole past in one step; empty if it can."""
        whys = (f"{each.name} {each.of_steps}" for each in self.plan.units[unit].operators if each.of_steps)
        return next(whys, "")

    def gives_rows(self, unit: str, program: Mapping[str, Any]) -> bool:
        """Return whether a state that a program has made of a unit has all rows that the unit gave: a sum's does."""
        entry = f"processor {unit}"
        before, now = program.get(entry, {}), self._program.identity.get(entry, {})
        same = all(before.get(key) == now[key] for key in ("kind", "plan", "layout") if key in now)
        return self._sum_of(unit) is not None and same

    def _sum_of(self, unit: str) -> Summed | None:
        made = self.plan.processors.get(unit)
        return made if isinstance(made, Summed) else None

    def _given(self, unit: str, state: Any) -> RowWeights:
        """Return all rows until a recorded state; none until None."""
        operator = self._sum_of(unit)
        assert operator is not None, f"the state of {unit} does not give its rows"
        return {} if state is None else operator.given(self.read(state))

    def not_again(self, _unit: str) -> str:
        """Return an empty text: all steps can be executed again."""
        return ""

    def by_place(self, _unit: str) -> str:
        """Return an empty text: no row depends on its place."""
        return ""

    # -- sources

    def first_cursor(self, source: str) -> Json:
        return {"taken": 0, "source": self._label(source)}

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        assert cursor["taken"] == position["start"], f"{source} gives {position} after {cursor}"
        return {"taken": position["end"], "source": self._label(source)}

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        """Do nothing: a source keeps its rows, since a transition reads them all again."""

    # -- sinks

    def open_sink(self, sink: str, name: str, _store: str, token: int) -> Committed | None:
        """Take a sink over, and return its last step; None if it holds none, or keeps no ledger."""
        self.for_sinks = token
        assert name == self._label(sink), f"the place of {sink} is {self._label(sink)}, and not {name}"
        held = self._outside.open(name, token)
        return None if held < 0 or not self._keeps_ledger(sink) else Committed(held, 0, "")

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        """Hand a step to its sink."""
        if self._keeps_ledger(sink):
            self._outside.commit(self._label(sink), self.for_sinks, time, self.read(payload))
        else:
            self._outside.deliver(self._label(sink), self.for_sinks, time, self.read(payload))
        return Outcome.APPENDED

    def held(self, sink: str) -> RowWeights:
        """Return all rows that a sink holds."""
        return self._outside.places[self._label(sink)].content()

    def _take_back(self, sink: str, step: int) -> None:
        self._outside.take_back(sink, self.for_sinks, step)

    def _label(self, name: str) -> str:
        return self._program.parts[name].label

    def _keeps_ledger(self, sink: str) -> bool:
        return self.plan.sinks[sink].sink.delivery is Delivery.EXACTLY_ONCE

    # -- steps

    def from_past(self, past: Past) -> FromPast:
        """Execute units over the whole past, at once or in steps, and compare the result with what sinks hold."""
        steps: dict[str, list[RowWeights]] = {}
        for name, cursor in past.cursors.items():
            rows, end = self._outside.rows[self._label(name)], cursor["taken"]
            steps[name] = in_steps(rows, end) if past.stepwise else [dict.fromkeys(rows[:end], 1)]
        states: dict[str, Any] = {}
        for name, time in past.time.items():
            if name in past.kept:
                steps[name] = [self._given(name, past.kept[name])]
                continue
            unit, state = self.plan.units[name], RowWeights()
            inputs = [steps.get(read, []) for read in unit.reads]
            assert max(map(len, inputs)) <= time + 1, f"the past of {name} has more steps than were taken"
            steps[name] = []
            for given in zip_longest(*inputs, fillvalue=RowWeights()):
                out, state = self._tree(unit.body, dict(zip(unit.reads, given, strict=True)), state)
                steps[name].append(out)
            if unit.keeps_state:
                states[name] = self._write(name, time, state)
        differences = {}
        for sink in past.sinks:
            above = self.plan.unit_of_sink(sink).name
            made = total(*steps[above]) if above in past.time else {}
            if sink in past.known and not past.sinks[sink] and not past.stepwise and self._sum_of(above) is not None:
                lacks = total(made, minus(self._given(above, past.known[sink])))
                differences[sink] = self._write(sink, past.time.get(above, 0), lacks)
                continue
            differences[sink] = self._write(sink, past.time.get(above, 0), self._less(sink, made, past))
        return FromPast(states, differences)

    def _less(self, sink: str, rows: RowWeights, past: Past) -> RowWeights:
        """Return what a sink lacks of the rows of its past, or the opposite of its newest steps."""
        if sink in past.undone:
            since = past.undone[sink]
            return {} if since is None else minus(total(*self._outside.steps(self._label(sink))[since + 1 :]))
        difference = total(rows, minus(self.held(sink)))
        if past.sinks[sink]:
            return {row: weight for row, weight in difference.items() if weight > 0}
        if self._program.grows(self._program.parts[sink].reads[0]) and any(w < 0 for w in difference.values()):
            raise InvalidError("CANNOT_TAKE_BACK", f"rows would go from {sink}: choose new_rows")
        return difference

    def step(self, unit: str, take: StepInput, state: Any) -> tuple[dict[str, Any], Any, str]:
        """Execute one step: the messages by edge, the state after it, and the digest of its rows."""
        about = self.plan.units[unit]
        given = {read: RowWeights() for read in about.reads}
        for message in take.inputs:
            sender = message.edge.partition("->")[0]
            if sender not in self.plan.sources:
                given[sender] = self.read(message.payload)
            elif position := position_of(message.payload):
                given[sender] = self._rows_of(sender, position["start"], position["end"])
        rows, after = self._tree(about.body, given, {} if state is None else self.read(state))
        receivers = [each.name for each in about.sinks]
        receivers += [each.name for each in self.plan.units.values() if unit in each.reads]
        sent = {edge_name(unit, name): self._write(unit, take.time, rows) for name in receivers}
        kept = self._write(unit, take.time, after) if about.keeps_state else None
        return sent, kept, _digest(rows)

    def read(self, payload: Any) -> RowWeights:
        """Return the rows of a message or a state.

        Raises:
            AssertionError: its run is gone.
            FencedError: its run is gone, and a newer owner has come, which may have deleted it.
        """
        rows: RowWeights = {}
        for run in runs_of(payload):
            content = self._store.files.get(Path(run.name).name)
            if content is None:
                if self._store.size(run.name) is None:
                    log = LogReader(self._store, DATAFLOW)
                    log.load()
                    assert log.owner > self.token, f"{run.name} is needed, and is gone"
                    raise FencedError("FENCED", f"{run.name} is gone, and {log.owner} owns the dataflow")
                content = self._store.read(run.name)
            rows = total(rows, {(key, value): weight for key, value, weight in json.loads(content)})
        return rows

    def bytes_in_memory(self) -> int:
        return 0

    def resident_bytes(self) -> Mapping[str, int]:
        return {}

    def page(self) -> str:
        return ""

    def path(self, run: RunRef) -> Path:
        return Path(run.name).relative_to("runs")

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        """Do nothing: files stay where they are."""

    def discard(self, live: Iterable[str]) -> None:
        """Drop the files of all runs that are not live."""
        names = {Path(name).name for name in live}
        self._store.files = {name: content for name, content in self._store.files.items() if name in names}

    def _tree(
        self, tree: OperatorTree | str, given: Mapping[str, RowWeights], state: RowWeights
    ) -> tuple[RowWeights, RowWeights]:
        """Execute the operators of a unit, of which one may keep a state."""
        if isinstance(tree, str):
            return given[tree], state
        operator = tree.operator
        assert isinstance(operator, HashingOperator)
        inputs, below = [], state
        for each in tree.inputs:
            rows, below = self._tree(each, given, below)
            inputs.append(rows)
        after, rows = operator.step(below if operator.keeps_state else {}, inputs)
        return rows, after if operator.keeps_state else below

    def _rows_of(self, source: str, start: int, end: int) -> RowWeights:
        return dict.fromkeys(self._outside.rows[self._label(source)][start:end], 1)

    def _write(self, name: str, time: int, rows: RowWeights) -> dict[str, Any]:
        self._made += 1
        run = f"{self.token:012}-{name}-{time:06}-{self._made:06}".replace(":", "_")
        content = json.dumps([[*row, weight] for row, weight in sorted(rows.items())]).encode()
        self._store.files[run] = content
        made = RunRef(f"runs/{run}", time, time, 1, 0, len(rows), len(content), xxhash.xxh3_128_hexdigest(content))
        return to_json(RunsPayload((made,), len(rows), _digest(rows)))


def _digest(rows: RowWeights) -> str:
    return f"{mixed(sorted(rows.items())):016x}"
