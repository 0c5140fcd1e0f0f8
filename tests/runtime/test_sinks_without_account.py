"""A sink that is at-least-once: the log is its account, and only the step under way comes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Outcome, Plan, plan
from boatlift.errors import InvalidError, UnavailableError
from boatlift.runtime.graph import program_of, recorded_program
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.overrides import refuse_skip
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.any_connector import ANY, NO_ACCOUNT
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import MemoryEngine, World, identity_in_memory, recorded
from support.worlds.facts import Unsynced


def planned() -> Plan:
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", ANY)
    clean.sink("all", ANY)
    clean.sink("alerts", NO_ACCOUNT)
    clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2)).sink("totals", ANY)
    return plan(flow)


def test_a_store_records_the_sinks_that_keep_no_account() -> None:
    in_store, program = recorded_program(recorded(planned())).graph, program_of(planned()).graph
    assert in_store.vertices == program.vertices
    assert not in_store.vertices["alerts"].ledger


class Delivering(MemoryEngine):
    """An engine over a flow with a sink that keeps no account.

    Attributes:
        refuses: The steps that the receiver does not take.
        fails: How often it does not answer from now on.
    """

    def __init__(
        self, world: World, *, refuses: tuple[int, ...] = (), fails: int = 0, fate: Fate | None = None
    ) -> None:
        super().__init__(world)
        self._fate = fate or Fate(None, after=False)
        self.plan = planned()
        self.refuses, self.fails = refuses, fails

    def program(self) -> dict[str, Any]:
        return identity_in_memory(self.plan)

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        if sink == "alerts" and time in self.refuses:
            raise UnavailableError("SINK_REFUSED", f"alerts answered 422 to step {time}")
        outcome = self._fate.call(lambda: super(Delivering, self).commit(sink, time, payload))
        if sink == "alerts" and self.fails:
            self.fails -= 1
            raise UnavailableError("SINK_FAILED", "the answer was lost")
        return outcome


def check_deliveries(world: World, *, repeats: int) -> None:
    """Hold what was delivered against what an exactly-once sink of the same stream holds."""
    delivered = world.delivered["alerts"]
    seen = -1
    for time, step in delivered:
        assert time in (seen, seen + 1), f"step {time} was delivered after step {seen}"
        assert step == world.held["all"][time]
        seen = time
    assert seen == len(world.held["all"]) - 1
    assert len(delivered) - len(world.held["all"]) <= repeats


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_only_the_step_under_way_comes_again(tmp_path: Path, after: bool) -> None:
    deaths = repeated = 0
    while True:
        root, world = tmp_path / str(deaths), World(rows=15)
        fate = Fate(deaths + 1, after=after)
        try:
            run(Delivering(world, fate=fate), MortalStore.of(root, fate))
        except KilledError:
            deaths += 1
        else:
            break
        run(Delivering(world), open_store(root))
        world.check()
        check_deliveries(world, repeats=1)
        repeated += len(world.delivered["alerts"]) - len(world.held["all"])
        check_store(root)
    assert deaths > 10
    assert repeated, "a delivery whose record was lost comes again"


def test_an_answer_that_is_lost_repeats_one_step(tmp_path: Path) -> None:
    world = World(rows=15)
    run(Delivering(world, fails=2), open_store(tmp_path))
    world.check()
    check_deliveries(world, repeats=2)
    assert len(world.delivered["alerts"]) == len(world.held["all"]) + 2


def test_killed_again_and_again_it_starts_each_time(tmp_path: Path) -> None:
    world, lives = World(rows=90), 0
    while True:
        fate = Fate(40 + lives % 5, after=lives % 2 == 1)
        try:
            run(Delivering(world, fate=fate), MortalStore.of(tmp_path, fate))
        except KilledError:
            lives += 1
        else:
            break
    world.check()
    check_deliveries(world, repeats=lives)
    assert lives > 5


def skipping(world: World, root: Path, *skip: tuple[str, int], refuses: tuple[int, ...] = ()) -> None:
    Host(Delivering(world, refuses=refuses), open_store(root), RunOptions(available_now=True, skip=skip)).run()


def test_a_step_that_its_receiver_refuses_stops_the_dataflow_and_can_be_left_out(tmp_path: Path) -> None:
    world = World(rows=15)
    with pytest.raises(UnavailableError, match=r"\[SINK_REFUSED\] alerts answered 422 to step 2"):
        skipping(world, tmp_path, refuses=(2,))
    assert [time for time, _ in world.delivered["alerts"]] == [0, 1]
    with pytest.raises(UnavailableError, match=r"\[SINK_REFUSED\]"):
        skipping(world, tmp_path, refuses=(2,))
    skipping(world, tmp_path, ("alerts", 2), refuses=(2,))
    world.check()
    assert [time for time, _ in world.delivered["alerts"]] == [0, 1, 3, 4]
    assert Log.open(open_store(tmp_path), "flow").history.decided("skipped") == {("alerts", 2)}
    world.rows = 21
    run(Delivering(world), open_store(tmp_path))
    assert [time for time, _ in world.delivered["alerts"]] == [0, 1, 3, 4, 5, 6]


def test_skipping_what_no_receiver_has_refused_is_refused() -> None:
    for skip, done, said in (
        (("alerts", 1), 1, "step 1 was delivered to alerts: the last was 1"),
        (("alerts", 3), 1, "step 3 of alerts has not failed: the next step that it is handed is 2"),
        (("totals", 2), 1, "totals is exactly-once, and its steps have no gap"),
    ):
        with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {said}"):
            refuse_skip(planned(), *skip, done)


class FullStore(LocalStore):
    """A store that takes no record of a delivery."""

    def create(self, name: str, content: bytes | Path) -> None:
        if isinstance(content, bytes) and b"committed" in content and b"alerts" in content and self.full:
            raise UnavailableError("STORE_FAILED", "the disk is full")
        super().create(name, content)

    full = False


def test_a_record_that_cannot_be_written_is_no_failure_of_the_sink(tmp_path: Path) -> None:
    """The store is to blame: the run ends at once, and nothing is delivered again before the next one."""
    world = World(rows=15)
    store = FullStore(tmp_path, Unsynced())
    store.full = True
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] the disk is full"):
        run(Delivering(world), store)
    assert [time for time, _ in world.delivered["alerts"]] == [0]
    run(Delivering(world), open_store(tmp_path))
    world.check()
    check_deliveries(world, repeats=1)
