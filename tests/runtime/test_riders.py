"""What the acts of sinks carry: a log that takes long holds no sink up, and a crash then loses nothing."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import DataError
from boatlift.runtime.host.consent import CARRIED, transition_to
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.progress import Progress
from boatlift.storage.log import Log
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, Settled, SinkCommit, Stopped
from boatlift.storage.records.stream import Tail, found_behind
from boatlift.storage.store import Requests
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import Background, check_store, open_store, run
from support.engine.noting import NotingEngine, NotingWorld, RidingStore, SlowStore
from support.waiting import until
from support.worlds.facts import Unsynced

BEGUN = 2
"""A claim, and the object with which its owner begins."""


def crash(world: NotingWorld, root: Path, *, objects: int, shown: int) -> None:
    """Run until the sinks have shown so many steps, while the log takes no further object; then die."""
    root.mkdir(exist_ok=True)
    store = SlowStore(root, objects)
    work = Background(lambda: run(NotingEngine(world), store))
    try:
        until(lambda: all(len(world.held.get(sink, ())) >= shown for sink in world.carry))
    finally:
        store.dies.set()
    assert isinstance(work.result(), KilledError)


def last_recorded(root: Path) -> int:
    return max((fact.time for fact in determinants(root)), default=-1)


def determinants(root: Path) -> list[Any]:
    return list(Log.open(open_store(root), "flow").history.live_records.determinants.get("rows", {}).values())


def test_sinks_go_on_while_the_log_is_slow_and_a_crash_loses_and_changes_nothing(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    assert last_recorded(tmp_path) == -1, "the log has none of what the sinks show"
    shown, said = {sink: list(steps) for sink, steps in world.held.items()}, list[Progress]()
    run(NotingEngine(world), open_store(tmp_path), said.append)  # it lets nothing be carried, and reads notes too
    assert [each.processor for each in said if each.what == "carried"] == ["flow"]
    assert all(world.held[sink][: len(steps)] == steps for sink, steps in shown.items())
    world.check()
    check_store(tmp_path)


def test_owners_that_crash_one_after_the_other_carry_on_from_each_other(tmp_path: Path) -> None:
    world = NotingWorld(rows=120)
    for life in range(1, 5):
        crash(world, tmp_path, objects=BEGUN + 1 + life % 2, shown=3 * life)
    run(NotingEngine(world), RidingStore(tmp_path, Unsynced()))
    world.check()
    check_store(tmp_path)


def test_an_owner_that_dies_before_it_has_begun_leaves_what_was_carried(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    for _ in range(2):
        store = SlowStore(tmp_path, 1)  # the claim alone
        store.dies.set()
        assert isinstance(Background(lambda store=store: run(NotingEngine(world), store)).result(), KilledError)
    run(NotingEngine(world), RidingStore(tmp_path, Unsynced()))
    world.check()
    check_store(tmp_path)


def test_a_sink_that_keeps_no_notes_waits_for_the_log(tmp_path: Path) -> None:
    world = NotingWorld(rows=60, carry=("totals",))
    crash(world, tmp_path, objects=BEGUN, shown=4)
    assert world.held["all"] == []
    run(NotingEngine(world), open_store(tmp_path))
    world.check()


def test_a_rider_that_is_too_large_waits_for_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, sizes = NotingWorld(rows=60, note_bytes=500), []
    rider = LogCalls.rider

    def noted(self: LogCalls, most: int) -> bytes:
        content = rider(self, most)
        sizes.append(len(content))
        return content

    class LateStore(RidingStore):
        """Each object of the log takes longer than a step."""

        def create(self, name: str, content: bytes | Path) -> None:
            time.sleep(0.02 if name.startswith("log/") else 0.0)
            super().create(name, content)

    monkeypatch.setattr(LogCalls, "rider", noted)
    run(NotingEngine(world), LateStore(tmp_path, Unsynced()))
    assert sizes
    assert max(sizes) <= 500
    world.check()
    check_store(tmp_path)


def test_an_act_carries_all_that_the_log_lacks_from_where_it_ends(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    log = Log.open(open_store(tmp_path), "flow")
    for note in world.notes.values():
        tail = decode_tail(note, "the note")
        assert (tail.store, tail.token, tail.start) == (log.store_id, log.begun, log.entries)
        assert [fact for entry in tail.entries for fact in entry]


def test_a_note_that_is_damaged_is_refused(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    world.notes["all"] = world.notes["all"][:-1] + b"\0"
    with pytest.raises(DataError, match=r"\[CORRUPT\] the note in sink all fails its checksum"):
        run(NotingEngine(world), open_store(tmp_path))


def test_after_an_error_nothing_has_to_be_asked_of_the_sinks(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    with pytest.raises(ZeroDivisionError):
        run(NotingEngine(world, fails_at=3), RidingStore(tmp_path, Unsynced()))
    log = Log.open(open_store(tmp_path), "flow")
    assert isinstance([record for group in log.groups() for record in group.records][-1], Settled)
    assert not log.may_be_carried
    run(NotingEngine(world), RidingStore(tmp_path, Unsynced()))
    assert not Log.open(open_store(tmp_path), "flow").may_be_carried, "a clean stop settles, too"
    world.check()


def test_after_a_crash_the_program_changes_once_it_has_run_as_it_was(tmp_path: Path) -> None:
    def obstacles() -> list[str]:
        found = transition_to(Log.open(open_store(tmp_path), "flow"), NotingEngine(world), {}).obstacles
        return [f"[{each.error.condition}] {each.error.message}" for each in found]

    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    assert obstacles() == [f"[NEEDS_CLEAN_STOP] {CARRIED}"]
    run(NotingEngine(world), RidingStore(tmp_path, Unsynced()))  # as the error advises
    assert obstacles() == []


class MortalRidingStore(MortalStore):
    requests = Requests(rides=True)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_any_write_while_sinks_carry_and_run_again(tmp_path: Path, after: bool) -> None:
    deaths = 0
    while True:
        root, world = tmp_path / str(deaths), NotingWorld(rows=15)
        try:
            run(NotingEngine(world), MortalRidingStore.of(root, Fate(deaths + 1, after=after)))
        except KilledError:
            deaths += 1
        else:
            break
        run(NotingEngine(world), open_store(root))
        world.check()
        check_store(root)
    assert deaths > 10


def test_killed_again_and_again_while_sinks_carry(tmp_path: Path) -> None:
    world, lives = NotingWorld(rows=90), 0
    while True:
        store = MortalRidingStore.of(tmp_path, Fate(8 + lives % 5, after=lives % 2 == 1))
        lives += 1
        try:
            run(NotingEngine(world, every=3), store)
        except KilledError:
            continue
        break
    assert lives > 5
    world.check()
    check_store(tmp_path)


def test_of_several_tails_the_entries_that_join_count_once() -> None:
    def tail(start: int, end: int, token: int = 7, store: str = "s") -> Tail:
        return Tail(store, token, start, 100 + end, tuple((SinkCommit("table", at),) for at in range(start, end)))

    def found(*tails: Tail, stored: int = 3) -> list[int]:
        return [record.time for record in found_behind(tails, "s", 7, stored).records]  # type: ignore[union-attr]

    assert found() == []
    assert found(tail(0, 3)) == found(tail(3, 3)) == [], "all of it is stored"
    assert found(tail(3, 5)) == found(tail(0, 5)) == [3, 4]
    assert found(tail(4, 7), tail(1, 5), tail(2, 4)) == [3, 4, 5, 6]
    assert found(tail(3, 9, token=6)) == found(tail(3, 9, token=8)) == found(tail(3, 9, store="t")) == []
    assert found_behind([tail(3, 5), tail(3, 6)], "s", 7, 3).at == 106
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] a sink rests on 5 entries, and 3 are found"):
        found_behind([tail(4, 5)], "s", 7, 3).refuse_gap()
    assert found_behind([tail(4, 5), tail(3, 4)], "s", 7, 3).rests == 5
    assert found_behind([tail(6, 6), tail(3, 5)], "s", 7, 3).lacks, "an act says that it rests on one more"


def test_what_an_owner_of_a_copy_carried_is_another_owners(tmp_path: Path) -> None:
    """A copy goes back, with the same number of its claim as the original's next owner: sinks know it by another."""
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    tails = [decode_tail(note, "the note") for note in world.notes.values()]
    log = Log.open(open_store(tmp_path), "flow")
    assert {tail.token for tail in tails} == {log.begun + log.history.ahead}
    assert found_behind(tails, log.store_id, log.begun + log.history.ahead, log.entries).records
    assert not found_behind(tails, log.store_id, log.begun + log.history.ahead + 1, log.entries).records


