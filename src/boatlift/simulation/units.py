"""Deterministic simulation: the state machine and the log, without Spark, under crashes.

One seed gives the graph, the input, the schedule and the crashes, and always the same ones. The state machine, the
monitor, the log and its history are the real ones; processors are hash chains, sensitive to order, count and time; the
store is kept in memory and can lose power at every durable act. The oracle is one execution without failures of the
division of input that was recorded: the sinks must hold exactly what it gives.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from boatlift.dataflow import Dataflow, Lazy, Outcome, Plan, Stream, Unit, plan
from boatlift.runtime import events as ev
from boatlift.runtime import instructions as do
from boatlift.runtime.machine import Machine
from boatlift.simulation.disk import CrashError, Disk
from boatlift.storage.history import History
from boatlift.storage.log import Log
from boatlift.storage.records import Claim, Input, RunRef

__all__ = ["Simulation", "simulate"]


def mix(*parts: Any) -> int:
    """A 64-bit hash of anything, the same in every process."""
    import hashlib

    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "big")


@dataclass
class World:
    """What is outside and survives: the sources' items, and what the sinks hold."""

    items: dict[str, int]
    held: dict[str, list[int]]
    acknowledged: dict[str, int]
    divisions: dict[tuple[str, int], tuple[int, int]]


@dataclass
class _Process:
    """One life of the driver: all of it is lost in a crash."""

    log: Log
    machine: Machine
    cursors: dict[str, int]
    states: dict[str, int]
    waiting: list[do.Instruction]
    outputs: dict[tuple[str, int], int] = field(default_factory=dict)
    captured: dict[tuple[str, int], int] = field(default_factory=dict)
    unnamed: set[str] = field(default_factory=set)
    finished: bool = False


