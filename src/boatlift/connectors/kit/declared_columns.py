"""Declared columns, parsed from Spark's own notations of a schema without Spark."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Columns = tuple[tuple[str, str], ...]
"""Names and types; the types as in Spark's `simpleString`."""

_ALIASES = {
    "integer": "int",
    "long": "bigint",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "timestamp_ltz": "timestamp",
}
TYPE_WORDS = (
    *("string", "int", "bigint", "double", "float", "boolean", "decimal", "date", "timestamp", "timestamp_ntz"),
    *("smallint", "tinyint", "binary", "char", "character", "varchar", "time", "interval", "variant", "void"),
    *("geometry", "geography", "array", "map", "struct"),
    *_ALIASES,
)
"""The words that a type begins with in Spark's DDL, common ones first."""
_COMMON = 10
_FIELD = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^\s:`]+))\s*:?\s*(.*?)\s*", re.DOTALL)
_NOT_NULL = re.compile(r"\snot\s+null\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"\s+comment\s+(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")\s*$", re.IGNORECASE)
_SUFFIX = re.compile(r"\s+(?:not\s+null|comment\s+(?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"))\s*$", re.IGNORECASE)


def columns_of(schema: str | StructType) -> Columns:
    """Return names and types of a schema.

    Args:
        schema: DDL (`origin STRING, arr_delay INT`) or a StructType.
    """
    if isinstance(schema, str):
        columns = tuple(_column(field, schema) for field in _fields(schema))
    else:
        columns = tuple((field.name, field.dataType.simpleString()) for field in schema.fields)
    names = [name.lower() for name, _ in columns]
    if not columns or len(set(names)) != len(names):
        raise InvalidError("BAD_OPTION", f"schema {schema!r} has no columns, or two of one name: correct it")
    return columns


def required_of(schema: str | StructType) -> list[str]:
    """Return the names of the columns that a schema has as NOT NULL."""
    if not isinstance(schema, str):
        return [field.name for field in schema.fields if not field.nullable]
    fields = _fields(schema)
    return [_column(field, schema)[0] for field in fields if _NOT_NULL.search(_COMMENT.sub("", field))]


def nullable(schema: StructType) -> StructType:
    """Return a schema whose columns may be NULL: the readers check NOT NULL."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(field.name, field.dataType) for field in schema.fields])


def null_fault(name: str) -> str:
    """Return the words for a NULL in a column that is NOT NULL."""
    return f"column {name} is NULL, and the schema has it as NOT NULL"


def _column(field: str, schema: str) -> tuple[str, str]:
    match = _FIELD.fullmatch(field)
    if match is None or not match[3]:
        raise InvalidError("BAD_OPTION", f"{field.strip()!r} in schema {schema!r} is no column: write NAME TYPE")
    kind = match[3]
    while (shorter := _SUFFIX.sub("", kind)) != kind:
        kind = shorter
    _refuse_unknown(match[1] or match[2], kind)
    kind = re.sub(r"\s+", "", kind.lower())
    head, bracket, rest = kind.partition("(")
    head = _ALIASES.get(head, head)
    if head == "decimal" and not bracket:
        bracket, rest = "(", "10,0)"
    elif head == "decimal" and "," not in rest:
        rest = rest.removesuffix(")") + ",0)"
    return (match[1].replace("``", "`") if match[1] else match[2]), head + bracket + rest


def _refuse_unknown(column: str, kind: str) -> None:
    word = re.split(r"[\s(<]", kind, maxsplit=1)[0]
    if word.lower() in TYPE_WORDS:
        return
    near = get_close_matches(word.lower(), TYPE_WORDS)
    *others, last = (name.upper() for name in near or TYPE_WORDS[:_COMMON])
    names = f"{', '.join(others)} or {last}" if others else last
    advice = names if near else f"a type such as {names}"
    raise InvalidError("BAD_OPTION", f"column {column} has the type {word}, which Spark does not know: write {advice}")


def _fields(schema: str) -> list[str]:
    """Split DDL at commas, except in brackets or quotes."""
    fields, depth, quote, start = [], 0, "", 0
    for index, character in enumerate(schema):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in "<(":
            depth += 1
        elif character in ">)":
            depth -= 1
        elif character == "," and depth == 0:
            fields.append(schema[start:index])
            start = index + 1
    return [*fields, schema[start:]]


def struct_of(schema: str | StructType) -> StructType:
    """Return a declared schema as Spark has it; Spark must be running."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    if not isinstance(schema, str):
        return schema
    try:
        struct = StructType.fromDDL(schema)
    except PySparkException as error:
        raise InvalidError("BAD_OPTION", f"Spark cannot read the schema {schema!r}: correct it") from error
    assert isinstance(struct, StructType)
    return struct
