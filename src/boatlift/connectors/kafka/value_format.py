"""The rows that are made of messages: the messages themselves, or the columns that their values hold as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from boatlift.connectors.kit import columns_of, struct_of
from boatlift.dataflow.columns import ORDINAL
from boatlift.dataflow.contracts import Json
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["DEAD_LETTER", "JsonFormat", "RawFormat", "ValueFormat", "value_format_of"]

DEAD_LETTER = "_dead_letter"

_RAW = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
_HEADERS = ", headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
_POSITION = "_position"


@cache
def _raw(headers: bool, ordinals: bool) -> StructType:
    """Return the schema of messages; parsed once, because the JVM parses it."""
    return struct_of(
        _RAW + (_HEADERS if headers else "") + f", {_POSITION} BIGINT" + (f", {ORDINAL} INT" if ordinals else "")
    )


@dataclass(frozen=True, slots=True)
class RawFormat:
    """Makes rows that are messages, with the columns of Spark's own Kafka source.

    Attributes:
        headers: Whether rows have `headers`.
    """

    headers: bool = False

    def describe(self) -> Json:
        """Return the form of rows, for the program's identity."""
        return {"format": "raw", "headers": self.headers}

    def raw(self, *, ordinals: bool) -> StructType:
        """Return the schema that tasks read, positions included."""
        return _raw(self.headers, ordinals)

    def schema(self, spark: SparkSession) -> StructType:  # noqa: ARG002
        """Return the schema of rows."""
        from pyspark.sql.types import StructType

        return StructType([field for field in self.raw(ordinals=False) if field.name != _POSITION])

    def rows(self, messages: DataFrame, *, ordinals: bool) -> DataFrame:  # noqa: ARG002
        """Return the messages as they are."""
        return messages

    def diagnose(self, text: str) -> Exception | None:
        """Return None: no message can fail to be a row."""


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """Makes rows of the JSON objects that messages have as values.

    Attributes:
        declared: The columns.
        dead_letters: What becomes of a value that does not parse: `refuse`, `drop` or `keep`.
    """

    declared: str | StructType
    dead_letters: str
    headers: bool = False

    def describe(self) -> Json:
        """Return the form of rows, for the program's identity."""
        return {
            "format": "json",
            "schema": [list(column) for column in columns_of(self.declared)],
            "dead_letters": self.dead_letters,
        }

    def raw(self, *, ordinals: bool) -> StructType:
        """Return the schema that tasks read, positions included."""
        return RawFormat().raw(ordinals=ordinals)

    def schema(self, spark: SparkSession) -> StructType:  # noqa: ARG002
        """Return the schema of rows."""
        from pyspark.sql.types import StringType, StructField, StructType

        fields = struct_of(self.declared).fields
        kept = [StructField(DEAD_LETTER, StringType())] if self.dead_letters == "keep" else []
        return StructType([*(StructField(f.name, f.dataType) for f in fields), *kept])

    def rows(self, messages: DataFrame, *, ordinals: bool) -> DataFrame:
        """Return rows, with their positions."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType, StructField, StructType

        fields = struct_of(self.declared).fields
        text = F.col("value").cast("string")
        parsed = StructType([*fields, StructField(DEAD_LETTER, StringType())])
        # A dead letter is an incomplete object, one with other types, or a message without a value.
        found = F.from_json(text, parsed, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": DEAD_LETTER})
        rows = messages.withColumn("_found", found)
        dead = F.col(f"_found.{DEAD_LETTER}").isNotNull() | F.col("value").isNull()
        if self.dead_letters == "refuse":
            where = F.concat_ws(
                " ", F.lit("partition"), "partition", F.lit("of"), "topic", F.lit("has at offset"), "offset"
            )
            message = F.concat(
                F.lit("[BAD_ROW] "), where, F.lit(" a value that does not parse: correct it, or choose dead_letters")
            )
            rows = rows.withColumn(
                "_found", F.when(dead, F.raise_error(message).cast(parsed)).otherwise(F.col("_found"))
            )
        elif self.dead_letters == "drop":
            rows = rows.where(~dead)
        columns = [F.col(f"_found.`{field.name}`").alias(field.name) for field in fields]
        if self.dead_letters == "keep":
            columns = [F.when(~dead, column).alias(f.name) for f, column in zip(fields, columns, strict=True)]
            columns.append(F.when(dead, F.coalesce(text, F.lit(""))).alias(DEAD_LETTER))
        return rows.select(*columns, _POSITION, *([ORDINAL] if ordinals else []))

    def diagnose(self, text: str) -> Exception | None:
        """Return the error of a row that does not parse."""
        _, found, rest = text.partition("[BAD_ROW] ")
        return DataError("BAD_ROW", rest.splitlines()[0].split(" SQLSTATE")[0]) if found else None


ValueFormat = RawFormat | JsonFormat


def value_format_of(name: str, schema: str | StructType | None, dead_letters: str, *, headers: bool) -> ValueFormat:
    """Check and return the form of rows.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if name not in ("raw", "json"):
        raise InvalidError("BAD_OPTION", f"format is {name!r}: choose 'raw' or 'json'")
    if dead_letters not in ("refuse", "drop", "keep"):
        raise InvalidError("BAD_OPTION", f"dead_letters is {dead_letters!r}: choose 'refuse', 'drop' or 'keep'")
    if name == "raw":
        if schema is not None or dead_letters != "refuse":
            raise InvalidError(
                "BAD_OPTION", "messages as they are have no schema and no dead letters: choose format='json'"
            )
        return RawFormat(headers)
    if schema is None:
        raise InvalidError("BAD_OPTION", "values in JSON need a schema: give schema='NAME TYPE, …'")
    if headers:
        raise InvalidError(
            "BAD_OPTION", "rows of format 'json' have no headers: choose format='raw', and F.from_json in a transform"
        )
    columns_of(schema)  # or it is refused
    return JsonFormat(schema, dead_letters)
