"""Checking every durable byte: each single damage is found, and what is whole is left alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from boatlift.errors import Finding
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.codec import FORMAT_VERSION, Push
from boatlift.storage.records.facts import Determinant
from boatlift.storage.store import Store
from boatlift.storage.verify import verify
from support.worlds.facts import CLAIM, gave, made, run_of, saved, small_store, stable
from support.worlds.hostile_stores import in_format


def errors(store: Store) -> list[Finding]:
    return [finding for finding in verify(store) if finding.is_error]


@pytest.mark.parametrize("stopped", [False, True])
def test_a_whole_store_has_nothing_wrong(tmp_path: Path, stopped: bool) -> None:
    store, _ = small_store(tmp_path, stopped=stopped)
    assert list(verify(store)) == []


def test_a_new_store_has_nothing_wrong(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    assert list(verify(store)) == []
    Log.open(store, "flow").claim(CLAIM)
    assert list(verify(store)) == []


def test_every_flipped_byte_is_found_and_named(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    for name in store.list(""):
        path = tmp_path / name
        content = path.read_bytes()
        for at in range(len(content)):
            path.write_bytes(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])
            assert [(finding.name, finding.condition) for finding in errors(store)] == [(name, "CORRUPT")], at
        path.write_bytes(content)
    assert list(verify(store)) == []


def test_every_missing_or_added_byte_is_found_and_named(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    for name in store.list(""):
        path = tmp_path / name
        content = path.read_bytes()
        for changed in (content[:-1], content[1:], content[: len(content) // 2], b"", content + b"\0", b"\0" + content):
            path.write_bytes(changed)
            assert [(finding.name, finding.condition) for finding in errors(store)] == [(name, "CORRUPT")]
        path.write_bytes(content)


def test_every_deleted_object_is_found_and_named(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    names = list(store.list(""))
    assert len(names) == 3 + 5 + 1 + 1
    for name in (name for name in names if not name.startswith("stopped/")):
        content = store.read(name)
        store.delete(name)
        found = errors(store)
        assert [finding.condition for finding in found] == ["MISSING_OBJECT"], name
        assert name in found[0].message
        store.create(name, content)


def test_without_a_clean_stop_only_the_newest_object_can_be_lost_unseen(tmp_path: Path) -> None:
    """For a crash just before it leaves the same bytes."""
    store, _ = small_store(tmp_path, stopped=False)
    unseen = []
    for name in list(store.list("")):
        content = store.read(name)
        store.delete(name)
        if not errors(store):
            unseen.append(name)
        store.create(name, content)
    assert unseen == [list(store.list("log/"))[-1]]


def test_after_a_clean_stop_the_loss_of_any_number_of_the_last_objects_is_found(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    for name in [*store.list("log/")][:0:-1]:
        store.delete(name)
        (found,) = errors(store)
        assert (found.condition, "log/000000000007" in found.message) == ("MISSING_OBJECT", True), name


def test_a_stop_whose_mark_is_not_there_is_a_note_for_a_process_may_have_died_just_then(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    store.delete("stopped/000000000007")
    assert [(finding.name, finding.condition) for finding in verify(store)] == [("stopped/000000000007", None)]


def test_nothing_is_said_of_a_stop_after_which_a_newer_owner_has_gone_on_meanwhile(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    store.delete("stopped/000000000007")

    newer = Log.open(store, None)

    class Moving(LocalStore):
        looked = 0

        def list(self, prefix: str) -> Iterator[str]:
            self.looked += prefix == "stopped/"
            if self.looked == 2 and newer.last == 7:  # the log was read with the first look
                newer.claim(CLAIM)
                newer.checkpoint()
                newer.truncate()
            return super().list(prefix)

    assert list(verify(Moving(tmp_path))) == []
    assert list(store.list("log/")) == [name_of(number) for number in (1, 8, 9)]


def test_a_mark_of_another_stop_or_store_is_found(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path / "one", stopped=True)
    other, _ = small_store(tmp_path / "other", stopped=True)
    mark = tmp_path / "one" / "stopped/000000000007"
    whole = mark.read_bytes()
    for content in (other.read("stopped/000000000007"), store.read("begun")):
        mark.write_bytes(content)
        assert [finding.condition for finding in errors(store)] == ["CORRUPT"]
    mark.write_bytes(whole)
    assert list(verify(store)) == []


def test_two_damages_are_both_reported(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    for name in ("dataflow", name_of(5)):
        path = tmp_path / name
        whole = path.read_bytes()
        path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert [finding.name for finding in errors(store)] == ["dataflow", name_of(5)]


def test_objects_without_a_name_are_a_note_and_no_error(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    store.create("runs/orphan", b"saved, but its checkpoint never came")
    store.create("README.txt", b"by hand")
    assert [(finding.name, finding.condition) for finding in verify(store)] == [
        ("README.txt", None),
        ("runs/orphan", None),
    ]


def test_what_a_truncation_left_is_a_note(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path, create=True)
    log = Log.open(store, "flow")
    log.claim(CLAIM)
    log.append([made(0)])
    left = store.read(name_of(2))
    log.checkpoint()
    log.truncate()
    store.create(name_of(2), left)
    assert [(finding.name, finding.condition) for finding in verify(store)] == [(name_of(2), None)]


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    store, _ = small_store(tmp_path, stopped=True)
    (tmp_path / name_of(5)).write_bytes(in_format(FORMAT_VERSION + 1, store.read(name_of(5))))
    assert [(finding.name, finding.condition) for finding in errors(store)] == [(name_of(5), "NEWER_FORMAT")]


def test_a_run_of_a_checkpoint_that_is_gone_meanwhile_is_no_loss(tmp_path: Path) -> None:
    """The owner makes a newer checkpoint and deletes the old one's run just before `verify` reads it."""

    store = LocalStore.open(tmp_path, create=True)
    log = Log.open(store, "flow")
    log.claim(CLAIM)
    for time in (0, 1):
        store.create(f"runs/{time}", b"rows")
    log.append([made(0), gave(0), saved(0, run_of(b"rows", "runs/0"))])

    class Moving(LocalStore):
        def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
            if name == "runs/0" and store.size(name) is not None:
                log.append([saved(1, run_of(b"rows", "runs/1")), stable({"sums": 1})])
                log.checkpoint()
                log.truncate()
                store.delete(name)
            return super().read(name, start, length)

    assert errors(Moving(tmp_path)) == []
    store.delete("runs/1")
    assert [(finding.name, finding.condition) for finding in errors(store)] == [("runs/1", "MISSING_OBJECT")]


