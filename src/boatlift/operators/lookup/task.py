"""The tasks of a lookup, which add the columns of the latest rows of tables.

A table is a few runs. A worker merges them once and keeps the result, so that a message with one row costs little. So a
table must fit into a worker's memory, like a table that Spark broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pyarrow as pa

from boatlift.errors import UnavailableError
from boatlift.operators.lookup.newest import looked_up, newest_rows
from boatlift.operators.lookup.operator import Table
from boatlift.spark.tasks.parameters import guarded
from boatlift.spark.tasks.stage import fresh_run, measured
from boatlift.storage.records.records import RunRef

Messages = tuple[tuple[str, ...], ...]

TABLES_KEPT = 16
"""The most merged tables that a worker keeps."""


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table at the arrival of a message.

    Attributes:
        name: The lookup's name for the table, and the prefix of its columns in the result.
        keys: The columns by which rows are found.
        columns: The table's columns, the keys among them.
        messages: The files of each message of the table, in order of arrival.
    """

    name: str
    keys: tuple[str, ...]
    columns: pa.Schema
    messages: Messages


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Adds the columns of tables to rows."""

    processor: str
    tables: tuple[LookupTable, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return a partition's rows with the columns of the tables."""
        yield from guarded(self.processor, lambda: self.run(batches))

    def run(self, batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return rows with the columns of the tables."""
        came = [batch for batch in batches if batch.num_rows]
        if not came:
            return []
        rows = pa.Table.from_batches(came)
        for table in self.tables:
            rows = looked_up(rows, _newest(table), table.keys, f"{table.name}_")
        return list(rows.combine_chunks().to_batches())


def put_together(
    messages: Sequence[Sequence[RunRef]],
    path: Callable[[RunRef], Path],
    table: Table,
    folder: Path,
    token: int,
    *,
    first: bool,
) -> RunRef:
    """Write the rows of several messages that still hold as one run.

    Args:
        messages: The messages, in order of arrival.
        path: Returns the path of a run.
        table: The table that the messages are for.
        folder: The folder of the new run.
        token: The owner's.
        first: Whether the table has no earlier message.

    Raises:
        UnavailableError: `[STORE_FAILED]` scratch cannot be written.
    """
    rows = [_message([str(path(run)) for run in message]) for message in messages]
    newest = newest_rows(rows, table.keys, table.name, all_known=first)
    name = fresh_run(token)
    place = folder / name
    try:
        with pa.ipc.new_file(str(place), newest.schema) as writer:
            writer.write_table(newest)
    except OSError as error:
        raise UnavailableError("STORE_FAILED", f"cannot put rows together in {place}: {error}") from error
    size, digest = measured(place)
    first_time, last_time = messages[0][0].first, messages[-1][-1].last
    return RunRef(f"runs/{name}", first_time, last_time, 0, 0, newest.num_rows, size, digest)


def _message(files: Sequence[str]) -> pa.Table:
    return pa.concat_tables(map(_read, files))


def _read(place: str) -> pa.Table:
    try:
        with pa.memory_map(place) as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise UnavailableError("STORE_FAILED", f"cannot read the rows in {place}: {error}; run again") from error


@lru_cache(maxsize=TABLES_KEPT)
def _newest_of(messages: Messages, keys: tuple[str, ...], name: str) -> pa.Table:
    # Run names are never used twice, so the merged rows of some runs stay the same.
    return newest_rows([_message(files) for files in messages], keys, name, all_known=True)


def _newest(table: LookupTable) -> pa.Table:
    messages = tuple(files for files in table.messages if files)
    return _newest_of(messages, table.keys, table.name) if messages else table.columns.empty_table()
