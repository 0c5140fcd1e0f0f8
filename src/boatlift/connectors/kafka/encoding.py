"""From a row to a message: key, value, headers, and for changes the weight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from boatlift.connectors.kafka.columns import GROUP, HEADERS, KEY, VALUE
from boatlift.connectors.kit import ArrowStager, user_columns
from boatlift.dataflow.columns import WEIGHT
from boatlift.dataflow.contracts import SinkContext, Staged
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class MessageStager:
    """The part of a Kafka sink that runs in the tasks: turns rows into messages, and stages those.

    Attributes:
        columns: The names of the value's columns.
        key: The names of the key's columns; empty: messages have no key.
        raw: Whether rows are messages already: `key`, `value`, `headers`.
        json_key: Whether a key is JSON; else a key is the column's text, or bytes.
        upserts: Whether a row of weight −1 deletes its key; else the weight is kept.
        schema: The columns of staged messages.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    raw: bool
    json_key: bool
    upserts: bool
    schema: pa.Schema

    def stage(self, folder: str, name: str, partition: int, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Write a piece of messages.

        Raises:
            DataError: `[NULL_KEY]` an upsert has a NULL in its key.
            UnavailableError: `[STORE_FAILED]` the scratch folder cannot be written.
        """
        made = (self.messages(batch) for batch in batches if batch.num_rows)
        return ArrowStager(self.schema).stage(folder, name, partition, made)

    def grouped(self) -> MessageStager:
        """Return a stager that adds each message's group, by which writers divide messages."""
        import pyarrow as pa

        return replace(self, schema=self.schema.append(pa.field(GROUP, pa.int16())))

    def messages(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the messages of rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from boatlift.connectors.kit.json_text import json_objects

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
            from boatlift.connectors.kafka.division import groups_of

            made[GROUP] = groups_of(made[KEY], made[VALUE])
        return pa.RecordBatch.from_arrays([made[name] for name in self.schema.names], schema=self.schema)

    def _keys(self, rows: pa.RecordBatch) -> pa.Array:
        import pyarrow as pa

        from boatlift.connectors.kit.json_text import json_objects, json_values, plain_texts

        if not self.key:
            return pa.nulls(rows.num_rows, pa.binary())
        columns = [rows.column(name) for name in self.key]
        if len(columns) > 1:
            return json_objects(self.key, columns).cast(pa.binary())
        if self.json_key:
            return json_values(columns[0]).cast(pa.binary())
        keys = plain_texts(columns[0]).cast(pa.binary())
        if self.upserts and keys.null_count:
            from boatlift.errors import DataError

            raise DataError(
                "NULL_KEY",
                f"key column {self.key[0]} holds a NULL, and a message without a key neither replaces nor deletes one: "
                "filter it, or choose key_format='json', where it is `null`",
            )
        return keys


def message_stager(
    context: SinkContext, key: Sequence[str], *, raw: bool, json_key: bool, upserts: bool
) -> MessageStager:
    """Check that a sink's rows can become messages, and return its stager.

    Args:
        context: The owner, with the schema of rows.
        key, raw, json_key, upserts: As `MessageStager` has them.

    Raises:
        InvalidError: `[SCHEMA_MISMATCH]`, `[TYPE_REFUSED]`.
    """
    import pyarrow as pa

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
