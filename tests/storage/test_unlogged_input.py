"""Pushed rows that nobody keeps: keys of what was kept are known again, of everything else nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.errors import DataError, FencedError
from boatlift.storage import input_log
from boatlift.storage.input_log import InputLog
from boatlift.storage.input_objects import rows_in
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import Push, decode_input
from boatlift.storage.unlogged_input import UnloggedInput
from boatlift.storage.verify import verify_input

STORE = "0" * 32
NOTHING = {"last": 0}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def begun(store: LocalStore, scratch: Path, token: int = 1, cursor: dict[str, int] | None = None) -> UnloggedInput:
    made = UnloggedInput(InputLog(store, STORE, "orders"), scratch)
    made.claim(token, NOTHING, cursor or NOTHING)
    made.begin(cursor or NOTHING)
    return made


def pushed(key: str, rows: int = 1, at: int = 0) -> Push:
    return Push(key, rows, key.encode(), at)


def kinds(store: LocalStore) -> list[str]:
    return [decode_input(store.read(name), name).kind for name in sorted(store.list("input/"))]


def test_rows_are_in_scratch_and_only_keys_in_the_store(store: LocalStore, scratch: Path) -> None:
    made = begun(store, scratch)
    assert made.append([pushed("", 2), pushed("", 3)], b"rows of nobody") == 1
    assert kinds(store) == ["claim"]
    assert made.append([pushed("a", 1), pushed("", 3)], b"rows of a") == 2
    assert kinds(store) == ["claim", "keys"]
    assert all(b"rows of" not in store.read(name) for name in store.list("input/"))
    assert [(n, part.base, part.rows) for n, part in made.parts(0)] == [(1, 0, 5), (2, 5, 4)]
    assert rows_in(made.path(2)) == (5, b"rows of a")
    assert (made.keys_up_to(1), made.keys_up_to(2)) == (0, 2)
    assert made.find("a") == Push("a", 1, b"a", 0, 2)
    assert made.find("b") is None


def test_the_next_owner_knows_keys_up_to_its_cursor_and_no_rows(store: LocalStore, scratch: Path) -> None:
    made = begun(store, scratch)
    made.append([pushed("a")], b"")
    made.append([pushed("b")], b"")
    cursor = {"last": 1, "base": 1, "keys": made.keys_up_to(1)}
    following = begun(store, scratch, 2, cursor)
    known = following.find("a")
    assert known == Push("a", 1, b"a", 0, 0)
    assert following.is_freed(known.number)
    assert following.find("b") is None, "what came of it is gone"
    assert following.parts(0) == []
    assert following.append([pushed("b")], b"") == 2
    assert [(n, part.base) for n, part in following.parts(1)] == [(2, 1)]
    third = begun(store, scratch, 3, {"last": 2, "base": 2, "keys": following.keys_up_to(2)})
    assert third.find("a") is not None
    assert third.find("b") is not None
    assert list(verify_input(store, STORE, {"orders": following.keys_up_to(2)})) == []


def test_what_was_void_stays_void_though_later_keys_are_kept(store: LocalStore, scratch: Path) -> None:
    made = begun(store, scratch)
    made.append([pushed("void")], b"")
    second = begun(store, scratch, 2)
    number = second.append([pushed("kept")], b"")
    third = begun(store, scratch, 3, {"last": number, "base": 1, "keys": second.keys_up_to(number)})
    assert third.find("void") is None
    assert third.find("kept") is not None


def test_what_was_given_is_given_again_after_an_earlier_cursor(store: LocalStore, scratch: Path) -> None:
    made = begun(store, scratch)
    for key in "abc":
        made.append([pushed(key)], b"")
    made.begin({"last": 1})  # only the first counts
    assert made.numbers_within(2, 9) == [2, 3]
    assert made.numbers_within(2, 2) == [2]


def test_what_is_free_goes_and_its_keys_stay(store: LocalStore, scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_log, "KEY_CHECKPOINT_AFTER", 2)
    made = begun(store, scratch)
    for key in ("old", "", "c", "d"):
        made.append([pushed(key, at=0 if key == "old" else 9)], b"x" * 100)
    before = made.waiting
    made.free(3, remember=5)
    assert 0 < made.waiting < before
    assert [n for n, _ in made.parts(0)] == [4]
    assert [path.name[-1] for path in scratch.iterdir()] == ["4"]
    assert made.find("c") == Push("c", 1, b"c", 9, 0)
    assert made.find("d") == Push("d", 1, b"d", 9, 4)
    assert made.find("old") is None, "it was to be remembered for less"
    assert "memo" in kinds(store)
    assert made.is_freed(3)
    assert not made.is_freed(4)
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\]"):
        made.checksum(3)
    following = begun(store, scratch, 2, {"last": 4, "base": 4, "keys": made.keys_up_to(4)})
    assert following.find("d") is not None


def test_an_older_owner_records_no_keys(store: LocalStore, scratch: Path) -> None:
    made = begun(store, scratch)
    following = begun(store, scratch, 2)
    with pytest.raises(FencedError):
        made.append([pushed("a")], b"")
    with pytest.raises(FencedError):
        made.check_newest()
    assert following.find("a") is None
