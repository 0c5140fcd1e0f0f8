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
    as by Spark's cast.

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
                pa.array([row.get(field.name) for row in rows], field.type, from_pandas=False) for field in self.schema
            ]
        except UnicodeError as error:
            raise _bad_row(flaw_in(rows) or str(error)) from error
        except (pa.ArrowException, OverflowError, TypeError) as error:
            raise _bad_row(str(error)) from error
        return self._marked(columns)

    def _of_table(self, table: pa.Table) -> pa.RecordBatch:
        named = table.column_names
        if len(set(named)) < len(named) or not set(named) <= set(self.schema.names):
            raise _bad_row(f"the table has columns {named}, where {self.schema.names} belong")
        columns = []
        for field in self.schema:
            found = table.column(field.name) if field.name in named else pa.nulls(len(table))
            try:
                found = found.cast(_plain(found.type))
                _check_inside(found.type, field.type)
                if pa.types.is_integer(found.type) and pa.types.is_decimal(field.type):
                    found = found.cast(pa.decimal128(20, 0))  # a cast at once asks the type and not the values
                if pa.types.is_decimal(found.type) and pa.types.is_floating(field.type):
                    found = found.cast(pa.string())  # a cast at once is not the nearest value
                column = found.cast(field.type)
                column.validate(full=True)
                if pa.types.is_float64(found.type) and pa.types.is_float32(field.type):
                    _check_finite(found, column)
                if _may_lose(found.type, field.type) and not column.cast(found.type).equals(found):
                    raise pa.ArrowInvalid("a value would lose digits, or a part of it")
            except (pa.ArrowException, TypeError) as error:
                raise _bad_row(f"column {field.name} does not fit {field.type}: {error}") from error
            if column.null_count and not field.nullable:
                raise _bad_row(f"column {field.name} must not be NULL")
            columns.append(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
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
        return list(column.cast(_as_numbers(column.type)).to_pylist())


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_as_numbers(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_as_numbers(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_as_numbers(kind.value_type)))
    return kind


def _check_inside(found: pa.DataType, declared: pa.DataType) -> None:
    """Raise if a cast would leave out fields of a struct, or would invent the zone of times."""
    if pa.types.is_temporal(declared) and pa.types.is_integer(found):
        raise pa.ArrowInvalid(f"numbers ({found}) are no times")
    if pa.types.is_timestamp(declared) and (
        pa.types.is_date(found) or (pa.types.is_timestamp(found) and (found.tz is None) != (declared.tz is None))
    ):
        wanted = "with a zone" if declared.tz else "without a zone"
        raise pa.ArrowInvalid(f"it has {found}, where times {wanted} belong (pandas: tz_localize)")
    pairs: list[tuple[pa.DataType, pa.DataType]] = []
    if pa.types.is_struct(found) and pa.types.is_struct(declared):
        names = [found.field(at).name for at in range(found.num_fields)]
        if len(set(names)) < len(names) or not set(names) <= {
            declared.field(at).name for at in range(declared.num_fields)
        }:
            raise pa.ArrowInvalid(f"it has fields {names}")
        pairs = [(found.field(name).type, declared.field(name).type) for name in names]
    elif pa.types.is_list(found) and pa.types.is_list(declared):
        pairs = [(found.value_type, declared.value_type)]
    elif pa.types.is_map(found) and pa.types.is_map(declared):
        pairs = [(found.key_type, declared.key_type), (found.item_type, declared.item_type)]
    for own, wanted in pairs:
        _check_inside(own, wanted)
        if _may_lose(own, wanted) or (pa.types.is_decimal(own) and pa.types.is_floating(wanted)):
            raise pa.ArrowInvalid(f"it has {own} inside, where {wanted} belongs: cast it before")


def _plain(kind: pa.DataType) -> pa.DataType:
    """Return the type of the same values without dictionaries, and with one kind of lists."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_plain(kind.key_type)), kind.item_field.with_type(_plain(kind.item_type))
        )
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    return kind


def _check_finite(found: pa.ChunkedArray, column: pa.ChunkedArray) -> None:
    lost = pc.and_not(pc.is_inf(column), pc.is_inf(found))
    if (row := lost.index(True).as_py()) >= 0:
        raise pa.ArrowInvalid(f"{found[row].as_py()!r} is more than it holds")


def _may_lose(found: pa.DataType, declared: pa.DataType) -> bool:
    """Return whether Arrow's cast may change values, and says nothing."""
    return bool(
        (pa.types.is_floating(found) and pa.types.is_decimal(declared))
        or (pa.types.is_timestamp(found) and pa.types.is_date(declared))
        or (not pa.types.is_boolean(found) and not pa.types.is_null(found) and pa.types.is_boolean(declared))
    )


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
