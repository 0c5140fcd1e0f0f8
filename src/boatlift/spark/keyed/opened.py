"""Runs as they are read: memory-mapped, checked once in a process, and kept open for the next step."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from boatlift.errors import DataError
from boatlift.operators.aggregate.kernel.layout import Layout, StatePart
from boatlift.operators.aggregate.kernel.order_code import ABSENT, Extreme
from boatlift.operators.aggregate.kernel.partials import Partials, PartialState
from boatlift.spark.keyed.column import Bits, Column
from boatlift.spark.keyed.run_file import COLLIDES_KEY, FORMAT, METADATA_KEY
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.records import RunRef

__all__ = ["OpenRun", "Segment", "forget_runs", "open_run"]

_KEEP_OPEN = 1024
_LOOK_EVERY = 64  # opens between two looks for runs that are removed
_opens = 0
_opened: OrderedDict[str, OpenRun] = OrderedDict()
# A task is alone in its process; on the driver, several units' states are merged at once.
_opening = threading.RLock()


@dataclass(slots=True)
class Segment:
    """One record batch of a run, as NumPy and Arrow views of the mapped file: nothing is read before it is touched.

    Attributes:
        hash: Ascending.
        keys: Key columns.
        adds: Additive parts, as narrow as they are stored.
        extremes: Codes as narrow as they are stored (0 where there is no value), or Arrow arrays.
        collides: Whether two of its keys have one hash.
    """

    hash: npt.NDArray[np.uint64]
    keys: Sequence[Column]
    adds: Mapping[StatePart, Bits]
    extremes: Mapping[tuple[str, int], Bits | pa.Array]
    collides: bool

    def pick(self, rows: npt.NDArray[np.int64] | slice) -> PartialState:
        """Gives the state of some rows, in full width."""
        adds = {part: values[rows].astype(np.int64) for part, values in self.adds.items()}
        length = len(adds[StatePart("rows")])
        state = PartialState(length, adds, {})
        for (which, number), values in self.extremes.items():
            extreme: Extreme
            if isinstance(values, pa.Array):
                if isinstance(rows, slice):
                    extreme = values.slice(rows.start, rows.stop - rows.start)
                else:
                    extreme = values.take(pa.array(rows))
            else:
                extreme = values[rows].astype(np.int64)
                if StatePart("nulls", number) in adds:
                    extreme[state.counts(number) == 0] = ABSENT[which]
            state.extremes[which, number] = extreme
        return state

    def part(self, start: int, stop: int) -> Partials:
        """Gives a range of rows with their keys."""
        keys = [column.slice(start, stop) for column in self.keys]
        return Partials(self.hash[start:stop], keys, self.pick(slice(start, stop)), self.collides)


@dataclass(slots=True)
class OpenRun:
    """A run that can be read.

    Attributes:
        path: The file.
        size: Its bytes.
        meta: Its own account of itself: format, processor, first, last, modulus, residue, layout.
        segments: Its rows; no key is in two of them.
        digest: What the file was found to have, once it was checked.
    """

    path: str
    size: int
    meta: Mapping[str, Any]
    segments: Sequence[Segment]
    digest: str | None = field(default=None)

    @property
    def rows(self) -> int:
        """Number of rows, one a key."""
        return sum(len(segment.hash) for segment in self.segments)


def open_run(path: str | Path, expect: RunRef | None = None, *, layout: Layout, verify: bool = True) -> OpenRun:
    """Opens a run, or gives the one that this process has open.

    Args:
        path: The file.
        expect: What it is known to be.
        layout: The layout of the processor that reads it.
        verify: Check size and digest against `expect` when this process opens it first.

    Raises:
        DataError: `[MISSING_OBJECT]` no such file; `[CORRUPT]` it is not what is expected, or no run;
            `[NEWER_FORMAT]`; `[PROGRAM_CHANGED]` its state has another layout.
    """
    with _opening:
        return _open_or_opened(str(path), expect, layout, verify)


def _open_or_opened(name: str, expect: RunRef | None, layout: Layout, verify: bool) -> OpenRun:
    run = _opened.get(name)
    if run is None or (expect is not None and run.size != expect.size):
        run = _open(name, expect, layout, verify)
        _opened[name] = run
        _close_some()
    else:
        _opened.move_to_end(name)
    if verify and expect is not None and run.digest != expect.digest:
        if run.digest is None:  # it was opened without a check before
            del _opened[name]
            return _open_or_opened(name, expect, layout, verify=True)
        raise DataError("CORRUPT", f"the run {name} has digest {run.digest}, recorded is {expect.digest}: restore it")
    return run


def forget_runs(paths: Sequence[str] | None = None) -> None:
    """Closes runs (all, if none are named): their files may be removed at any time, but their space is held till then."""
    with _opening:
        for path in list(_opened) if paths is None else paths:
            _opened.pop(str(path), None)


def _close_some() -> None:
    """Closes what is used least, and, now and then, what is removed: its space is held as long as it is mapped."""
    global _opens
    _opens += 1
    if _opens % _LOOK_EVERY == 0:
        forget_runs([path for path in _opened if not Path(path).exists()])
    while len(_opened) > _KEEP_OPEN:
        _opened.popitem(last=False)


def _open(name: str, expect: RunRef | None, layout: Layout, verify: bool) -> OpenRun:
    try:
        with pa.memory_map(name) as file:  # the mapping lives on as long as a buffer of it
            whole = file.read_buffer()
    except FileNotFoundError as error:
        raise DataError("MISSING_OBJECT", f"the run {name} is not there: {RESTORE}") from error
    except (OSError, pa.ArrowInvalid) as error:
        raise DataError("CORRUPT", f"the run {name} cannot be read: {error}") from error
    digest: str | None = None
    if expect is not None and whole.size != expect.size:
        raise DataError("CORRUPT", f"the run {name} has {whole.size} bytes, recorded are {expect.size}: restore it")
    if expect is not None and verify:
        digest = xxhash.xxh3_128_hexdigest(whole)
        if digest != expect.digest:
            raise DataError("CORRUPT", f"the run {name} has digest {digest}, recorded is {expect.digest}: restore it")
    try:
        reader = pa.ipc.open_file(whole)
        meta = json.loads((reader.schema.metadata or {})[METADATA_KEY])
        if meta["format"] > FORMAT:
            raise DataError("NEWER_FORMAT", f"the run {name} has format {meta['format']}, known is {FORMAT}: upgrade")
        if meta["layout"] != json.loads(layout.description):
            raise DataError("PROGRAM_CHANGED", f"the run {name} holds the state of other keys or aggregates")
        segments = [_segment(layout, *_batch(reader, i)) for i in range(reader.num_record_batches)]
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise DataError("CORRUPT", f"the run {name} is no run: {error}") from error
    return OpenRun(name, whole.size, meta, segments, digest)


def _batch(reader: Any, number: int) -> tuple[pa.RecordBatch, bool]:
    found = reader.get_batch_with_custom_metadata(number)
    return found.batch, found.custom_metadata[COLLIDES_KEY] == b"1"


def _segment(layout: Layout, batch: pa.RecordBatch, collides: bool) -> Segment:
    adds: dict[StatePart, Bits] = {}
    extremes: dict[tuple[str, int], Bits | pa.Array] = {}
    names = batch.schema.names
    skip = 1 + len(layout.keys)
    keys = [Column.from_arrow(batch.column(1 + i), kind, canonical=False) for i, (_, kind) in enumerate(layout.keys)]
    for name, array in zip(names[skip:], batch.columns[skip:], strict=True):
        kind, *rest = name.split(".")
        if kind not in ("min", "max"):
            adds[StatePart.parse(name)] = array.to_numpy()
        else:
            number = int(rest[0])
            extremes[kind, number] = array.to_numpy() if layout.by_code(number) else array
    return Segment(batch.column(0).to_numpy(), keys, adds, extremes, collides)
