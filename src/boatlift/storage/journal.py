"""The journal of a store in a folder: what runs did, for people who look later. No recovery reads it.

`journal/TOKEN-NUMBER` is a file of the owner with this token, to which entries are appended, without a sync. Token 0 is
of processes whose start has failed, with a file for each minute. A file that cannot be written, or is damaged, leaves a
gap on the page of the console, and is never a reason to stop. A store in a bucket has no journal: nothing can be
appended there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import FileIO
from pathlib import Path

from boatlift.errors import DataError, Finding
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import decode_journal, encode_journal
from boatlift.storage.records.journal import JournalEntry, RunEvent, RunSample
from boatlift.storage.store import JOURNAL

_NAME = re.compile(r"\d{12}-\d{5}")

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000  # milliseconds

MOST_FILES = 200
"""Of more files the oldest are removed: a run that ends at once, again and again, leaves one each time."""

MOST_EVENTS = 500
"""So many events are remembered by a reader, the newest ones."""

logger = logging.getLogger(__name__)


def journal_folder(store: object) -> Path | None:
    """Return the folder of a store's journal, which may be absent; None if the store has none."""
    return store.root / JOURNAL if isinstance(store, LocalStore) else None


def journal_bytes(store: object) -> int:
    """Return the size of a store's journal, as far as this user may look at it."""
    size = 0
    with suppress(PermissionError):
        for path in _files(journal_folder(store)):
            with suppress(FileNotFoundError):  # its owner has removed it
                size += path.stat().st_size
    return size


class Journal:
    """Writes the entries of one owner; calls come one after the other.

    Laws:
        * Files of more than a day ago are removed, and each file has one hour at most.
        * A failure ends the journal, and nothing else.
    """

    def __init__(self, store: object, token: int, number: int = 0) -> None:
        self._folder, self._token, self._number = journal_folder(store), token, number
        self._file: FileIO | None = None
        self._began = 0

    def write(self, entry: JournalEntry) -> None:
        """Append an entry."""
        if self._folder is None:
            return
        at = entry.sample.at
        try:
            if self._file is None or not 0 <= at - self._began < HOUR:
                self._close()
                self._begin(self._folder, at)
            assert self._file is not None, "it has begun"
            content = encode_journal(entry)
            if self._file.write(content) != len(content):
                raise OSError(f"only a part of an entry was written into {self._file.name}")
        except (OSError, UnicodeEncodeError) as error:
            logger.warning("the journal ends, so that the console has gaps: %s", error)
            self.end()

    @property
    def goes_on(self) -> bool:
        """Whether a further entry would be written."""
        return self._folder is not None

    def end(self) -> None:
        """Write no more."""
        self._close()
        self._folder = None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _begin(self, folder: Path, at: int) -> None:
        folder.mkdir(exist_ok=True)  # as the other folders of a store: the store's own mode says which users enter
        files = _files(folder)
        for path in files[: -MOST_FILES + 1]:
            path.unlink(missing_ok=True)
        for path in files[-MOST_FILES + 1 :]:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime * 1000 < at - DAY:
                    path.unlink()
        self._file = (folder / f"{self._token:012}-{self._number:05}").open("ab", buffering=0)
        self._number, self._began = self._number + 1, at


def note_failed_start(store: object, event: RunEvent) -> None:
    """Write into the journal that a start has failed; the file is none of an owner's."""
    journal = Journal(store, 0, event.at // MINUTE % 100_000)
    journal.write(JournalEntry(RunSample(event.at, event.at), (event,)))
    journal.end()


class JournalReader:
    """Reads a journal as it grows: each entry once."""

    def __init__(self, store: object) -> None:
        self._folder = journal_folder(store)
        self._read: dict[str, int] = {}  # file to how far it was read
        self._samples: dict[str, list[RunSample]] = {}
        self._events: list[RunEvent] = []

    def catch_up(self) -> None:
        """Read what was appended; what is damaged is left out, with all behind it in its file.

        What this user may not read is left out, too.
        """
        files: dict[str, Path] = {}
        with suppress(PermissionError):
            files = {path.name: path for path in _files(self._folder)}
        for name in self._samples.keys() - files.keys():
            del self._samples[name], self._read[name]
        came: list[RunEvent] = []
        for name, path in files.items():
            with suppress(FileNotFoundError, PermissionError, DataError), path.open("rb") as file:
                begin = self._read.setdefault(name, 0)
                samples = self._samples.setdefault(name, [])
                file.seek(begin)
                for end, entry in decode_journal(file.read(), f"{JOURNAL}/{name}"):
                    self._read[name] = begin + end
                    if entry.sample != RunSample(entry.sample.at, entry.sample.at):  # else it is of no owner
                        samples.append(entry.sample)
                    came += entry.events

        self._events = sorted((*self._events, *came), key=lambda event: event.at)[-MOST_EVENTS:]

    def samples(self, since: int) -> list[RunSample]:
        """Return the samples from a time on, by owner, and the one before them of each run."""
        found: list[RunSample] = []
        for name in sorted(self._samples):
            of_file = self._samples[name]
            first = next((n for n, each in enumerate(of_file) if each.at >= since), len(of_file))
            found += of_file[max(0, first - 1) :]
        return found

    def newest(self, until: int) -> int:
        """Return the time of the newest sample that is not later than a time; 0 if there is none."""
        return max((each.at for of_file in self._samples.values() for each in of_file if each.at <= until), default=0)

    @property
    def events(self) -> Sequence[RunEvent]:
        """The newest events, oldest first."""
        return tuple(self._events)


def damage_of_journal(store: object) -> Iterator[Finding]:
    """Yield a note for each file that has a damaged entry: charts have a gap there, and nothing else depends on it.

    What this user may not read is not checked, and noted.
    """
    try:
        files = _files(journal_folder(store))
    except PermissionError as error:
        yield Finding(JOURNAL, None, f"{JOURNAL} is not checked: {error}; verify it as another user")
        return
    for path in files:
        name = f"{JOURNAL}/{path.name}"
        try:
            for _ in decode_journal(path.read_bytes(), name):
                pass
        except FileNotFoundError:
            continue
        except PermissionError as error:
            yield Finding(name, None, f"{name} is not checked: {error}; verify it as another user")
        except DataError as error:
            told = error.message.partition(":")[0]
            yield Finding(name, None, f"{told}: the charts of the console have a gap, nothing else needs it")


def _files(folder: Path | None) -> list[Path]:
    """Return the files of a journal, the oldest first."""
    try:
        return [] if folder is None else sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError):
        return []
