"""What a standby does while its link to the owner, or the store, is cut, late or slow."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from boatlift.errors import FencedError
from boatlift.runtime.host import standby as standby_module
from boatlift.runtime.host import term
from boatlift.runtime.host.ownership import Life
from boatlift.runtime.inspect.status import status_at
from boatlift.runtime.peers import owner as owner_module
from boatlift.runtime.peers.channel import Beat
from boatlift.runtime.peers.detector import Detector
from boatlift.runtime.peers.follower import FollowerLink, Lost
from boatlift.runtime.peers.owner import OwnerLink
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store
from support.engine.memory_engine import PROGRAM, World
from support.engine.noting import NotingEngine, NotingWorld
from support.engine.relay import Relay
from support.engine.standbys import Process, idle_owner, standby
from support.waiting import until
from support.worlds.facts import made
from support.worlds.logs import claimed


@pytest.fixture
def relay(monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    """Between the first owner, of whose process nothing is known, and its standbys."""
    made, links = Relay(), list[OwnerLink]()

    def address(link: OwnerLink) -> str:
        links.append(link)
        own = f"127.0.0.1:{link._socket.getsockname()[1]}"
        if link is not links[0]:
            return own
        made.target = ("127.0.0.1", link._socket.getsockname()[1])
        return made.address

    monkeypatch.setattr(OwnerLink, "address", property(address))
    monkeypatch.setattr(standby_module, "life_of", lambda *_: Life.UNKNOWN)
    monkeypatch.setattr(term, "LOOK_SECONDS", 0.05)
    yield made
    made.close()


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When a standby has heard a beat: before the first one, silence says nothing of an owner."""
    hear, heard = Detector.heard_beat, list[float]()

    def heard_beat(detector: Detector, now: float, still: float = 0.0) -> None:
        hear(detector, now, still)
        heard.append(now)

    monkeypatch.setattr(Detector, "heard_beat", heard_beat)
    return heard


@pytest.mark.parametrize("both", [False, True], ids=["to the standby", "both"])
def test_a_link_that_is_cut_costs_a_takeover_and_nothing_else(
    tmp_path: Path, relay: Relay, beats: list[float], both: bool
) -> None:
    world = World(rows=30)
    with idle_owner(world, tmp_path) as owner, standby(world, tmp_path) as heir:
        until(lambda: bool(beats) and heir.told("is ready"))
        relay.to_client.clear()
        if both:
            relay.to_server.clear()
        assert heir.work.result() is None
        assert heir.told("it has been silent for")
        error = owner.work.result()
        assert isinstance(error, FencedError)
    world.check()
    check_store(tmp_path)


def test_a_link_that_is_cut_towards_the_owner_causes_no_takeover(tmp_path: Path, relay: Relay) -> None:
    world = World(rows=30)
    with idle_owner(world, tmp_path), standby(world, tmp_path, available_now=False) as waiting:
        until(lambda: len(status_at(tmp_path).standbys) == 1)
        relay.to_server.clear()
        until(lambda: not status_at(tmp_path).standbys)
        assert not waiting.told("taken for dead")
        relay.to_server.set()
        until(lambda: len(status_at(tmp_path).standbys) == 1)
    world.check()


def test_a_standby_that_is_not_heard_is_a_member_no_longer(
    tmp_path: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a takeover would wait for what it holds."""
    monkeypatch.setattr(owner_module, "LOST_SECONDS", 0.8)

    def members() -> set[str]:
        found = Log.open(open_store(tmp_path), "flow").members
        return set() if found is None else set(found.lives)

    world = NotingWorld(9, determinants="peers:1")
    with (
        idle_owner(world, tmp_path, engine=NotingEngine),
        standby(world, tmp_path, engine=NotingEngine, available_now=False) as waiting,
    ):
        until(lambda: members() == {waiting.tail.life})
        relay.to_server.clear()
        until(lambda: members() == set())
        assert not waiting.told("taken for dead")
        relay.to_server.set()
        until(lambda: members() == {waiting.tail.life})
    world.check()


def test_a_store_with_slow_writes_is_taken_over(tmp_path: Path) -> None:
    class Slow(MortalStore):
        def create(self, name: str, content: bytes | Path) -> None:
            time.sleep(0.05)
            super().create(name, content)

    world = World(rows=60)
    owner = Process(world, Slow.of(tmp_path, Fate(20, after=True)))
    heir = Process(world, Slow.of(tmp_path, Fate(None, after=False)), standby=True)
    assert isinstance(owner.work.result(), KilledError)
    assert heir.work.result() is None
    world.check()
    check_store(tmp_path)


def test_an_owner_that_writes_is_not_taken_for_dead_though_it_is_not_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is cut, and nothing is known of its process."""
    monkeypatch.setattr(standby_module, "life_of", lambda *_: Life.UNKNOWN)
    monkeypatch.setattr(FollowerLink, "_converse", cut_after_a_beat())
    claim = Claim(socket.gethostname(), 7, 0, PROGRAM, {"python": "3"}, address="127.0.0.1:1")
    world, log = World(rows=9), claimed(open_store(tmp_path), claim)
    with standby(world, tmp_path, available_now=False) as waiting:
        until(waiting.follows)
        for number in range(30):
            log.append([made(number, "rows")])
            time.sleep(0.05)
        assert not waiting.told("taken for dead")
        until(lambda: waiting.told("it has been silent for"))


def cut_after_a_beat() -> Callable[[FollowerLink], Lost]:
    beats = [Beat(1, 0)]

    def converse(link: FollowerLink) -> Lost:
        if beats:
            link.heard.put((time.monotonic(), beats.pop()))
        return Lost.UNREACHED

    return converse
