"""The tasks of a lookup, which add the columns of the latest rows of tables.

A table is a few runs. A worker merges them once and keeps the result, so that a message with one row costs little. So a
table must fit into a worker's memory, like a table that Spark broadcasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, takewhile
from pathlib import Path

import numpy as np
import pyarrow as pa

from boatlift.dataflow.columns import WEIGHT
from boatlift.errors import DataError, UnavailableError
from boatlift.operators.lookup.operator import Table
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import fetched, writing
from boatlift.tasks.channels import ChannelTask
from boatlift.tasks.kernel_task import task_input
from boatlift.tasks.parameters import JobParameters, guarded, job_parameters
from boatlift.tasks.stage import fresh_run, measured


def newest_rows(messages: Sequence[pa.Table], keys: Sequence[str], what: str, *, all_known: bool) -> pa.Table:
    """Return the latest row of each key.

    A message is a set of changes: a row with weight −1 held until now, a row with +1 holds from now on. So the last
    message with a key decides, by its row with +1.

    Args:
        messages: The rows of each message, in order of arrival; all rows of a message without `_weight` hold.
        all_known: Whether no message came before these, so that deletions are not needed.

    Returns:
        The rows, in the messages' schema.

    Raises:
        DataError: `[NOT_UNIQUE]` two rows of one message hold for one key.
    """
    rows = pa.concat_tables(messages)
    if not rows.num_rows:
        return rows
    ages = np.repeat(np.arange(len(messages), dtype=np.int64), [message.num_rows for message in messages])
    holds = _weights(rows) > 0
    rank = pa.array(ages * 2 + holds)
    known = rows.select(keys).append_column("_rank", rank).append_column("_at", pa.array(np.arange(rows.num_rows)))
    last = known.group_by(list(keys)).aggregate([("_rank", "max")]).rename_columns([*keys, "_rank"])
    kept = known.join(last, keys=[*keys, "_rank"], join_type="left semi").column("_at")
    newest = rows.take(kept.sort())
    holding = newest.filter(pa.array(_weights(newest) > 0))
    if holding.group_by(list(keys)).aggregate([]).num_rows < holding.num_rows:
        raise DataError(
            "NOT_UNIQUE",
            f"{what} has two rows for one {', '.join(keys)}, so that none is the one to look up: name keys that tell "
            "its rows apart",
        )
    return holding if all_known else newest


def looked_up(rows: pa.Table, table: pa.Table, keys: Sequence[str], prefix: str) -> pa.Table:
    """Return rows with the columns of the table's only row of the same key, or NULLs. NULL equals no key."""
    wanted = rows.select(keys).append_column("_row", pa.array(np.arange(rows.num_rows)))
    there = table.select(keys).append_column("_at", pa.array(np.arange(table.num_rows)))
    found = wanted.join(there, keys=list(keys), join_type="left outer").sort_by("_row").column("_at")
    for name in table.column_names:
        if name not in keys and name != WEIGHT:
            rows = rows.append_column(f"{prefix}{name}", table.column(name).take(found))
    return rows


def _weights(rows: pa.Table) -> np.ndarray:
    if WEIGHT not in rows.column_names:
        return np.ones(rows.num_rows, dtype=np.int64)
    weights: np.ndarray = rows.column(WEIGHT).to_numpy()
    return weights


Messages = tuple[tuple[str, ...], ...]

TABLES_KEPT = 16
"""The most merged tables that a worker keeps."""


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A table, whose messages the job's input file names."""

    name: str
    """The lookup's name for the table, and the prefix of its columns in the result."""
    keys: tuple[str, ...]
    columns: pa.Schema
    """The table's columns, the keys among them."""

    def newest(self, channels: Mapping[str, Sequence[str]]) -> pa.Table:
        """Return the rows that hold at the arrival of the step's message."""
        named = (channels.get(message_channel(self.name, number)) for number in count())
        messages = tuple(tuple(files) for files in takewhile(lambda files: files is not None, named) if files)
        return _newest_of(messages, self.keys, self.name) if messages else self.columns.empty_table()


def message_channel(table: str, number: int) -> str:
    """Return the name by which a job's input file has the files of a message of a table, in order of arrival."""
    return f"message {number} of {table}"


@dataclass(frozen=True, slots=True)
class LookupTask:
    """Adds the columns of tables to rows."""

    processor: str
    tables: tuple[LookupTable, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from guarded(self.processor, lambda: self.run(batches))

    def run(self, batches: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return rows with the columns of the tables."""
        came = [batch for batch in batches if batch.num_rows]
        if not came:
            return []
        rows, channels = pa.Table.from_batches(came), task_input(job_parameters()).channels
        for table in self.tables:
            rows = looked_up(rows, table.newest(channels), table.keys, f"{table.name}_")
        return list(rows.combine_chunks().to_batches())


@dataclass(frozen=True, slots=True)
class ChannelLookupTask:
    """Adds the columns of tables to the rows of a channel (a `ParameterizedTask`)."""

    channel: ChannelTask
    lookup: LookupTask

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from guarded(self.lookup.processor, lambda: self.lookup.run(self.channel(batches)))

    def is_named(self, parameters: JobParameters) -> bool:
        """Return whether the input file of a step's job names files of the channel."""
        return self.channel.is_named(parameters)


@dataclass(frozen=True, slots=True)
class KeptTableTask:
    """A task that returns the current rows of a table, for a query.

    Attributes:
        messages: The files of each message, in order of arrival.
    """

    processor: str
    table: LookupTable
    messages: Messages
    tasks: int = 1

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for _ in range(batch.num_rows):
                yield from guarded(self.processor, self.run)

    def run(self) -> list[pa.RecordBatch]:
        """Return the rows.

        Raises:
            DataError: `[MISSING_OBJECT]` a run is not there, as after the owner has deleted it.
        """
        try:
            rows = self.table.newest(
                {message_channel(self.table.name, number): files for number, files in enumerate(self.messages)}
            )
        except UnavailableError as error:
            raise DataError("MISSING_OBJECT", f"{error.message}; or restore them") from error
        return list(rows.select([name for name in rows.column_names if name != WEIGHT]).to_batches())


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
        first: Whether the table has no earlier message.

    Raises:
        UnavailableError: `[STORE_FAILED]` scratch cannot be written.
    """
    rows = [pa.concat_tables(_read(str(path(run))) for run in message) for message in messages]
    newest = newest_rows(rows, table.keys, table.name, all_known=first)
    name = fresh_run(token)
    place = folder / name
    try:
        with writing(place), pa.ipc.new_file(str(place), newest.schema) as writer:
            writer.write_table(newest)
    except OSError as error:
        raise UnavailableError("STORE_FAILED", f"cannot put rows together in {place}: {error}") from error
    size, digest = measured(place)
    first_time, last_time = messages[0][0].first, messages[-1][-1].last
    return RunRef(f"runs/{name}", first_time, last_time, 0, 0, newest.num_rows, size, digest)


def _read(place: str) -> pa.Table:
    try:
        with pa.memory_map(fetched(place)) as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise UnavailableError("STORE_FAILED", f"cannot read the rows in {place}: {error}; run again") from error


@lru_cache(maxsize=TABLES_KEPT)
def _newest_of(messages: Messages, keys: tuple[str, ...], name: str) -> pa.Table:
    # Run names are never used twice, so the merged rows of some runs stay the same.
    return newest_rows([pa.concat_tables(map(_read, files)) for files in messages], keys, name, all_known=True)
