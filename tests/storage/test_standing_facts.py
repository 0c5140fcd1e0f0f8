"""Live facts are written once: manifests refer to the objects that store them, and list the facts gone from each."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from boatlift.errors import DataError, FencedError
from boatlift.storage.group_commit import GroupWriter
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import Snapshot
from boatlift.storage.store import Requests
from boatlift.storage.verify import verify
from support.worlds.facts import Unsynced, cut, made, stable
from support.worlds.logs import Dying, Meanwhile, claimed, manifest_of


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


def standing(store: LocalStore, upto: int = 9) -> Log:
    """A log with a manifest over facts in objects of three."""
    log = claimed(store, facts_an_object=3)
    log.append([made(time) for time in range(upto)])
    manifest_of(log)
    log.truncate()
    return log


def newest_manifest(store: LocalStore) -> Snapshot:
    (record,) = next(Log.open(store, "flow").groups()).records
    assert isinstance(record, Snapshot)
    return record


def read_again(store: LocalStore) -> list[int]:
    return sorted(Log.open(store, "flow").history.live_records.determinants["numbers"])


def test_a_manifest_repeats_no_fact_of_an_object(store: LocalStore) -> None:
    log = standing(store)
    written = list(store.list("facts/"))
    assert len(written) == 3
    log.append([made(9)])
    manifest_of(log)
    log.truncate()
    assert list(store.list("facts/")) == written
    manifest = newest_manifest(store)
    assert [each.name for each in manifest.standing] == written
    assert manifest.facts == (made(9),)
    assert read_again(store) == list(range(10))
    assert Log.open(store, "flow").history == log.history


def test_a_manifest_says_which_facts_of_an_object_are_gone(store: LocalStore) -> None:
    log = standing(store)
    log.append([cut({"numbers": 7})])
    log.checkpoint()
    log.truncate()
    assert [each.gone for each in newest_manifest(store).standing] == [(), (), ((2, 3),)]
    assert read_again(store) == list(range(8))
    log.append([made(8)])
    manifest_of(log)
    assert read_again(store) == list(range(9)), "made again after it was gone"


def test_facts_that_go_while_they_are_moved_are_gone_from_the_object(store: LocalStore) -> None:
    log = claimed(store, facts_an_object=3)
    log.append([made(time) for time in range(3)])
    log._store = Meanwhile(store, "create", "facts/", lambda: log.append([cut({"numbers": 1})]))  # type: ignore[assignment]
    manifest_of(log)
    assert [each.gone for each in newest_manifest(store).standing] == [((2, 3),)]
    assert read_again(store) == [0, 1]


def test_a_group_is_written_while_facts_are_moved(store: LocalStore) -> None:
    """The object of facts is not there before the group is durable."""
    log = claimed(store, facts_an_object=3)
    writer, durable = GroupWriter(log), threading.Event()
    log.append([made(time) for time in range(3)])

    def write_a_group() -> None:
        writer.submit([made(3)], lambda _error: durable.set())
        assert durable.wait(60), "the group waits for the manifest"

    log._store = Meanwhile(store, "create", "facts/", write_a_group)  # type: ignore[assignment]
    writer.manifest()
    writer.close()
    assert len(newest_manifest(store).standing) == 1
    assert read_again(store) == [0, 1, 2, 3]


def test_an_object_that_is_gone_by_half_is_dissolved_and_deleted_after_the_manifest(store: LocalStore) -> None:
    log = standing(store)
    first, *others = store.list("facts/")
    log.append([stable({"numbers": 1})])  # of the times up to it the last is kept
    log.append([stable({"numbers": 2})])
    manifest_of(log)
    assert first in set(store.list("facts/")), "nothing is deleted before the truncation"
    assert read_again(store) == [2, *range(3, 9)]
    log.truncate()
    assert list(store.list("facts/")) == others
    assert read_again(store) == [2, *range(3, 9)]
    assert list(map(str, verify(store))) == []


def test_an_object_that_is_dissolved_while_a_manifest_is_written_that_names_it_stays(store: LocalStore) -> None:
    log = standing(store)
    first, *others = store.list("facts/")
    log.append([stable({"numbers": 1})])
    log.append([stable({"numbers": 2})])
    log._store = Meanwhile(store, "create", "log/", log.move_out)  # type: ignore[assignment]
    log.checkpoint()
    log.truncate()
    assert [each.name for each in newest_manifest(store).standing] == [first, *others]
    assert read_again(store) == [2, *range(3, 9)]
    assert list(map(str, verify(store))) == []
    manifest_of(log)
    log.truncate()
    assert list(store.list("facts/")) == others


def test_no_object_is_deleted_before_the_manifest_that_does_not_name_it(store: LocalStore) -> None:
    log = standing(store)
    log.append([stable({"numbers": 5})])
    log.move_out()
    log.truncate()
    assert read_again(store) == list(range(5, 9)), "the manifest of before still names them"


@pytest.mark.parametrize("which", range(3))
def test_a_lost_object_is_missed(store: LocalStore, which: int) -> None:
    standing(store)
    lost = list(store.list("facts/"))[which]
    store.delete(lost)
    with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\].*manifest needs.*{lost}"):
        Log.open(store, "flow")
    (finding,) = verify(store)
    assert (finding.name, finding.condition) == ("log", "MISSING_OBJECT")


def test_a_damaged_object_is_found(store: LocalStore) -> None:
    standing(store)
    name = next(store.list("facts/"))
    content = bytearray(store.read(name))
    store.delete(name)
    content[40] ^= 1
    store.create(name, bytes(content))
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {name}"):
        Log.open(store, "flow")
    assert [(finding.name, finding.condition) for finding in verify(store)] == [(name, "CORRUPT")]


def test_an_object_in_the_place_of_another_is_refused(store: LocalStore, tmp_path: Path) -> None:
    """One of the same store under another name; and a whole one of another store under the right name."""
    standing(store)
    first, second, _ = store.list("facts/")
    content = store.read(first)
    store.delete(first)
    store.create(first, store.read(second))
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {first} is a copy of {second}"):
        Log.open(store, "flow")
    store.delete(second)
    store.delete(first)
    store.create(first, content)
    wrong = LocalStore.open(tmp_path / "wrong", create=True, filesystem=Unsynced())
    log = claimed(wrong, facts_an_object=3)
    log.append([made(time, "letters") for time in range(9)])
    manifest_of(log)
    store.create(second, wrong.read(second))
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {second} holds other facts"):
        Log.open(store, "flow")


def test_the_manifest_of_an_older_owner_is_not_believed(store: LocalStore) -> None:
    """Its objects are not read, and go when the next owner after it truncates."""
    old = standing(store)
    old.append([made(9)])
    new = claimed(store, facts_an_object=3)
    new.append([cut({"numbers": 9}), made(10)])
    for fact in [made(time, "letters") for time in range(3)]:
        old.history.apply(fact)
    old.move_out()
    with pytest.raises(FencedError, match=r"\[FENCED\]"):
        old.checkpoint()
    old.truncate()
    assert "letters" not in Log.open(store, "flow").history.live_records.determinants
    assert read_again(store) == list(range(11))
    assert [finding.condition for finding in verify(store)] == [None], "the object of the older owner is left over"
    last = claimed(store, facts_an_object=3)
    last.truncate()
    assert list(map(str, verify(store))) == []
    assert read_again(store) == list(range(11))


def test_an_older_owner_deletes_nothing_that_a_newer_one_needs(store: LocalStore) -> None:
    old = standing(store)
    old.append([stable({"numbers": 3})])
    manifest_of(old)
    new = claimed(store, facts_an_object=3)
    new.append([made(time) for time in range(9, 12)])
    manifest_of(new)
    old.truncate()
    assert read_again(store) == list(range(3, 12))
    new.truncate()
    assert read_again(store) == list(range(3, 12))
    assert list(map(str, verify(store))) == []


def test_a_reader_that_finds_an_object_gone_reads_the_newer_manifest(store: LocalStore) -> None:
    log = standing(store)

    def go_on() -> None:
        log.append([stable({"numbers": 8})])
        manifest_of(log)
        log.truncate()

    slow: Log = Log.open(Meanwhile(store, "read", "facts/", go_on), "flow")  # type: ignore[arg-type]
    assert sorted(slow.history.live_records.determinants["numbers"]) == [8]


def test_a_new_owner_goes_on_with_the_objects_of_the_one_before(store: LocalStore) -> None:
    standing(store)
    written = list(store.list("facts/"))
    new = claimed(store, facts_an_object=3)
    new.append([made(9)])
    manifest_of(new)
    new.truncate()
    assert list(store.list("facts/")) == written
    assert read_again(store) == list(range(10))


@pytest.mark.parametrize("dies", ["before the objects", "between them", "before the manifest", "before the deletion"])
def test_a_crash_at_any_point_loses_nothing(store: LocalStore, dies: str) -> None:
    log = standing(store)
    log.append([stable({"numbers": 4}), *(made(time) for time in range(9, 17))])
    crash: dict[str, tuple[str, str, int]] = {
        "before the objects": ("create", "facts/", 0),
        "between them": ("create", "facts/", 1),
        "before the manifest": ("create", "log/", 0),
        "before the deletion": ("delete", "", 0),
    }
    log._store = Dying(store, *crash[dies])  # type: ignore[assignment]
    with pytest.raises(InterruptedError):
        _all_of_a_manifest(log)
    assert read_again(store) == list(range(4, 17))
    assert [finding for finding in verify(store) if finding.is_error] == []
    new = claimed(store, facts_an_object=3)
    manifest_of(new)
    new.truncate()
    assert read_again(store) == list(range(4, 17))
    assert list(map(str, verify(store))) == []


def test_a_manifest_pays_if_it_frees_several_times_what_it_writes(store: LocalStore) -> None:
    log = claimed(store)
    log.append([made(time) for time in range(200)])
    assert not log.pays(), "no fact is gone"
    assert log.pays(frees=1 << 20), "runs are freed"
    log.append([stable({"numbers": 198})])
    assert log.pays()
    log.checkpoint()
    assert not log.pays()


def test_a_manifest_pays_after_as_many_objects_as_a_start_should_read(store: LocalStore) -> None:
    store.requests = Requests(most_objects=5)
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])
        assert not log.pays()
    log.append([made(3)])  # with the claim, the fifth object
    assert log.pays()


def _all_of_a_manifest(log: Log) -> None:
    manifest_of(log)
    log.truncate()
