"""The time and the bytes of a step over files, and the time of a start, by the number of files that are known. No JVM.

A real source of files, the host's cursors and a real log, in a local store without syncs; no machine and no sink. All
times are of the processor. The files that are known were taken long ago and are no longer in the folder: listing a
folder is the system's work, and `a poll that finds nothing` has it for as many files as the smallest number.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from benchmarks.harness.measuring import Effort, Figure, Result
from boatlift.connectors import files
from boatlift.dataflow import Json
from boatlift.runtime.engine import Engine
from boatlift.runtime.graph import position_of, source_record
from boatlift.runtime.host.source_cursors import SourceCursors
from boatlift.runtime.host.term import COLLECT_AFTER
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Determinant, GarbageCollection
from boatlift.storage.records.records import Claim, Record

__all__ = ["measure"]

KNOWN = (10_000, 100_000, 1_000_000)
STEPS = 2_000
FILES_A_RECORD = 5_000
SOURCE = "files"
MOST_GROWTH = 1.5
MOST_SECONDS = 1.0


def measure(effort: Effort) -> Result:
    """Run steps of one new file each on each number of known files, in turn."""
    known = [effort.keys(count) for count in KNOWN]
    steps = effort.keys(STEPS)
    runs: dict[int, list[_Run]] = {count: [] for count in known}
    for _ in range(effort.rounds):
        for count in known:
            runs[count].append(_run(count, steps))
    least, most = known[0], known[-1]

    def growth(of: str) -> float:
        ratios = [getattr(a, of) / getattr(b, of) for a, b in zip(runs[most], runs[least], strict=True)]
        return float(f"{sorted(ratios)[len(ratios) // 2]:.3g}")

    ratios = {"milliseconds a step": growth("milliseconds"), "bytes a step": growth("written")}
    figures: dict[str, Figure] = {}
    for count in known:
        name = f"{count:,} files known"
        figures[f"{name}: a step"] = Figure.of("ms", [run.milliseconds for run in runs[count]])
        figures[f"{name}: written a step"] = Figure.of("bytes", [run.written for run in runs[count]])
        figures[f"{name}: a start"] = Figure.of("s", [run.start for run in runs[count]])
    figures[f"a poll that finds nothing in a folder of {least:,} files"] = Figure.of("s", [_idle_poll(least)])
    start = figures[f"{most:,} files known: a start"].median
    return Result(
        name="many_files",
        target=f"a step with {most:,} files known at most {MOST_GROWTH} times one with {least:,}, in time and bytes; a "
        f"start with {most:,} in {MOST_SECONDS:g} s of the processor",
        met=max(ratios.values()) <= MOST_GROWTH and start <= MOST_SECONDS,
        ratios=ratios,
        figures=figures,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """The figures of a run: `start` in seconds, `milliseconds` and bytes `written` a step."""

    start: float
    milliseconds: float
    written: float


class _Unsynced(FileSystem):
    """Files that need not survive the benchmark."""

    def sync_file(self, path: Path) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


class _Counted(LocalStore):
    """A store that counts the bytes that are written."""

    written = 0

    @classmethod
    def made(cls, root: Path) -> _Counted:
        root.mkdir()
        return cls(root, _Unsynced())

    def create(self, name: str, content: bytes | Path) -> None:
        super().create(name, content)
        assert isinstance(content, bytes), "there are no runs"
        self.written += len(content)


class _Engine:
    """The part of an engine that cursors need."""

    def __init__(self, folder: Path) -> None:
        self.source = files(folder, format="json", schema="id BIGINT")
        self.plan = SimpleNamespace(sources={SOURCE: self.source}, keeps_no_rows=lambda _source: False)

    def first_cursor(self, _source: str) -> Json:
        return self.source.start()

    def advance(self, _source: str, cursor: Json, position: Json) -> Json:
        return self.source.advance(cursor, position)


class _Owner:
    """A process that owns the log: it closes steps, and collects garbage as the host does."""

    def __init__(self, store: LocalStore, folder: Path) -> None:
        self._engine = _Engine(folder)
        self._log = Log.open(store, "many")
        self._log.claim(Claim("host", 1, 0, {}, {}))
        engine = cast("Engine", self._engine)
        self._cursors = SourceCursors(engine, self._log.history, self._log.names_taken)
        self._next = 1 + self._cursors.recorded[SOURCE]
        self._facts = 0

    def close_step(self, position: Json | None = None) -> None:
        cursor = self._cursors.cursor(SOURCE, self._next)
        position = position or self._engine.source.next(cursor)
        assert position is not None, "there are too few files"
        fact = Determinant(SOURCE, self._next, None, source_record(position, 1_700_000_000_000, self._next))
        self._log.append([fact])
        self._cursors.closed(SOURCE, self._next, position_of(fact.outcome))
        self._next += 1
        self._facts += 1
        if self._facts % COLLECT_AFTER == 0:
            self.collect()

    def collect(self) -> None:
        garbage = GarbageCollection({}, {SOURCE: (self._next - 1,)}, {})
        records: list[Record] = [*self._cursors.collected(garbage), garbage]
        self._log.append(records)
        if self._log.pays():
            self._log.move_out()
            self._log.checkpoint()
            self._log.truncate()


def _run(known: int, steps: int) -> _Run:
    with _folders() as (root, folder):
        store = _Counted.made(root)
        first = _Owner(store, folder)
        for begin in range(0, known, FILES_A_RECORD):
            first.close_step({"files": [_known(number) for number in range(begin, min(known, begin + FILES_A_RECORD))]})
            first.collect()
        for number in range(steps):
            (folder / f"new-{number:09}.json").write_text('{"id": 1}\n', encoding="utf-8")
        began = time.process_time()
        owner = _Owner(store, folder)
        started = time.process_time()
        before = store.written
        for _ in range(steps):
            owner.close_step()
        ended = time.process_time()
        return _Run(
            start=started - began,
            milliseconds=1000 * (ended - started) / steps,
            written=(store.written - before) / steps,
        )


def _known(number: int) -> dict[str, Any]:
    return {"path": f"part-{number:09}-of-the-input.json", "size": 1000, "digest": f"{number:032x}"}


def _idle_poll(count: int) -> float:
    with _folders() as (_, folder):
        for number in range(count):
            (folder / f"{number:09}.json").touch()
        source = _Engine(folder).source
        everything = [{"path": each.name, "digest": ""} for each in folder.iterdir()]
        cursor = source.advance(source.start(), {"files": everything})
        began = time.process_time()
        assert source.next(cursor) is None
        return time.process_time() - began


@contextmanager
def _folders() -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "input"
        folder.mkdir()
        yield Path(temporary) / "store", folder
