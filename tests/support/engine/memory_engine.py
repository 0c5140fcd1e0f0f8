"""An engine in memory: hash chains instead of Spark, so that a host runs in milliseconds and the same way every time.

A step's result depends on the rows it takes, on the recorded clock and seed, and for keyed state on every step before
it: a step that is lost, doubled, out of order or replayed with other determinants gives other results from there on.
State and staged rows are real files in the store's scratch.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import xxhash

import boatlift as bl
from boatlift.dataflow import Committed, Delivery, Json, Outcome, Plan, Reading, plan
from boatlift.dataflow.identity import identity_of
from boatlift.errors import DivergedError, FencedError
from boatlift.runtime.engine import Activity, Beginning, FromPast, Past, Skips, StepResult
from boatlift.runtime.graph import division_of
from boatlift.runtime.machine.instructions import Execute, Prepare, StepInput
from boatlift.spark.jobs.jobs import ScratchFiles
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import UNITS, RunRef
from support.any_connector import ANY
from support.worlds.facts import payload_with, run_of

ROWS_A_STEP = 3


def make_plan(*, every: int = 2) -> Plan:
    """A transform with a sink of its own, and keyed state behind it."""
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", ANY)
    clean.sink("all", ANY)
    clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=every)).sink("totals", ANY)
    return plan(flow)


def identity_in_memory(planned: Plan) -> dict[str, Any]:
    """Return a program's identity as an engine without schemas has it."""
    nothing = dict.fromkeys(planned.processors, "")
    return identity_of(planned, nothing, nothing, {})


def recorded(planned: Plan) -> dict[str, Any]:
    """Return a program as a claim records it."""
    return {**identity_in_memory(planned), UNITS: division_of(planned)}


IDENTITY = identity_in_memory(make_plan())
"""The identity of `make_plan`'s dataflow."""

PROGRAM = recorded(make_plan())
"""What a claim records of `make_plan`'s dataflow."""


def mix(*parts: object) -> str:
    """A digest of anything, the same in every process."""
    return xxhash.xxh3_64_hexdigest(repr(parts).encode())


