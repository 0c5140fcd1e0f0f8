"""Sinks that are shown together, over a real store and log, with an engine in memory that dies and fails."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.dataflow import Plan, plan
from boatlift.errors import DataError, UnavailableError
from boatlift.runtime.host.consent import transition_to
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.host import Host
from boatlift.runtime.inspect.status import status_at
from boatlift.storage.log import Log
from support.any_connector import ANY, SHARING
from support.crash.mortality import Fate, KilledError, MortalEngine, MortalStore
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import World
from support.engine.memory_flows import FlowEngine

GROUP = ("all", "totals")


def made(*, together: bool = True, every: int | None = 2) -> Plan:
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", ANY)
    clean.sink("all", SHARING)
    clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=every)).sink("totals", SHARING)
    if together:
        flow.together(*GROUP)
    return plan(flow)


class Watched(World):
    """A world whose reader looks at all sinks after each act on one of them."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.seen = list[tuple[int, ...]]()

    def look(self) -> None:
        self.seen.append(tuple(len(self.held.get(sink, ())) for sink in GROUP))

    def assert_in_step(self) -> None:
        assert self.seen
        assert all(one == other for one, other in self.seen), self.seen


class Seen(MortalEngine):
    """An engine behind whose acts somebody looks at what the sinks hold."""

    def commit_together(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        try:
            super().commit_together(steps)
        finally:
            assert isinstance(self.world, Watched)
            self.world.look()


@pytest.mark.parametrize("every", [2, None], ids=["checkpoints", "inputs only"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_call_no_member_is_ahead_and_nothing_is_lost_or_doubled(
    tmp_path: Path, after: bool, every: int | None
) -> None:
    planned, deaths, undisturbed = made(every=every), 0, World(rows=15)
    run(FlowEngine(undisturbed, planned), open_store(tmp_path / "undisturbed"))
    while True:
        root, world = tmp_path / str(deaths), Watched(rows=15)
        fate = Fate(deaths + 1, after=after)
        try:
            run(Seen(world, planned, fate), MortalStore.of(root, fate))
        except KilledError:
            deaths += 1
        else:
            break
        world.look()
        run(Seen(world, planned, Fate(None, after=False)), open_store(root))
        world.assert_in_step()
        assert {sink: len(steps) for sink, steps in world.held.items()} == dict.fromkeys(GROUP, 5)
        check_store(root)
    assert deaths > 15
    assert set(world.together) == {GROUP}
    assert {sink: len(steps) for sink, steps in undisturbed.held.items()} == dict.fromkeys(GROUP, 5)


class Failing(FlowEngine):
    """An engine one of whose sinks does not take some steps at first."""

    def __init__(self, world: World, planned: Plan, *, fails: int, lost: bool = False) -> None:
        super().__init__(world, planned)
        self.fails, self.lost = fails, lost

    def commit_together(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        if self.lost or not self.fails:
            super().commit_together(steps)
        if self.fails:
            self.fails -= 1
            raise UnavailableError("SINK_FAILED", "the answer was lost")


@pytest.mark.parametrize("lost", [False, True], ids=["nothing was shown", "all was shown"])
def test_an_act_whose_answer_is_lost_is_handed_over_again_if_it_is_not_there(tmp_path: Path, lost: bool) -> None:
    world = Watched(rows=15)
    run(Failing(world, made(), fails=2, lost=lost), open_store(tmp_path))
    assert {sink: len(steps) for sink, steps in world.held.items()} == dict.fromkeys(GROUP, 5)
    check_store(tmp_path)


def test_sinks_join_and_part_by_consent_and_go_on_where_they_were(tmp_path: Path) -> None:
    world = World(rows=9)
    run(FlowEngine(world, made(together=False)), open_store(tmp_path))
    assert world.together == []
    for together, rows in ((True, 15), (False, 21)):
        world.rows, engine = rows, FlowEngine(world, made(together=together))
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\]"):
            run(engine, open_store(tmp_path))
        log = Log.open(open_store(tmp_path), "flow")
        transition = transition_to(log, engine, {})
        assert transition.obstacles == []
        assert (transition.sinks, transition.computed) == ({}, []), "no sink gets a row, and nothing is executed"
        options = RunOptions(available_now=True, evolve=transition.id)
        Host(FlowEngine(world, made(together=together)), open_store(tmp_path), options).run()
        check_store(tmp_path)
    assert world.together == [GROUP] * 2
    assert {sink: len(steps) for sink, steps in world.held.items()} == dict.fromkeys(GROUP, 7)


def test_status_names_the_member_that_holds_the_others(tmp_path: Path) -> None:
    class Stuck(FlowEngine):
        def run(self, order: Any) -> Any:
            if order.processor == "sums" and order.takes[-1].time >= 2:
                raise ZeroDivisionError("of the engine")
            return super().run(order)

    with pytest.raises(ZeroDivisionError):
        run(Stuck(World(rows=15), made()), open_store(tmp_path))
    (group,) = status_at(tmp_path).together
    assert group.sinks == list(GROUP)
    assert group.held_by == ["totals"]
    run(FlowEngine(World(rows=0), made()), open_store(tmp_path / "none"))
    (group,) = status_at(tmp_path / "none").together
    assert group.held_by == []
