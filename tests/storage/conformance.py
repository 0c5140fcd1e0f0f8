"""What every store must do: the laws of `boatlift.storage.store`, one test each.

A store's tests derive from `StoreLaws` and give the fixture `opener`: a function without arguments, which pickles, that
opens the same, at first empty, store again and again, as another process would.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import DataError, FencedError, InvalidError
from boatlift.storage.remote_files import fetched
from boatlift.storage.store import Store

Opener = Callable[[], Store]

RACES = 100


class StoreLaws:
    """The suite; not collected by itself, for its name does not begin with Test."""

    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        raise NotImplementedError("a store's tests say how it is opened")

    @pytest.fixture
    def store(self, opener: Opener) -> Store:
        return opener()

    def test_is_a_store(self, store: Store) -> None:
        assert isinstance(store, Store)

    # law 1: a name is given once

    def test_a_name_that_exists_is_refused_and_stays_as_it_is(self, store: Store, tmp_path: Path) -> None:
        store.create("a/b", b"first")
        file = tmp_path / "file"
        file.write_bytes(b"third")
        for content in (b"second", b"first", file):
            with pytest.raises(FencedError, match=r"\[OBJECT_EXISTS\].*a/b"):
                store.create("a/b", content)
        assert store.read("a/b") == b"first"
        assert list(store.list("")) == ["a/b"]

    def test_a_refused_name_does_not_stop_the_store(self, store: Store) -> None:
        store.create("a", b"1")
        with pytest.raises(FencedError):
            store.create("a", b"2")
        store.create("b", b"3")
        assert store.read("b") == b"3"

    def test_of_two_processes_that_create_one_name_exactly_one_succeeds(self, opener: Opener) -> None:
        spawn = multiprocessing.get_context("spawn")
        start, answers = spawn.Barrier(2), spawn.Queue()
        racers = [spawn.Process(target=_race, args=(opener, who, start, answers)) for who in (b"one", b"two")]
        for racer in racers:
            racer.start()
        won = dict(answers.get(timeout=60) for _ in racers)
        for racer in racers:
            racer.join(timeout=60)
            assert racer.exitcode == 0
        store = opener()
        for race in range(RACES):
            winners = [who for who, names in won.items() if race in names]
            assert len(winners) == 1
            assert store.read(f"race/{race}") == winners[0] * 1000
        assert len(list(store.list("race/"))) == RACES

    # law 2: whole, and there for others once created

    @pytest.mark.parametrize("size", [0, 1, 4095, 100_000, 20_000_000])
    def test_what_was_created_is_read_whole_by_another(self, opener: Opener, size: int, tmp_path: Path) -> None:
        content = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        opener().create("from-bytes", content)
        file = tmp_path / "file"
        file.write_bytes(content)
        opener().create("runs/from-file", file)
        other = opener()
        for name in ("from-bytes", "runs/from-file"):
            assert other.read(name) == content
            assert other.size(name) == size
        assert file.read_bytes() == content, "the file that was taken over stays"

    def test_a_file_that_is_deleted_afterwards_does_not_take_the_object_along(
        self, store: Store, tmp_path: Path
    ) -> None:
        file = tmp_path / "file"
        file.write_bytes(b"kept")
        store.create("a", file)
        file.unlink()
        assert store.read("a") == b"kept"

    def test_a_range_is_read(self, store: Store) -> None:
        store.create("a", b"0123456789")
        assert store.read("a", 3, 4) == b"3456"
        assert store.read("a", 3) == b"3456789"
        assert store.read("a", 8, 4) == b"89"
        assert store.read("a", 10) == b""
        assert store.read("a", 0, 0) == b""

    def test_what_is_not_there_cannot_be_read_and_has_no_size(self, store: Store) -> None:
        store.create("log/1", b"")
        for name in ("a", "log", "log/1/a", "log/2"):
            with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
                store.read(name)
            assert store.size(name) is None

    # law 3: the list is complete and in order

    def test_the_list_is_complete_and_in_order(self, opener: Opener) -> None:
        names = ["a", "a-b", "a.b/c", "a0", "b/a/c", "b/a/d", "b/b", "bb", "runs/1.arrow", "log/000000000010", "log/2"]
        store = opener()
        for name in reversed(names):
            store.create(name, b"")
        store.delete("b/b")
        names.remove("b/b")
        other = opener()
        assert list(other.list("")) == sorted(names)
        for prefix in (
            "a",
            "b",
            "b/",
            "b/a",
            "b/a/",
            "b/a/d",
            "lo",
            "nothing",
            "nothing/at/all",
            "a/b",
            "../",
            "b/../",
        ):
            assert list(other.list(prefix)) == sorted(name for name in names if name.startswith(prefix)), prefix

    def test_neither_scratch_nor_what_is_unfinished_is_listed(self, store: Store) -> None:
        (store.scratch(7) / "file").write_bytes(b"x")
        store.create("a", b"")
        assert list(store.list("")) == ["a"]
        assert list(store.list("scratch/")) == []

    # law 4: deletion may be repeated

    def test_deleting_twice_is_no_error(self, store: Store) -> None:
        store.create("a/b", b"")
        store.delete("a/b")
        store.delete("a/b")
        store.delete("never/there")
        assert list(store.list("")) == []
        assert store.size("a/b") is None

    def test_several_are_listed_with_sizes_read_and_deleted_at_once(self, store: Store) -> None:
        contents = {f"log/{number:012}": bytes(number) for number in range(40)}
        for name, content in contents.items():
            store.create(name, content)
        assert list(store.sizes("log/").items()) == [(name, len(content)) for name, content in contents.items()]
        assert list(store.read_all([*contents])) == list(contents.values())
        with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
            list(store.read_all(["log/000000000001", "log/x"]))
        store.delete(*[*contents][:30], "log/x")
        assert list(store.list("")) == [*contents][30:]

    # names, scratch, local paths

    @pytest.mark.parametrize(
        "name",
        ["", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/./b", ".", "a b", "ä", "a\n", "a\0b", "a\\b", "x" * 256],
    )
    def test_a_bad_name_is_refused(self, store: Store, name: str) -> None:
        for act in (lambda: store.create(name, b""), lambda: store.read(name), lambda: store.delete(name)):
            with pytest.raises(InvalidError, match=r"\[BAD_NAME\]"):
                act()

    def test_scratch_is_one_folder_an_owner_and_goes_with_it(self, opener: Opener) -> None:
        store = opener()
        assert store.scratch(7) == store.scratch(7) != store.scratch(8)
        (store.scratch(7) / "folder").mkdir()
        (store.scratch(7) / "folder" / "a").write_bytes(b"old")
        (store.scratch(8) / "a").write_bytes(b"new")
        opener().discard_scratch(before=7)
        assert (store.scratch(7) / "folder" / "a").read_bytes() == b"old"
        opener().discard_scratch(before=8)
        assert (store.scratch(8) / "a").read_bytes() == b"new"
        assert list(store.scratch(7).iterdir()) == []

    def test_an_object_made_from_scratch_outlives_it(self, store: Store) -> None:
        file = store.scratch(7) / "run"
        file.write_bytes(b"rows")
        store.create("runs/1", file)
        store.discard_scratch(before=8)
        assert store.read("runs/1") == b"rows"

    def test_a_local_path_if_there_is_one_holds_the_object(self, store: Store) -> None:
        store.create("runs/1", b"rows")
        path = store.local_path("runs/1")
        assert path is None or fetched(path).read_bytes() == b"rows"


def _race(opener: Opener, who: bytes, start: Any, answers: Any) -> None:
    store = opener()
    won = []
    for race in range(RACES):
        start.wait(timeout=60)
        try:
            store.create(f"race/{race}", who * 1000)
            won.append(race)
        except FencedError:
            continue
    answers.put((who, won))
