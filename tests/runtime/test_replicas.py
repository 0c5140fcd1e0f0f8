"""Equal processes of one dataflow: one of them owns it, and goes on after a clean stop of another one, too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import InvalidError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.peers.handover import hand_over
from boatlift.storage.log import Log
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store
from support.engine.memory_engine import MemoryEngine, World
from support.engine.standbys import Process, idle_owner
from support.waiting import until

OWNER, READY_STANDBY = (200, {"role": "owner", "ready": True}), (503, {"role": "standby", "ready": True})


class NewerEngine(MemoryEngine):
    def environment(self) -> dict[str, Any]:
        return {"python": "4"}


@contextmanager
def replica(world: World, root: Path, **options: Any) -> Iterator[Process]:
    process = Process(world, open_store(root), replica=True, available_now=False, **options)
    try:
        yield process
    finally:
        process.stop()
        process.work.result()


def idle(process: Process) -> bool:
    """Return whether it has executed all there is."""
    return any(progress.what == "idle" and not progress.behind for progress in process.said)


def owners(*processes: Process) -> list[Process]:
    return [each for each in processes if each.health.readyz() == OWNER]


def test_of_two_replicas_on_an_empty_store_one_is_the_owner(tmp_path: Path) -> None:
    world = World(rows=30)
    with replica(world, tmp_path) as one, replica(world, tmp_path) as other:
        (owner,) = until(lambda: owners(one, other))
        follower = other if owner is one else one
        until(lambda: follower.health.readyz() == READY_STANDBY)
        assert follower.health.readyz(standby_ok=True)[0] == 200
    check_store(tmp_path)


def test_a_replica_goes_on_after_a_clean_stop(tmp_path: Path) -> None:
    world = World(rows=30)
    with ExitStack() as stack:
        first = stack.enter_context(replica(world, tmp_path))
        until(lambda: owners(first))
        second = stack.enter_context(replica(world, tmp_path))
        until(second.follows)
        first.stop()
        assert first.health.readyz() == (503, {"role": "stopping", "ready": False})
        assert first.work.result() is None
        until(lambda: owners(second))
        third = stack.enter_context(replica(world, tmp_path))
        until(third.follows)
        until(lambda: idle(second))
    world.check()
    check_store(tmp_path)


def test_a_replica_goes_on_after_a_death(tmp_path: Path) -> None:
    world = World(rows=60)
    dying = Process(world, MortalStore.of(tmp_path, Fate(12, after=True)), available_now=False)
    assert isinstance(dying.work.result(), KilledError)
    with replica(world, tmp_path) as other:
        until(lambda: owners(other))
    check_store(tmp_path)


def test_of_two_replicas_only_the_heir_of_a_handover_goes_on(tmp_path: Path) -> None:
    world = World(rows=30)
    with idle_owner(world, tmp_path), replica(world, tmp_path) as one, replica(world, tmp_path) as other:
        until(lambda: one.health.readyz() == other.health.readyz() == READY_STANDBY)
        until(lambda: one.follows() and other.follows())
        list(until(lambda: _handed_over(tmp_path)))
        (owner,) = until(lambda: owners(one, other))
        assert len(list(Log.open(open_store(tmp_path), "flow").claims())) == 2
        until((other if owner is one else one).follows)


def _handed_over(root: Path) -> list[str]:
    with suppress(InvalidError):  # no standby has said yet that it is ready
        return list(hand_over(root))
    return []


def test_a_replica_of_a_newer_environment_waits_for_a_clean_stop(tmp_path: Path) -> None:
    world = World(rows=30)
    with idle_owner(world, tmp_path) as owner, replica(world, tmp_path, engine=NewerEngine) as newer:
        until(newer.follows)
        assert not newer.told("taken for dead")
        owner.stop()
        until(lambda: owners(newer))
    check_store(tmp_path)


def test_a_replica_of_a_newer_environment_does_not_take_over_by_suspicion(tmp_path: Path) -> None:
    world = World(rows=60)
    dying = Process(world, MortalStore.of(tmp_path, Fate(12, after=True)), available_now=False)
    assert isinstance(dying.work.result(), KilledError)
    with replica(world, tmp_path, engine=NewerEngine) as newer:
        until(newer.follows)
        until(lambda: newer.told("which seems dead"))
        assert newer.told("run a replica with the versions and settings of that process")
        assert newer.health.readyz(standby_ok=True)[0] == 503
        assert not newer.told("taken for dead")
        with replica(world, tmp_path) as same:
            # A stop in the middle of a replay leaves steps that no other environment may repeat.
            until(lambda: idle(same))
            same.stop()
            same.work.result()
        until(lambda: owners(newer))
    check_store(tmp_path)


@pytest.mark.parametrize("other", ["available_now", "for_handover"])
def test_a_replica_has_no_end(other: str) -> None:
    with pytest.raises(InvalidError, match=rf"omit {other}=True"):
        RunOptions(replica=True, **{other: True})
