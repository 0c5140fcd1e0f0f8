"""The journal: what was appended is read once; what is damaged is a gap; what fails ends it and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boatlift.storage.journal import (
    DAY,
    HOUR,
    MOST_FILES,
    Journal,
    JournalReader,
    damage_of_journal,
    journal_bytes,
    journal_folder,
)
from boatlift.storage.records.journal import JournalEntry, RunEvent, RunSample
from boatlift.storage.verify import verify
from support.engine.hosts import open_store

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
    assert (reader.samples(0), reader.newest) == ([], 0)
    for n in range(4):
        journal.write(entry(NOW + 10_000 * n, failure(NOW + n)))
        reader.catch_up()
        reader.catch_up()
        assert [each.at for each in reader.samples(0)] == [NOW + 10_000 * k for k in range(n + 1)]
    assert [event.at for event in reader.events] == [NOW, NOW + 1, NOW + 2, NOW + 3]
    assert [each.at for each in reader.samples(NOW + 15_000)] == [NOW + 10_000, NOW + 20_000, NOW + 30_000]
    assert files(tmp_path) == ["000000000007-0000"]
    assert journal_bytes(store) == (tmp_path / "journal" / "000000000007-0000").stat().st_size > 0


def test_a_file_has_an_hour_at_most_and_a_clock_that_was_set_back_begins_another(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    journal = Journal(store, 1)
    for at in (NOW, NOW + HOUR - 1, NOW + HOUR, NOW - 5_000):
        journal.write(entry(at))
    assert files(tmp_path) == ["000000000001-0000", "000000000001-0001", "000000000001-0002"]


def test_files_of_more_than_a_day_ago_are_removed_and_never_too_many_are_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for token in range(1, MOST_FILES + 20):
        Journal(store, token).write(entry(NOW))
    assert len(files(tmp_path)) == MOST_FILES
    for path in (tmp_path / "journal").iterdir():
        os.utime(path, (NOW / 1000, NOW / 1000))
    Journal(store, 999).write(entry(NOW + DAY + 1))
    assert files(tmp_path) == ["000000000999-0000"]


@pytest.mark.parametrize("what", ["torn", "changed"])
def test_damage_is_a_gap_and_a_note_of_verify(tmp_path: Path, what: str) -> None:
    store = open_store(tmp_path)
    journal = Journal(store, 1)
    for n in range(3):
        journal.write(entry(NOW + n))
    path = tmp_path / "journal" / "000000000001-0000"
    whole = path.read_bytes()
    third = len(whole) // 3
    path.write_bytes(whole[:-1] if what == "torn" else whole[: third + 30] + b"\xff" + whole[third + 31 :])
    reader = JournalReader(store)
    reader.catch_up()
    assert [each.at for each in reader.samples(0)] == ([NOW, NOW + 1] if what == "torn" else [NOW])
    notes = [each for each in verify(store) if each.name.startswith("journal/")]
    assert notes == list(damage_of_journal(store))
    assert [(each.name, each.is_error) for each in notes] == (
        [] if what == "torn" else [("journal/000000000001-0000", False)]
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
        store.create("journal/000000000001-0000", b"")
    assert (tmp_path / "journal").stat().st_mode & 0o077 == 0


def test_a_store_elsewhere_has_none() -> None:
    assert journal_folder(object()) is None
    Journal(object(), 1).write(entry(NOW))
    reader = JournalReader(object())
    reader.catch_up()
    assert reader.samples(0) == []
