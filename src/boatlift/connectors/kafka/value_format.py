"""How messages become rows: as they are, or as the columns in their JSON values."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from boatlift.connectors.kit import Columns, columns_of, required_of, struct_of
from boatlift.connectors.kit.json_faults import json_fault
from boatlift.connectors.kit.json_values import JsonValues
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
def _raw(headers: bool, ordinals: bool) -> StructType:
    """Return the schema of messages; cached, because the JVM parses it."""
    return struct_of(
        _RAW + (_HEADERS if headers else "") + f", {_POSITION} BIGINT" + (f", {ORDINAL} INT" if ordinals else "")
    )


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Makes rows that are messages, with the columns of Spark's own Kafka source.

    Attributes:
        headers: Whether rows have `headers`.
        timed: Whether rows have the time of their message.
    """

    headers: bool = False
    timed = True

    def describe(self) -> Json:
        return {"format": "raw", "headers": self.headers}

    def raw(self, *, ordinals: bool) -> StructType:
        return _raw(self.headers, ordinals)

    def schema(self, spark: SparkSession) -> StructType:  # noqa: ARG002
        from pyspark.sql.types import StructType

        return StructType([field for field in self.raw(ordinals=False) if field.name != _POSITION])

    def rows(self, messages: DataFrame, *, ordinals: bool) -> DataFrame:  # noqa: ARG002
        return messages

    def diagnose(self, text: str) -> Exception | None:
        pass


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """Makes rows of the JSON objects that messages have as values.

    Attributes:
        forms: How text says values.
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

    def raw(self, *, ordinals: bool) -> StructType:
        return RawFormat().raw(ordinals=ordinals)

    def schema(self, spark: SparkSession) -> StructType:
        from pyspark.sql.types import StructField, StructType

        self.forms.check(spark)
        rows = StructType([StructField(f.name, f.dataType) for f in struct_of(self.declared).fields])
        if self.sorts:
            if any(name.lower() == BAD_ROW for name in rows.fieldNames()):
                raise InvalidError(
                    "RESERVED_NAME", f"a column is named {BAD_ROW}, a name that Boatlift uses: rename it"
                )
            rows.add(BAD_ROW, struct_of(_LETTER))
        return rows

    def rows(self, messages: DataFrame, *, ordinals: bool) -> DataFrame:
        from pyspark.sql import functions as F

        values, schema = JsonValues(self.forms, blanks=False), struct_of(self.declared)
        kept = [_POSITION, *([ORDINAL] if ordinals else [])]
        if self.sorts:
            return values.sorted_out(messages, schema, kept, F.struct(*struct_of(_LETTER).fieldNames()))
        place = F.format_string("partition %d of topic %s has at offset %d", "partition", "topic", "offset")
        advice = "a value that does not fit: choose bad_rows='dead_letters', or correct the schema"
        return values.rows(messages, schema, kept, F.concat(F.lit(_SIGN), place, F.lit(f" {advice}")))

    def dead_letters(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        names = [name for name, _ in columns_of(self.declared)]
        unread = F.array(*(F.when(F.col(quoted(name)).isNull(), F.lit(name)) for name in names))
        reason = F.udf(
            _reasons(columns_of(self.declared), required_of(self.declared), self.forms), "string", useArrow=False
        )
        bad = F.col(BAD_ROW)
        return rows.select(f"{BAD_ROW}.*", reason(bad["value"], F.array_compact(unread)).alias("reason"))

    def diagnose(self, text: str) -> Exception | None:
        _, found, rest = text.partition(_SIGN)
        return DataError("BAD_ROW", rest.splitlines()[0].split(" SQLSTATE")[0]) if found else None


ValueFormat = RawFormat | JsonFormat


def _reasons(columns: Columns, required: Sequence[str], forms: TextForms) -> Callable[[bytes | None, list[str]], str]:
    """Return the function that says why a value does not fit; it runs in tasks."""

    def reason(value: bytes | None, unread: list[str]) -> str:
        if value is None:
            return "[BAD_ROW] it has no value"
        return f"[BAD_ROW] {json_fault(bytes(value), unread, columns, required, forms)}"

    return reason


def value_format_of(
    name: str, schema: str | StructType | None, text: Mapping[str, Any], columns: object, *, headers: bool
) -> ValueFormat:
    """Check and return the form of rows.

    Args:
        name, schema, headers: As `source` takes them.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
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
