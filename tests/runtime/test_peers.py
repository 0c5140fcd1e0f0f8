"""What standbys hold of the log that it lacks: sinks go on while it is slow, and as many may die at once as the depth
says."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.console.contents import show_status
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError
from boatlift.runtime.host import members
from boatlift.runtime.inspect.status import status_at
from boatlift.runtime.peers import holding
from boatlift.runtime.peers.holding import HeldTail, HeldUpTo, Hold, Promised, Refused
from boatlift.storage.log import Log
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.records import Settled, Stopped
from support.crash.mortality import KilledError
from support.engine.hosts import check_store, open_store
from support.engine.noting import NotingEngine, NotingWorld, SlowStore
from support.engine.standbys import Process, idle_owner, standby
from support.waiting import until


class Owner:
    """An owner whose log stops to take objects once the standbys are members."""

    def __init__(self, world: NotingWorld, root: Path, standbys: int, **options: Any) -> None:
        root.mkdir(exist_ok=True)
        self.store = SlowStore(root, 10**6, rides=False)
        rows, world.rows = world.rows, 3
        self.process = Process(world, self.store, available_now=False, engine=NotingEngine, **options)
        self.world, self.root = world, root
        self._rows, self.standbys = rows, list[Process]()
        if standbys:
            self.holds(*(Process(world, open_store(root), standby=True, engine=NotingEngine) for _ in range(standbys)))

    def holds(self, *standbys: Process) -> None:
        """Wait until these are the members; then let the log take no further object, and the input go on."""
        self.standbys += standbys
        until(lambda: members_of(self.root) == {each.tail.life for each in self.standbys})
        until(lambda: any(progress.what == "idle" for progress in self.process.said))
        self.store.left = 0
        self.world.rows = self._rows

    def shows(self, steps: int) -> None:
        """Wait until all sinks have shown so many steps that the log does not know."""
        until(lambda: all(self.shown(sink) >= steps for sink in ("all", "totals")))

    def shown(self, sink: str) -> int:
        return len(self.world.delivered.get(sink, self.world.held.get(sink, ())))

    def calls(self) -> list[Any]:
        return self.process.host._engine.calls  # type: ignore[attr-defined, no-any-return]

    def dies(self) -> None:
        self.store.dies.set()
        assert isinstance(self.process.work.result(), KilledError)


def members_of(root: Path) -> set[str]:
    try:
        found = Log.open(open_store(root), "flow").members
    except BoatliftError:
        return set()
    return set() if found is None else set(found.lives)


def held_by(standby: Process) -> list[tuple[Any, ...]]:
    return [entry for each in standby.tail._entries for entry in decode_tail(each, "a standby").entries]


def end(*processes: Process) -> None:
    for process in processes:
        process.stop()
    for process in processes:
        process.work.result()


def checked(world: NotingWorld, root: Path, before: dict[str, list[Any]]) -> None:
    """Nothing that was shown has changed, and all is there once."""
    assert all(world.held[sink][: len(steps)] == steps for sink, steps in before.items())
    world.check()
    check_store(root)


def copied(world: NotingWorld) -> dict[str, list[Any]]:
    return {sink: list(steps) for sink, steps in world.held.items()}


@pytest.mark.parametrize("carry", [(), ("all", "totals")], ids=["no notes", "notes"])
def test_what_a_standby_holds_outlives_the_owner(tmp_path: Path, carry: Sequence[str]) -> None:
    world = NotingWorld(60, carry=carry, determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    owner.shows(6)
    before, log = copied(world), Log.open(open_store(tmp_path), "flow")
    assert log.history.last_closed("rows") < 4, "the log has little of what the sinks show"
    (heir,) = owner.standbys
    owner.dies()
    assert heir.work.result() is None
    assert any(progress.what == "carried" for progress in heir.said)
    checked(world, tmp_path, before)


def test_the_owner_and_as_many_standbys_may_die_at_once_as_the_depth_says(tmp_path: Path) -> None:
    """Depth 2 survives the owner and one of two standbys."""
    world = NotingWorld(60, carry=(), determinants="peers:2")
    owner = Owner(world, tmp_path, 2)
    owner.shows(6)
    before, (gone, heir) = copied(world), owner.standbys
    end(gone)
    owner.store.dies.set()
    assert heir.work.result() is None
    owner.dies()
    checked(world, tmp_path, before)


def test_one_more_is_told_and_never_guessed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Depth 1 of two standbys: the owner and one of them die, and that one may have held what the other lacks."""
    monkeypatch.setattr(members, "ANSWER_SECONDS", 0.3)
    world = NotingWorld(60, carry=(), determinants="peers:1")
    owner = Owner(world, tmp_path, 2)
    owner.shows(6)
    gone, heir = owner.standbys
    end(gone)
    owner.store.dies.set()
    here = f"{socket.gethostname()}:{os.getpid()}"
    until(lambda: heir.told(rf"\[MEMBERS_MISSING\] .* and 1 more of these must answer: {here}\. .*--take-over, too"))
    before = copied(world)
    end(heir)
    assert copied(world) == before, "it waits, and shows nothing"
    with pytest.raises(UnavailableError, match=r"\[MEMBERS_MISSING\] .* and 2 more of these must answer"):
        raise Process(world, open_store(tmp_path), engine=NotingEngine).work.result() or AssertionError
    owner.dies()


