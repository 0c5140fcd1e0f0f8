"""The input log: the next owner reads acknowledged rows; a newer owner fences an older one; keys outlive rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boatlift.errors import BoatliftError, DataError, FencedError, Finding
from boatlift.storage import input_log, remembered_keys
from boatlift.storage.input_log import KEY_CHECKPOINT_AFTER, InputLog
from boatlift.storage.input_objects import rows_in
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import Push, checksum_of
from boatlift.storage.store import Store
from boatlift.storage.verify import verify_input
from support.worlds.facts import Unsynced
from support.worlds.logs import Meanwhile

STORE = "0" * 32


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


def log_of(store: Store) -> InputLog:
    return InputLog(store, STORE, "orders")


def claimed(store: Store, token: int = 1, freed: int = 0) -> InputLog:
    log = log_of(store)
    log.claim(token, freed)
    return log


def pushed(key: str, rows: int = 1, at: int = 0) -> Push:
    return Push(key, rows, key.encode(), at)


def there(store: Store) -> list[int]:
    return [int(name.rpartition("/")[2]) for name in store.list("input/")]


def test_what_was_appended_is_read_by_the_next_owner(store: LocalStore) -> None:
    log = claimed(store)
    first = log.append([pushed("a", 2), pushed("b")], b"rows 1")
    second = log.append([pushed("", 4)], b"rows 2")
    following = claimed(store, 2)
    assert following.parts(0) == log.parts(0)
    assert [(number, part.base, part.rows) for number, part in following.parts(0)] == [(first, 0, 3), (second, 3, 4)]
    assert [rows_in(following.path(number)) for number in (first, second)] == [(0, b"rows 1"), (3, b"rows 2")]
    assert following.find("b") == Push("b", 1, b"b", 0, first)
    assert following.find("") is None is following.find("c")
    number, part = following.parts(first)[0]
    assert part.checksum == checksum_of(following.path(number).read_bytes()) == following.checksum(number)


def test_an_older_owner_is_fenced_and_nothing_of_it_is_read(store: LocalStore) -> None:
    older = claimed(store, 1)
    older.append([pushed("a")], b"a")
    newer = claimed(store, 2)
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        older.append([pushed("b")], b"b")
    assert newer.append([pushed("c")], b"c") == 4
    assert log_of_all_keys(store) == {"a", "c"}


def test_a_claim_after_a_newer_owner_is_fenced(store: LocalStore) -> None:
    claimed(store, 2)
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        claimed(store, 1)


def test_a_claim_that_loses_to_an_append_reads_that_too(store: LocalStore) -> None:
    older = claimed(store, 1)
    slow = Meanwhile(store, "create", "input/", lambda: older.append([pushed("late")], b"late"))
    assert claimed(slow, 2).find("late") is not None  # type: ignore[arg-type]
    with pytest.raises(FencedError):
        older.append([pushed("later")], b"")


def test_a_process_that_slept_before_its_claim_is_fenced_though_its_number_is_free_again(store: LocalStore) -> None:
    oldest = claimed(store, 1)

    def others() -> None:
        for _ in range(KEY_CHECKPOINT_AFTER):
            oldest.append([pushed("x")], b"x")
        newest = claimed(store, 3)
        newest.free(oldest.last, 0)
        assert 2 not in there(store)

    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        claimed(Meanwhile(store, "create", "input/", others), 2)  # type: ignore[arg-type]
    assert claimed(store, 4, KEY_CHECKPOINT_AFTER + 1).find("x") is not None


def test_the_claim_of_an_owner_that_slept_stays_taken(store: LocalStore) -> None:
    older = claimed(store, 1)
    newer = claimed(store, 2)
    for _ in range(KEY_CHECKPOINT_AFTER):
        newer.append([pushed("x")], b"x")
    newer.free(newer.last, 0)
    assert len(there(store)) < 10
    with pytest.raises(FencedError):
        older.append([pushed("a")], b"")
    last = newer.last
    assert claimed(store, 3, last).last == last + 1


def test_what_is_free_goes_and_its_keys_stay(store: LocalStore) -> None:
    log = claimed(store)
    for number in range(KEY_CHECKPOINT_AFTER):
        log.append([pushed(f"k{number}", at=number)], b"rows" * 100)
    last = log.last
    waiting = log.append([pushed("waits", at=1_000)], b"rows")
    log.free(last - 2, 0)
    assert len(there(store)) > KEY_CHECKPOINT_AFTER, "one lacks: nothing goes yet"
    log.free(last, remember=100)
    assert there(store) == [1, waiting, waiting + 1]
    for found in (log, claimed(store, 2, last), log_of_readers(store)):
        assert [number for number, _ in found.parts(0)] == [waiting]
        assert found.find("k99") is None, "older than what is remembered"
        assert found.find("k100") == Push("k100", 1, b"k100", 100, 102)
        assert found.find("waits") is not None
    assert [part.base for _, part in log.parts(0)] == [KEY_CHECKPOINT_AFTER]


def test_what_is_freed_of_a_log_that_is_read_in_the_whole_stays(store: LocalStore) -> None:
    log = InputLog(store, STORE, "orders", keeps_all=True)
    log.claim(1, 0)
    for _ in range(KEY_CHECKPOINT_AFTER + 1):
        log.append([pushed("x")], b"x")
    log.free(log.last, 0)
    assert log.waiting == 0
    assert len(there(store)) == KEY_CHECKPOINT_AFTER + 2


def test_large_rows_go_soon(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_log, "KEY_CHECKPOINT_BYTES", 1000)
    log = claimed(store)
    for _ in range(3):
        log.free(log.append([pushed("x")], b"x" * 600), 0)
    assert there(store) == [1, 4, 5], "after two there was enough"


def append_keys(log: InputLog, numbers: range, at: int = 0) -> None:
    """Push a key for each number, as a source does."""
    for number in numbers:
        log.append([pushed(f"{number:036}", at=at)], b"")
        log.remember(0)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_keys, "PACK_AFTER", 4)
    monkeypatch.setattr(remembered_keys, "BLOCK", 2)


@pytest.mark.usefixtures("few")
def test_packs_go_when_all_that_they_have_is_old(store: LocalStore) -> None:
    log = claimed(store)
    append_keys(log, range(4), at=100)
    append_keys(log, range(4, 8), at=50)  # the clock was set back
    log.append([pushed(f"{number:036}", at=101) for number in range(8, 12)], b"")
    log.remember(100)
    assert [pack.keys for pack in log.keys.packed] == [4, 4, 4], "no key goes before those that were recorded earlier"
    log.remember(101)
    assert [log.find(f"{number:036}") is not None for number in (0, 3, 4, 7, 8, 9)] == 4 * [False] + 2 * [True]
    assert [*store.list("keys/")] == [log.keys.packed[0].name], "the others are deleted"
    append_keys(log, range(12, 14), at=103)
    following = claimed(store, 2)
    for owner in (log, following):
        assert [owner.find(f"{number:036}") is not None for number in range(7, 14)] == [False] + 6 * [True]
    following.remember(104)
    assert (following.keys.packed, following.keys.unpacked, [*store.list("keys/")]) == ((), 0, [])
    assert list(verify_input(store, STORE, {})) == []


@pytest.mark.usefixtures("few")
def test_keys_whose_hashes_are_equal_are_distinguished(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_keys, "_hash_of", lambda key: len(key) % 2)
    log = claimed(store)
    log.append([pushed(key) for key in ("a", "bb", "c", "d", "ee", "f")], b"")
    log.remember(0)
    assert (log.keys.unpacked, len(log.keys)) == (0, 6)
    for key in ("a", "bb", "c", "d", "ee", "f"):
        assert log.find(key) == Push(key, 1, key.encode(), 0, 2)
    assert log.find("g") is log.find("gg") is None


@pytest.mark.usefixtures("few")
def test_every_damage_of_a_pack_is_found_when_it_is_read(store: LocalStore) -> None:
    log = claimed(store)
    append_keys(log, range(4))
    (name,) = store.list("keys/")
    path = store.local_path(name)
    content, keys = path.read_bytes(), [f"{number:036}" for number in range(4)]
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
        assert [(each.name, each.condition) for each in verify_input(store, STORE, {})] == [(name, "CORRUPT")], at
        if at < log.keys.packed[0].head:
            with pytest.raises(DataError, match=r"\[CORRUPT\] keys/orders/"):
                log_of(store).key_packs.open(log.keys.packed)
        else:
            assert [key for key in keys if reads(log, key)] in (
                keys[:2],
                keys[2:],
                *([a, b] for a in keys for b in keys),
            )
            with pytest.raises(DataError, match=r"\[CORRUPT\] keys/orders/"):
                [log.find(key) for key in keys]
    path.unlink()
    assert [(each.name, each.condition) for each in verify_input(store, STORE, {})] == [(name, "MISSING_OBJECT")]
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] keys/orders/"):
        claimed(store, 2)
    path.write_bytes(content)
    (path.parent / "000000000009-000000000009").write_bytes(content)
    assert [(each.name, each.condition) for each in verify_input(store, STORE, {})] == [
        ("keys/orders/000000000009-000000000009", None)
    ]
    claimed(store, 3)
    assert [*store.list("keys/")] == [name]


def reads(log: InputLog, key: str) -> bool:
    try:
        return log.find(key) is not None
    except DataError:
        return False


def test_a_log_whose_end_is_gone_is_missed_if_a_step_took_it(store: LocalStore) -> None:
    log = claimed(store)
    for _ in range(4):
        log.append([pushed("x")], b"x")
    store.delete("input/orders/000000000005")
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] input/orders/000000000005"):
        log_of(store).claim(2, 5, taken=5)
    for taken in ({"orders": 5}, {"others": 1}):
        assert [finding.condition for finding in verify_input(store, STORE, taken)] == ["MISSING_OBJECT"]
    log_of(store).claim(2, 4, taken=4)


def test_an_owner_that_was_fenced_does_not_know_what_is_there(store: LocalStore) -> None:
    older = claimed(store, 1)
    older.append([pushed("a")], b"")
    older.check_newest()
    claimed(store, 2)
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        older.check_newest()


@pytest.mark.parametrize("freed", [0, 3, 300])
def test_an_object_that_lacks_is_missed(store: LocalStore, freed: int) -> None:
    log = claimed(store)
    for _ in range(KEY_CHECKPOINT_AFTER + 50):
        log.append([pushed("x")], b"x")
    log.free(freed, 0)
    store.delete("input/orders/000000000303")
    with pytest.raises(DataError, match="MISSING_OBJECT"):
        claimed(store, 2, freed)
    with pytest.raises(DataError, match="MISSING_OBJECT"):
        log_of_readers(store)
    assert [finding.condition for finding in verify_input(store, STORE, {})] == ["MISSING_OBJECT"]


def test_an_object_that_goes_between_two_looks_is_missed(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = claimed(store)
    number = log.append([pushed("a")], b"a")
    size = LocalStore.size

    def and_gone(store: LocalStore, name: str) -> int | None:
        found = size(store, name)
        store.delete(name)
        return found

    monkeypatch.setattr(LocalStore, "size", and_gone)
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\]"):
        log.checksum(number)


def test_a_log_that_is_gone_is_missed(store: LocalStore) -> None:
    with pytest.raises(DataError, match="MISSING_OBJECT"):
        claimed(store, 2, freed=1)


def test_every_flipped_byte_is_found_and_named(store: LocalStore) -> None:
    claimed(store).append([pushed("a")], b"rows")
    assert list(verify_input(store, STORE, {})) == []
    for name in store.list("input/"):
        path = store.local_path(name)
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            assert [(f.name, f.condition) for f in verify_input(store, STORE, {})] == [(name, "CORRUPT")], at
        path.write_bytes(content)


def test_an_object_of_another_store_or_source_is_refused(store: LocalStore) -> None:
    claimed(store).append([pushed("a")], b"rows")
    for other in (InputLog(store, "f" * 32, "orders"), InputLog(store, STORE, "others")):
        if other.source == "others":
            store.create("input/others/000000000001", store.read("input/orders/000000000001"))
        with pytest.raises(DataError, match=r"\[CORRUPT\]"):
            other.load()


def test_a_reader_that_finds_things_deleted_looks_again(store: LocalStore) -> None:
    log = claimed(store)
    for _ in range(KEY_CHECKPOINT_AFTER):
        log.append([pushed("x")], b"x")
    reader = log_of(Meanwhile(store, "read", "input/", lambda: log.free(log.last, 0)))  # type: ignore[arg-type]
    reader.load()
    assert reader.find("x") is not None


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=st.lists(st.sampled_from(["append", "free", "claim", "stale", "read", "die"]), max_size=40), data=st.data())
def test_whatever_happens_what_was_acknowledged_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, acts: list[str], data: st.DataObject
) -> None:
    monkeypatch.setattr(input_log, "KEY_CHECKPOINT_AFTER", 3)
    monkeypatch.setattr(remembered_keys, "PACK_AFTER", 3)
    store = LocalStore.open(tmp_path_factory.mktemp("s"), create=True, filesystem=Unsynced())
    owner, token, freed, rows = claimed(store), 1, 0, 0
    older: InputLog | None = None
    held: dict[int, str] = {}
    for step, act in enumerate(acts):
        match act:
            case "append":
                held[owner.append([pushed(f"{step}", 2)], b"")] = f"{step}"
                rows += 2
                owner.remember(0)
            case "die":  # at an act on the store, while keys are packed
                dying = Dying(store, data.draw(st.integers(0, 3)))
                owner._store = owner.key_packs._store = dying
                with suppress(Died):
                    while True:
                        key = f"{step} {dying.acts}"
                        held[owner.append([pushed(key, 2)], b"")] = key
                        rows += 2
                        owner.remember(0)
                token += 1
                older, owner = None, claimed(store, token, freed)
                if key not in held.values() and (unanswered := owner.find(key)):
                    held[unanswered.number] = key
                    rows += 2
            case "free":
                freed = data.draw(st.integers(freed, owner.last))
                owner.free(freed, 0)
            case "claim":
                token += 1
                older, owner = owner, claimed(store, token, freed)
            case "stale" if older is not None:
                with pytest.raises(FencedError):
                    older.append([pushed("never")], b"")
            case "read":
                log_of_readers(store)
        assert [number for number, _ in owner.parts(freed)] == [number for number in held if number > freed]
        assert all(owner.find(key) for key in held.values())
        assert owner.waiting == sum(part.size for number, part in owner.parts(freed))
        assert owner._base == rows
        assert len(owner.keys) == len(held), "none twice"
        assert list(verify_input(store, STORE, {})) == []


def log_of_readers(store: Store) -> InputLog:
    log = log_of(store)
    log.load()
    return log


def log_of_all_keys(store: Store) -> set[str]:
    return {push.key for push in log_of_readers(store).keys.pushes}


class Died(BaseException):
    pass


class Dying:
    """A store whose process dies at one of its creates or deletes: before it or, every second time, after it."""

    def __init__(self, store: LocalStore, lives: int) -> None:
        self._store, self._lives, self.acts = store, lives, 0

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._store, name)
        return partial(self._do, act) if name in ("create", "delete") else act

    def _do(self, act: Callable[..., None], *arguments: Any) -> None:
        self.acts += 1
        if self.acts > self._lives // 2 + 1:
            if self._lives % 2:
                act(*arguments)
            raise Died
        act(*arguments)


def test_a_name_that_is_none_is_refused(store: LocalStore) -> None:
    claimed(store)
    store.create("input/orders/x", b"")
    with pytest.raises(BoatliftError, match="no object of an input log"):
        log_of_readers(store)
    assert all(isinstance(each, Finding) for each in verify_input(store, STORE, {}))


def several_owners(store: Store) -> InputLog:
    """Three owners; the second wrote a key checkpoint that freed the rows of the first."""
    first = claimed(store)
    last = first.append([pushed("a")], b"rows")
    second = claimed(store, 2)
    for _ in range(KEY_CHECKPOINT_AFTER):
        last = second.append([pushed("b")], b"rows")
    second.free(last, 0)
    log = claimed(store, 3, last)
    log.append([pushed("c")], b"rows")
    assert len(log.claims) == 3
    assert not set(there(store)) >= set(range(1, log.last + 1)), "some are gone"
    return log


def test_a_claim_that_is_gone_is_found_though_nothing_else_reads_it(store: LocalStore) -> None:
    log = several_owners(store)
    assert list(verify_input(store, STORE, {})) == []
    for number in log.claims[:2]:
        name = log._name(number)
        content = store.read(name)
        store.delete(name)
        assert [(found.name, found.condition) for found in verify_input(store, STORE, {})] == [(name, "MISSING_OBJECT")]
        store.create(name, store.read(log._name(log.last)))
        assert [(found.name, found.condition) for found in verify_input(store, STORE, {})] == [(name, "CORRUPT")]
        store.delete(name)
        store.create(name, content)
    assert list(verify_input(store, STORE, {})) == []
