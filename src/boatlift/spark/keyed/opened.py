"""Runs as they are read: memory-mapped, checked once in a process, and kept open for the next step."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from boatlift.errors import DataError
from boatlift.spark.keyed.codec import ValueCodec
from boatlift.spark.keyed.column import Column
from boatlift.spark.keyed.run_file import COLLIDES_KEY, FIRST_KIND, FORMAT, HASH_FIELD, METADATA_KEY, key_field
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.records import RunRef

__all__ = ["LocatedRun", "OpenRun", "RunsOnDemand", "Segment", "forget_runs", "open_run"]

LocatedRun = tuple[RunRef, str]
"""A run, and the file in which this machine can read it."""

S = TypeVar("S")

_KEEP_OPEN = 1024
_LOOK_EVERY = 64  # opens between two looks for runs that are removed
_opens = 0
_opened: OrderedDict[str, OpenRun[Any]] = OrderedDict()
# A task is alone in its process; on the driver, the states of several processors are merged at once.
_opening = threading.RLock()


@dataclass(slots=True)
class Segment(Generic[S]):
    """One record batch of a run, as NumPy and Arrow views of the mapped file: nothing is read before it is touched.

    Attributes:
        hash: Ascending.
        keys: Key columns.
        values: The rest, as the codec's `decode` returns it.
        collides: Whether two of its rows may have one hash.
    """

    hash: npt.NDArray[np.uint64]
    keys: Sequence[Column]
    values: S
    collides: bool


@dataclass(slots=True)
class OpenRun(Generic[S]):
    """A run that can be read.

    Attributes:
        path: The file.
        size: Its bytes.
        meta: The run's own account of itself: format, processor, first, last, modulus, residue, layout.
        segments: Its rows; no key is in two of them.
        digest: The digest of the file; None until the file is checked.
    """

    path: str
    size: int
    meta: Mapping[str, Any]
    segments: Sequence[Segment[S]]
    digest: str | None = field(default=None)

    @property
    def rows(self) -> int:
        """Number of rows, one a key."""
        return sum(len(segment.hash) for segment in self.segments)

    @property
    def times(self) -> tuple[int, int]:
        """The first and the last time whose effects the run holds."""
        return int(self.meta["first"]), int(self.meta["last"])


@dataclass(frozen=True, slots=True)
class RunsOnDemand(Generic[S]):
    """Runs that are opened one after the other, each when it is asked for; see `open_run`.

    Attributes:
        runs: The runs, and where they lie.
        codec: How their values are read.
    """

    runs: Sequence[LocatedRun]
    codec: ValueCodec[Any, S]

    def __iter__(self) -> Iterator[OpenRun[S]]:
        """Open the runs."""
        for expected, path in self.runs:
            yield open_run(path, expected, codec=self.codec)


def open_run(
    path: str | Path, expected: RunRef | None = None, *, codec: ValueCodec[Any, S], verify: bool = True
) -> OpenRun[S]:
    """Open a run, or return the one that this process has open.

    Args:
        path: The file.
        expected: The run as it is recorded.
        codec: How its values are read.
        verify: Check size and digest against `expected` when this process opens it first.

    Raises:
        DataError: `[MISSING_OBJECT]` no such file; `[CORRUPT]` the file is not the one expected, or no run;
            `[NEWER_FORMAT]`; `[PROGRAM_CHANGED]` the run's keys or values have another form.
    """
    with _opening:
        return _open_or_opened(str(path), expected, codec, verify)


def _open_or_opened(name: str, expected: RunRef | None, codec: ValueCodec[Any, S], verify: bool) -> OpenRun[S]:
    run = _opened.get(name)
    if run is None or (expected is not None and run.size != expected.size):
        run = _open(name, expected, codec, verify)
        _opened[name] = run
        _close_some()
    else:
        _opened.move_to_end(name)
    if verify and expected is not None and run.digest != expected.digest:
        if run.digest is None:  # opened without a check before
            del _opened[name]
            return _open_or_opened(name, expected, codec, verify=True)
        raise DataError("CORRUPT", f"the run {name} has digest {run.digest}, recorded is {expected.digest}: restore it")
    return run


def forget_runs(paths: Sequence[str] | None = None) -> None:
    """Close runs (all, if none are named): the space of a removed file is held until then."""
    with _opening:
        for path in list(_opened) if paths is None else paths:
            _opened.pop(str(path), None)


def _close_some() -> None:
    """Close runs not used for long and, now and then, those whose files are removed: a mapping holds a file's space."""
    global _opens
    _opens += 1
    if _opens % _LOOK_EVERY == 0:
        forget_runs([path for path in _opened if not Path(path).exists()])
    while len(_opened) > _KEEP_OPEN:
        _opened.popitem(last=False)


def _open(name: str, expected: RunRef | None, codec: ValueCodec[Any, S], verify: bool) -> OpenRun[S]:
    try:
        with pa.memory_map(name) as file:  # the mapping lives on as long as a buffer of it
            whole = file.read_buffer()
    except FileNotFoundError as error:
        raise DataError("MISSING_OBJECT", f"the run {name} is not there: {RESTORE}") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError("CORRUPT", f"the run {name} cannot be read: {error}") from error
    digest: str | None = None
    if expected is not None and whole.size != expected.size:
        raise DataError("CORRUPT", f"the run {name} has {whole.size} bytes, recorded are {expected.size}: restore it")
    if expected is not None and verify:
        digest = xxhash.xxh3_128_hexdigest(whole)
        if digest != expected.digest:
            raise DataError("CORRUPT", f"the run {name} has digest {digest}, recorded is {expected.digest}: restore it")
    try:
        reader = pa.ipc.open_file(whole)
        meta = json.loads((reader.schema.metadata or {})[METADATA_KEY])
        if meta["format"] > FORMAT:
            raise DataError("NEWER_FORMAT", f"the run {name} has format {meta['format']}, known is {FORMAT}: upgrade")
        reading = codec if meta["layout"] == codec.description else codec.of_older(meta["layout"])
        if meta.get("kind", FIRST_KIND) != codec.kind or reading is None:
            raise DataError(
                "PROGRAM_CHANGED",
                f"the run {name} holds the state of another computation, or of one over other columns",
            )
        segments = [_segment(reading, reader, number) for number in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError("CORRUPT", f"the run {name} is no run: {error}") from error
    return OpenRun(name, whole.size, meta, segments, digest)


def _segment(codec: ValueCodec[Any, S], reader: Any, number: int) -> Segment[S]:
    stored = reader.get_batch_with_custom_metadata(number)
    columns = dict(zip(stored.batch.schema.names, stored.batch.columns, strict=True))
    hashes = columns.pop(HASH_FIELD).to_numpy()
    keys = [
        Column.from_arrow(columns.pop(key_field(place)), kind, canonical=False)
        for place, (_, kind) in enumerate(codec.keys)
    ]
    return Segment(hashes, keys, codec.decode(columns), stored.custom_metadata[COLLIDES_KEY] == b"1")
