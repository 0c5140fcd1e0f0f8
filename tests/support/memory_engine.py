"""An engine in memory: hash chains instead of Spark, so that a host runs in milliseconds and the same way every time.

A step's result depends on the rows it takes, on the recorded clock and seed, and for keyed state on every step before
it: a step that is lost, doubled, out of order or replayed with other determinants gives other results from there on.
State and staged rows are real files in the store's scratch.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

import boatlift as bl
from boatlift.dataflow import Committed, Json, Outcome, Plan, Staged, plan
from boatlift.errors import DivergedError, FencedError
from boatlift.runtime.events import StepResult
from boatlift.runtime.instructions import Commit, Run, Step
from boatlift.storage.records import Checkpoint, RunRef
from boatlift.storage.store import Store
from support.facts import run_of

ROWS_A_STEP = 3

PROGRAM: dict[str, Any] = {
    "source rows": {},
    "processor clean": {"reads": "rows", "keys": []},
    "processor sums": {"reads": "clean", "keys": ["k"]},
    "sink all": {"reads": "clean"},
    "sink totals": {"reads": "sums"},
}
"""The identity of `make_plan`'s dataflow, in the form that the Spark engine gives it."""


def make_plan(*, every: int = 2) -> Plan:
    """A transform with a sink of its own, and keyed state behind it."""
    opaque: Any = object()
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", opaque).transform("clean", opaque)
    clean.sink("all", opaque)
    clean.group_by("k").agg("sums", opaque, policy=bl.Lazy(every=every)).sink("totals", opaque)
    return plan(flow)


def mix(*parts: object) -> str:
    """A digest of anything, the same in every process."""
    return xxhash.xxh3_64_hexdigest(repr(parts).encode())


@dataclass
class World:
    """What is outside and survives a crash: the input, and what the sinks hold.

    Attributes:
        rows: How many rows the source has.
        held: Sink to its steps, each with the determinants that made it and the digest.
        owners: Sink to the newest token that opened it.
    """

    rows: int = 20
    held: dict[str, list[Json]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self) -> None:
        """Holds the sinks against an execution without failures of the determinants they were given."""
        assert self.held["all"], "nothing was committed"
        state = ""
        ends = [0]
        for time, (clean, total) in enumerate(zip(self.held["all"], self.held["totals"], strict=True)):
            made = {key: clean[key] for key in ("start", "end", "clock", "seed")}
            assert clean["start"] == ends[-1], f"step {time} loses rows or takes them twice"
            ends.append(clean["end"])
            digest = step_of("clean", made)
            state = mix(time, digest, state)
            assert clean == {**made, "digest": digest}
            assert total == {**made, "digest": state}
        assert ends[-1] == self.rows


def step_of(unit: str, made: Mapping[str, Any]) -> str:
    """What a stateless unit makes of its determinants."""
    return mix(unit, sorted(made.items()))


