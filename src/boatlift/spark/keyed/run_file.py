"""Runs on disk: one Arrow file each, written once, memory-mapped ever after. docs/formats/run.md describes the bytes."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from boatlift.errors import FencedError, UnavailableError
from boatlift.operators.aggregate.kernel.layout import Layout, StatePart
from boatlift.operators.aggregate.kernel.order_code import Extreme
from boatlift.operators.aggregate.kernel.partials import Partials, PartialState
from boatlift.storage.records.records import RunRef

__all__ = ["COLLIDES_KEY", "FORMAT", "METADATA_KEY", "narrowest", "schema_for", "schema_of_ranges", "write_run"]

FORMAT = 1
METADATA_KEY = b"boatlift.run"
COLLIDES_KEY = b"boatlift.collides"
HASH_FIELD = "hash"

Ints = npt.NDArray[np.int64]


class _Digesting(io.RawIOBase):
    """A file that is digested as it is written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=1 << 16)
        self._digest = xxhash.xxh3_128()
        self.written = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._digest.update(view)
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

    def abandon(self) -> None:
        """Closes the file after a failed write: what could not be written then, closing tries, and fails, again."""
        with suppress(OSError):
            self.close()

    def digest(self) -> str:
        return self._digest.hexdigest()


def write_run(
    path: str | Path,
    layout: Layout,
    pieces: Iterable[Partials],
    *,
    processor: str,
    first: int,
    last: int,
    modulus: int,
    residue: int,
    schema: pa.Schema | None = None,
) -> RunRef:
    """Writes a run, and digests it on the way. It is not made durable here (no fsync): the store does that.

    Args:
        path: A fresh file; also the reference's name.
        layout: The processor's layout.
        pieces: The rows: pieces in order, none overlapping another; one record batch each.
        processor: Whose state it is.
        first: First time whose effects it holds.
        last: Last such time.
        modulus: It holds key groups g with g % modulus == residue.
        residue: See modulus.
        schema: Wide enough for all pieces; if not given there is one piece, and its own narrowest is taken.

    Raises:
        FencedError: `[OBJECT_EXISTS]` the file is there already.
        UnavailableError: `[STORE_FAILED]` it could not be written.
    """
    path = Path(path)
    meta = {
        "format": FORMAT,
        "processor": processor,
        "first": first,
        "last": last,
        "modulus": modulus,
        "residue": residue,
        "layout": json.loads(layout.description),
    }
    rows = 0
    try:
        sink = _Digesting(path)
    except FileExistsError as error:
        raise FencedError("OBJECT_EXISTS", f"the run {path} exists already: file names must be fresh") from error
    except OSError as error:
        raise UnavailableError("STORE_FAILED", f"the run {path} could not be written: {error}") from error
    try:
        writer = None
        for piece in pieces:
            if writer is None:
                fields = schema_for(layout, piece) if schema is None else schema
                text = json.dumps(meta, separators=(",", ":"), sort_keys=True)
                writer = pa.ipc.new_file(sink, fields.with_metadata({METADATA_KEY: text}))
                schema = fields
            batch = _encode(piece, fields)
            writer.write_batch(batch, custom_metadata={COLLIDES_KEY: b"1" if piece.collides else b"0"})
            rows += len(piece)
        if writer is None:
            raise ValueError("a run has at least one piece")
        writer.close()
        sink.close()
    except OSError as error:
        sink.abandon()
        path.unlink(missing_ok=True)
        raise UnavailableError("STORE_FAILED", f"the run {path} could not be written: {error}") from error
    return RunRef(str(path), first, last, modulus, residue, rows, sink.written, sink.digest())


def narrowest(low: int, high: int) -> pa.DataType:
    """Gives the narrowest signed integer type that holds a range."""
    for bits, kind in ((8, pa.int8()), (16, pa.int16()), (32, pa.int32())):
        if -(1 << (bits - 1)) <= low and high < 1 << (bits - 1):
            return kind
    return pa.int64()


def schema_for(layout: Layout, piece: Partials) -> pa.Schema:
    """Gives the narrowest columns that hold these rows: a function of the rows alone."""
    adds = [(part, _range(values)) for part, values in piece.state.adds.items()]
    codes = {
        pair: _range(_without_absent(piece.state, pair[1], values))
        for pair, values in piece.state.extremes.items()
        if not isinstance(values, pa.Array)
    }
    return schema_of_ranges(layout, dict(adds), codes)


def schema_of_ranges(
    layout: Layout, adds: dict[StatePart, tuple[int, int]], codes: dict[tuple[str, int], tuple[int, int]]
) -> pa.Schema:
    """Gives the columns of a run: parts that are zero everywhere have none.

    Args:
        layout: The processor's layout.
        adds: Least and greatest value of each additive part.
        codes: Least and greatest code of each minimum and maximum that is kept by code.
    """
    fields = [pa.field(HASH_FIELD, pa.uint64(), nullable=False)]
    fields += [pa.field(f"key.{i}", kind) for i, (_, kind) in enumerate(layout.keys)]
    fields += [
        pa.field(part.field, narrowest(*extent), nullable=False)
        for part, extent in sorted(adds.items())
        if extent != (0, 0) or part.kind == "rows"
    ]
    for which, number in layout.extremes:
        by_code = (which, number) in codes
        kind = narrowest(*codes[which, number]) if by_code else layout.arguments[number][1]
        fields.append(pa.field(f"{which}.{number}", kind, nullable=not by_code))
    return pa.schema(fields)


def _range(values: Ints) -> tuple[int, int]:
    return int(values.min(initial=0)), int(values.max(initial=0))


def _without_absent(state: PartialState, number: int, codes: Ints) -> Ints:
    """Stores 0 where there is no value: the sentinels would make the column wide."""
    if state.part("nulls", number) is None:
        return codes
    return np.where(state.counts(number) == 0, 0, codes)


def _encode(piece: Partials, schema: pa.Schema) -> pa.RecordBatch:
    arrays: list[pa.Array] = [pa.array(piece.hash)]
    arrays += [column.to_arrow() for column in piece.keys]
    for field in list(schema)[len(arrays) :]:
        kind, *rest = field.name.split(".")
        if kind in ("min", "max"):
            value: Extreme = piece.state.extremes[kind, int(rest[0])]
            if not isinstance(value, pa.Array):
                value = pa.array(_without_absent(piece.state, int(rest[0]), value).astype(field.type.to_pandas_dtype()))
            arrays.append(value)
        else:
            values = piece.state.adds.get(StatePart.parse(field.name))
            if values is None:
                values = np.zeros(len(piece), np.int64)
            arrays.append(pa.array(values.astype(field.type.to_pandas_dtype())))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
