"""One numbering is the fence: processes start and resume in any order, and only the newest owner writes."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError, FencedError, InternalError, UnavailableError
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.identities import IDENTITY
from boatlift.storage.local import LocalStore
from boatlift.storage.log import CLAIM_ATTEMPTS, Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.codec import FORMAT_VERSION
from boatlift.storage.records.records import Claim
from support.worlds.facts import CLAIM, Unsynced, last_made, made
from support.worlds.hostile_stores import in_format
from support.worlds.logs import Meanwhile, claimed, manifest_of


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


def test_an_older_owner_is_fenced_by_a_claim_and_stays_so(store: LocalStore) -> None:
    old = claimed(store)
    old.append([made(0)])
    new = Log.open(store, "flow")
    assert new.claim(Claim("other-host", 4711, 0, {"graph": "g"}, {})) == 3
    writes: tuple[Callable[[], object], ...] = (
        lambda: old.append([made(1)]),
        old.checkpoint,
        lambda: old.append([]),
    )
    for write in writes:
        with pytest.raises(FencedError, match=r"\[FENCED\] process 4711 on other-host has taken flow over"):
            write()
    assert new.append([made(1)]) == 4
    assert Log.open(store, "flow").history == new.history


def test_an_owner_can_look_whether_it_still_is_one(store: LocalStore) -> None:
    older = claimed(store)
    older.append([made(0)])
    assert older.newer_owner() is None
    newer = claimed(store)
    for _ in range(2):
        found = older.newer_owner()
        assert found is not None
        assert found.condition == "FENCED"
        assert newer.newer_owner() is None
        newer.checkpoint()
        newer.truncate()


def test_an_owner_is_fenced_by_a_claim_of_a_format_that_it_cannot_read(store: LocalStore) -> None:
    older = claimed(store)
    newer = claimed(store)
    path = store.root / name_of(newer.last)
    path.write_bytes(in_format(FORMAT_VERSION + 1, path.read_bytes()))
    found = older.newer_owner()
    assert found is not None
    assert (found.condition, "a newer process has taken flow over" in found.message) == ("FENCED", True)


def test_an_owner_does_not_take_a_damaged_object_for_a_newer_owner(store: LocalStore) -> None:
    older = claimed(store)
    newer = claimed(store)
    path = store.root / name_of(newer.last)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {name_of(newer.last)}"):
        older.newer_owner()


def test_a_newer_owner_is_seen_while_it_truncates(store: LocalStore) -> None:
    def truncated() -> None:
        newer.checkpoint()
        newer.truncate()

    older = Log.open(Meanwhile(store, "read", name_of(3), truncated), "flow")  # type: ignore[arg-type]
    older.claim(CLAIM)
    newer = claimed(store)
    newer.append([made(0)])
    found = older.newer_owner()
    assert found is not None
    assert "process 1 on host has taken flow over" in found.message


def test_what_the_owner_itself_truncates_meanwhile_is_no_newer_owner(store: LocalStore) -> None:
    created, listed, truncated = (threading.Event() for _ in range(3))

    class Interleaved:
        """The writer waits after a write, before it knows; the looking thread waits until that write is truncated."""

        def __getattr__(self, verb: str) -> object:
            return getattr(store, verb)

        def create(self, name: str, content: bytes | Path) -> None:
            store.create(name, content)
            if name == name_of(2):
                created.set()
                assert listed.wait(60)

        def read(self, name: str, *arguments: Any) -> bytes:
            if name == name_of(2):
                listed.set()
                assert truncated.wait(60)
            return store.read(name, *arguments)

    def write() -> None:
        owner.append([made(0)])
        owner.checkpoint()
        owner.truncate()
        truncated.set()

    owner = Log.open(Interleaved(), "flow")  # type: ignore[arg-type]
    owner.claim(CLAIM)
    writer = threading.Thread(target=write)
    writer.start()
    assert created.wait(60)
    assert owner.newer_owner() is None
    writer.join()
    assert list(store.list("log/")) == [name_of(1), name_of(3)]


def test_a_write_of_ones_own_that_is_not_known_yet_is_no_newer_owner(store: LocalStore) -> None:
    owner = claimed(store)
    seen: list[object] = []

    def look_after(name: str, content: bytes | Path) -> None:
        create(name, content)
        seen.append(owner.newer_owner())

    create, store.create = store.create, look_after  # type: ignore[method-assign]
    owner.append([made(0)])
    assert seen == [None]


def test_an_older_owner_is_fenced_also_when_the_newer_one_has_truncated(store: LocalStore) -> None:
    old = claimed(store)
    new = claimed(store)
    new.append([made(0)])
    new.checkpoint()
    new.truncate()
    with pytest.raises(FencedError, match=r"\[FENCED\] process 1 on host"):
        old.append([made(0)])
    assert Log.open(store, "flow").history == new.history


def test_older_owners_are_fenced_however_many_came_and_truncated_after_them(store: LocalStore) -> None:
    owners = []
    for time in range(4):
        owners.append(claimed(store))
        owners[-1].append([made(time)])
        owners[-1].checkpoint()
        owners[-1].truncate()
    for old in owners[:-1]:
        with pytest.raises(FencedError, match=r"\[FENCED\] process 1 on host"):
            old.append([made(9)])
    assert list(owners[-1].claims()) == [10, 7, 4, 1]
    assert Log.open(store, "flow").history == owners[-1].history


@pytest.mark.parametrize("length", range(6))
def test_a_process_that_was_paused_before_its_claim_is_not_misled_by_a_free_number(
    store: LocalStore, length: int
) -> None:
    """Its next number was used and truncated meanwhile: it may create it, and must see that the log is beyond it."""
    log = claimed(store)
    for time in range(length):
        log.append([made(time)])
    slow = Log.open(store, "flow")
    for time in range(length, 4):
        log.append([made(time)])
    log.checkpoint()
    log.truncate()
    assert slow.claim(CLAIM) == log.last + 1
    assert last_made(slow.history) == max(3, length - 1)
    with pytest.raises(FencedError):
        log.append([made(4)])
    slow.append([made(4)])
    slow.checkpoint()
    slow.truncate()
    assert Log.open(store, "flow").history == slow.history
    assert list(store.list("log/")) == [name_of(number) for number in (1, slow.last - 2, slow.last)]


@settings(max_examples=100)
@given(st.data())
def test_of_any_owners_paused_anywhere_only_the_newest_writes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Processes take turns in any way, each seeing only what it read last; a model knows who owns the log."""
    store = LocalStore.open(tmp_path_factory.mktemp("store"), create=True, filesystem=Unsynced())
    processes: list[Log] = []
    tokens: dict[int, int] = {}
    owner, durable = -1, 0
    for _ in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["open", "claim", "append", "append", "manifest", "truncate"]))
        if act == "open" or not processes:
            processes.append(Log.open(store, "flow", facts_an_object=2))
            continue
        who = data.draw(st.integers(0, len(processes) - 1))
        log = processes[who]
        if act == "claim" and who not in tokens:
            tokens[who] = log.claim(CLAIM)
            assert tokens[who] == max(tokens.values())
            assert last_made(log.history) == durable - 1, "the new owner knows all that was acknowledged"
            owner = who
        elif act in {"append", "manifest"} and who in tokens:
            write = partial(log.append, [made(durable)]) if act == "append" else partial(manifest_of, log)
            if who == owner:
                write()
                durable += act == "append"
            else:
                with pytest.raises(FencedError, match=r"\[FENCED\]"):
                    write()
        elif act == "truncate" and who in tokens:
            log.truncate()
        assert last_made(Log.open(store, "flow").history) == durable - 1
    shutil.rmtree(store.root)


