"""Standbys of a dataflow: one of them goes on when the owner dies, and none of them when it stops."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import BoatliftError, DataError, FencedError, InvalidError, UnavailableError
from boatlift.runtime.host import admission, term
from boatlift.runtime.host import standby as standby_module
from boatlift.runtime.host.admission import wait_for_store
from boatlift.runtime.host.ownership import refuse_unless_newest
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.inspect.status import status_at
from boatlift.runtime.peers import detector
from boatlift.runtime.peers.handover import hand_over
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim, Stopped
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.engine.standbys import Process, idle_owner, standby
from support.waiting import until
from support.worlds.facts import Unsynced
from support.worlds.logs import claimed

NEWER = {"python": "4"}


class NewerEngine(MemoryEngine):
    def environment(self) -> dict[str, Any]:
        return NEWER


@pytest.mark.adopts
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("calls", [4, 9, 17])
def test_standbys_go_on_one_after_the_other_and_nothing_is_lost_or_doubled(
    tmp_path: Path, calls: int, after: bool
) -> None:
    world, lives = World(rows=120), 0
    process = Process(world, MortalStore.of(tmp_path, Fate(calls, after=after)))
    while True:
        lives += 1
        heir = Process(world, MortalStore.of(tmp_path, Fate(calls + lives, after=after)), standby=True)
        error = process.work.result()
        # On a loaded machine one that lives is taken for dead, too: it is fenced.
        assert error is None or isinstance(error, KilledError | FencedError)
        if Log.open(open_store(tmp_path), "flow").history.stopped:  # perhaps by a process that died just after it
            break
        until(lambda heir=heir: heir.told("is taken for dead"))
        process = heir
    heir.stop()
    error = heir.work.result()  # one that takes over from a process that died just after it may die, too
    assert error is None or (isinstance(error, KilledError) and heir.told("is taken for dead"))
    assert lives > 3
    run(MemoryEngine(world, every=3), open_store(tmp_path))
    world.check()
    check_store(tmp_path)


def test_of_two_standbys_one_takes_over_and_the_other_follows_it(tmp_path: Path) -> None:
    world, both = World(rows=30), threading.Barrier(2)
    meets = [both.wait]

    def before_claim() -> None:
        if meets:
            both.wait()
            meets.clear()

    owner = Process(world, MortalStore.of(tmp_path, Fate(12, after=False)))
    standbys = [Process(world, open_store(tmp_path), standby=True, before_claim=before_claim) for _ in range(2)]
    assert isinstance(owner.work.result(), KilledError)
    assert [each.work.result() for each in standbys] == [None, None]
    (said,) = (said for each in standbys for said in each.follows_on)
    assert "another process has taken flow over" in said
    assert len(list(Log.open(open_store(tmp_path), "flow").claims())) == 2
    world.check()
    check_store(tmp_path)


def test_an_heir_that_finds_a_port_taken_tries_again(tmp_path: Path) -> None:
    """The owner may still hold it for a moment after its clean stop."""
    busy = [1, 1]

    class Busy(MemoryEngine):
        def reserve(self) -> None:
            if busy:
                busy.pop()
                raise UnavailableError("LISTEN_FAILED", "the port is taken")

    world = World(rows=9)
    with idle_owner(world, tmp_path) as owner, standby(world, tmp_path, engine=Busy, available_now=False) as heir:
        until(lambda: any(each.ready for each in status_at(tmp_path).standbys))
        assert "goes on" in list(hand_over(tmp_path))[-1]
        assert owner.work.result() is None
        assert len(heir.follows_on) == 2
    assert heir.work.result() is None


def test_an_owner_that_was_fenced_follows_its_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term, "LOOK_SECONDS", 0.05)
    world = World(rows=9)
    owner = Process(world, MortalStore.of(tmp_path, Fate(5, after=True)))
    with standby(world, tmp_path, available_now=False) as heir:
        assert isinstance(owner.work.result(), KilledError)
        until(lambda: any(progress.what == "idle" for progress in heir.said))
        with idle_owner(world, tmp_path, take_over=True):
            until(lambda: heir.follows_on)
            until(lambda: heir.told("is ready") and len(status_at(tmp_path).standbys) == 1)
    assert "[FENCED]" in heir.follows_on[0]


def test_a_clean_stop_is_no_death(tmp_path: Path) -> None:
    world = World(rows=9)
    with idle_owner(world, tmp_path) as owner, standby(world, tmp_path, available_now=False) as waiting:
        until(waiting.follows)
        owner.stop()
        assert owner.work.result() is None
        until(lambda: waiting.told("waits for a run that begins"))
        with idle_owner(world, tmp_path):
            until(lambda: sum("follows" in each.said for each in waiting.said) == 2)
    assert waiting.work.result() is None
    assert not waiting.told("taken for dead")
    assert len(list(Log.open(open_store(tmp_path), "flow").claims())) == 2


def test_a_dataflow_is_handed_over_to_a_newer_environment(tmp_path: Path) -> None:
    """The one that waits for a handover gets the dataflow; one of the same environment would have been there, too."""
    world = World(rows=9)
    newer = {"for_handover": True, "engine": NewerEngine, "available_now": False}
    with (
        idle_owner(world, tmp_path) as owner,
        standby(world, tmp_path, available_now=False) as same,
        standby(world, tmp_path, **newer) as heir,
    ):
        until(lambda: len(status_at(tmp_path).standbys) == 2)
        until(lambda: all(each.ready for each in status_at(tmp_path).standbys))
        said = list(hand_over(tmp_path))
        assert "stops, for" in said[0]
        assert "goes on" in said[1]
        assert owner.work.result() is None
        until(lambda: any(progress.what == "idle" for progress in heir.said))
        until(lambda: isinstance(same.work.result(), DataError))
    log = Log.open(open_store(tmp_path), "flow")
    claim = log.claim_of(log.owner)
    assert claim is not None
    assert claim.environment == NEWER
    world.check()


def test_a_standby_for_a_handover_does_not_take_over_by_suspicion(tmp_path: Path) -> None:
    world = World(rows=60)
    owner = Process(world, MortalStore.of(tmp_path, Fate(20, after=False)))
    with standby(world, tmp_path, for_handover=True, engine=NewerEngine) as waiting:
        until(waiting.follows)
        assert isinstance(owner.work.result(), KilledError)
        with standby(world, tmp_path) as heir:
            assert heir.work.result() is None
    assert not waiting.told("taken for dead")
    world.check()


def test_another_environment_is_refused_when_the_standby_starts(tmp_path: Path) -> None:
    world = World(rows=9)
    with idle_owner(world, tmp_path), standby(world, tmp_path, engine=NewerEngine) as refused:
        error = refused.work.result()
    assert isinstance(error, DataError)
    assert error.condition == "ENVIRONMENT_CHANGED"
    assert "(python is 3 there and 4 here)" in error.message
    assert "--for-handover" in error.message


def test_another_program_is_refused_when_the_standby_starts(tmp_path: Path) -> None:
    class Another(MemoryEngine):
        def program(self) -> dict[str, Any]:
            return {**super().program(), "plan": "another"}

    world = World(rows=9)
    with idle_owner(world, tmp_path), standby(world, tmp_path, engine=Another) as refused:
        error = refused.work.result()
    assert isinstance(error, DataError)
    assert error.condition == "PROGRAM_CHANGED"


def test_an_owner_that_listens_on_another_host_alone_cannot_be_followed(tmp_path: Path) -> None:
    claimed(open_store(tmp_path), Claim("elsewhere", 7, 0, PROGRAM, {"python": "3"}, address="127.0.0.1:4711"))
    with standby(World(), tmp_path) as refused:
        error = refused.work.result()
    assert isinstance(error, UnavailableError)
    assert error.condition == "OWNER_UNREACHABLE"
    assert "run it with --listen 0.0.0.0:0" in error.message


def test_an_owner_out_of_reach_is_waited_for_if_another_one_was_followed(tmp_path: Path) -> None:
    here = Claim(socket.gethostname(), 7, 0, PROGRAM, {"python": "3"}, address="127.0.0.1:1")
    claimed(open_store(tmp_path), here)
    world = World(rows=9)
    with standby(world, tmp_path) as waiting:
        until(waiting.follows)
        elsewhere = Claim("elsewhere", 7, 0, PROGRAM, {"python": "3"}, address="127.0.0.1:4711")
        log = claimed(open_store(tmp_path), elsewhere)
        until(lambda: waiting.told("cannot reach process 7 on elsewhere"))
        log.append([Stopped()])
        assert waiting.work.result() is None
    assert not waiting.told("taken for dead")


def test_a_standby_that_lost_a_race_waits_for_a_winner_out_of_reach(tmp_path: Path) -> None:
    world, won = World(rows=30), list[Log]()

    def another_is_faster() -> None:
        program = Log.open(open_store(tmp_path), "flow").history.program
        claim = Claim("elsewhere", 7, 0, program, {"python": "3"}, address="127.0.0.1:4711")
        won.append(claimed(open_store(tmp_path), claim))

    owner = Process(world, MortalStore.of(tmp_path, Fate(12, after=False)))
    with standby(world, tmp_path, before_claim=another_is_faster) as loser:
        assert isinstance(owner.work.result(), KilledError)
        until(lambda: loser.told("cannot reach process 7 on elsewhere"))
        won[0].append([Stopped()])
        assert loser.work.result() is None
    assert len(loser.follows_on) == 1


def test_an_owner_that_hands_over_while_it_is_suspected_is_its_heirs_alone(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("here", 7, 0, PROGRAM, {"python": "3"}))
    refuse_unless_newest(log, log.owner, "another")
    log.append([Stopped("heir")])
    refuse_unless_newest(log, log.owner, "heir")
    for after, heir in ((log.owner, "another"), (log.owner + 1, "heir")):
        with pytest.raises(FencedError):
            refuse_unless_newest(log, after, heir)


def test_another_standby_goes_on_if_the_heir_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_module, "HEIR_SECONDS", 0.5)
    world = World(rows=9)
    run(MemoryEngine(world, every=3), open_store(tmp_path))
    claim = Claim(socket.gethostname(), 7, 0, Log.open(open_store(tmp_path), "flow").history.program, {"python": "3"})
    claimed(open_store(tmp_path), claim).append([Stopped("gone")])
    with standby(world, tmp_path, for_handover=True) as unasked, standby(world, tmp_path) as heir:
        assert heir.work.result() is None
        assert not unasked.told("taken over")
    assert len(list(Log.open(open_store(tmp_path), "flow").claims())) == 3
    world.check()
    check_store(tmp_path)


def test_an_owner_whose_event_loop_hangs_is_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(detector, "HUNG_SECONDS", 1.0)
    hangs, over = threading.Event(), threading.Event()

    class Hanging(list[Progress]):
        def append(self, progress: Progress) -> None:
            super().append(progress)
            if hangs.is_set() and progress.what == "beat":
                over.wait()

    world = World(rows=9)
    owner = Process(world, open_store(tmp_path), available_now=False, said=Hanging())
    until(lambda: any(progress.what == "idle" for progress in owner.said))
    with standby(world, tmp_path) as heir:
        until(lambda: heir.told("is ready"))
        hangs.set()
        assert heir.work.result() is None
        assert heir.told("its event loop has not turned for")
    over.set()
    error = owner.work.result()
    assert isinstance(error, FencedError)
    world.check()
    check_store(tmp_path)


def test_a_standby_may_come_before_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "STORE_SECONDS", 0.01)
    place, said = tmp_path / "later", list[str]()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(wait_for_store, place, said.append, lambda: False)
        until(lambda: said)
        run(MemoryEngine(World(rows=3)), open_store(place))
        assert waiting.result(60)
    assert said == [f"waits for a store: there is no store in {place}: give the path that run was given"]
    assert not wait_for_store(tmp_path / "never", said.append, lambda: True)
    with pytest.raises(BoatliftError):
        wait_for_store("ftp://store", said.append, lambda: False)


def test_nothing_is_handed_over_without_an_owner_or_a_standby(tmp_path: Path) -> None:
    world = World(rows=9)
    with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\]"):
        list(hand_over(tmp_path / "nowhere"))
    with idle_owner(world, tmp_path):
        with pytest.raises(
            InvalidError, match=r"\[NO_STANDBY\] the owner has not got a standby that is ready: it has no"
        ):
            list(hand_over(tmp_path))
        with pytest.raises(InvalidError, match=r"\[NO_STANDBY\] the owner has not got a standby here:1 that is ready"):
            list(hand_over(tmp_path, "here:1"))
    with pytest.raises(InvalidError, match=r"\[NO_STANDBY\] no run owns flow"):
        list(hand_over(tmp_path))


def test_the_secret_stays(tmp_path: Path) -> None:
    world, secrets = World(rows=9), set[bytes]()
    for _ in range(2):
        with idle_owner(world, tmp_path):
            secrets.add((tmp_path / "secret").read_bytes())
    (secret,) = secrets
    assert len(secret) == 32


def test_a_standby_with_available_now_ends_with_the_run(tmp_path: Path) -> None:
    world = World(rows=9)
    with idle_owner(world, tmp_path) as owner, standby(world, tmp_path) as waiting:
        until(waiting.follows)
        owner.stop()
        assert waiting.work.result() is None
    assert len(list(Log.open(open_store(tmp_path), "flow").claims())) == 1


def test_a_store_that_cannot_be_read_for_a_while_does_not_end_a_standby(tmp_path: Path) -> None:
    class Away(LocalStore):
        away = False

        def size(self, name: str) -> int | None:
            if self.away:
                raise UnavailableError("STORE_FAILED", "it is away")
            return super().size(name)

    world, mortal = World(rows=60), MortalStore.of(tmp_path, Fate(None, after=False))
    owner = Process(world, mortal, available_now=False)
    until(lambda: any(progress.what == "idle" for progress in owner.said))
    heir = Process(world, Away(tmp_path, Unsynced()), standby=True)
    until(heir.follows)
    Away.away = True
    until(lambda: heir.told("cannot read the store, and tries again"))
    mortal.fate = Fate(1, after=False)
    owner.stop()
    assert isinstance(owner.work.result(), KilledError)
    Away.away = False
    assert heir.work.result() is None
    world.check()
    check_store(tmp_path)