class Simulation:
    """One seed's world, from its first step to its last.

    Args:
        seed: Gives everything.
        crashes: How often the process dies at most.
    """

    def __init__(self, seed: int, crashes: int = 4) -> None:
        self.random = random.Random(seed)
        self.plan: Plan = plan(_random_flow(self.random))
        self.store = Disk(self._perhaps_die)
        self.crashes_left = crashes
        self.acts_to_live = self._lifetime()
        self.trace: list[str] = []
        self.world = World(
            {name: self.random.randint(5, 40) for name in self.plan.sources},
            {name: [] for name in self.plan.sinks},
            dict.fromkeys(self.plan.sources, 0),
            {},
        )
        self.deaths = 0

    def run(self) -> None:
        """Lives, dies and lives again until the input is exhausted, then holds the sinks against the oracle."""
        while True:
            try:
                self._live()
                break
            except CrashError:
                self.deaths += 1
                self.trace.append("crash")
        self._check()

    # -- one life -----------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        log = Log.open(self.store, self.plan.dataflow)
        log.claim(Claim("simulated", self.deaths, 0, {"plan": "simulated"}, {}))
        history = log.history
        for made in (made for inputs in history.inputs.values() for made in inputs.values()):
            self._note_division(made)
        held = {name: len(kept) - 1 for name, kept in self.world.held.items()}
        machine = Machine(self.plan, history, held, self._together, available_now=True)
        states = {
            unit: int.from_bytes(self.store.read(_run_name(history.checkpoints[unit][time].runs)), "big")
            for unit, time in machine.checkpoints().items()
        }
        process = _Process(log, machine, self._cursors(history), states, machine.start())
        for _ in range(20_000):
            if process.finished:
                return
            assert process.waiting, f"work is left and nothing to do; {machine.story}"
            order = self._pick(process)
            self.trace.append(repr(order))
            for event in self._carry_out(process, order):
                self.trace.append(repr(event))
                process.waiting += machine.handle(event)
        raise AssertionError("the simulation does not end")

    def _pick(self, process: _Process) -> do.Instruction:
        """Any order of execution is legal, but records are appended, and manifests written, in the order given."""
        in_order = (do.Append, do.Manifest, do.Finish)
        choices = [i for i, order in enumerate(process.waiting) if not isinstance(order, in_order)]
        first = next((i for i, order in enumerate(process.waiting) if isinstance(order, in_order)), None)
        if (first is not None and not isinstance(process.waiting[first], do.Finish)) or (
            first is not None and not choices
        ):
            choices.append(first)
        return process.waiting.pop(self.random.choice(choices))

    def _carry_out(self, process: _Process, order: do.Instruction) -> list[ev.Event]:
        match order:
            case do.Append(records):
                process.log.append(records)
                for record in records:
                    if isinstance(record, Input):
                        self._note_division(record)
                return [ev.Durable(records)]
            case do.Poll(source, time):
                start = process.cursors[source]
                if start >= self.world.items[source]:
                    return [ev.Nothing(source)]
                end = min(self.world.items[source], start + self.random.randint(1, 4))
                process.cursors[source] = end
                return [ev.Proposed(source, time, {"start": start, "end": end}, 0, self.random.getrandbits(32))]
            case do.Run(unit, steps):
                steps = steps[: self.random.randint(1, len(steps))]
                staged = {sink.name: () for sink in self.plan.units[unit].sinks}
                outputs = [self._execute(process, self.plan.units[unit], step) for step in steps]
                results = tuple(ev.StepResult(1, f"{output:016x}", 1, staged) for output in outputs)
                return [ev.Ran(unit, steps[0].time, results)]
            case do.Prepare():
                """Nothing here takes time that could be saved."""
            case do.Commit(sink, time, _, digest):
                return [ev.Placed(sink, time, self._commit(sink, time, int(digest, 16)))]
            case do.Save(unit, time):
                return [self._save(process, unit, time)]
            case do.Manifest():
                self._manifest(process)
                return [ev.Manifested()]
            case do.Acknowledge(source, _, position):
                self.world.acknowledged[source] = max(self.world.acknowledged[source], position["end"])
            case do.Free(unit, time):
                del process.outputs[unit, time]
            case do.Finish():
                process.finished = True
        return []

    def _note_division(self, made: Input) -> None:
        """What is durable is the division: the oracle executes exactly it, and it may never change."""
        division = (made.position["start"], made.position["end"])
        assert self.world.divisions.setdefault((made.source, made.time), division) == division, f"{made} has changed"

    def _together(self, _unit: str, positions: Sequence[Any]) -> int:
        return self.random.randint(1, len(positions))

    def _execute(self, process: _Process, unit: Unit, step: do.Step) -> int:
        source, time = self.plan.source_of(unit.name), step.time
        division = (step.position["start"], step.position["end"])
        assert division[0] >= self.world.acknowledged[source], f"{source} is read again where it was acknowledged"
        rows = mix(source, division) if unit.root in self.plan.sources else process.outputs[unit.root, time]
        output = _step(unit, time, rows, process.states)
        process.outputs[unit.name, time] = output
        process.captured[unit.name, time] = process.states.get(unit.name, 0)
        return output

    def _commit(self, sink: str, time: int, digest: int) -> Outcome:
        held = self.world.held[sink]
        assert time <= len(held), f"{sink} is handed {time} while it holds {len(held)} steps"
        self._perhaps_die()
        if time < len(held):
            assert held[time] == digest, f"{sink} is handed another {time} than it holds"
            return Outcome.DROPPED
        held.append(digest)
        self._perhaps_die()
        return Outcome.APPENDED

    def _save(self, process: _Process, unit: str, time: int) -> ev.Event:
        name = f"runs/{self.deaths:04}-{unit}-{time:06}"
        process.unnamed.add(name)
        self.store.create(name, process.captured[unit, time].to_bytes(8, "big"))
        run = RunRef(name, 0, time, 1, 0, 1, 8, "")
        return ev.Saved(unit, time, (run,))

    def _manifest(self, process: _Process) -> None:
        process.log.checkpoint(process.log.history.snapshot(_advance))
        process.log.truncate()
        live = process.log.history.live_runs()
        for name in list(self.store.list("runs/")):
            if name not in live and name not in process.unnamed:
                self.store.delete(name)
        process.unnamed -= live

    def _cursors(self, history: History) -> dict[str, int]:
        cursors = {}
        for source in self.plan.sources:
            cursor = history.cursors.get(source, (-1, {"taken": 0}))[1]
            for _, made in sorted(history.inputs.get(source, {}).items()):
                cursor = _advance(source, cursor, made.position)
            cursors[source] = cursor["taken"]
        return cursors

    # -- faults -------------------------------------------------------------------------------------------------------

    def _lifetime(self) -> int:
        return self.random.choice((1, 5, 20, 80)) + self.random.randint(0, 40)

    def _perhaps_die(self) -> None:
        self.acts_to_live -= 1
        if self.crashes_left and self.acts_to_live <= 0:
            self.crashes_left -= 1
            self.acts_to_live = self._lifetime()
            raise CrashError

    # -- the oracle ---------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        for sink, kept in self.world.held.items():
            expected = self._without_failures(self.plan.unit_of_sink(sink).name)
            assert kept == expected, f"{sink} holds {kept}, one failure-free execution gives {expected}"

    def _without_failures(self, unit: str) -> list[int]:
        """Executes a unit over the recorded division, which must cover all items without gap or overlap."""
        source = self.plan.source_of(unit)
        parts = [division for (name, _), division in sorted(self.world.divisions.items()) if name == source]
        assert [0, *(end for _, end in parts)] == [*(start for start, _ in parts), self.world.items[source]]
        path = [self.plan.units[unit]]
        while path[0].root not in self.plan.sources:
            path.insert(0, self.plan.units[path[0].root])
        states: dict[str, int] = {}
        outputs = []
        for time, division in enumerate(parts):
            rows = mix(source, division)
            for step in path:
                rows = _step(step, time, rows, states)
            outputs.append(rows)
        return outputs