def test_a_copy_goes_back_with_its_sinks_though_its_owner_was_killed(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    log, engine = Log.open(open_store(tmp_path), "flow"), NotingEngine(world)
    errors = [each.error.message for each in transition_to(log, engine, {}, "", from_copy=True).obstacles]
    assert CARRIED not in errors


def test_an_error_behind_a_clean_stop_leaves_it_clean(tmp_path: Path) -> None:
    def raises(progress: Progress) -> None:
        if progress.what == "over":
            raise ZeroDivisionError("of the watcher")

    world = NotingWorld(rows=60)
    with pytest.raises(ZeroDivisionError):
        run(NotingEngine(world), RidingStore(tmp_path, Unsynced()), raises)
    log = Log.open(open_store(tmp_path), "flow")
    assert log.history.stopped
    assert not log.may_be_carried


def test_a_run_that_fails_before_it_has_done_anything_leaves_the_stop_before_it(tmp_path: Path) -> None:
    world = NotingWorld(rows=15)
    run(NotingEngine(world), RidingStore(tmp_path, Unsynced()))
    world.rows = 30
    with pytest.raises(ZeroDivisionError):
        run(NotingEngine(world, fails_at=0), RidingStore(tmp_path, Unsynced()))
    history = LogHistory.of([Claim("host", 1, 0, {}, {}), SinkCommit("all", 1), Stopped(), Settled()])
    assert history.stopped
    history = LogHistory.of([SinkCommit("all", 1), Stopped(), Claim("host", 1, 0, {}, {}), Settled()])
    assert history.resumed


def test_a_sink_that_only_reads_notes_is_read_and_carries_none(tmp_path: Path) -> None:
    world = NotingWorld(rows=60)
    crash(world, tmp_path, objects=BEGUN, shown=4)
    world.note_bytes = 0  # another process sees its place on a network file system
    before = dict(world.notes)
    run(NotingEngine(world), RidingStore(tmp_path, Unsynced()))
    assert world.notes == before
    world.check()
