"""The rows of a Parquet sink for people who look: the newest step's first, each with its step.

They are rows as they were written: a sink of changes, or one with a key, has them with `_weight`. What holds after all
changes would need every file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from boatlift.connectors.kit.shown_values import MOST_COLUMNS, named_in, not_here, shown_row
from boatlift.connectors.parquet.folder import StepFolder, io_errors
from boatlift.dataflow.contracts import ShownRows, SinkPlace
from boatlift.errors import DataError, UnavailableError
from boatlift.storage.filesystem import FileSystem

MOST_FILES = 1_000
"""The rows of more files are not counted: each has its number in its footer."""

_AT_ONCE = 1_000  # rows that are read of a file at the same time


def rows_of_folder(of: SinkPlace, begin: int, limit: int) -> ShownRows:
    """Return rows of a sink's folder; a `RowReader`."""
    place = named_in(of, "url" if "url" in of.place else "path")
    if re.match(r"\w+://", place):
        raise UnavailableError("SINK_FAILED", f"the console reads no bucket: read {place} with a program of yours")
    path = Path(place)
    with io_errors(path):
        if not path.is_dir():
            raise not_here(path)
        folder = StepFolder(path, FileSystem())
        owner = folder.identity()
        if owner is None or (owner.dataflow, owner.sink, owner.store) != (of.dataflow, of.sink, of.store):
            raise DataError("SINK_OF_ANOTHER_DATAFLOW", f"{path} has no rows of sink {of.sink} of this store")
        steps = folder.listed()[0]
        try:
            return _rows(folder, steps, begin, limit)
        except pa.ArrowInvalid as error:
            raise DataError("SINK_DAMAGED", f"a file of {path} cannot be read: {error}") from error


def _rows(folder: StepFolder, steps: list[int], begin: int, limit: int) -> ShownRows:
    counted = len(steps) <= MOST_FILES
    rows: list[list[str | None]] = []
    names: list[str] = []
    passed = total = 0
    more = False
    for step in reversed(steps):
        path = folder.step_path(step)
        held = _rows_in(path)
        names = names or pq.read_schema(path).names
        total += held
        if passed + held <= begin:
            passed += held
        elif len(rows) < limit:
            skip = max(0, begin - passed)
            taken = list(_some(pq.ParquetFile(path), step, names[: MOST_COLUMNS - 1], skip, limit - len(rows)))
            rows += taken
            passed += held
            more = more or skip + len(taken) < held
        else:
            more = more or held > 0
        if more and not counted:
            break
    return ShownRows(
        step=steps[-1] if steps else -1,
        order="the newest step first",
        columns=["step", *names[: MOST_COLUMNS - 1]],
        left_out=max(0, len(names) - MOST_COLUMNS + 1),
        rows=rows,
        begin=begin,
        total=total if counted else None,
        more=more,
    )


def _rows_in(path: Path) -> int:
    found = path.stat()
    return _counted(path, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(10 * MOST_FILES)
def _counted(path: Path, inode: int, modified: int, size: int) -> int:  # noqa: ARG001 - a file in its place is another
    return int(pq.read_metadata(path).num_rows)


def _some(file: pq.ParquetFile, step: int, names: list[str], skip: int, limit: int) -> Iterator[list[str | None]]:
    """Yield some rows of a step; a column that it does not have, since the program was another, is NULL."""
    there = [name for name in names if name in file.schema_arrow.names]
    for batch in file.iter_batches(_AT_ONCE, columns=there):
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        for row in batch.slice(skip, limit).to_pylist():
            yield shown_row([step, *(row.get(name) for name in names)])
            limit -= 1
        skip = 0
        if limit <= 0:
            return