class MemoryEngine:
    """An `Engine` over a `World`; tests derive from it what waits or fails.

    Attributes:
        calls: Every step that ran and every run of state that was restored, in order.
    """

    def __init__(self, world: World, *, every: int = 2) -> None:
        self.plan = make_plan(every=every)
        self.world = world
        self.calls: list[tuple[str, str, int]] = []
        self.cancelled = False
        self._states: dict[str, str] = {"sums": ""}
        self._outputs: dict[tuple[str, int], str] = {}
        self._runs: dict[str, tuple[tuple[RunRef, Path | None], ...]] = {"sums": ()}

    # -- beginning and end --------------------------------------------------------------------------------------------

    def program(self) -> dict[str, Any]:
        return PROGRAM

    def environment(self) -> dict[str, Any]:
        return {"python": "3"}

    def start(self, store: Store, scratch: Path, store_id: str, token: int) -> None:
        self._store, self._scratch, self._token = store, scratch, token

    def open_sink(self, sink: str) -> Committed | None:
        with self.world.lock:
            if self.world.owners.get(sink, 0) > self._token:
                raise FencedError("FENCED", f"{sink} has a newer owner: stop this one")
            self.world.owners[sink] = self._token
            held = self.world.held.setdefault(sink, [])
            return Committed(len(held) - 1, 1, held[-1]["digest"]) if held else None

    def restore(self, checkpoint: Checkpoint) -> None:
        (run,) = checkpoint.runs
        content = self._store.read(run.name)
        assert run == run_of(content, run.name), f"{run.name} has other bytes than its checkpoint says"
        self._states[checkpoint.processor] = content.decode()
        self._runs[checkpoint.processor] = ((run, None),)
        self.calls.append(("restore", checkpoint.processor, checkpoint.time))

    def hasten(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        pass

    # -- sources ------------------------------------------------------------------------------------------------------

    def first_cursor(self, source: str) -> Json:
        return {"taken": 0}

    def poll(self, source: str, cursor: Json) -> Json | None:
        start = cursor["taken"]
        return {"start": start, "end": min(start + ROWS_A_STEP, self.world.rows)} if start < self.world.rows else None

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        assert cursor["taken"] == position["start"]
        return {"taken": position["end"]}

    def acknowledge(self, source: str, position: Json) -> None:
        pass

    def together(self, unit: str, positions: Sequence[Json]) -> int:
        return 1 + (positions[0]["start"] + len(unit)) % len(positions)

    def prepare(self, order: Run) -> None:
        self.calls.append(("prepare", order.unit, order.time))

    # -- steps --------------------------------------------------------------------------------------------------------

    def run(self, order: Run) -> tuple[StepResult, ...]:
        return tuple(self._step(order.unit, step) for step in order.steps)

    def _step(self, unit: str, step: Step) -> StepResult:
        self.calls.append(("run", unit, step.time))
        made = {**step.position, "clock": step.clock, "seed": step.seed}
        if unit == "clean":
            digest = step_of("clean", made)
        else:
            digest = self._states["sums"] = mix(step.time, self._outputs["clean", step.time], self._states["sums"])
            self._keep(unit, step.time, digest)
        self._outputs[unit, step.time] = digest
        staged = {sink.name: (self._stage(sink.name, step.time, made),) for sink in self.plan.units[unit].sinks}
        return StepResult(1, digest, 1, staged)

    def _stage(self, sink: str, time: int, made: Json) -> Staged:
        place = self._scratch / f"{sink}-{time}"
        place.write_text(json.dumps(made))
        return Staged(0, 1, str(place))

    def commit(self, order: Commit) -> Outcome:
        (receipt,) = order.staged
        step = {**json.loads(Path(receipt.place).read_text()), "digest": order.digest}
        with self.world.lock:
            if self.world.owners[order.sink] > self._token:
                raise FencedError("FENCED", f"{order.sink} has a newer owner: stop this one")
            held = self.world.held[order.sink]
            assert order.time <= len(held), f"{order.sink} is handed {order.time} while it holds {len(held)} steps"
            if order.time == len(held):
                held.append(step)
                return Outcome.APPENDED
            if held[order.time] != step:
                raise DivergedError("DIVERGED", f"{order.sink} holds another step {order.time}")
            return Outcome.DROPPED

    def free(self, unit: str, time: int) -> None:
        for sink in self.plan.units[unit].sinks:
            (self._scratch / f"{sink.name}-{time}").unlink()

    # -- state: one run that holds all of it, a new one each step ------------------------------------------------------

    def _keep(self, unit: str, time: int, state: str) -> None:
        name = f"{self._token:012d}-{unit}-{time:06d}"
        path = self._scratch / name
        path.write_text(state)
        self._runs[unit] = ((run_of(state.encode(), f"runs/{name}"), path),)

    def capture(self, unit: str) -> tuple[tuple[RunRef, Path | None], ...]:
        return self._runs[unit]

    def saved(self, unit: str, runs: tuple[RunRef, ...]) -> None:
        names = {run.name for run in runs}
        self._runs[unit] = tuple((run, None if run.name in names else path) for run, path in self._runs[unit])