def _step(unit: Unit, time: int, rows: int, states: dict[str, int]) -> int:
    """A hash chain: the output depends on every input before it, on their order and on the times."""
    for transform in unit.chain:
        rows = mix(transform.name, rows)
    if unit.aggregate is None:
        return mix(unit.name, rows)
    states[unit.name] = mix(unit.name, time, rows, states.get(unit.name, 0))
    return states[unit.name]


def _advance(_source: str, _cursor: Any, position: Any) -> dict[str, Any]:
    return {"taken": position["end"]}


def _run_name(runs: tuple[RunRef, ...]) -> str:
    (run,) = runs
    return run.name


def _random_flow(chance: random.Random) -> Dataflow:
    flow = Dataflow("simulated")
    anything: Any = object()
    for s in range(chance.randint(1, 2)):
        streams: list[tuple[Stream, bool]] = [(flow.source(f"source{s}", anything), False)]
        for n in range(chance.randint(1, 4)):
            stream, changes = chance.choice(streams)
            name = f"p{s}{n}"
            if changes or chance.random() < 0.5:
                streams.append((stream.transform(name, anything), changes))
            else:
                policy = Lazy(every=chance.choice((1, 2, 3, 5, 100)))
                streams.append((stream.group_by("key").agg(name, anything, policy=policy), True))
        read = {p.upstream for p in flow.processors.values() if hasattr(p, "upstream")}
        for stream, _ in streams:
            if stream.name not in read or chance.random() < 0.3:
                stream.sink(f"{stream.name}-sink", anything)
    return flow


def simulate(seed: int) -> list[str]:
    """Runs one seed and gives its trace; an `AssertionError` or an error of ours is a failure."""
    simulation = Simulation(seed)
    simulation.run()
    return simulation.trace