def test_what_is_lost_can_be_accepted_once_no_sink_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then nothing is written, so that a standby that comes back is asked again."""
    monkeypatch.setattr(members, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(members, "LOST_SECONDS", 0.2)
    world = NotingWorld(12, carry=(), determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    until(lambda: owner.shown("all") > 2)
    (gone,) = owner.standbys
    end(gone)
    owner.dies()

    def go_on() -> BaseException | None:
        return Process(world, open_store(tmp_path), engine=NotingEngine, accept_lost=True).work.result()

    refused = go_on()
    assert isinstance(refused, DataError)
    assert refused.condition == "NO_CONSISTENT_FRONTIER"
    assert members_of(tmp_path) == {gone.tail.life}
    world.held = {sink: steps[:1] for sink, steps in world.held.items()}  # as the error says: take the sinks back
    assert go_on() is None
    assert {life for life, _ in Log.open(open_store(tmp_path), "flow").history.decided("lost")} == {gone.tail.life}
    world.check()


def test_a_standby_may_not_accept_a_loss_beforehand(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] accept_lost=True is for a run that begins now"):
        Process(NotingWorld(3), open_store(tmp_path), standby=True, accept_lost=True)


def test_a_sink_that_is_away_at_the_takeover_costs_no_entry(tmp_path: Path) -> None:
    """The standby has claimed, and what it holds is nowhere else."""
    away = [1, 1, 1]

    class Away(NotingEngine):
        def open_sink(self, sink: str, *args: Any) -> Any:
            if sink == "all" and away:
                away.pop()
                raise UnavailableError("SINK_FAILED", "the sink is away")
            return super().open_sink(sink, *args)

    world = NotingWorld(60, carry=(), determinants="peers:1")
    owner = Owner(world, tmp_path, 0)
    heir = Process(world, open_store(tmp_path), standby=True, engine=Away)
    owner.holds(heir)
    owner.shows(6)
    before = copied(world)
    owner.dies()
    assert heir.work.result() is None
    assert [said for said in heir.follows_on if "the sink is away" in said]
    checked(world, tmp_path, before)


def test_the_end_of_an_owner_that_a_standby_holds_is_not_its_successors(tmp_path: Path) -> None:
    """The owner's last record is on its way to a slow store when the process dies."""
    world = NotingWorld(9, determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    (heir,) = owner.standbys
    owner.store.left = 10**6
    owner.shows(3)
    owner.store.last = b"stopped"
    owner.process.stop()
    until(lambda: any(isinstance(record, Stopped) for entry in held_by(heir) for record in entry))
    owner.dies()
    assert heir.work.result() is None
    log = Log.open(open_store(tmp_path), "flow")
    first = next(group for group in log.groups() if group.header.token == log.owner != group.header.number)
    assert not any(isinstance(record, Stopped | Settled) for record in first.records)
    world.check()


def test_a_run_without_depth_finds_what_standbys_hold_for_the_owner_before(tmp_path: Path) -> None:
    world = NotingWorld(60, carry=(), determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    owner.shows(6)
    before, world.determinants = copied(world), "store"
    other = Process(world, open_store(tmp_path), engine=NotingEngine, take_over=True, available_now=False)
    owner.shows(20)
    end(other, *owner.standbys)
    owner.store.dies.set()
    owner.process.work.result()
    checked(world, tmp_path, before)


def test_without_members_it_goes_on_where_each_sink_says_what_it_rests_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an owner whose standbys are gone; the log has all that the sinks show."""
    monkeypatch.setattr(members, "ANSWER_SECONDS", 0.1)
    world = NotingWorld(60, determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    owner.store.left = 10**6
    owner.shows(10)
    end(*owner.standbys)
    until(lambda: len(world.held["all"]) == 20)  # without a standby a sink waits for the log
    owner.store.left = 0
    before = copied(world)
    world.rows += 3
    owner.dies()
    alone = Process(world, open_store(tmp_path), engine=NotingEngine)
    assert alone.work.result() is None
    checked(world, tmp_path, before)


def test_it_does_not_go_on_if_a_sink_rests_on_what_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "ANSWER_SECONDS", 0.1)
    world = NotingWorld(60, determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    owner.shows(6)
    end(*owner.standbys)
    owner.dies()
    with pytest.raises(UnavailableError, match=r"\[MEMBERS_MISSING\]"):
        raise Process(world, open_store(tmp_path), engine=NotingEngine).work.result() or AssertionError


def test_a_receiver_without_account_waits_for_no_store(tmp_path: Path) -> None:
    """Its account is an entry that a standby holds: no step but the one under way is delivered again."""
    world = NotingWorld(60, carry=(), determinants="peers:1", delivers=("all", "totals"))
    owner = Owner(world, tmp_path, 1)
    owner.shows(6)
    before = {sink: list(steps) for sink, steps in world.delivered.items()}
    owner.dies()
    assert owner.standbys[0].work.result() is None
    for sink, delivered in world.delivered.items():
        assert delivered[: len(before[sink])] == before[sink]
        assert dict(delivered[len(before[sink]) + 1 :]).keys().isdisjoint(dict(before[sink]).keys())
        world.held[sink] = [step for _, step in sorted(dict(delivered).items())]
        assert [number for number, _ in sorted(dict(delivered).items())] == list(range(20))
        assert len(dict(delivered)) == len({repr(each) for each in delivered}), "a step came again with another result"
    world.check()
    check_store(tmp_path)


def test_with_fewer_standbys_than_the_depth_release_waits_for_the_store_and_status_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = NotingWorld(60, carry=(), determinants="peers:2")
    owner = Owner(world, tmp_path, 1)
    until(lambda: len(owner.calls()) > 20)
    assert owner.shown("all") == 1
    until(lambda: (now := status_at(tmp_path)).depth == 2 and len(now.standbys) == 1)
    show_status(str(tmp_path), as_json=False)
    assert "determinants: peers:2 needs 2 standbys, 1 there: all waits for the store" in capsys.readouterr().out
    owner.dies()
    assert owner.standbys[0].work.result() is None
    checked(world, tmp_path, {})


def test_a_standby_that_is_full_leaves_the_rest_to_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "MOST_HELD_BYTES", 2000)
    world = NotingWorld(60, carry=(), determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    until(lambda: len(owner.calls()) > 20)
    before, (heir,) = copied(world), owner.standbys
    assert 1 < owner.shown("all") < 12, "what it holds is shown, and no more"
    assert 0 < sum(map(len, heir.tail._entries)) <= 2000
    owner.dies()
    assert heir.work.result() is None
    checked(world, tmp_path, before)


def test_a_slow_standby_holds_up_neither_the_quicker_one_nor_the_store(tmp_path: Path) -> None:
    world, goes_on, hold = NotingWorld(60, carry=(), determinants="peers:1"), threading.Event(), HeldTail.hold
    owner = Owner(world, tmp_path, 0)
    slow, quick = (Process(world, open_store(tmp_path), standby=True, engine=NotingEngine) for _ in range(2))

    def held_late(asked: Hold) -> HeldUpTo | Refused | None:
        goes_on.wait()
        return hold(slow.tail, asked)

    slow.tail.hold = held_late  # type: ignore[method-assign]
    owner.holds(slow, quick)
    owner.shows(6)
    before = copied(world)
    owner.store.dies.set()
    goes_on.set()
    until(lambda: len(world.held["all"]) == 20)
    end(slow, quick)
    owner.process.work.result()
    checked(world, tmp_path, before)


def test_a_standby_that_says_it_holds_what_it_does_not_is_found_out(tmp_path: Path) -> None:
    """The sinks say how far their steps rest, so nothing is made up in place of what is gone."""
    world = NotingWorld(60, determinants="peers:1")
    owner = Owner(world, tmp_path, 0)
    liar = Process(world, open_store(tmp_path), standby=True, engine=NotingEngine)
    liar.tail.hold = lambda asked: HeldUpTo(asked.token, asked.life, asked.start + len(asked.entries))  # type: ignore[method-assign]
    owner.holds(liar)
    owner.shows(6)
    owner.dies()
    before = copied(world)
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] a sink rests on"):
        raise liar.work.result() or AssertionError
    assert copied(world) == before


def garble(standby: Process) -> None:
    """Let a standby promise entries that are damaged."""
    promise = standby.tail.promise

    def garbled(token: int) -> Promised | Refused:
        given = promise(token)
        return (
            given if isinstance(given, Refused) else Promised(token, given.life, tuple(e[::-1] for e in given.entries))
        )

    standby.tail.promise = garbled  # type: ignore[method-assign]


def test_a_standby_whose_entries_are_damaged_is_done_without(tmp_path: Path) -> None:
    """It is the claimant itself: the other standby holds the same."""
    world = NotingWorld(60, carry=(), determinants="peers:2")
    owner = Owner(world, tmp_path, 0)
    damaged, sound = (Process(world, open_store(tmp_path), standby=True, engine=NotingEngine) for _ in range(2))
    garble(damaged)
    sound.before_claim = lambda: until(lambda: damaged.told(r"does without standby .*\[CORRUPT\]"))
    owner.holds(damaged, sound)
    owner.shows(6)
    owner.store.dies.set()
    before = copied(world)
    until(lambda: len(world.held["all"]) == 20)
    end(damaged, sound)
    owner.process.work.result()
    checked(world, tmp_path, before)


def test_a_standby_whose_entries_are_damaged_is_not_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "ANSWER_SECONDS", 0.3)
    world = NotingWorld(60, carry=(), determinants="peers:1")
    owner = Owner(world, tmp_path, 1)
    (damaged,) = owner.standbys
    garble(damaged)
    owner.shows(6)
    owner.store.dies.set()
    until(lambda: damaged.told(r"more of these must answer: [^ ]+ \(what it holds is damaged\)\. Go on without what"))
    end(damaged)
    owner.process.work.result()


@pytest.mark.parametrize(("asked", "goes_on"), [("rows", True), ("clean", False)])
def test_single_processors_may_be_held(tmp_path: Path, asked: str, goes_on: bool) -> None:
    """All that is chosen here is how the source is divided, and the clock and the seed of its steps."""
    world = NotingWorld(60, carry=(), determinants={asked: "peers:1"})
    owner = Owner(world, tmp_path, 1)
    until(lambda: len(owner.calls()) > 20)
    if goes_on:
        owner.shows(6)
    else:
        assert owner.shown("all") == 1
    before = copied(world)
    owner.dies()
    assert owner.standbys[0].work.result() is None
    checked(world, tmp_path, before)


def test_a_takeover_goes_by_the_least_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A greater one of a single sink makes that sink wait, and spares a takeover no promise."""
    monkeypatch.setattr(members, "ANSWER_SECONDS", 0.3)
    world = NotingWorld(
        60, carry=(), determinants=dict.fromkeys(("rows", "clean", "sums", "totals"), "peers:1") | {"all": "peers:2"}
    )
    owner = Owner(world, tmp_path, 2)
    owner.shows(6)
    gone, heir = owner.standbys
    end(gone)
    owner.store.dies.set()
    until(lambda: heir.told(r"\[MEMBERS_MISSING\] .* at depth 1, and 1 more of these must answer"))
    end(heir)
    owner.process.work.result()


def test_the_members_are_those_that_are_there(tmp_path: Path) -> None:
    world = NotingWorld(9, determinants="peers:1")
    with idle_owner(world, tmp_path, engine=NotingEngine):
        with standby(world, tmp_path, engine=NotingEngine) as first:
            until(lambda: members_of(tmp_path) == {first.tail.life})
            with standby(world, tmp_path, engine=NotingEngine) as other:
                until(lambda: members_of(tmp_path) == {first.tail.life, other.tail.life})
            until(lambda: members_of(tmp_path) == {first.tail.life})
            until(lambda: [each.holds for each in status_at(tmp_path).standbys] == [0])
        until(lambda: members_of(tmp_path) == set())
    log = Log.open(open_store(tmp_path), "flow")
    assert log.members is None, "after a clean stop nothing has to be asked of anyone"


@pytest.mark.parametrize("given", ["peers", "peers:0", "peers:x", "peers:100", 1, None, {"clean": "disk"}])
def test_another_text_is_refused(given: Any) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] determinants=.*: write 'store', or 'peers:1'"):
        bl.Dataflow("flow", determinants=given)


def test_a_name_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] determinants names clear, which is no source, stream or"):
        NotingWorld(9, determinants={"clear": "peers:1"}).plan(2)
