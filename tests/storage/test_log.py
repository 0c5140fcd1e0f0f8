"""The log: what was written is read back, whole and in order; what a manifest makes garbage goes."""

from __future__ import annotations

import itertools
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.storage.identities import BEGUN, IDENTITY
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim, Record, SinkCommit, Stopped
from support.worlds.facts import CLAIM, Unsynced, gave, made, sequences, stable
from support.worlds.logs import Meanwhile, claimed


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


def test_a_new_store_has_an_empty_log(store: LocalStore) -> None:
    log = Log.open(store, "flow")
    assert (log.last, log.manifest, log.owner) == (0, 0, 0)
    assert log.history == LogHistory("flow")
    assert list(store.list("")) == [], "reading writes nothing"


def test_the_number_of_a_claim_is_its_token(store: LocalStore) -> None:
    first = Log.open(store, "flow")
    assert first.claim(CLAIM) == 1
    assert first.append([made(0)]) == 2
    second = Log.open(store, "flow")
    assert second.claim(CLAIM) == 3
    assert second.append([made(1)]) == 4
    assert list(store.list("")) == [BEGUN, IDENTITY, *(name_of(n) for n in (1, 2, 3, 4))]
    assert [group.header.token for group in Log.open(store, "flow").groups()] == [1, 1, 3, 3]


def test_a_store_keeps_its_id_under_every_owner_and_no_other_store_has_it(store: LocalStore, tmp_path: Path) -> None:
    assert Log.open(store, "flow").store_id == "", "a reader makes no store"
    first = claimed(store)
    assert re.fullmatch("[0-9a-f]{32}", first.store_id)
    first.append([made(0)])
    first.checkpoint()
    first.truncate()
    assert claimed(store).store_id == Log.open(store, None).store_id == first.store_id
    other = claimed(LocalStore.open(tmp_path / "other", create=True, filesystem=Unsynced()))
    assert other.store_id != first.store_id


def test_of_two_that_make_a_store_at_once_both_have_the_id_of_the_faster(store: LocalStore) -> None:
    slow = Log.open(store, "flow")
    fast = claimed(store)
    slow.claim(CLAIM)
    assert slow.store_id == fast.store_id
    meanwhile = Meanwhile(store, "create", IDENTITY, lambda: fasts.append(claimed(store)))
    for name in list(store.list("")):
        store.delete(name)
    fasts: list[Log] = []
    slow = claimed(meanwhile)  # type: ignore[arg-type]
    assert [slow.store_id] == [fast.store_id for fast in fasts]


def test_what_was_appended_is_read_back_in_order(store: LocalStore) -> None:
    log = claimed(store)
    groups: list[list[Record]] = [[made(0), made(1)], [gave(0)], [stable({"numbers": 0}), SinkCommit("table", 0)]]
    for records in groups:
        log.append(records)
    again = Log.open(store, "flow")
    assert again.history == log.history == LogHistory.of([CLAIM, *itertools.chain(*groups)], "flow")
    assert [list(group.records) for group in again.groups()] == [[CLAIM], *groups]


