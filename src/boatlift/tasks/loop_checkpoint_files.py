"""Loop checkpoints as files: written by the tasks of a step, and read when the step is executed again."""

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
from boatlift.kernels.step_state import NamedRows, SavedIterations
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.codec import ValueCodec
from boatlift.state.key_groups import Share
from boatlift.state.opened import forget_runs, open_run, prove_run
from boatlift.state.run_file import write_run
from boatlift.storage.records.records import RunRef

MANIFEST = "rounds.json"
"""The file that names the files of the valid checkpoint."""


class _KeptRuns(msgspec.Struct, frozen=True, rename={"iteration": "round"}):
    """The valid loop checkpoint.

    Attributes:
        began: The iteration with which the tasks that wrote it began.
        files: Name to the runs of all tasks.
    """

    iteration: int
    began: int
    files: dict[str, list[RunRef]]


class _OfTask(msgspec.Struct, frozen=True):
    files: dict[str, RunRef]


class _Proved(msgspec.Struct, frozen=True):
    """The content of a JSON file, and the xxh3-128 of its bytes."""

    digest: str
    content: msgspec.Raw


_KEPT_RUNS, _OF_TASK, _PROVED = json_decoder(_KeptRuns), json_decoder(_OfTask), json_decoder(_Proved)


@dataclass(slots=True)
class LoopCheckpointFiles:
    """The checkpoints of a loop in a step, for one task.

    Each owner writes into a folder of its own, even an owner that was believed dead. A step begins with the checkpoint
    of the newest owner whose files are undamaged.

    Attributes:
        folder: The folder of the step and of all input up to it.
        loop: The folder name of the loop.
        seconds: The least time between the begin of the step or a checkpoint and the next checkpoint.
        codecs: Name to the codec of its rows, if the files do not tell it.
        step: The time of the step.
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
        """Return the last checkpoint; None if no owner has written one with undamaged files."""
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
            prove_run(run.name, run)  # damage that is found later would stop the step
        return SavedIterations(
            manifest.iteration, {name: self._opened(name, runs) for name, runs in manifest.files.items()}
        )

    @property
    def due(self) -> bool:
        """Whether the next iteration should be written."""
        return not self._failed and time.monotonic() - self._last >= self.seconds

    def write(self, number: int, rows: NamedRows) -> None:
        """Write a task's rows of all iterations so far; see `LoopCheckpoint.write`."""
        with self._or_give_up():
            self._write(number, rows)

    def written(self, number: int) -> None:
        """Record that all tasks have written their rows; the first task makes the checkpoint valid."""
        self._last = time.monotonic()
        if self.share.residue == 0:
            with self._or_give_up():
                self._publish(number)

    @contextmanager
    def _or_give_up(self) -> Iterator[None]:
        """Write no more checkpoints after one that fails: a full disk, or an older owner that deletes files."""
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
            path.unlink(missing_ok=True)  # a failed attempt of this task may have left it
            run = write_run(
                path, codec, [mine], processor=self.processor, times=(self.step, self.step), share=self.share
            )
            _sync(path)
            written[name] = run
        self._put(f"{number}-{self.share.residue}.json", _OfTask(written))

    def _publish(self, number: int) -> None:
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
        forget_runs([run.name for run in runs])  # another attempt may write other files under these names
        return codec, opened


def _proved(file: Path, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Return the content of a file.

    Raises:
        OSError, msgspec.MsgspecError: the file cannot be read, or is damaged.
    """
    proved: _Proved = _PROVED.decode(file.read_bytes())
    if xxhash.xxh3_128_hexdigest(bytes(proved.content)) != proved.digest:
        raise msgspec.DecodeError(f"{file} is damaged")
    return decoder.decode(proved.content)


def _arrangement_in(file: str) -> ArrangementCodec:
    """Return the codec of an arrangement's file."""
    with pa.memory_map(file) as source:
        schema = pa.ipc.open_file(source).schema
    return ArrangementCodec(pa.schema([field for field in schema if field.name.startswith("row.")]))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
