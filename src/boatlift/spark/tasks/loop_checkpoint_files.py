"""The rounds of a loop's step as files: written by its tasks, and read by those of a process that comes after."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import xxhash

from boatlift.decoders import json_decoder
from boatlift.errors import BoatliftError
from boatlift.kernels.loop_checkpoint import NamedRows, SavedIterations
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.key_groups import Share
from boatlift.state.opened import forget_runs, open_run, prove_run
from boatlift.state.run_file import write_run
from boatlift.storage.records.records import RunRef

MANIFEST = "rounds.json"
"""The file that names the files of the rounds that count."""


class _KeptRuns(msgspec.Struct, frozen=True):
    """The rounds that count.

    Attributes:
        began: The round with which the tasks that wrote them had begun.
        files: Name to the runs of all tasks.
    """

    iteration: int
    began: int
    files: dict[str, list[RunRef]]


class _OfTask(msgspec.Struct, frozen=True):
    files: dict[str, RunRef]


class _Proved(msgspec.Struct, frozen=True):
    """What a file of JSON says, and the xxh3-128 of its bytes."""

    digest: str
    content: msgspec.Raw


_KEPT_RUNS, _OF_TASK, _PROVED = json_decoder(_KeptRuns), json_decoder(_OfTask), json_decoder(_Proved)


@dataclass(slots=True)
class LoopCheckpointFiles:
    """The rounds of a loop in a step, on the side of a task.

    Each owner writes into a folder of its own, and so does a process that was taken for dead. A step is begun with the
    rounds of the newest owner whose files are whole.

    Attributes:
        folder: The folder of the step and of all input up to it.
        loop: The loop, as its folders are named.
        seconds: So long after the step began, or rounds were kept last, rounds are kept.
        processor: The processor, as runs name it.
        codecs: Name to the form of rows, as far as it does not stand in the files.
        step: The time of the step.
        share: The key groups of this task.
    """

    folder: Path
    loop: str
    seconds: float
    processor: str
    codecs: Mapping[str, ValueCodec[Any, Any]]
    step: int
    share: Share
    token: int
    _last: float = field(default_factory=time.monotonic)
    _began: int = 0
    _failed: bool = False

    def read(self) -> SavedIterations | None:
        """Return the rounds that were kept last; None if no owner has kept any, or none of their files are whole."""
        for owner in self._owners():
            try:
                found = self._read(self._of(owner))
            except (OSError, msgspec.MsgspecError, BoatliftError):
                continue
            self._began = found.number + 1
            return found
        return None

    def _owners(self) -> list[int]:
        """Return the owners that have a folder, the newest first."""
        try:
            return sorted((int(each.name) for each in self.folder.iterdir() if each.name.isdecimal()), reverse=True)
        except OSError:
            return []

    def _of(self, owner: int) -> Path:
        return self.folder / str(owner) / self.loop

    def _read(self, place: Path) -> SavedIterations:
        manifest: _KeptRuns = _proved(place / MANIFEST, _KEPT_RUNS)
        for run in (each for files in manifest.files.values() for each in files):
            prove_run(run.name, run)  # in what is read later, damage would stop the step
        return SavedIterations(
            manifest.iteration, {name: self._opened(name, runs) for name, runs in manifest.files.items()}
        )

    @property
    def due(self) -> bool:
        """Whether the last rounds were kept so long ago that this one shall be."""
        return not self._failed and time.monotonic() - self._last >= self.seconds

    def write(self, number: int, rows: NamedRows) -> None:
        """Write a task's rows of all rounds so far; see `LoopCheckpoint.write`."""
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
        own = self._of(self.token)
        own.mkdir(parents=True, exist_ok=True)
        written = {}
        for place, (name, (codec, mine)) in enumerate(rows.items()):
            path = own / f"{number}-{self.share.residue}-{place}.arrow"
            path.unlink(missing_ok=True)  # of an attempt of this task that failed
            run = write_run(
                path, codec, [mine], processor=self.processor, times=(self.step, self.step), share=self.share
            )
            _sync(path)
            written[name] = run
        self._put(f"{number}-{self.share.residue}.json", _OfTask(written))

    def _count(self, number: int) -> None:
        files: dict[str, list[RunRef]] = {}
        for task in range(self.share.modulus):
            written: _OfTask = _proved(self._of(self.token) / f"{number}-{task}.json", _OF_TASK)
            for name, run in written.files.items():
                files.setdefault(name, []).append(run)
        self._put(MANIFEST, _KeptRuns(number, self._began, files))
        for file in self._of(self.token).iterdir():
            if file.name != MANIFEST and not file.name.startswith(f"{number}-"):
                file.unlink(missing_ok=True)
        for older in (each for each in self._owners() if each < self.token):
            shutil.rmtree(self.folder / str(older), ignore_errors=True)

    def _put(self, name: str, content: msgspec.Struct) -> None:
        own, encoded = self._of(self.token), msgspec.json.encode(content)
        temporary = own / f"{self.share.residue}.tmp"
        temporary.write_bytes(msgspec.json.encode(_Proved(xxhash.xxh3_128_hexdigest(encoded), msgspec.Raw(encoded))))
        _sync(temporary)
        temporary.rename(own / name)
        _sync(own)

    def _opened(self, name: str, runs: list[RunRef]) -> tuple[ValueCodec[Any, Any], list[Any]]:
        codec = self.codecs.get(name) or _arrangement_in(runs[0].name)
        opened = [open_run(run.name, run, codec=codec) for run in runs]
        forget_runs([run.name for run in runs])  # another attempt writes other files of these names
        return codec, opened


def _proved(file: Path, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return what a file says.

    Raises:
        OSError, msgspec.MsgspecError: it cannot be read, or is not as it was written.
    """
    proved: _Proved = _PROVED.decode(file.read_bytes())
    if xxhash.xxh3_128_hexdigest(bytes(proved.content)) != proved.digest:
        raise msgspec.DecodeError(f"{file} is damaged")
    return decoder.decode(proved.content)


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