def test_an_older_owner_may_truncate_what_it_made_garbage(store: LocalStore) -> None:
    """A pause between manifest and truncation takes nothing from the newer owner."""
    old = claimed(store)
    old.append([made(0)])
    old.checkpoint()
    new = claimed(store)
    new.append([made(1)])
    old.truncate()
    assert Log.open(store, "flow").history == new.history


def test_a_claim_that_loses_its_number_reads_on_and_takes_the_next(store: LocalStore) -> None:
    fast: list[Log] = []

    def overtake() -> None:
        fast.append(claimed(store))
        fast[-1].append([made(len(fast) - 1)])

    slow = Log.open(Meanwhile(store, "create", "log/", overtake, times=3), "flow")  # type: ignore[arg-type]
    assert slow.claim(CLAIM) == 7
    assert sorted(slow.history.live_records.determinants["numbers"]) == [0, 1, 2]
    with pytest.raises(FencedError):
        fast[-1].append([made(3)])
    slow.append([made(3)])
    assert Log.open(store, "flow").history == slow.history


def test_a_claim_gives_up_in_the_end(store: LocalStore) -> None:
    endless = Meanwhile(store, "create", "log/", lambda: claimed(store), times=1000)
    with pytest.raises(FencedError, match=r"\[FENCED\] other processes keep claiming flow"):
        Log.open(endless, "flow").claim(CLAIM)  # type: ignore[arg-type]
    assert Log.open(store, "flow").last == CLAIM_ATTEMPTS


