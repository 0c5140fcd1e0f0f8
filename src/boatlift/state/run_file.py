"""Runs on disk: one Arrow file each, written once and then memory-mapped (docs/formats/run.md)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import xxhash

from boatlift.errors import FencedError, UnavailableError
from boatlift.state.codec import KeyedRows, ValueCodec
from boatlift.state.column import Hashes
from boatlift.state.key_groups import Share
from boatlift.storage.blocks import BlockWriter
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import writing

FORMAT = 1
FIRST_KIND = "aggregate"
"""The kind of a run whose metadata names none: the first runs held aggregates."""

MARK_ROWS = 1024
"""The distance of the rows whose hashes are in the tail of a run, as starting points of searches."""

METADATA_KEY = b"boatlift.run"
COLLIDES_KEY = b"boatlift.collides"
HASH_FIELD = "hash"

V = TypeVar("V")


class _DigestingFile(io.RawIOBase):
    """A new file of blocks and a tail, which computes checksums and digest while it is written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=1 << 16)
        self._blocks = BlockWriter()
        self._tail: xxhash.xxh3_128 | None = None
        self._covered = 0
        self.written = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        (self._blocks.write if self._tail is None else self._tail.update)(view)
        self._file.write(view)
        self.written += view.nbytes
        return view.nbytes

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.written

    def close(self) -> None:
        if not self._file.closed:
            self._file.close()
        super().close()

    def begin_tail(self, starts: Sequence[int], marks: Sequence[Hashes]) -> None:
        """End the blocks: write the table of their checksums; the digest covers everything from there on."""
        self._covered, self._tail = self.written, xxhash.xxh3_128()
        first, second = np.array(starts, "<u8"), np.concatenate(marks).astype("<u8")
        self.write(self._blocks.table(first.tobytes(), second.tobytes(), MARK_ROWS))

    @property
    def proof(self) -> tuple[str, int]:
        """The digest of the tail, and its number of bytes."""
        assert self._tail is not None
        return self._tail.hexdigest(), self.written - self._covered


def write_run(
    path: str | Path,
    codec: ValueCodec[V, Any],
    pieces: Iterable[KeyedRows[V]],
    *,
    processor: str,
    times: tuple[int, int],
    share: Share,
    fields: Sequence[pa.Field] | None = None,
) -> RunRef:
    """Write a run and its proof. The file is not synced: the store does that.

    Args:
        path: A fresh file, and the name of the run.
        pieces: The rows: at least one piece, in order and not overlapping. Each becomes one record batch.
        times: The first and the last time whose effects the run contains.
        fields: The columns of the values, wide enough for all pieces; by default the narrowest for the only piece.

    Raises:
        FencedError: `[OBJECT_EXISTS]` the file exists already.
        UnavailableError: `[STORE_FAILED]` the file cannot be written.
    """
    path = Path(path)
    first, last = times
    rows = 0
    starts, marks = [], []
    with writing(path):
        try:
            file = _DigestingFile(path)
        except FileExistsError as error:
            raise FencedError("OBJECT_EXISTS", f"the run {path} exists already: file names must be fresh") from error
        except OSError as error:
            raise UnavailableError("STORE_FAILED", f"the run {path} could not be written: {error}") from error
        try:
            writer = None
            for piece in pieces:
                if writer is None:
                    fields = codec.fields_of(piece.values) if fields is None else fields
                    keys = [pa.field(key_field(number), kind) for number, (_, kind) in enumerate(codec.keys)]
                    schema = pa.schema([pa.field(HASH_FIELD, pa.uint64(), nullable=False), *keys, *fields])
                    metadata = _metadata(codec, processor, first, last, share)
                    writer = pa.ipc.new_file(file, schema.with_metadata({METADATA_KEY: metadata}))
                assert fields is not None
                columns = [pa.array(piece.hash), *(column.to_arrow() for column in piece.keys)]
                columns += codec.encode(piece.values, fields)
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
                starts.append(file.written)
                writer.write_batch(batch, custom_metadata={COLLIDES_KEY: b"1" if piece.collides else b"0"})
                rows += len(piece)
                marks.append(piece.hash[::MARK_ROWS])
            if writer is None:
                raise ValueError("a run has at least one piece")
            file.begin_tail(starts, marks)  # before Arrow's footer, which locates the batches
            writer.close()
            file.close()
        except OSError as error:
            with suppress(OSError):  # closing tries to write the rest, and fails again
                file.close()
            path.unlink(missing_ok=True)
            raise UnavailableError("STORE_FAILED", f"the run {path} could not be written: {error}") from error
    digest, tail = file.proof
    return RunRef(str(path), first, last, share.modulus, share.residue, rows, file.written, digest, tail=tail)


def key_field(number: int) -> str:
    """Return the field name of a key column."""
    return f"key.{number}"


def _metadata(codec: ValueCodec[Any, Any], processor: str, first: int, last: int, share: Share) -> str:
    entries = {
        "format": FORMAT,
        "processor": processor,
        "first": first,
        "last": last,
        "modulus": share.modulus,
        "residue": share.residue,
        "layout": codec.description,
    }
    if codec.kind != FIRST_KIND:
        entries["kind"] = codec.kind
    return json.dumps(entries, separators=(",", ":"), sort_keys=True)