@settings(max_examples=50)
@given(sequences(), st.data())
def test_any_log_is_read_back_whole(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    """However the records are grouped, wherever manifests come, whether truncated or not."""
    store = LocalStore.open(tmp_path_factory.mktemp("store"), create=True, filesystem=Unsynced())
    log = claimed(store, facts_an_object=3)
    model = LogHistory.of([CLAIM], "flow")
    rest = [record for record in records[1:] if not isinstance(record, Claim)]
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        if data.draw(st.booleans()):
            log.move_out()
        log.append(rest[:count])
        for record in rest[:count]:
            model.apply(record)
        rest = rest[count:]
        if data.draw(st.booleans()):
            model.apply(log.history.snapshot())
            log.checkpoint()
            if data.draw(st.booleans()):
                log.truncate()
        if data.draw(st.booleans()):
            log = claimed(store, facts_an_object=3)
            model.apply(CLAIM)
        assert log.history == model
        assert Log.open(store, None).history == model
    shutil.rmtree(store.root)


@settings(max_examples=50)
@given(sequences(), st.data())
def test_a_log_that_is_followed_means_what_it_means_read_anew(
    tmp_path_factory: pytest.TempPathFactory, records: list[Record], data: st.DataObject
) -> None:
    """However much was written since the last look, by however many owners, and truncated behind a manifest."""
    store = LocalStore.open(tmp_path_factory.mktemp("store"), create=True, filesystem=Unsynced())
    follower = Log.open(store, "flow", facts_an_object=3)
    assert not follower.catch_up()
    log = claimed(store, facts_an_object=3)
    rest = [record for record in records[1:] if not isinstance(record, Claim)]
    while rest:
        count = data.draw(st.integers(1, len(rest)))
        log.append(rest[:count])
        rest = rest[count:]
        if data.draw(st.booleans()):
            log.move_out()
            log.checkpoint()
            if data.draw(st.booleans()):
                log.truncate()
        if data.draw(st.booleans()):
            log = claimed(store, facts_an_object=3)
        if data.draw(st.booleans()):
            before = follower.last
            assert follower.catch_up() == (follower.last != before)
            anew = Log.open(store, None, facts_an_object=3)
            assert follower.history == anew.history
            for name in ("last", "manifest", "owner", "predecessor", "acted", "written_at", "objects_of_facts"):
                assert getattr(follower, name) == getattr(anew, name), name
            assert not follower.catch_up()
    follower.catch_up()
    follower.claim(CLAIM)  # and what it deletes from then on is what any other owner would
    follower.move_out()
    follower.checkpoint()
    follower.truncate()
    kept = {*follower.objects_of_facts, name_of(follower.last), *map(name_of, follower.claims())}
    assert {name for name in store.list("") if name.startswith(("log/", "facts/"))} == kept
    shutil.rmtree(store.root)


def test_a_manifest_makes_what_was_before_it_garbage(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(5):
        log.append([made(time), stable({"numbers": time - 1})])
    assert log.checkpoint() == 7
    log.append([made(5)])
    before = Log.open(store, "flow")
    assert sorted(before.history.live_records.determinants["numbers"]) == [3, 4, 5], (
        "the last that is garbage, and those after it"
    )
    assert before.manifest == 7
    log.truncate()
    assert list(store.list("log/")) == [name_of(1), name_of(7), name_of(8)], "claims stay"
    after = Log.open(store, "flow")
    assert after.history == before.history == log.history
    after.claim(CLAIM)
    after.append([made(6)])
    assert after.checkpoint() == 11
    after.truncate()
    assert list(store.list("log/")) == [name_of(1), name_of(9), name_of(11)]
    after.truncate()
    assert list(after.claims()) == [9, 1]
    assert Log.open(store, "flow").history == after.history


def test_what_an_interrupted_truncation_left_is_not_read_and_goes_with_the_next(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(4):
        log.append([made(time)])
    log.checkpoint()
    expected = log.history
    contents = {number: store.read(name_of(number)) for number in (3, 5)}
    log.truncate()
    for number, content in contents.items():  # a power loss can bring back any of them
        store.create(name_of(number), content)
    again = Log.open(store, "flow")
    assert again.history == expected
    again.claim(CLAIM)
    again.truncate()
    assert list(store.list("log/")) == [name_of(1), name_of(6), name_of(7)]


def test_a_clean_stop_is_marked_beside_the_log(store: LocalStore) -> None:
    log = claimed(store)
    log.append([made(0)])
    assert log.append([SinkCommit("table", 0), Stopped()]) == 3
    assert log.last == 3
    assert list(store.list("stopped/")) == ["stopped/000000000003"]
    again = Log.open(store, "flow")
    assert again.history.stopped
    again.claim(CLAIM)
    assert not again.history.stopped
    again.append([Stopped()])
    assert list(store.list("stopped/")) == ["stopped/000000000005"], "the older mark says nothing more"


def test_a_log_that_lost_its_last_objects_after_a_clean_stop_is_refused_however_many(store: LocalStore) -> None:
    log = claimed(store)
    log.append([made(0)])
    log.append([made(1)])
    log.append([Stopped()])
    for lost in (4, 3, 2):
        store.delete(name_of(lost))
        with pytest.raises(
            DataError, match=r"\[MISSING_OBJECT\] log/000000000004 is not there, though a clean shutdown"
        ):
            Log.open(store, "flow")


def test_a_reader_takes_no_clean_stop_beside_it_for_a_loss(store: LocalStore) -> None:
    """The owner stops between the reader's list of the log and its look at the marks."""
    log = claimed(store)
    beside = Meanwhile(store, "list", "stopped/", lambda: log.append([Stopped()]))
    assert Log.open(beside, "flow").history.stopped  # type: ignore[arg-type]


def test_a_process_that_dies_before_it_has_marked_its_stop_leaves_a_whole_log(store: LocalStore) -> None:
    log = claimed(store)
    log.append([Stopped()])
    store.delete("stopped/000000000002")
    assert Log.open(store, "flow").history.stopped