@dataclass
class World:
    """What is outside and survives a crash: the input, and what the sinks hold.

    Attributes:
        rows: How many rows the source has.
        held: Sink to its steps, each with the determinants that made it and the digest.
        delivered: Sink without an account to its deliveries, each with the number of the step.
        owners: Sink to the newest token that opened it.
        together: The sinks of each act that was to show a step in several.
    """

    rows: int = 20
    held: dict[str, list[Json]] = field(default_factory=dict)
    delivered: dict[str, list[tuple[int, Json]]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    together: list[tuple[str, ...]] = field(default_factory=list)
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
        calls: Every step that ran, in order, and whatever it was told to prepare.
    """

    def __init__(self, world: World, *, every: int = 2) -> None:
        self.plan = make_plan(every=every)
        self.world = world
        self.calls: list[tuple[str, str, int]] = []
        self.cancelled = False

    # -- beginning and end --------------------------------------------------------------------------------------------

    def program(self) -> dict[str, Any]:
        return IDENTITY

    def environment(self) -> dict[str, Any]:
        return {"python": "3"}

    def not_at_once(self, unit: str) -> str:
        return f"{unit} is a hash chain of its steps"

    def not_again(self, unit: str) -> str:
        return self.not_at_once(unit)

    def by_place(self, _unit: str) -> str:
        return ""

    def gives_rows(self, _unit: str, _program: Mapping[str, Any]) -> bool:
        return False

    def from_past(self, past: Past) -> FromPast:
        raise AssertionError(f"no unit of this engine has a past to be computed: {past}")

    def listening(self) -> dict[str, str]:
        return {}

    def reserve(self) -> None:
        pass

    def redirect(self, owner: Mapping[str, str] | None) -> None:
        """No source of this engine has clients."""

    def advertised(self) -> dict[str, str]:
        return {}

    def announce(self, told: Callable[[str], None]) -> tuple[str, ...]:
        """No source of this engine announces input."""
        return ()

    def awaited(self) -> bool:
        return False

    def start(self, beginning: Beginning) -> None:
        self._store, self._scratch, self._token = beginning.store, beginning.scratch, beginning.token
        self._files = ScratchFiles(beginning.scratch, beginning.files)

    def skip(self, skips: Skips) -> None:
        self.skipped = skips.steps

    def open_sink(self, sink: str, _name: str, _store: str, token: int) -> Committed | None:
        with self.world.lock:
            if self.world.owners.get(sink, 0) > token:
                raise FencedError("FENCED", f"{sink} has a newer owner: stop this one")
            self.world.owners[sink] = token
            if not self._keeps_account(sink):
                return None
            held = self.world.held.setdefault(sink, [])
            return Committed(len(held) - 1, 1, held[-1]["digest"]) if held else None

    def _keeps_account(self, sink: str) -> bool:
        return self.plan.sinks[sink].sink.delivery is Delivery.EXACTLY_ONCE

    def activity(self, processor: str) -> Activity:
        """No task of this engine is running: a step is a call in this process."""
        return Activity("", "")

    def cancel_steps(self, processor: str) -> None:
        pass

    def hasten(self) -> None:
        pass

    def cancel(self) -> None:
        self.cancelled = True

    def close(self) -> None:
        pass

    # -- sources ------------------------------------------------------------------------------------------------------

    def first_cursor(self, source: str) -> Json:
        return {"taken": 0}

    def prove(self, source: str, messages: Sequence[tuple[tuple[str, str, int], Json]]) -> None:
        pass

    def poll(self, source: str, cursor: Json) -> Json | None:
        start = cursor["taken"]
        return {"start": start, "end": min(start + ROWS_A_STEP, self.world.rows)} if start < self.world.rows else None

    def gathers(self, source: str, position: Json) -> bool:
        return False

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        assert cursor["taken"] == position["start"]
        return {"taken": position["end"]}

    def read(self) -> list[tuple[str, int, Reading]]:
        return []

    def acknowledge(self, source: str, time: int, position: Json) -> None:
        pass

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        return 1 + (takes[0].time + len(unit)) % len(takes)

    def prepare(self, order: Prepare) -> None:
        self.calls.append(("prepare", order.processor, order.time))

    # -- steps --------------------------------------------------------------------------------------------------------

    def run(self, order: Execute) -> tuple[StepResult, ...]:
        results: list[StepResult] = []
        for take in order.takes:
            results.append(self._step(order.processor, take, results[-1].state if results else order.state))
        return tuple(results)

    def _step(self, unit: str, take: StepInput, state: Any) -> StepResult:
        self.calls.append(("run", unit, take.time))
        (message,) = take.inputs
        if unit == "clean":
            given = message.payload
            made = {**given["position"], "clock": given["clock"], "seed": given["seed"]}
            digest = step_of("clean", made)
        else:
            made = self._read(message.payload)
            digest = mix(take.time, message.payload["digest"], "" if state is None else self._read(state))
            state = payload_with([self._write(unit, take.time, digest, modulus=1)])
        parts = self.plan.units[unit]
        receivers = [sink.name for sink in parts.sinks] + [u.name for u in self.plan.units.values() if unit in u.reads]
        sent = {
            f"{unit}->{name}": payload_with([self._write(unit, take.time, made)], rows=1, digest=digest)
            for name in receivers
        }
        return StepResult(1, digest, sent, state, 1)

    def commit_together(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        """Hand over all steps, or none: one that a sink refuses takes the others back."""
        before = {sink: list(self.world.held[sink]) for sink, _, _ in steps}
        self.world.together.append(tuple(sink for sink, _, _ in steps))
        try:
            for step in steps:
                self.commit(*step)
        except BaseException:
            with self.world.lock:
                self.world.held.update(before)
            raise

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        step = {**self._read(payload), "digest": payload["digest"]}
        if not self._keeps_account(sink):
            self.world.delivered.setdefault(sink, []).append((time, step))
            return Outcome.APPENDED
        with self.world.lock:
            if self.world.owners[sink] > self._token:
                raise FencedError("FENCED", f"{sink} has a newer owner: stop this one")
            held = self.world.held[sink]
            assert time <= len(held), f"{sink} is handed {time} while it holds {len(held)} steps"
            if time == len(held):
                held.append(step)
                return Outcome.APPENDED
            if held[time] != step:
                raise DivergedError("DIVERGED", f"{sink} holds another step {time}")
            return Outcome.DROPPED

    # -- runs: one file each, of JSON
    # -----------------------------------------------------------------------------------

    def _write(self, unit: str, time: int, value: Any, *, modulus: int = 0) -> RunRef:
        name = f"{self._token:012d}-{unit}-{time:06d}-{uuid.uuid4().hex}"
        content = json.dumps(value).encode()
        (self._scratch / name).write_bytes(content)
        run = msgspec.structs.replace(run_of(content, f"runs/{name}"), modulus=modulus)
        self._files.made([run.name])
        return run

    def _read(self, payload: Any) -> Any:
        (run,) = runs_of(payload)
        read = self.path(run).read_bytes()
        assert run_of(read, run.name).digest == run.digest, f"{run.name} has other bytes than is recorded"
        return json.loads(read)

    def check(self) -> None:
        pass

    def bytes_in_memory(self) -> int:
        return 0

    def resident_bytes(self) -> Mapping[str, int]:
        return {}

    def page(self) -> str:
        return ""

    def path(self, run: RunRef) -> Path:
        here = self._scratch / Path(run.name).name
        kept = self._store.local_path(run.name)
        assert kept is not None
        return here if here.exists() else kept

    def kept(self, unit: str, runs: Iterable[RunRef]) -> None:
        pass

    def delivered(self, results: Iterable[StepResult]) -> None:
        self._files.delivered(run.name for result in results for run in result.runs())

    def holds(self) -> AbstractSet[str]:
        return self._files.fresh

    def discard(self, live: Collection[str]) -> None:
        self._files.discard(live)
