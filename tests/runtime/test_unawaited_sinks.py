"""A sink whose receiver recognises rows: it waits for no log, and after a crash rows come again in other steps."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Outcome, Plan, plan
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.runtime.graph import program_of
from boatlift.runtime.host import log as log_calls
from boatlift.runtime.host.consent import CARRIED, transition_to
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.sinks import SinkCommits, unawaited_of
from boatlift.runtime.machine import StateMachine
from boatlift.runtime.machine.events import SinkPosition
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from support.any_connector import ANY, NO_ACCOUNT
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine import memory_engine
from support.engine.hosts import Background, check_store, open_store, run
from support.engine.memory_engine import MemoryEngine, World, identity_in_memory
from support.engine.noting import SlowStore
from support.waiting import until
from support.worlds.facts import Unsynced

BEGUN = 2
"""A claim, and the object with which its owner begins."""


def able(connector: Any, **abilities: Any) -> Any:
    both = {**vars(connector.capabilities), **abilities}
    return SimpleNamespace(**{**vars(connector), "capabilities": SimpleNamespace(**both)})


AGAIN = able(ANY, rescannable=object())
"""A source that can be read again."""

RECOGNISES = able(NO_ACCOUNT, identified_by=("k",))


def planned(by: tuple[str, ...] = ("k",)) -> Plan:
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", AGAIN).transform("clean", ANY)
    clean.sink("desk", able(NO_ACCOUNT, identified_by=by))
    clean.sink("all", ANY)
    clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2)).sink("totals", ANY)
    return plan(flow)


class Posting(MemoryEngine):
    """An engine over a flow with a sink whose receiver recognises rows.

    Attributes:
        fails: The steps at which it does not answer, once each; what the log knows then is in `known`.
    """

    def __init__(
        self, world: World, *, fate: Fate | None = None, fails: tuple[int, ...] = (), root: Path | None = None
    ) -> None:
        super().__init__(world)
        self.plan, self._fate, self._root = planned(), fate or Fate(None, after=False), root
        self.fails, self.known = set(fails), list[int]()

    def program(self) -> dict[str, Any]:
        return identity_in_memory(self.plan)

    def not_again(self, unit: str) -> str:
        return "" if unit == "clean" else super().not_again(unit)

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        outcome = self._fate.call(lambda: super(Posting, self).commit(sink, time, payload))
        if sink == "desk" and self.known is not None and self._root is not None:
            self.known.append(last_recorded(self._root))
        if sink == "desk" and time in self.fails:
            self.fails.discard(time)
            raise UnavailableError("SINK_FAILED", "the answer was lost")
        return outcome


def log_of(root: Path) -> Log:
    return Log.open(open_store(root), "flow")


def last_recorded(root: Path) -> int:
    history = log_of(root).history
    return max((fact.time for fact in history.live_records.determinants.get("rows", {}).values()), default=-1)


def rows_at(world: World) -> list[int]:
    """Return the rows at a receiver that recognises them."""
    return sorted({row for _, step in world.delivered["desk"] for row in range(step["start"], step["end"])})


def crash(world: World, root: Path, *, objects: int, shown: int) -> None:
    """Run until the desk has so many steps, while the log takes no further object; then die."""
    root.mkdir(exist_ok=True)
    store = SlowStore(root, objects, rides=False)
    before = len(world.delivered.get("desk", ()))
    work = Background(lambda: run(Posting(world), store))
    try:
        until(lambda: len(world.delivered.get("desk", ())) >= before + shown)
    finally:
        store.dies.set()
    assert isinstance(work.result(), KilledError)


def test_it_goes_on_while_the_log_is_slow_and_rows_come_again_in_other_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=6)
    assert last_recorded(tmp_path) == -1, "the log has none of what the receiver has"
    assert world.held["all"] == [], "a sink with an account waits"
    first = dict(world.delivered["desk"])
    monkeypatch.setattr(memory_engine, "ROWS_A_STEP", 5)
    run(Posting(world), open_store(tmp_path))
    again = dict(world.delivered["desk"][len(first) :])
    assert (again[1]["start"], again[1]["end"]) != (first[1]["start"], first[1]["end"])
    assert rows_at(world) == list(range(60))
    world.check()
    check_store(tmp_path)


def test_killed_again_and_again_no_row_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, lives = World(rows=150), 0
    while True:
        fate = Fate(30 + lives % 5, after=lives % 2 == 1)
        monkeypatch.setattr(memory_engine, "ROWS_A_STEP", 2 + lives % 4)
        try:
            run(Posting(world, fate=fate), MortalStore.of(tmp_path, fate))
        except KilledError:
            lives += 1
        else:
            break
    assert lives > 3
    assert rows_at(world) == list(range(150))
    world.check()
    check_store(tmp_path)


def test_it_is_ahead_of_the_log_by_so_many_steps_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_calls, "MOST_AHEAD", 4)
    world = World(rows=60)
    store = SlowStore(tmp_path, BEGUN, rides=False)
    engine = Posting(world)
    work = Background(lambda: run(engine, store))
    until(lambda: len(world.delivered.get("desk", ())) >= 4 and ("run", "clean", 5) in engine.calls)
    store.dies.set()
    work.result()
    assert len(world.delivered["desk"]) == 4, "so many and no more: the fourth waits for the first"


class SlowLog(LocalStore):
    """A store whose log takes 50 ms for each object."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Unsynced())
        self.lock = threading.Lock()

    def create(self, name: str, content: bytes | Path) -> None:
        if name.startswith("log/"):
            time.sleep(0.05)
        super().create(name, content)


