"""Pushed rows, checked against the columns that a source declares before any of them is recorded."""

from __future__ import annotations

import datetime as dt
import decimal
import re
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from boatlift.connectors.push.casts import cast
from boatlift.connectors.push.flaws import (
    field_counter,
    flaw_in,
    flaw_in_columns,
    flaw_in_json,
    has_repeated_fields,
    may_have_nul,
    too_fine_time,
)
from boatlift.connectors.push.steps import as_recorded
from boatlift.errors import DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

LARGEST_EXPONENT = 76
"""The largest exponent of a decimal: Arrow's decimals have no more digits."""

_BUILTIN = (bytes, dt.date, dt.datetime, decimal.Decimal)
_AT = re.compile(r"`\$\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class ParsedRows:
    """The rows of a push of JSON, of the declared types, before they are converted.

    Attributes:
        size: The bytes of the JSON.
    """

    rows: list[dict[str, Any]]
    size: int


class PushedRows:
    """Converts JSON, Python's mappings and tables into Arrow rows.

    A row may lack columns that may be NULL, and has no undeclared columns. Values of JSON and of mappings have the
    declared type, or are refused; columns of tables are cast if the cast loses nothing. A FLOAT gets the nearest value,
    as by Spark's cast, unless that of a finite number is infinite.

    With a key, a row may have `_deleted`. A row that deletes needs only the key; columns of the key are never NULL.

    Args:
        key: The columns by which rows replace one another; () if they do not.
    """

    def __init__(self, schema: StructType, key: Sequence[str] = ()) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self._required = [f.name for f in schema.fields if not f.nullable and f.name not in key] if key else []
        self._deletes = bool(key)
        schema = as_recorded(schema, key) if key else schema
        self._row = _struct(schema)
        self._rows = types.GenericAlias(list, (self._row,))
        self._many: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._rows)
        self._one: msgspec.json.Decoder[Any] = msgspec.json.Decoder(self._row)
        self.schema: pa.Schema = to_arrow_schema(nullable_inside(schema), timezone="UTC")
        self._wide = [_changed(field.type, _widened) for field in self.schema]
        self._declared, self._has_times = schema, "timestamp" in schema.simpleString()
        self._has_decimals = "decimal" in schema.simpleString()
        self._nested = {f.name: counter for f in schema.fields if (counter := field_counter(f.dataType))}

    def of_json(self, body: bytes) -> pa.RecordBatch:
        return self._made(self.parsed(body).rows)

    def parsed(self, body: bytes) -> ParsedRows:
        """Return the rows of JSON before they are converted; `of_parsed` may still refuse them."""
        decode = self._many.decode if body.lstrip()[:1] == b"[" else self._one.decode_lines
        try:
            rows = _as_dictionaries(lambda: decode(body))
        except (msgspec.DecodeError, UnicodeError) as error:
            raise _bad_row(flaw_in_json(body) or str(error)) from error
        fields = sum(map(len, rows))
        for name, count in self._nested.items():
            fields += sum(count(row[name]) for row in rows if row.get(name))
        if has_repeated_fields(body, fields):
            raise _bad_row(flaw_in_json(body) or "a field is given twice")
        may_have_nul_escaped = b"\\" in body and b"\\u0000" in body  # the parser refuses a plain NUL
        if may_have_nul_escaped and (flaw := flaw_in_json(body)):
            raise _bad_row(flaw)
        if self._has_times and (flaw := too_fine_time(body, self._declared)):
            raise _bad_row(flaw)
        return ParsedRows(rows, len(body))

    def of_parsed(self, pushes: Sequence[ParsedRows]) -> list[tuple[pa.RecordBatch, bytes]]:
        """Return the rows of several pushes, each with its digest; all in one conversion, which costs as much as one.

        Raises:
            DataError: `[BAD_ROW]` a row of one of them does not fit.
        """
        batch, begin, made = self._made([row for push in pushes for row in push.rows]), 0, []
        try:
            columns: list[list[Any]] | None = [column.to_pylist() for column in batch.columns]
        except (ValueError, OverflowError):  # a year that Python lacks changes no digest of other rows
            columns = None
        for push in pushes:
            end = begin + len(push.rows)
            rows = batch.slice(begin, end - begin)
            made.append(
                (rows, self.digest(rows) if columns is None else _digest([each[begin:end] for each in columns]))
            )
            begin = end
        return made

    def of_python(self, rows: object) -> pa.RecordBatch:
        """Return the rows of mappings, or of any object that exports an Arrow stream."""
        if hasattr(rows, "__arrow_c_stream__"):
            return _without_nul(self._of_table(_as_arrow(rows, self.schema.names)))
        if isinstance(rows, pa.RecordBatch):
            return _without_nul(self._of_table(pa.Table.from_batches([rows])))
        mappings = [rows] if isinstance(rows, dict) else rows
        return _without_nul(self._made(_as_dictionaries(lambda: msgspec.convert(mappings, self._rows))))

    def stream(self, batches: list[pa.RecordBatch]) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.schema) as writer:
            writer.write_batch(pa.concat_batches(batches) if len(batches) > 1 else batches[0])
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    @staticmethod
    def digest(batch: pa.RecordBatch) -> bytes:
        """Return a digest of the values of rows; equal rows have equal digests, in whatever form they came."""
        return _digest([_values(column) for column in batch.columns])

    def _made(self, rows: list[Any]) -> pa.RecordBatch:
        try:
            if self._has_decimals:
                _check_decimals(rows)
            columns = [
                pa.array([row.get(field.name) for row in rows], kind, from_pandas=False)
                for field, kind in zip(self.schema, self._wide, strict=True)
            ]
        except UnicodeError as error:
            raise _bad_row(flaw_in(rows) or str(error)) from error
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise _bad_row(str(error)) from error
        for at, (field, column) in enumerate(zip(self.schema, columns, strict=True)):
            if column.type != field.type:
                columns[at] = _fitted(pa.chunked_array([column]), field)
        return self._marked(columns)

    def _of_table(self, table: pa.Table) -> pa.RecordBatch:
        named = table.column_names
        if len(set(named)) < len(named) or not set(named) <= set(self.schema.names):
            raise _bad_row(f"the table has columns {named}, where {self.schema.names} belong")
        columns = []
        for field in self.schema:
            found = table.column(field.name) if field.name in named else pa.chunked_array([pa.nulls(len(table))])
            column = _fitted(found, field)
            if column.null_count and not field.nullable:
                raise _bad_row(f"column {field.name} must not be NULL")
            columns.append(column)
        return self._marked(columns)

    def _marked(self, columns: list[pa.Array]) -> pa.RecordBatch:
        """Return rows; with a key, each row says whether it deletes."""
        if self._deletes:
            columns[-1] = columns[-1].fill_null(False)
        batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        for name in self._required:
            lacks = pc.and_not(batch.column(name).is_null(), columns[-1])
            if (row := lacks.index(True).as_py()) >= 0:
                raise _bad_row(f"row {row + 1}: column {name} must not be NULL in a row that deletes nothing")
        return batch


