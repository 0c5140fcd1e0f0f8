"""How messages become rows: as they are, or as the columns in their JSON values."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from boatlift.connectors.kit import columns_of, nullable, required_of, struct_of
from boatlift.connectors.kit.json_values import json_fault, texts_of_json
from boatlift.connectors.kit.text_forms import TextForms, forms_of
from boatlift.dataflow.columns import ORDINAL, quoted
from boatlift.dataflow.contracts import BAD_ROW, Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_RAW = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_LETTER = "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, key BINARY, value BINARY"
_POSITION = "_position"
_SIGN = f"[BAD_ROW] {secrets.token_hex(16)} "
"""The beginning of the error that Spark raises at a bad row; random, so that no other error has it."""


@cache
def messages_schema(headers: bool, ordinals: bool) -> StructType:
    """Return the schema of messages; cached, because the JVM parses it."""
    return struct_of(
        _RAW + (_HEADERS if headers else "") + f", {_POSITION} BIGINT" + (f", {ORDINAL} INT" if ordinals else "")
    )


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Makes rows that are messages, with the columns of Spark's own Kafka source."""

    headers: bool = False
    timed = True

    def describe(self) -> Json:
        return {"format": "raw", "headers": self.headers}

    def schema(self, spark: SparkSession) -> StructType:  # noqa: ARG002
        from pyspark.sql.types import StructType

        return StructType([field for field in messages_schema(self.headers, False) if field.name != _POSITION])

    def rows(self, messages: DataFrame, *, ordinals: bool) -> DataFrame:  # noqa: ARG002
        return messages

    def diagnose(self, text: str) -> Exception | None:
        pass


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """Makes rows of the JSON objects that messages have as values.

    Attributes:
        sorts: Whether a message whose value does not fit becomes a row with `_bad_row`; otherwise it stops the job.
    """

    declared: str | StructType
    forms: TextForms = field(default_factory=TextForms)
    sorts: bool = False
    headers: bool = False
    timed = False

    def describe(self) -> Json:
        required = required_of(self.declared)
        return {
            "format": "json",
            "schema": [list(column) for column in columns_of(self.declared)],
            **({"not_null": required} if required else {}),
            **self.forms.describe(),
            **({"bad_rows": "dead_letters"} if self.sorts else {}),
        }

    def schema(self, spark: SparkSession) -> StructType:
        self.forms.check(spark)
        rows = nullable(struct_of(self.declared))
        if self.sorts:
            if any(name.lower() == BAD_ROW for name in rows.fieldNames()):
                raise InvalidError(
                    "RESERVED_NAME", f"a column is named {BAD_ROW}, a name that Boatlift uses: rename it"
                )
            rows.add(BAD_ROW, struct_of(_LETTER))
        return rows

    def rows(self, messages: DataFrame, *, ordinals: bool) -> DataFrame:
        from pyspark.sql import functions as F

        texts = texts_of_json(messages, struct_of(self.declared), self.forms, blanks=False)
        kept = [_POSITION, *([ORDINAL] if ordinals else [])]
        if self.sorts:
            return texts.sorted_out(kept, F.struct(*struct_of(_LETTER).fieldNames()))
        place = F.format_string("partition %d of topic %s has at offset %d", "partition", "topic", "offset")
        advice = "a value that does not fit: choose bad_rows='dead_letters', or correct the schema"
        return texts.rows(kept, F.concat(F.lit(_SIGN), place, F.lit(f" {advice}")))

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        columns, required, forms = columns_of(self.declared), required_of(self.declared), self.forms

        def reason(value: bytes | None, unread: list[str]) -> str:  # runs in tasks
            fault = "it has no value" if value is None else json_fault(bytes(value), unread, columns, required, forms)
            return f"[BAD_ROW] {fault}"

        unread = F.array(*(F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name, _ in columns))
        found = F.udf(reason, "string", useArrow=False)(F.col(BAD_ROW)["value"], F.array_compact(unread))
        return rows.select(f"{BAD_ROW}.*", found.alias("reason"))

    def diagnose(self, text: str) -> Exception | None:
        _, found, rest = text.partition(_SIGN)
        return DataError("BAD_ROW", rest.splitlines()[0].split(" SQLSTATE")[0]) if found else None


ValueFormat = RawFormat | JsonFormat


def value_format_of(
    name: str, schema: str | StructType | None, text: Mapping[str, Any], columns: object, *, headers: bool
) -> ValueFormat:
    """Check and return the form of rows."""
    if name not in ("raw", "json"):
        raise InvalidError("BAD_OPTION", f"format is {name!r}: choose 'raw' or 'json'")
    if name == "raw":
        if schema is not None:
            raise InvalidError("BAD_OPTION", "messages as they are have no schema: choose format='json'")
        if text or columns is not None:
            option = next(iter(text), "columns")
            raise InvalidError("BAD_OPTION", f"{option} is no option of messages as they are: choose format='json'")
        return RawFormat(headers)
    if schema is None:
        raise InvalidError("BAD_OPTION", "values in JSON need a schema: give schema='NAME TYPE, …'")
    if headers:
        raise InvalidError(
            "BAD_OPTION", "rows of format 'json' have no headers: choose format='raw', and F.from_json in a transform"
        )
    return JsonFormat(schema, forms_of(text, columns, columns_of(schema)))
