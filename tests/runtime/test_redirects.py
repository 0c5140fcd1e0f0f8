"""When a standby answers clients in the place of the owner: never where a process of its host may have to."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import UnavailableError
from boatlift.runtime.peers.handover import hand_over
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim, Stopped
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import open_store
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.engine.standbys import Process, idle_owner, standby
from support.waiting import until
from support.worlds.facts import Unsynced
from support.worlds.logs import claimed

PUSHES = {"rows": "http://owner:1"}


class Redirecting(MemoryEngine):
    """An engine whose source has clients."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.told = list[Mapping[str, str] | None]()

    def redirect(self, owner: Mapping[str, str] | None) -> None:
        if self.told[-1:] != [owner]:
            self.told.append(owner)

    def reserve(self) -> None:
        self.told.append({"rows": "reserved"})

    def advertised(self) -> dict[str, str]:
        return PUSHES


def told(process: Process) -> list[Mapping[str, str] | None]:
    engine = process.host._engine
    assert isinstance(engine, Redirecting)
    return engine.told


@contextmanager
def waiting(root: Path, **options: Any) -> Iterator[Process]:
    with standby(World(rows=9), root, engine=Redirecting, available_now=False, **options) as process:
        yield process


def owned(root: Path, **fields: Any) -> Log:
    """A log whose owner is elsewhere, and is not heard."""
    claim = Claim("elsewhere", 7, 0, PROGRAM, {"python": "3"}, address="10.255.255.1:9", pushes=PUSHES, **fields)
    return claimed(open_store(root), claim)


def test_clients_are_sent_to_the_owner_and_wait_while_nobody_is(tmp_path: Path) -> None:
    world = World(rows=30)
    owner = Process(world, MortalStore.of(tmp_path, Fate(12, after=True)), engine=Redirecting)
    with standby(world, tmp_path, engine=Redirecting) as heir:
        assert isinstance(owner.work.result(), KilledError)
        assert heir.work.result() is None
        assert told(heir)[-3:] == [PUSHES, {}, {"rows": "reserved"}]
    world.check()


def test_the_heir_of_a_handover_keeps_the_port(tmp_path: Path) -> None:
    world = World(rows=9)
    with (
        idle_owner(world, tmp_path, engine=Redirecting) as owner,
        standby(world, tmp_path, engine=Redirecting, available_now=False) as heir,
    ):
        until(lambda: owner.host._link is not None and any(each.ready for each in owner.host._link.standbys()))
        list(hand_over(tmp_path))
        assert owner.work.result() is None
        assert told(heir) == [PUSHES, {}, {"rows": "reserved"}]


@pytest.mark.parametrize("heir", ["", "another life"])
def test_after_a_clean_stop_the_port_is_left_to_the_next_owner(tmp_path: Path, heir: str) -> None:
    """It may be on this host."""
    log = owned(tmp_path)
    with waiting(tmp_path) as process:
        until(lambda: told(process) == [PUSHES])
        log.append([Stopped(heir)])
        until(lambda: told(process) == [PUSHES, None])
        owned(tmp_path)
        until(lambda: told(process) == [PUSHES, None, PUSHES])


def test_one_that_waits_for_a_handover_holds_no_port(tmp_path: Path) -> None:
    owned(tmp_path)
    with waiting(tmp_path, for_handover=True) as process:
        until(process.follows)
        until(lambda: told(process) == [None])


def test_clients_are_sent_on_while_the_store_is_away(tmp_path: Path) -> None:
    class Away(LocalStore):
        away = False

        def size(self, name: str) -> int | None:
            if self.away:
                raise UnavailableError("STORE_FAILED", "it is away")
            return super().size(name)

    owned(tmp_path)
    process = Process(World(rows=9), Away(tmp_path, Unsynced()), standby=True, engine=Redirecting)
    until(lambda: told(process) == [PUSHES])
    Away.away = True
    until(lambda: process.told("cannot read the store, and tries again"))
    assert told(process) == [PUSHES]
    process.stop()
    process.work.result()


def test_an_owner_that_only_its_own_host_reaches_may_still_take_pushes(tmp_path: Path) -> None:
    here = Claim(socket.gethostname(), 7, 0, PROGRAM, {"python": "3"}, address="127.0.0.1:1")
    claimed(open_store(tmp_path), here)
    with waiting(tmp_path) as process:
        until(process.follows)
        claim = Claim("elsewhere", 7, 0, PROGRAM, {"python": "3"}, address="127.0.0.1:4711", pushes=PUSHES)
        log = claimed(open_store(tmp_path), claim)
        until(lambda: process.told("cannot reach process 7 on elsewhere"))
        assert told(process) == [None, PUSHES]
        log.append([Stopped()])


def test_a_claim_of_before_has_no_addresses(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("here", 7, 0, PROGRAM, {"python": "3"}))
    claim = log.claim_of(log.owner)
    assert claim is not None
    assert (claim.pushes, claim.fingerprint) == ({}, "")