def _digest(columns: list[list[Any]]) -> bytes:
    return xxhash.xxh3_128_digest(msgspec.msgpack.encode(columns))


def _as_arrow(table: Any, names: Sequence[str]) -> pa.Table:
    """Return a table as an Arrow table, without the index of a pandas frame unless it has the name of a column."""
    pandas = sys.modules.get("pandas")
    try:
        is_frame = pandas is not None and isinstance(table, pandas.DataFrame)
        made = pa.Table.from_pandas(table, preserve_index=True) if is_frame else pa.table(table)
    except (pa.ArrowException, UnicodeError, TypeError) as error:
        raise _bad_row(flaw_in_columns(table) or str(error)) from error
    index = (made.schema.pandas_metadata or {}).get("index_columns", ())
    return made.drop_columns([name for name in index if name in made.column_names and name not in names])


def _as_dictionaries(decode: Callable[[], list[Any]]) -> list[Any]:
    """Return rows with the fields that the client sent. Errors in JSON's syntax pass through."""
    try:
        rows: list[Any] = msgspec.to_builtins(decode(), builtin_types=_BUILTIN)
    except msgspec.ValidationError as error:
        row = _AT.search(str(error))
        raise _bad_row(f"row {int(row[1]) + 1}: {error}" if row else str(error)) from error
    except (OverflowError, TypeError) as error:
        raise _bad_row(str(error)) from error
    return rows


def _without_nul(batch: pa.RecordBatch) -> pa.RecordBatch:
    if any(map(may_have_nul, batch.columns)):
        values = zip(*map(_values, batch.columns), strict=True)
        if flaw := flaw_in([dict(zip(batch.schema.names, row, strict=True)) for row in values]):
            raise _bad_row(flaw)
    return batch


