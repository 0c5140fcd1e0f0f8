"""Open runs: memory-mapped and cached, each block proved when a process first reads it."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from boatlift.errors import RESTORE, DataError, UnavailableError
from boatlift.state.codec import ValueCodec
from boatlift.state.proof import Proof
from boatlift.state.run_file import COLLIDES_KEY, FIRST_KIND, FORMAT, HASH_FIELD, METADATA_KEY, key_field
from boatlift.state.segment import MappedSegment, Segment
from boatlift.storage.blocks import BlockTable
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import forgotten, mappable, refetched

LocatedRun = tuple[RunRef, str]
"""A run, and the file in which this machine can read it."""

S = TypeVar("S")
T = TypeVar("T")

_KEEP_OPEN = 1024
_LOOK_EVERY = 64  # opens between two searches for deleted runs
_opens = 0
_opened: OrderedDict[str, OpenRun[Any]] = OrderedDict()
# A task is alone in its process; on the driver, the states of several processors are merged concurrently.
_opening = threading.RLock()


@dataclass(slots=True)
class OpenRun(Generic[S]):
    """A run that can be read."""

    path: str
    size: int
    meta: Mapping[str, Any]
    """The metadata in the file: format, processor, first, last, modulus, residue, layout."""
    segments: Sequence[Segment[S]]
    """Its rows; no key is in two of them."""
    digest: str = ""
    """The digest of the file's tail."""

    @property
    def rows(self) -> int:
        return sum(map(len, self.segments))

    @property
    def times(self) -> tuple[int, int]:
        """The first and the last time whose effects the run contains."""
        return int(self.meta["first"]), int(self.meta["last"])


@dataclass(frozen=True, slots=True)
class RunsOnDemand(Generic[S]):
    """Runs that are opened one by one during iteration; see `open_run`."""

    runs: Sequence[LocatedRun]
    codec: ValueCodec[Any, S]

    def __iter__(self) -> Iterator[OpenRun[S]]:
        for expected, path in self.runs:
            yield open_run(path, expected, codec=self.codec)


def open_run(path: str | Path, expected: RunRef, *, codec: ValueCodec[Any, S]) -> OpenRun[S]:
    """Open a run, or return it from the cache. This reads its tail and the heads of its record batches.

    Rows are proved when they are read: a damaged row raises `[CORRUPT]` then.

    Raises:
        DataError: `[MISSING_OBJECT]` the file is missing; `[CORRUPT]` it is another file, or no run; `[NEWER_FORMAT]`;
            `[PROGRAM_CHANGED]` the run's keys or values have another form.
    """
    name = str(path)
    with _opening:
        run = _opened.get(name)
        if run is None or run.size != expected.size:
            run = _opened[name] = _twice(name, lambda: _open(mappable(name, expected.size), expected, codec))
            _close_some()
        else:
            _opened.move_to_end(name)
        if run.digest != expected.digest:
            raise _another(name, run.digest, expected)
        return run


def prove_run(path: str | Path, expected: RunRef) -> None:
    """Prove all bytes of a run, before an effect that cannot be undone.

    Raises:
        DataError: `[MISSING_OBJECT]`, `[CORRUPT]`, `[PROGRAM_CHANGED]` as in `open_run`.
    """

    def prove() -> None:
        name = mappable(str(path), expected.size)
        whole, covered = _mapped(name, expected)
        try:
            proof = Proof(name, whole, BlockTable.of_tail(memoryview(whole.slice(covered))), covered)
        except ValueError as error:
            raise DataError("CORRUPT", f"the run {name} is no run: {error}") from error
        proof.prove(np.array([0]), np.array([covered]))

    _twice(str(path), prove)


def forget_runs(paths: Sequence[str] | None = None) -> None:
    """Close runs (by default all); only then is the space of a deleted file free."""
    with _opening:
        for path in list(_opened) if paths is None else paths:
            _opened.pop(str(path), None)


