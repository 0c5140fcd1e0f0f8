"""A log that is damaged, incomplete or of someone else gives an error or the right result, never a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from boatlift.errors import BoatliftError, DataError
from boatlift.storage.identities import BEGUN, IDENTITIES, IDENTITY, TRUNCATED
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.codec import Header, decode_group, encode_group
from boatlift.storage.records.history import LogHistory
from boatlift.storage.store import Store
from support.worlds.facts import CLAIM, Unsynced, made, small_store
from support.worlds.logs import claimed


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())


def test_a_store_of_another_dataflow_is_refused(store: LocalStore) -> None:
    claimed(store)
    with pytest.raises(DataError, match=r"\[STORE_OF_ANOTHER_DATAFLOW\].*belongs to dataflow flow, not other"):
        Log.open(store, "other")
    assert Log.open(store, None).dataflow == "flow"


def test_a_store_whose_first_claim_was_interrupted_is_new_but_named(store: LocalStore) -> None:
    claimed(store)
    for name in list(store.list("")):
        if name != IDENTITY:
            store.delete(name)
    with pytest.raises(DataError, match=r"\[STORE_OF_ANOTHER_DATAFLOW\]"):
        Log.open(store, "other")
    log = Log.open(store, "flow")
    assert log.claim(CLAIM) == 1


def test_a_claim_interrupted_before_anything_rests_on_it_is_no_loss(store: LocalStore) -> None:
    claimed(store)
    store.delete(BEGUN)
    log = Log.open(store, "flow")
    assert log.claim(CLAIM) == 2
    assert store.size(BEGUN) is not None


@pytest.mark.parametrize("left", [{IDENTITY, BEGUN}, {IDENTITY, "runs/1"}, {BEGUN}, {"runs/1"}, {"notes.txt"}])
def test_a_store_that_lost_its_whole_log_is_never_new(store: LocalStore, left: set[str]) -> None:
    log = claimed(store)
    store.create("runs/1", b"rows")
    store.create("notes.txt", b"")
    log.append([made(0)])
    for name in list(store.list("")):
        if name not in left:
            store.delete(name)
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\].*but no log: it is no store"):
        Log.open(store, "flow")


def test_a_truncated_log_that_lost_its_only_manifest_is_not_a_young_one(store: LocalStore) -> None:
    """All that is left is the first claim: just what a process that died at once would leave."""
    log = claimed(store)
    log.append([made(0)])
    log.checkpoint()
    log.truncate()
    store.delete(name_of(log.last))
    assert list(store.list("log/")) == [name_of(1)]
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\] the log's newest manifest is not there"):
        Log.open(store, "flow")


@pytest.mark.parametrize("gone", IDENTITIES)
def test_a_store_that_lost_its_identity_is_refused(store: LocalStore, gone: str) -> None:
    log = claimed(store)
    log.append([made(0)])
    log.checkpoint()
    log.truncate()
    store.delete(gone)
    with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\] {gone} is not there"):
        Log.open(store, "flow")


def test_a_gap_is_refused(store: LocalStore) -> None:
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])
    for gone in (1, 2, 3):
        content = store.read(name_of(gone))
        store.delete(name_of(gone))
        with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\] {name_of(gone)} is not there"):
            Log.open(store, "flow")
        store.create(name_of(gone), content)
    assert Log.open(store, "flow").last == 4


def test_a_lost_manifest_is_refused_though_the_groups_before_it_are_there(store: LocalStore) -> None:
    log = claimed(store)
    log.append([made(0)])
    log.checkpoint()
    log.append([made(1)])
    store.delete(name_of(3))
    with pytest.raises(DataError, match=rf"\[MISSING_OBJECT\] {name_of(3)}"):
        Log.open(store, "flow")


def test_a_file_that_is_no_object_is_refused_by_name(store: LocalStore) -> None:
    claimed(store)
    store.create("log/000000000002.bak", b"")
    with pytest.raises(DataError, match=r"\[CORRUPT\] log/000000000002.bak"):
        Log.open(store, "flow")


def test_a_whole_object_in_a_wrong_place_is_refused(store: LocalStore, tmp_path: Path) -> None:
    """Each with a checksum that holds: put there by a careless copy, not by a broken disk."""
    log = claimed(store)
    for time in range(3):
        log.append([made(time)])
    header, records = decode_group(store.read(name_of(4)), "")
    strange = [
        ("dataflow", Header("other", 4, 1, 0, header.previous, 0), records),
        ("number", Header("flow", 3, 1, 0, header.previous, 0), records),
        ("token", Header("flow", 4, 2, 0, header.previous, 0), records),
        ("predecessor", Header("flow", 4, 1, 1, header.previous, 0), records),
        ("chain", Header("flow", 4, 1, 0, b"\0" * 16, 0), records),
        ("no chain", Header("flow", 4, 1, 0, b"", 0), records),
        ("manifest that is none", Header("flow", 4, 1, 0, header.previous, 4), records),
        ("manifest to come", Header("flow", 4, 1, 0, header.previous, 9), records),
        ("manifest before", Header("flow", 4, 1, 0, header.previous, 2), records),
        ("unnamed manifest", Header("flow", 4, 1, 0, header.previous, 0), (log.history.snapshot(),)),
        ("claim of another number", Header("flow", 4, 1, 0, header.previous, 0), (CLAIM,)),
        ("claim among others", Header("flow", 4, 4, 0, header.previous, 0), (CLAIM, made(3))),
    ]
    for what, wrong, wrong_records in strange:
        store.delete(name_of(4))
        store.create(name_of(4), encode_group(wrong, wrong_records))
        with pytest.raises(DataError, match=r"\[CORRUPT\] log/0000"):
            pytest.fail(f"{what}: {Log.open(store, 'flow').history}")
    store.delete(name_of(4))
    store.create(name_of(4), encode_group(header, records))
    assert Log.open(store, "flow").last == 4


def test_identity_objects_are_not_taken_for_each_other(store: LocalStore) -> None:
    claimed(store).append([made(0)])
    content = store.read(BEGUN)
    store.delete(IDENTITY)
    store.create(IDENTITY, content)
    with pytest.raises(DataError, match=r"\[CORRUPT\] dataflow is a copy of begun"):
        Log.open(store, "flow")


@pytest.mark.parametrize("name", [BEGUN, TRUNCATED])
def test_an_identity_object_of_another_store_is_refused(store: LocalStore, tmp_path: Path, name: str) -> None:
    other = LocalStore.open(tmp_path / "other", create=True, filesystem=Unsynced())
    for each in (store, other):
        log = claimed(each)
        log.append([made(0)])
        log.checkpoint()
        log.truncate()
    store.delete(name)
    store.create(name, other.read(name))
    with pytest.raises(DataError, match=rf"\[CORRUPT\] {name} is of store {Log.open(other, None).store_id}"):
        Log.open(store, "flow")


# --- every byte of it ---


def test_with_any_byte_flipped_the_log_gives_an_error_or_the_right_result(tmp_path: Path) -> None:
    store, records = small_store(tmp_path / "store", stopped=True)
    right = LogHistory.of(records, "small")
    assert Log.open(store, "small").history == right
    for name in store.list(""):
        path = tmp_path / "store" / name
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
            match opened(store):
                case DataError(condition="CORRUPT", message=message):
                    assert name in message
                case history:
                    assert history == right
                    assert name in ("runs/1", name_of(1), "stopped/000000000007"), (
                        "an opened log does not read it; `verify` does"
                    )
        path.write_bytes(content)


def test_with_any_object_gone_the_log_gives_an_error_or_what_a_crash_before_it_gives(tmp_path: Path) -> None:
    store, records = small_store(tmp_path / "store", stopped=False)
    numbers = list(store.list("log/"))
    for name in list(store.list("")):
        content = store.read(name)
        store.delete(name)
        match opened(store):
            case DataError(condition="MISSING_OBJECT", message=message):
                assert name in message
            case history:
                assert name in (numbers[0], numbers[-1], "runs/1"), "`verify` finds the first claim and the run missing"
                assert history == LogHistory.of(records[:-2] if name == numbers[-1] else records, "small")
        store.create(name, content)


def opened(store: Store) -> LogHistory | BoatliftError:
    try:
        return Log.open(store, "small").history
    except BoatliftError as error:
        return error