def _values(column: pa.Array) -> list[Any]:
    """Return Python's values; dates and times as numbers if Python lacks the year of one."""
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return list(column.cast(_changed(column.type, _as_number)).to_pylist())


def _as_number(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def _widened(kind: pa.DataType) -> pa.DataType:
    """Return a type that holds each float of Python: Arrow makes large ones infinite in a narrower one."""
    return pa.float64() if pa.types.is_float32(kind) else kind


def _changed(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with another one for each type of values in it."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_changed(field.type, change)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_changed(kind.item_type, change)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_changed(kind.value_type, change)))
    return change(kind)


def _fitted(found: pa.ChunkedArray, field: pa.Field) -> pa.Array:
    try:
        column = cast(found, field.type)
        column.validate(full=True)
    except (pa.ArrowException, TypeError) as error:
        raise _bad_row(f"column {field.name} does not fit {field.type}: {error}") from error
    return column.combine_chunks()


def _check_decimals(value: Any) -> None:
    """Raise if a decimal fits no column of decimals; Arrow would crash on it."""
    match value:
        case decimal.Decimal():
            if not value.is_finite() or abs(value.adjusted()) > LARGEST_EXPONENT or len(value.as_tuple().digits) > 100:
                raise pa.ArrowInvalid(f"{str(value)[:50]} is no number for a column of decimals")
        case dict():
            for each in value.values():
                _check_decimals(each)
        case list():
            for each in value:
                _check_decimals(each)


def nullable_inside(schema: StructType) -> StructType:
    """Return a schema in which all nested fields may be NULL.

    The fields of a NULL struct are NULL, which some readers of Arrow do not expect.
    """
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(f.name, _nullable(f.dataType), f.nullable) for f in schema.fields])


def _nullable(kind: DataType) -> DataType:
    from pyspark.sql import types as T

    match kind:
        case T.StructType():
            return T.StructType([T.StructField(f.name, _nullable(f.dataType)) for f in kind.fields])
        case T.ArrayType():
            return T.ArrayType(_nullable(kind.elementType))
        case T.MapType():
            return T.MapType(kind.keyType, _nullable(kind.valueType))
        case _:
            return kind


def _bad_row(what: str) -> DataError:
    return DataError("BAD_ROW", f"{what.rstrip('.')}: correct it; nothing of this push was recorded")


def _struct(schema: StructType) -> type:
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    names = {}
    for number, field in enumerate(schema.fields):
        kind = _python_type(field.dataType, field.name)
        names[f"c{number}"] = field.name
        optional = (f"c{number}", kind | None | msgspec.UnsetType, msgspec.UNSET)
        fields.append(optional if field.nullable else (f"c{number}", kind))
    return msgspec.defstruct("Row", fields, rename=names, forbid_unknown_fields=True, kw_only=True)


def _python_type(kind: DataType, column: str) -> Any:
    from pyspark.sql import types as T

    for bits, whole in ((8, T.ByteType), (16, T.ShortType), (32, T.IntegerType), (64, T.LongType)):
        if isinstance(kind, whole):
            return Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]
    plain: dict[type[DataType], Any] = {
        T.FloatType: float,
        T.DoubleType: float,
        T.DecimalType: decimal.Decimal,
        T.BooleanType: bool,
        T.StringType: str,
        T.BinaryType: bytes,
        T.DateType: dt.date,
        T.TimestampType: Annotated[dt.datetime, msgspec.Meta(tz=True)],
        T.TimestampNTZType: Annotated[dt.datetime, msgspec.Meta(tz=False)],
    }
    for each, python in plain.items():
        if isinstance(kind, each):
            return python
    match kind:
        case T.ArrayType(elementType=element, containsNull=nulls):
            item: Any = _python_type(element, column)
            return types.GenericAlias(list, (item | None if nulls else item,))
        case T.MapType(keyType=T.StringType(), valueType=value, valueContainsNull=nulls):
            held: Any = _python_type(value, column)
            return types.GenericAlias(dict, (str, held | None if nulls else held))
        case T.StructType():
            return _struct(kind)
    raise InvalidError(
        "TYPE_REFUSED", f"column {column} is {kind.simpleString()}, which cannot be pushed: declare another type"
    )