def test_a_step_that_failed_is_in_the_log_before_it_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user may be told its number, and leave it out in the next run: it must have the same rows then."""
    monkeypatch.setattr(Failures, "backoff_after", lambda *_: 0.0)
    told, handle = list[bool](), StateMachine.handle

    def noted(machine: StateMachine, event: Any) -> Any:
        if isinstance(event, SinkPosition):
            told.append(event.stored)
        return handle(machine, event)

    monkeypatch.setattr(StateMachine, "handle", noted)
    world = World(rows=60)
    engine = Posting(world, fails=(3, 9), root=tmp_path)
    run(engine, SlowLog(tmp_path))
    tries = [time for time, _ in world.delivered["desk"]]
    for step in (3, 9):
        first, again = (at for at, time in enumerate(tries) if time == step)
        assert again == first + 1
        assert engine.known[again] >= step, f"step {step} came again, and the log had {engine.known[again]}"
    assert told == [False, False], "its account is submitted, and not durable"
    world.check()


@pytest.mark.parametrize(
    "error",
    [DataError("NULL_KEY", "a key column of desk holds a NULL"), InvalidError("DUPLICATE_KEY", "two rows of desk")],
    ids=["a row without a key", "two rows with one key"],
)
def test_a_step_that_is_refused_stops_the_run_and_can_be_left_out(tmp_path: Path, error: BoatliftError) -> None:
    """As both messages advise; further columns of the key are a change of the program, which comes after that."""

    class Refusing(Posting):
        def commit(self, sink: str, time: int, payload: Any) -> Outcome:
            if sink == "desk" and time == 3:
                raise error
            return super().commit(sink, time, payload)

    world = World(rows=60)
    with pytest.raises(type(error), match=error.condition):
        run(Refusing(world), SlowLog(tmp_path))
    left_out = RunOptions(available_now=True, skip=(("desk", 3),))
    Host(Refusing(world), open_store(tmp_path), left_out).run()
    assert rows_at(world) == [row for row in range(60) if row not in (9, 10, 11)]
    world.check()
    changed = Posting(world)
    for by in (("k", "v"), ()):
        changed.plan = planned(by)
        unsaid, said = (transition_to(log_of(tmp_path), changed, modes) for modes in ({}, {"desk": "now"}))
        assert unsaid.obstacles
        assert all("desk=now" in str(each.error) for each in unsaid.obstacles), "each says how to go on"
        assert not said.obstacles


def test_a_claimant_needs_no_promise_beside_a_sink_that_rests_on_nothing() -> None:
    flow = bl.Dataflow("flow")
    flow.source("rows", AGAIN).sink("desk", RECOGNISES)
    engine = Posting(World(rows=3))
    engine.plan = plan(flow)
    for unawaited in (frozenset[str](), frozenset({"desk"})):
        sinks = SinkCommits(engine, ("s", 1), program_of(engine.plan).graph, LogHistory(), unawaited)
        assert sinks.tell_rests() == bool(unawaited)


def test_after_a_crash_the_program_cannot_change_before_it_has_run_once(tmp_path: Path) -> None:
    world = World(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=3)
    engine = Posting(world)
    log = Log.open(open_store(tmp_path), "flow")
    engine.plan = planned(by=("k", "v"))
    assert any(CARRIED in str(each.error) for each in transition_to(log, engine, {}).obstacles)
    run(Posting(world), open_store(tmp_path))
    assert not Log.open(open_store(tmp_path), "flow").may_be_carried
    assert not transition_to(log_of(tmp_path), engine, {"desk": "now"}).obstacles


def test_after_a_crash_the_environment_cannot_change_before_the_program_has_run_once(tmp_path: Path) -> None:
    """Rows that the receiver has come again, and another environment may give them another content."""

    class Upgraded(Posting):
        def environment(self) -> dict[str, Any]:
            return {"python": "4"}

    world = World(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=3)
    shown = len(world.delivered["desk"])
    for _ in range(2):
        with pytest.raises(DataError, match=r"\[ENVIRONMENT_CHANGED\] .*python was 3 and is 4: run once under the"):
            run(Upgraded(world), open_store(tmp_path))
    assert len(world.delivered["desk"]) == shown
    run(Posting(world), open_store(tmp_path))  # as the message advises
    run(Upgraded(world), open_store(tmp_path))
    assert rows_at(world) == list(range(60))


def test_a_sink_waits_behind_rows_that_depend_on_their_place() -> None:
    class Placed(Posting):
        def by_place(self, unit: str) -> str:
            return f"{unit} computes with _position"

    assert unawaited_of(Posting(World())) == {"desk"}
    assert unawaited_of(Placed(World())) == frozenset()
