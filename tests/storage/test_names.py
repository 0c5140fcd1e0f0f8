"""Names that sources have taken are written once: manifests name the objects that hold them."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError, FencedError
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.codec import decode_names
from boatlift.storage.records.manifest_objects import NamesObjectSize
from boatlift.storage.records.records import Cursor, Snapshot
from boatlift.storage.verify import verify
from support.worlds.facts import CLAIM, Unsynced, made, stable
from support.worlds.logs import Dying, Meanwhile, manifest_of

SIZE = NamesObjectSize(names=3, objects=2)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


def claimed(store: LocalStore) -> Log:
    log = Log.open(store, "flow", facts_an_object=3, names_an_object=SIZE)
    log.claim(CLAIM)
    return log


def names(begin: int, end: int) -> tuple[str, ...]:
    return tuple(f"{number}.csv" for number in range(begin, end))


def taken(begin: int, end: int, source: str = "numbers") -> Cursor:
    """The record of a cursor that holds these names beyond those before."""
    return Cursor(source, end, {"digest": f"{end}"}, names(begin, end))


def standing(store: LocalStore, upto: int = 20) -> Log:
    """A log with a manifest over names, most of them in objects."""
    log = claimed(store)
    log.append([taken(0, upto)])
    manifest_of(log)
    log.truncate()
    return log


def read_again(store: LocalStore, source: str = "numbers") -> list[str]:
    return Log.open(store, "flow").names_taken(source)


def newest_manifest(store: LocalStore) -> Snapshot:
    (record,) = next(Log.open(store, "flow").groups()).records
    assert isinstance(record, Snapshot)
    return record


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["append", "move", "manifest", "claim"])), max_size=14))
def test_all_names_are_known_in_order_each_written_once(acts: list[tuple[int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = LocalStore.open(Path(folder) / "store", create=True, filesystem=Unsynced())
        log, count = claimed(store), 0
        for more, act in acts:
            log.append([taken(count, count + more), made(count + more)])
            count += more
            if act != "append":
                log.move_out()
            if act in {"manifest", "claim"}:
                log.checkpoint()
                log.truncate()
            if act == "claim":
                log = claimed(store)
            assert read_again(store) == list(names(0, count)) == log.names_taken("numbers")
            assert Log.open(store, "flow").history == log.history
        log.move_out()
        if "numbers" in log.history.names:
            check_levels(log)
        manifest_of(log)
        claimed(store).truncate()
        assert list(map(str, verify(store))) == []
        written = Counter(name for each in store.list("names/") for name in decode_names(store.read(each), each).new)
        assert written == Counter(names(0, count - count % SIZE.names))


def check_levels(log: Log) -> None:
    """Few objects of each height, the higher ones first, and each as full as can be."""
    of = log.history.names["numbers"]
    assert len(of.record().new) < SIZE.names
    heights = [each.height for each in of.record().objects]
    assert heights == sorted(heights, reverse=True)
    assert all(many < SIZE.objects for many in Counter(heights).values())
    assert all(each.count == SIZE.names * SIZE.objects**each.height for each in of.record().objects)


def test_a_manifest_repeats_no_name_of_an_object(store: LocalStore) -> None:
    log = standing(store)
    written = list(store.list("names/"))
    assert len(written) == 6 + 3 + 1  # 20 names by threes, those by pairs, and so on
    log.append([taken(20, 21)])
    manifest_of(log)
    log.truncate()
    of = newest_manifest(store).names["numbers"]
    assert [each.height for each in of.objects] == [2, 1, 0]
    assert of.new == ()
    assert len(list(store.list("names/"))) == len(written) + 1
    assert newest_manifest(store).cursors["numbers"] == (21, {"digest": "21"})
    assert read_again(store) == list(names(0, 21))


def test_names_that_come_while_others_are_moved_are_in_the_manifest(store: LocalStore) -> None:
    log = claimed(store)
    log.append([taken(0, 4)])
    log._store = Meanwhile(store, "create", "names/", lambda: log.append([taken(4, 5)]))  # type: ignore[assignment]
    manifest_of(log)
    assert newest_manifest(store).names["numbers"].new == ("3.csv", "4.csv")
    assert read_again(store) == list(names(0, 5))


def test_sources_have_names_of_their_own(store: LocalStore) -> None:
    log = claimed(store)
    log.append([taken(0, 7), taken(0, 4, "letters"), Cursor("neither", 1, {"next": 5})])
    manifest_of(log)
    assert read_again(store) == list(names(0, 7))
    assert read_again(store, "letters") == list(names(0, 4))
    assert read_again(store, "neither") == []
    assert "neither" not in newest_manifest(store).names


@pytest.mark.parametrize("which", range(10))
def test_a_lost_object_is_missed(store: LocalStore, which: int) -> None:
    standing(store)
    lost = list(store.list("names/"))[which]
    store.delete(lost)
    with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\].*manifest needs names.*{lost}"):
        read_again(store)
    (finding,) = verify(store)
    assert (finding.name, finding.condition) == ("log", "MISSING_OBJECT")


@pytest.mark.parametrize("which", range(10))
def test_a_damaged_object_is_found(store: LocalStore, which: int) -> None:
    standing(store)
    name = list(store.list("names/"))[which]
    content = bytearray(store.read(name))
    store.delete(name)
    content[40] ^= 1
    store.create(name, bytes(content))
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {name}"):
        read_again(store)
    assert [(finding.name, finding.condition) for finding in verify(store)] == [(name, "CORRUPT")]


def test_an_object_in_the_place_of_another_is_refused(store: LocalStore, tmp_path: Path) -> None:
    """One under another name; one of another source; and one of the same source in another store."""
    standing(store)
    first, second, *_ = store.list("names/")
    content = store.read(first)
    store.delete(first)
    store.create(first, store.read(second))
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {first} is a copy of {second}"):
        read_again(store)
    for source, said in (("letters", "holds other names"), ("numbers", "holds other names")):
        other = LocalStore.open(tmp_path / source, create=True, filesystem=Unsynced())
        log = claimed(other)
        log.append([taken(100, 120, source)])
        manifest_of(log)
        store.delete(first)
        store.create(first, other.read(first))
        with pytest.raises(DataError, match=rf"\[CORRUPT\] {first} {said}"):
            read_again(store)
        assert [finding.condition for finding in verify(store)] == ["CORRUPT"]
    store.delete(first)
    store.create(first, content)
    assert read_again(store) == list(names(0, 20))


@pytest.mark.parametrize("dies", ["before the objects", "between them", "before the manifest", "before the deletion"])
def test_a_crash_at_any_point_loses_nothing(store: LocalStore, dies: str) -> None:
    log = standing(store)
    log.append([taken(20, 40)])
    crash: dict[str, tuple[str, str, int]] = {
        "before the objects": ("create", "names/", 0),
        "between them": ("create", "names/", 3),
        "before the manifest": ("create", "log/", 0),
        "before the deletion": ("delete", "", 0),
    }
    log._store = Dying(store, *crash[dies])  # type: ignore[assignment]
    with pytest.raises(InterruptedError):
        _all_of_a_manifest(log)
    assert read_again(store) == list(names(0, 40))
    assert [finding for finding in verify(store) if finding.is_error] == []
    new = claimed(store)
    new.append([taken(40, 50)])
    _all_of_a_manifest(new)
    assert read_again(store) == list(names(0, 50))
    assert list(map(str, verify(store))) == []


def test_an_older_owner_deletes_nothing_that_a_newer_one_needs(store: LocalStore) -> None:
    """Its objects that no manifest names go when the next owner truncates."""
    old = standing(store)
    old.append([taken(20, 30)])
    new = claimed(store)
    new.append([taken(30, 42)])
    manifest_of(new)
    old.move_out()
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        old.checkpoint()
    old.truncate()
    new.truncate()
    assert read_again(store) == list(names(0, 42))
    assert {finding.condition for finding in verify(store)} == {None}, "objects of the older owner are left over"
    claimed(store).truncate()
    assert read_again(store) == list(names(0, 42))
    assert list(map(str, verify(store))) == []


def test_a_manifest_pays_once_names_fill_an_object(store: LocalStore) -> None:
    log = Log.open(store, "flow")
    log.claim(CLAIM)
    log.append([stable({"numbers": 1}), taken(0, 1000)])
    manifest_of(log)
    assert not log.pays()
    log.append([taken(1000, 1023)])
    assert not log.pays()
    log.append([taken(1023, 1024)])
    assert log.pays()
    manifest_of(log)
    assert not log.pays()


def _all_of_a_manifest(log: Log) -> None:
    manifest_of(log)
    log.truncate()