def _close_some() -> None:
    """Close runs that were not used for long and, now and then, runs whose files are deleted."""
    global _opens
    _opens += 1
    if _opens % _LOOK_EVERY == 0:
        forget_runs([key for key, run in _opened.items() if not Path(run.path).exists()])
    while len(_opened) > _KEEP_OPEN:
        _opened.popitem(last=False)


def _twice(name: str, act: Callable[[], T]) -> T:
    """Do an act on a run's file; once more with a new copy, if it is the copy of an object that was cut or removed."""
    try:
        return act()
    except (DataError, UnavailableError):
        if not forgotten(name):
            raise
    return act()


def _mapped(name: str, expected: RunRef) -> tuple[pa.Buffer, int]:
    """Return the bytes of a file, and the number of bytes before its tail, which is proved here."""
    try:
        with pa.memory_map(name) as file:  # the mapping lives as long as a buffer of it
            whole = file.read_buffer()
    except FileNotFoundError as error:
        raise DataError("MISSING_OBJECT", f"the run {name} is not there: {RESTORE}") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError("CORRUPT", f"the run {name} cannot be read: {error}") from error
    if whole.size != expected.size:
        raise DataError("CORRUPT", f"the run {name} has {whole.size} bytes, recorded are {expected.size}: {RESTORE}")
    if expected.tail is None:
        raise DataError(
            "PROGRAM_CHANGED",
            f"the run {name} is of an earlier version of Boatlift: finish with that version, or begin with a new store",
        )
    covered = expected.size - expected.tail
    digest = xxhash.xxh3_128_hexdigest(whole.slice(covered))
    if digest != expected.digest and refetched(name, [(covered, expected.size)], expected.size):
        digest = xxhash.xxh3_128_hexdigest(whole.slice(covered))
    if digest != expected.digest:
        raise _another(name, digest, expected)
    return whole, covered


def _open(name: str, expected: RunRef, codec: ValueCodec[Any, S]) -> OpenRun[S]:
    whole, covered = _mapped(name, expected)
    try:
        table = BlockTable.of_tail(memoryview(whole.slice(covered)))
        proof = Proof(name, whole, table, covered)
        proof.prove_heads(np.frombuffer(table.starts, "<u8").tolist())
        reader = pa.ipc.open_file(whole)
        meta = json.loads((reader.schema.metadata or {})[METADATA_KEY])
        if meta["format"] > FORMAT:
            raise DataError("NEWER_FORMAT", f"the run {name} has format {meta['format']}, known is {FORMAT}: upgrade")
        reading = codec if meta["layout"] == codec.description else codec.of_older(meta["layout"])
        if meta.get("kind", FIRST_KIND) != codec.kind or reading is None:
            raise DataError(
                "PROGRAM_CHANGED",
                f"the run {name} holds the state of another computation, or of one over other columns, or a version of "
                "Boatlift wrote it that kept other columns: finish with the program and the version that wrote it, or "
                "begin with a new store",
            )
        segments = _segments(reading, reader, proof, table)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError("CORRUPT", f"the run {name} is no run: {error}") from error
    return OpenRun(name, whole.size, meta, segments, expected.digest)


def _another(name: str, digest: str, expected: RunRef) -> DataError:
    return DataError("CORRUPT", f"the run {name} has digest {digest}, recorded is {expected.digest}: {RESTORE}")


def _segments(codec: ValueCodec[Any, S], reader: Any, proof: Proof, table: BlockTable) -> list[Segment[S]]:
    key_fields = (HASH_FIELD, *(key_field(place) for place in range(len(codec.keys))))
    marks = np.frombuffer(table.marks, "<u8")
    segments: list[Segment[S]] = []
    for number in range(reader.num_record_batches):
        stored = reader.get_batch_with_custom_metadata(number)
        columns = dict(zip(stored.batch.schema.names, stored.batch.columns, strict=True))
        count = -(-stored.batch.num_rows // table.mark_rows)
        own, marks = marks[:count], marks[count:]
        collides = stored.custom_metadata[COLLIDES_KEY] == b"1"
        segments.append(MappedSegment(proof, codec, columns, key_fields, own, table.mark_rows, collides))
    return segments
