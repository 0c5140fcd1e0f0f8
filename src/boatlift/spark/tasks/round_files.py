"""The rounds of a loop's step as files: written by its tasks, and read by those of a process that comes after."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from boatlift.decoders import json_decoder
from boatlift.errors import BoatliftError
from boatlift.spark.keyed.arrangement.codec import ArrangementCodec
from boatlift.spark.keyed.codec import ValueCodec
from boatlift.spark.keyed.kept_rounds import NamedRows, SavedRounds
from boatlift.spark.keyed.key_groups import Share
from boatlift.spark.keyed.opened import open_run
from boatlift.spark.keyed.run_file import write_run
from boatlift.storage.records.records import RunRef

__all__ = ["MANIFEST", "RoundFiles"]

MANIFEST = "rounds.json"
"""The file that names the files of the rounds that count."""


class _KeptRuns(msgspec.Struct, frozen=True):
    """The rounds that count.

    Attributes:
        round: The last of them.
        began: The round with which the tasks that wrote them had begun.
        files: Name to the runs of all tasks.
    """

    round: int
    began: int
    files: dict[str, list[RunRef]]


class _OfTask(msgspec.Struct, frozen=True):
    files: dict[str, RunRef]


_KEPT_RUNS, _OF_TASK = json_decoder(_KeptRuns), json_decoder(_OfTask)


@dataclass(slots=True)
class RoundFiles:
    """The rounds of a step, on the side of a task.

    Attributes:
        folder: Where they are kept: the folder is this step's alone.
        seconds: So long after the step began, or rounds were kept last, rounds are kept.
        processor: The processor, as runs name it.
        codecs: Name to the form of rows, as far as it does not stand in the files.
        step: The time of the step.
        share: The key groups of this task.
        token: The owner's: a process that was taken for dead writes other files.
    """

    folder: Path
    seconds: float
    processor: str
    codecs: Mapping[str, ValueCodec[Any, Any]]
    step: int
    share: Share
    token: int
    _last: float = field(default_factory=time.monotonic)
    _began: int = 0
    _failed: bool = False

    def read(self) -> SavedRounds | None:
        """Return the rounds that were kept last; None if there are none, or one of their files is damaged."""
        try:
            manifest: _KeptRuns = _KEPT_RUNS.decode((self.folder / MANIFEST).read_bytes())
            runs = {name: self._opened(name, files) for name, files in manifest.files.items()}
        except (OSError, msgspec.ValidationError, msgspec.DecodeError, pa.ArrowException, BoatliftError):
            return None
        self._began = manifest.round + 1
        return SavedRounds(manifest.round, runs)

    @property
    def due(self) -> bool:
        """Whether the last rounds were kept so long ago that this one shall be."""
        return not self._failed and time.monotonic() - self._last >= self.seconds

    def write(self, number: int, rows: NamedRows) -> None:
        """Write a task's rows of all rounds so far; see `KeptRounds.write`."""
        with self._or_not_kept():
            self._write(number, rows)

    def written(self, number: int) -> None:
        """Take note that all tasks have written their rows: the first one says that they count."""
        self._last = time.monotonic()
        if self.share.residue == 0:
            with self._or_not_kept():
                self._count(number)

    @contextmanager
    def _or_not_kept(self) -> Iterator[None]:
        """Keep no more rounds if one cannot be kept: a full disk, or an older owner that removes files, costs time."""
        try:
            yield
        except (OSError, BoatliftError, msgspec.MsgspecError):
            self._failed = True

    def _write(self, number: int, rows: NamedRows) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        written = {}
        for place, (name, (codec, own)) in enumerate(rows.items()):
            path = self.folder / f"{self._stem(number, self.share.residue)}-{place}.arrow"
            path.unlink(missing_ok=True)  # of an attempt of this task that failed
            run = write_run(
                path, codec, [own], processor=self.processor, times=(self.step, self.step), share=self.share
            )
            _sync(path)
            written[name] = run
        self._put(f"{self._stem(number, self.share.residue)}.json", _OfTask(written))

    def _count(self, number: int) -> None:
        files: dict[str, list[RunRef]] = {}
        for task in range(self.share.modulus):
            own: _OfTask = _OF_TASK.decode((self.folder / f"{self._stem(number, task)}.json").read_bytes())
            for name, run in own.files.items():
                files.setdefault(name, []).append(run)
        self._put(MANIFEST, _KeptRuns(number, self._began, files))
        for file in self.folder.iterdir():
            if file.name != MANIFEST and not file.name.startswith(f"{number}-{self.token}-"):
                file.unlink(missing_ok=True)

    def _stem(self, number: int, task: int) -> str:
        return f"{number}-{self.token}-{task}"

    def _put(self, name: str, content: msgspec.Struct) -> None:
        temporary = self.folder / f"{self._stem(0, self.share.residue)}.tmp"
        temporary.write_bytes(msgspec.json.encode(content))
        _sync(temporary)
        temporary.rename(self.folder / name)
        _sync(self.folder)

    def _opened(self, name: str, files: list[RunRef]) -> tuple[ValueCodec[Any, Any], list[Any]]:
        codec = self.codecs.get(name) or _arrangement_in(files[0].name)
        return codec, [open_run(run.name, run, codec=codec) for run in files]


def _arrangement_in(file: str) -> ArrangementCodec:
    """Return the form of the rows of an arrangement's file."""
    with pa.memory_map(file) as source:
        schema = pa.ipc.open_file(source).schema
    return ArrangementCodec(pa.schema([field for field in schema if field.name.startswith("row.")]))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
