"""From rows to messages: key, value, headers, for changes the weight; and which writer writes a message.

One writer writes all messages of a key, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from boatlift.connectors.kit import ArrowStager, user_columns
from boatlift.connectors.kit.arrow_text import json_objects, json_values, plain_texts
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import SinkContext, Staged
from boatlift.errors import DataError, InvalidError

KEY, VALUE, HEADERS = "key", "value", "headers"
"""The columns of staged messages."""
GROUP = "_group"
"""The column of a message's group, by which writers divide messages."""
GROUPS = 4096
"""A message's group is a number below this; writer w of n has the groups g with g % n == w.

These are groups of Kafka's message keys, by a hash of their bytes: not the key groups of keyed state.
"""


@dataclass(frozen=True, slots=True)
class MessageStager:
    """Turns rows into messages in the tasks, and stages the messages.

    Attributes:
        key: The names of the key's columns; empty: messages have no key.
        raw: Whether rows are messages already: `key`, `value`, `headers`.
        json_key: Whether a key is JSON; otherwise a key is the column's text, or bytes.
        upserts: Whether a row of weight −1 deletes its key; otherwise the weight is kept.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    raw: bool
    json_key: bool
    upserts: bool
    schema: pa.Schema

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        made = (self.messages(batch) for batch in batches if batch.num_rows)
        return ArrowStager(self.schema).stage(folder, name, partition, made)

    def grouped(self) -> MessageStager:
        """Return a stager that adds the group of each message."""
        return replace(self, schema=self.schema.append(pa.field(GROUP, pa.int16())))

    def messages(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        value = (
            rows.column(VALUE).cast(pa.binary())
            if self.raw
            else json_objects(self.columns, [rows.column(name) for name in self.columns]).cast(pa.binary())
        )
        made = {KEY: self._keys(rows), VALUE: value}
        if HEADERS in self.schema.names:
            made[HEADERS] = rows.column(HEADERS).cast(self.schema.field(HEADERS).type)
        if WEIGHT in rows.schema.names:
            made[WEIGHT] = rows.column(WEIGHT)
            if self.upserts:
                made[VALUE] = pc.if_else(pc.greater(made[WEIGHT], 0), value, pa.scalar(None, pa.binary()))
        if GROUP in self.schema.names:
            made[GROUP] = groups_of(made[KEY], made[VALUE])
        return pa.RecordBatch.from_arrays([made[name] for name in self.schema.names], schema=self.schema)

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        if not self.key:
            return pa.nulls(rows.num_rows, pa.binary())
        columns = [rows.column(name) for name in self.key]
        if len(columns) > 1:
            return json_objects(self.key, columns).cast(pa.binary())
        if self.json_key:
            return json_values(columns[0]).cast(pa.binary())
        keys = plain_texts(columns[0]).cast(pa.binary())
        if self.upserts and keys.null_count:
            raise DataError(
                "NULL_KEY",
                f"key column {self.key[0]} holds a NULL, and a message without a key neither replaces nor deletes one: "
                "filter it, or choose key_format='json', where it is `null`",
            )
        return keys


def message_stager(
    context: SinkContext, key: Sequence[str], *, raw: bool, json_key: bool, upserts: bool
) -> MessageStager:
    """Check that a sink's rows can become messages, and return its stager."""
    fields = user_columns(context, key)
    named = {field.name: field.type for field in fields}
    kept = [pa.field(KEY, pa.binary()), pa.field(VALUE, pa.binary())]
    if raw:
        if VALUE not in named or not named.keys() <= {KEY, VALUE, HEADERS}:
            raise InvalidError(
                "SCHEMA_MISMATCH",
                f"rows of format 'raw' have the column value, and perhaps key and headers, not {', '.join(named)}: "
                "rename them, or choose format='json'",
            )
        for name in named.keys() - {HEADERS}:
            if named[name] not in (pa.binary(), pa.string()):
                raise InvalidError("TYPE_REFUSED", f"column {name} is {named[name]}: cast it to a string or to binary")
        key = (KEY,) if KEY in named else ()
        if HEADERS in named:
            kept.append(pa.field(HEADERS, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))))
    if context.changes and not upserts:
        kept.append(pa.field(WEIGHT, pa.int64()))
    return MessageStager(tuple(named), tuple(key), raw, json_key, upserts, pa.schema(kept))


def groups_of(keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return the group of each message, by its key or else by its value, so that a replay divides messages the same."""
    hashed = pc.coalesce(keys, values, pa.scalar(b"", pa.binary())).to_pylist()
    hashes = np.fromiter(map(xxhash.xxh3_64_intdigest, hashed), np.uint64, len(hashed))
    return pa.array((hashes % np.uint64(GROUPS)).astype(np.int16))


def part_of(pieces: Sequence[pa.Table], writer: int, writers: int, *, upserts: bool) -> list[pa.Table]:
    """Return a writer's messages, in their order. Of upserts deletions come first, unless the key gets another value.

    Args:
        pieces: The messages, with their groups unless they were staged for one writer.
    """
    parts = [piece if writers == 1 else _of_writer(piece, writer, writers) for piece in pieces]
    if not upserts:
        return parts
    deletes = [part.filter(pc.is_null(part.column(VALUE))) for part in parts]
    holding = [part.filter(pc.is_valid(part.column(VALUE))) for part in parts]
    held = pa.chunked_array([chunk for part in holding for chunk in part.column(KEY).chunks], pa.binary())
    _refuse_duplicates(held)
    gone = [part.filter(pc.invert(pc.is_in(part.column(KEY), value_set=held))) for part in deletes]
    return [*gone, *holding]


def _of_writer(piece: pa.Table, writer: int, writers: int) -> pa.Table:
    if GROUP in piece.schema.names:
        groups = piece.column(GROUP)
    else:
        groups = groups_of(piece.column(KEY).combine_chunks(), piece.column(VALUE).combine_chunks())
    return piece.take(pa.array(np.flatnonzero(groups.to_numpy() % writers == writer)))


def _refuse_duplicates(keys: pa.ChunkedArray) -> None:
    if pc.count_distinct(keys, "all").as_py() == len(keys):
        return
    counts = pc.value_counts(keys)
    key = counts.filter(pc.greater(counts.field("counts"), 1))[0]["values"].as_py()
    raise InvalidError(
        "DUPLICATE_KEY",
        f"two rows of one step have the key {key!r}, and only one can be the newest: aggregate by that key, or add "
        "columns to it",
    )