def with_input_log(root: Path, *positions: object) -> LocalStore:
    """A store in which a source that no connector is keeps three objects of rows, and recorded these positions."""
    store = LocalStore.open(root, create=True)
    log = Log.open(store, "flow")
    token = log.claim(CLAIM)
    rows = InputLog(store, log.store_id, "sensors")
    rows.claim(token, 0)
    for part in ("a", "b", "c"):
        rows.append([Push(part, 1, part.encode(), 0)], b"rows")
    log.append([Determinant("sensors", at, None, {"position": each}) for at, each in enumerate(positions)])
    return store


def test_a_lost_input_is_found_of_any_source_that_keeps_its_rows_in_the_store(tmp_path: Path) -> None:
    store = with_input_log(tmp_path, {"upto": "b", "input_log": 3}, {"upto": "c", "input_log": 4})
    assert list(verify(store)) == []
    store.delete("input/sensors/000000000004")
    assert [(finding.name, finding.condition) for finding in verify(store)] == [
        ("input/sensors/000000000004", "MISSING_OBJECT")
    ]


def test_a_position_that_does_not_name_its_input_raises_no_alarm(tmp_path: Path) -> None:
    unknown = [{"upto": "c"}, {"first": 2, "last": 4, "base": 0, "rows": 3}, {"input_log": None}, 5, None]
    store = with_input_log(tmp_path, *unknown)
    store.delete("input/sensors/000000000004")
    assert list(verify(store)) == []
