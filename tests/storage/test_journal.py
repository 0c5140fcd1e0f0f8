"""The journal: what was appended is read once; what is damaged is a gap; what fails ends it and nothing else."""

from __future__ import annotations

import os
import resource
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from boatlift.storage.journal import (
    DAY,
    HOUR,
    MOST_EVENTS,
    MOST_FILES,
    Journal,
    JournalReader,
    damage_of_journal,
    journal_bytes,
    journal_folder,
    note_failed_start,
)
from boatlift.storage.records.journal import JournalEntry, RunEvent, RunSample
from boatlift.storage.verify import verify
from support.engine.hosts import crashed, open_store

NOW = 1_790_000_000_000


def entry(at: int, *events: RunEvent) -> JournalEntry:
    return JournalEntry(RunSample(at, NOW, taken=at - NOW, fullest="sums", latencies=(1, 2)), events)


def failure(at: int) -> RunEvent:
    return RunEvent(at, "failure", "sums", 3, "[STEP_FAILED] it failed")


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "journal").iterdir())


def test_a_reader_gets_each_entry_once_as_the_file_grows(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    journal, reader = Journal(store, 7), JournalReader(store)
    reader.catch_up()
    assert (reader.samples(0), reader.newest(NOW)) == ([], 0)
    for n in range(4):
        journal.write(entry(NOW + 10_000 * n, failure(NOW + n)))
        reader.catch_up()
        reader.catch_up()
        assert [each.at for each in reader.samples(0)] == [NOW + 10_000 * k for k in range(n + 1)]
    assert [event.at for event in reader.events] == [NOW, NOW + 1, NOW + 2, NOW + 3]
    assert [each.at for each in reader.samples(NOW + 15_000)] == [NOW + 10_000, NOW + 20_000, NOW + 30_000]
    assert files(tmp_path) == ["000000000007-00000"]
    assert journal_bytes(store) == (tmp_path / "journal" / "000000000007-00000").stat().st_size > 0


def test_the_newest_events_are_kept_whatever_file_they_are_in(tmp_path: Path) -> None:
    """A start that has failed has a file that is read before those of owners."""
    store = open_store(tmp_path)
    journal = Journal(store, 7)
    for n in range(MOST_EVENTS + 9):
        journal.write(entry(NOW + n, failure(NOW + n)))
    note_failed_start(store, failure(NOW + DAY // 2))
    reader = JournalReader(store)
    reader.catch_up()
    assert [event.at for event in reader.events] == [*range(NOW + 10, NOW + MOST_EVENTS + 9), NOW + DAY // 2]


def test_a_file_has_an_hour_at_most_and_a_clock_that_was_set_back_begins_another(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    journal = Journal(store, 1)
    for at in (NOW, NOW + HOUR - 1, NOW + HOUR, NOW - 5_000):
        journal.write(entry(at))
    assert files(tmp_path) == ["000000000001-00000", "000000000001-00001", "000000000001-00002"]


def test_files_of_more_than_a_day_ago_are_removed_and_never_too_many_are_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for token in range(1, MOST_FILES + 20):
        Journal(store, token).write(entry(NOW))
    assert len(files(tmp_path)) == MOST_FILES
    for path in (tmp_path / "journal").iterdir():
        os.utime(path, (NOW / 1000, NOW / 1000))
    Journal(store, 999).write(entry(NOW + DAY + 1))
    assert files(tmp_path) == ["000000000999-00000"]


@pytest.mark.parametrize("what", ["torn", "changed"])
def test_damage_is_a_gap_and_a_note_of_verify(tmp_path: Path, what: str) -> None:
    store = open_store(tmp_path)
    journal = Journal(store, 1)
    for n in range(3):
        journal.write(entry(NOW + n))
    path = tmp_path / "journal" / "000000000001-00000"
    whole = path.read_bytes()
    third = len(whole) // 3
    path.write_bytes(whole[:-1] if what == "torn" else whole[: third + 30] + b"\xff" + whole[third + 31 :])
    reader = JournalReader(store)
    reader.catch_up()
    assert [each.at for each in reader.samples(0)] == ([NOW, NOW + 1] if what == "torn" else [NOW])
    notes = [each for each in verify(store) if each.name.startswith("journal/")]
    assert notes == list(damage_of_journal(store))
    assert [(each.name, each.is_error) for each in notes] == (
        [] if what == "torn" else [("journal/000000000001-00000", False)]
    )


def test_a_journal_that_cannot_be_written_ends_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    (tmp_path / "journal").write_text("a file in its way")
    journal = Journal(store, 1)
    for n in range(3):
        journal.write(entry(NOW + n))
    assert len([each for each in caplog.records if "the journal ends" in each.message]) == 1
    assert (tmp_path / "journal").read_text() == "a file in its way"


def test_the_folder_of_the_journal_has_no_objects(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    Journal(store, 1).write(entry(NOW))
    assert not [name for name in store.list("") if name.startswith("journal")]
    with pytest.raises(Exception, match=r"\[BAD_NAME\]"):
        store.create("journal/000000000001-00000", b"")


def test_the_folder_has_the_mode_of_the_other_folders_of_a_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    before = os.umask(0o007)  # as for a store that is shared with a group
    try:
        store.create("log/000000000001", b"")
        Journal(store, 1).write(entry(NOW))
    finally:
        os.umask(before)
    modes = {(tmp_path / name).stat().st_mode & 0o777 for name in ("journal", "log")}
    assert modes == {0o770}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that all users may read: those of pytest are private."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_that_may_not_read_the_journal_reads_the_rest(open_folder: Path) -> None:
    crashed(open_folder)
    store = open_store(open_folder)
    Journal(store, 1).write(entry(NOW))
    (open_folder / "journal").chmod(0o700)
    reader = JournalReader(store)
    os.seteuid(65534)
    try:
        reader.catch_up()
        assert journal_bytes(store) == 0
        notes = list(verify(store))
    finally:
        os.seteuid(0)
    assert reader.samples(0) == []
    assert [each.is_error for each in notes if each.name == "journal"] == [False]
    assert "journal is not checked" in notes[-1].message


def test_a_file_that_its_owner_removes_meanwhile_is_left_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    Journal(store, 1).write(entry(NOW))
    path = tmp_path / "journal" / "000000000002-00000"
    path.symlink_to(tmp_path / "removed")  # it is listed, and is not there
    reader = JournalReader(store)
    reader.catch_up()
    assert len(reader.samples(0)) == 1
    assert journal_bytes(store) == (tmp_path / "journal" / "000000000001-00000").stat().st_size
    assert list(damage_of_journal(store)) == []


def test_samples_of_a_clock_that_was_ahead_are_not_the_newest(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    journal, reader = Journal(store, 1), JournalReader(store)
    for at in (NOW, NOW + DAY):
        journal.write(entry(at))
    reader.catch_up()
    assert [reader.newest(until) for until in (NOW - 1, NOW + 1, NOW + DAY)] == [0, NOW, NOW + DAY]


@pytest.mark.parametrize("what", ["half a character", "half a write"])
def test_an_entry_that_cannot_be_written_whole_ends_the_journal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    store = open_store(tmp_path)
    journal = Journal(store, 1)
    journal.write(entry(NOW))
    path = tmp_path / "journal" / "000000000001-00000"
    whole = path.read_bytes()
    if what == "half a character":
        journal.write(entry(NOW + 1, RunEvent(NOW, "failure", "sums", 3, "\ud83d")))
    else:
        limits, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, limits[1]))
        try:
            journal.write(entry(NOW + 1))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            signal.signal(signal.SIGXFSZ, handler)
    journal.write(entry(NOW + 2))
    assert len([each for each in caplog.records if "the journal ends" in each.message]) == 1
    reader = JournalReader(store)
    reader.catch_up()
    assert [each.at for each in reader.samples(0)] == [NOW]


def test_a_store_elsewhere_has_none() -> None:
    assert journal_folder(object()) is None
    Journal(object(), 1).write(entry(NOW))
    reader = JournalReader(object())
    reader.catch_up()
    assert reader.samples(0) == []