def test_a_claim_of_another_program_is_refused_also_if_it_was_overtaken(store: LocalStore) -> None:
    other = Claim("host", 2, 0, {"graph": "another"}, {})
    overtaken = Log.open(Meanwhile(store, "create", "log/", lambda: claimed(store)), "flow")  # type: ignore[arg-type]
    for log in (overtaken, Log.open(store, "flow")):
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].*graph changed"):
            log.claim(other)
    assert Log.open(store, "flow").last == 1


def test_a_program_is_compared_as_it_is_written(store: LocalStore) -> None:
    """A tuple is a list once it was written, and the order of keys means nothing."""
    claimed(store, Claim("host", 1, 0, {"keys": ("a", "b"), "plan": {"x": 1, "y": 2}}, {}))
    claimed(store, Claim("host", 1, 0, {"plan": {"y": 2, "x": 1}, "keys": ["a", "b"]}, {}))


def test_only_the_owner_may_write_and_only_once_it_has_claimed(store: LocalStore) -> None:
    log = Log.open(store, "flow")
    with pytest.raises(InternalError, match="must be claimed"):
        log.append([made(0)])
    log.claim(CLAIM)
    with pytest.raises(InternalError, match="claimed already"):
        log.claim(CLAIM)


def test_after_a_failed_write_the_log_refuses_all_others(tmp_path: Path) -> None:
    class Fails(FileSystem):
        failing = False

        def sync_folder(self, path: Path) -> None:
            if self.failing:
                raise OSError(5, "Input/output error")
            super().sync_folder(path)

    files = Fails()
    log = claimed(LocalStore.open(tmp_path, create=True, filesystem=files))
    log.append([made(0)])
    applied = list(log.history.live_records.determinants["numbers"])
    files.failing = True
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*Input/output error"):
            log.append([made(1)])
    assert list(log.history.live_records.determinants["numbers"]) == applied, "what may not be durable is not applied"
    again = Log.open(LocalStore.open(tmp_path, create=False), "flow")
    assert sorted(again.history.live_records.determinants["numbers"]) in ([0], [0, 1])


def test_after_a_write_of_unknown_outcome_the_log_refuses_though_the_store_would_not(store: LocalStore) -> None:
    """Whether the object is there is not known before the store is opened again; a second try could write it twice."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    log = Log.open(Meanwhile(store, "create", name_of(3), interrupt), "flow")  # type: ignore[arg-type]
    log.claim(CLAIM)
    log.append([made(0)])
    writes: tuple[Callable[[], object], ...] = (
        lambda: log.append([made(1)]),
        lambda: log.append([made(1)]),
        log.checkpoint,
    )
    for write in writes:
        with pytest.raises(KeyboardInterrupt):
            write()
    assert Log.open(store, "flow").last == 2


# --- reading beside a writer ---


def test_a_reader_is_not_disturbed_by_a_truncation(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])

    def truncate() -> None:
        log.checkpoint()
        log.truncate()

    for prefix in (name_of(log.last), name_of(2)):
        reader = Log.open(Meanwhile(store, "read", prefix, truncate), "flow")  # type: ignore[arg-type]
        assert reader.history == log.history


def test_a_reader_is_not_disturbed_by_the_first_claim(store: LocalStore) -> None:
    def begin() -> None:
        log = claimed(store)
        log.append([made(0)])

    for verb, prefix in (("list", ""), ("size", IDENTITY)):
        for name in list(store.list("")):
            store.delete(name)
        reader = Log.open(_AfterList(store, begin, verb, prefix), "flow")  # type: ignore[arg-type]
        assert reader.last in (0, 2)


class _AfterList(Meanwhile):
    """Acts between the first look at the log's numbers and the look at everything."""

    def __init__(self, store: LocalStore, act: Callable[[], object], verb: str, prefix: str) -> None:
        super().__init__(store, verb, prefix, act)
        self._looked = False

    def __getattr__(self, verb: str) -> object:
        call = super().__getattr__(verb)

        def first_look(name: str, *arguments: object) -> object:
            if name == "log/" and not self._looked:
                self._looked = True
                return self._store.list(name)
            return call(name, *arguments)  # type: ignore[operator]

        return first_look
