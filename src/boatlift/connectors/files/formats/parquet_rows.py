"""Rows of Parquet files, or of some row groups, read by PyArrow in tasks; the types of columns, and special times.

Spark's own reader has the names of files in its plan, and accepts no list of row groups. Both readers return the same
rows of *plain* files. In a plain file Arrow and Spark read the same values of each column's type, and no date or time
is of the calendar that Spark before version 3 wrote. `not_plain` decides by the footer of a file.

Types are those that Parquet itself stores. Arrow may store a schema of its own in a footer, with the types that a
writer had in memory; Spark ignores it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as types

from boatlift.connectors.files.lines import Span, rows_of_spans
from boatlift.connectors.kit import Columns
from boatlift.connectors.kit.object_place import InputFile, arrow_source
from boatlift.dataflow.columns import ORDINAL, POSITION
from boatlift.errors import DataError

PLACE_BITS = 40
"""The lower bits of `_position`, with a row's index in its file; the upper bits are the file's place in the step."""


_ROWS_AT_ONCE = 1 << 14
_MOST_ROWS, _MOST_BYTES = 1 << 18, 16 << 20
"""The most rows, and bytes without compression, for which one task replaces Spark's own reader."""

_WRITTEN_BY = b"org.apache.spark.version"
_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")

_KNOWN = {"NONE", "STRING", "ENUM", "JSON", "BSON", "INT", "DECIMAL", "DATE", "TIMESTAMP"}
"""The logical types of which Arrow and Spark read the same values, if they do of the physical type."""

_MOST_DIGITS = 38

_PLAIN = {
    ("BOOLEAN", "None"): "boolean",
    ("INT32", "None"): "int",
    ("INT32", "Date"): "date",
    ("INT64", "None"): "bigint",
    ("INT96", "None"): "timestamp",
    ("FLOAT", "None"): "float",
    ("DOUBLE", "None"): "double",
    ("BYTE_ARRAY", "None"): "binary",
    ("BYTE_ARRAY", "BSON"): "binary",
    ("BYTE_ARRAY", "String"): "string",
    ("BYTE_ARRAY", "Enum"): "string",
    ("BYTE_ARRAY", "JSON"): "string",
    ("FIXED_LEN_BYTE_ARRAY", "None"): "binary",
}

_WHOLE = {(8, True): "tinyint", (16, True): "smallint", (32, True): "int", (64, True): "bigint"}

_UNSIGNED = {(8, False): "smallint", (16, False): "int", (32, False): "bigint", (64, False): "decimal(20,0)"}

MICROSECONDS = (
    "write its times in microseconds (pandas: coerce_timestamps='us', and allow_truncated_timestamps=True to cut them)"
)
"""The remedy for finer times, in words."""

_DAY = 86_400_000

_FAR_MILLIS = (2**31 - 2_440_588) * _DAY
"""The day 0 of a time of 96 bits is 2,440,588 days before 1970."""

_TURN_MICROS = 2**32 * _DAY * 1000


def are_small_and_plain(spans: Sequence[Span], as_written: Callable[[], bool]) -> bool:
    """Return whether one task can read files and ranges of row groups quickly, by PyArrow."""
    rows = size = 0
    for span in spans:
        footer = footer_in(span.input)
        if footer is None or (span.end is None and not_plain(footer, as_written) is not None):
            return False
        groups = [footer.row_group(number) for number in _groups_of(footer, span)[0]]
        rows += sum(group.num_rows for group in groups)
        size += sum(group.total_byte_size for group in groups)
    return rows <= _MOST_ROWS and size <= _MOST_BYTES


def metadata_of(path: InputFile) -> pq.FileMetaData:
    """Return the footer of a file or an object."""
    return pq.read_metadata(arrow_source(path))


def footer_in(path: InputFile) -> pq.FileMetaData | None:
    """Return the footer of a file; None if the file is no whole Parquet file, or cannot be read."""
    try:
        return metadata_of(path)
    except (pa.ArrowException, OSError):
        return None


def not_plain(footer: pq.FileMetaData | None, as_written: Callable[[], bool], *, nested: bool = False) -> str | None:
    """Return the reason why PyArrow may read other rows of a file than Spark does; None if it reads the same.

    Args:
        nested: Whether columns may be lists of the form with three levels, maps and structs.
        as_written: Returns whether the session reads dates and times unchanged, also from files of unknown writers.
            Called only if the file has such columns.
    """
    if footer is None:
        return "it is not a whole Parquet file"
    of_calendar = of_96_bits = False
    for field, leaves in fields_of(footer):
        kinds = _leaf_kinds(field.type)
        alike = all(_is_read_alike(kind, leaf) for kind, leaf in zip(kinds, leaves, strict=True))
        if not alike or (types.is_nested(field.type) and not (nested and _are_nested_alike(field.type, leaves))):
            return f"column {field.name} has the type {field.type}"
        of_calendar |= any(types.is_timestamp(kind) or types.is_date(kind) for kind in kinds)
        of_96_bits |= any(leaf.physical_type == "INT96" for leaf in leaves)
    about = footer.metadata or {}
    version = about.get(_WRITTEN_BY)
    # Spark 3.0 wrote times of 96 bits by the old calendar, without saying so.
    old = (b"1.", b"2.", b"3.0.") if of_96_bits else (b"1.", b"2.")
    is_old = any(key in about for key in _OLD_CALENDAR) or (version is not None and version.startswith(old))
    if of_calendar and (is_old or not as_written()):
        return "its dates and times may be of an old calendar"
    return None


def _leaf_kinds(kind: pa.DataType) -> list[pa.DataType]:
    return [leaf for inner in _inner(kind) for leaf in _leaf_kinds(inner.type)] if types.is_nested(kind) else [kind]


def _are_nested_alike(kind: pa.DataType, leaves: Sequence[Any]) -> bool:
    """Return whether Spark and Arrow read the same lists, maps and structs, if they read the same leaves.

    Older writers have lists of two levels, whose parts both guess by names. Times of 96 bits are corrected in plain
    columns alone.
    """
    if any(leaf.physical_type == "INT96" for leaf in leaves):
        return False
    lists = _lists(kind)
    return all(leaf.path.count(".list.element") == count for leaf, count in zip(leaves, lists, strict=True))


def _lists(kind: pa.DataType, above: int = 0) -> list[int]:
    """Return, for each leaf, the number of lists around it."""
    if not types.is_nested(kind):
        return [above]
    own = types.is_list(kind) or types.is_large_list(kind)
    return [count for inner in _inner(kind) for count in _lists(inner.type, above + own)]


def _is_read_alike(kind: pa.DataType, leaf: Any) -> bool:
    """Return whether Spark and Arrow read the same values of a column, or Arrow reads its nanoseconds.

    Arrow reads columns of some logical types as plain bytes.
    """
    if leaf.logical_type.type not in _KNOWN:
        return False
    tests = (
        types.is_boolean, types.is_integer, types.is_float32, types.is_float64, types.is_string, types.is_large_string,
        types.is_binary, types.is_large_binary, types.is_date32, types.is_decimal128, types.is_timestamp,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def unread_by_spark(footer: pq.FileMetaData) -> tuple[str, str] | None:
    """Return the property of a file that Arrow supports and Spark does not, and a remedy; None if it has none."""
    for field, leaves in fields_of(footer):
        kinds = [json.loads(leaf.logical_type.to_json()) for leaf in leaves]
        if any(kind["Type"] == "Timestamp" and kind["timeUnit"] == "nanoseconds" for kind in kinds):
            return f"nanoseconds in column {field.name}", MICROSECONDS
    groups = map(footer.row_group, range(footer.num_row_groups))
    codecs = {group.column(number).compression for group in groups for number in range(group.num_columns)}
    return ("the compression BROTLI", "compress it with ZSTD") if "BROTLI" in codecs else None


def begins_of(metadata: pq.FileMetaData) -> list[int]:
    """Return where the row groups of a file begin."""
    begins = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        chunks = map(group.column, range(group.num_columns))
        places = (place for chunk in chunks for place in (chunk.dictionary_page_offset, chunk.data_page_offset))
        begins.append(min(int(place) for place in places if place))
    return begins


@dataclass(frozen=True, slots=True)
class ReadParquet:
    """Reads the spans of each task whose number it gets: the row groups that begin in them.

    Attributes:
        columns: The declared columns, as Spark has them in Arrow.
        tasks: The spans of each task; None: the job's parameters name them.
    """

    source: str
    columns: pa.Schema
    positioned: bool
    ordinals: bool
    tasks: tuple[tuple[Span, ...], ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows_of_spans(batches, self.source, self.tasks, self.read)

    def narrowed(self, names: Collection[str]) -> ReadParquet:
        kept = [field for field in self.columns if field.name in names]
        return replace(self, columns=pa.schema(kept), positioned=self.positioned and POSITION in names)

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        try:
            with pq.ParquetFile(arrow_source(span.input), coerce_int96_timestamp_unit="us") as file:
                groups, index = _groups_of(file.metadata, span)
                names = self.columns.names
                if missing := sorted(set(names) - set(file.schema_arrow.names)):
                    message = f"{span.input} lacks {missing}, which it had when it was taken: put the original back"
                    raise DataError("INPUT_CHANGED", message)
                wide = [leaf.path for leaf in leaves_of(file.metadata) if leaf.physical_type == "INT96"]
                of_96_bits = Times96(span.input, groups, wide, _ROWS_AT_ONCE)
                every = file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=names, use_threads=False)
                for number, rows in enumerate(every):
                    whole = of_96_bits.as_spark_has_them(number, rows) if wide else rows
                    yield self._made(whole, span, (span.place << PLACE_BITS) + index)
                    index += rows.num_rows
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{span.input} is gone, and a step needs it: put it back") from error
        except (pa.ArrowException, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # the file itself cannot be read
                raise
            raise unreadable(span.input, error) from error

    def _made(self, rows: pa.RecordBatch, span: Span, begin: int) -> pa.RecordBatch:
        columns = []
        for field in self.columns:
            values = rows.column(field.name)
            in_nanoseconds = types.is_timestamp(values.type) and values.type.unit == "ns"
            if in_nanoseconds and (index := first_fraction(values)) is not None:
                raise too_fine(str(span.input), (begin & ((1 << PLACE_BITS) - 1)) + index, field.name)
            columns.append(values.cast(field.type))
        made = pa.RecordBatch.from_arrays(columns, schema=self.columns)
        if self.positioned:
            made = made.append_column(POSITION, pa.array(np.arange(begin, begin + len(rows), dtype=np.int64)))
        if self.ordinals:
            made = made.append_column(ORDINAL, pa.repeat(pa.scalar(span.ordinal, pa.int32()), len(rows)))
        return made


def _groups_of(metadata: pq.FileMetaData, span: Span) -> tuple[list[int], int]:
    """Return the row groups of a span, which are consecutive, and the index of their first row in the file."""
    every = list(range(metadata.num_row_groups))
    if span.end is None and not span.begin:
        return every, 0
    begins = begins_of(metadata)
    last = begins[-1] + 1 if span.end is None else span.end
    groups = [number for number in every if span.begin <= begins[number] < last]
    return groups, sum(metadata.row_group(number).num_rows for number in every if begins[number] < span.begin)


def unreadable(path: InputFile, error: Exception) -> DataError:
    """Return the error of a file that is damaged inside."""
    reason = str(error).splitlines()[0]
    return DataError("BAD_ROW", f"{path} cannot be read as Parquet ({reason}); put a whole file in its place")


def columns_in(footer: pq.FileMetaData) -> Columns:
    """Return the columns of a file.

    Raises:
        TypeError: a column has a type that Spark does not read; the text names both.
    """
    return tuple((field.name, _nested(field, iter(leaves))) for field, leaves in fields_of(footer))


def fields_of(footer: pq.FileMetaData) -> list[tuple[pa.Field, list[Any]]]:
    """Return each column of a file in Arrow, with its leaves in Parquet."""
    leaves = leaves_of(footer)
    return [(field, [next(leaves) for _ in range(_parts(field.type))]) for field in footer.schema.to_arrow_schema()]


def leaves_of(footer: pq.FileMetaData) -> Iterator[Any]:
    """Return the leaves of columns in Parquet: the parts that have values."""
    return map(footer.schema.column, range(len(footer.schema)))


def _parts(kind: pa.DataType) -> int:
    return sum(_parts(inner.type) for inner in _inner(kind)) if types.is_nested(kind) else 1


def _inner(kind: pa.DataType) -> list[pa.Field]:
    if types.is_map(kind):
        return [kind.key_field, kind.item_field]
    return [kind.field(number) for number in range(kind.num_fields)]


def _nested(field: pa.Field, leaves: Iterator[Any]) -> str:
    kind = field.type
    if not types.is_nested(kind):
        leaf = next(leaves)
        if (named := _named(leaf)) is None:
            about = json.loads(leaf.logical_type.to_json())["Type"]
            shown = leaf.physical_type if about == "None" else f"{leaf.physical_type} ({about.upper()})"
            raise TypeError(f"{leaf.path}, {shown}")
        return named
    inner = [(each.name, _nested(each, leaves)) for each in _inner(kind)]
    if types.is_struct(kind):
        return f"struct<{','.join(f'{name}:{named}' for name, named in inner)}>"
    return f"{'map' if types.is_map(kind) else 'array'}<{','.join(named for _, named in inner)}>"


def _named(leaf: Any) -> str | None:
    """Return Spark's type of a leaf; None if Spark does not read it."""
    about = json.loads(leaf.logical_type.to_json())
    match about["Type"]:
        case "Int":
            size = about["bitWidth"], about["isSigned"]
            return _WHOLE.get(size) or _UNSIGNED.get(size)
        case "Decimal":
            return f"decimal({leaf.precision},{leaf.scale})" if leaf.precision <= _MOST_DIGITS else None
        case "Timestamp":
            return "timestamp" if about["isAdjustedToUTC"] else "timestamp_ntz"
        case "Time":
            micros = about["timeUnit"] == "microseconds" and not about["isAdjustedToUTC"]
            return "time(6)" if micros else None
        case "Null":
            return _PLAIN.get((leaf.physical_type, "None"))
        case name:
            return _PLAIN.get((leaf.physical_type, name))


def refuse_fractions(path: InputFile) -> None:
    """Raise if a file has times of 96 bits with a fraction below a microsecond, which Spark would cut.

    Spark itself writes none. The two numbers that are compared may have overflowed by the same amount, so their
    difference is right.
    """
    footer = metadata_of(path)
    paths = [leaf.path for leaf in leaves_of(footer) if leaf.physical_type == "INT96"]
    if not paths or _WRITTEN_BY in (footer.metadata or {}):
        return
    files = [pq.ParquetFile(arrow_source(path), coerce_int96_timestamp_unit=unit) for unit in ("us", "ns")]
    row = 0
    for micros, nanos in zip(*(file.iter_batches(_ROWS_AT_ONCE, columns=paths) for file in files), strict=True):
        for name in micros.schema.names:
            nested = types.is_nested(micros.column(name).type)
            for one, other in zip(*(_instants(rows.column(name)) for rows in (micros, nanos)), strict=True):
                if (fractions := _numbers(other) - _numbers(one) * 1000).any():
                    raise too_fine(path, None if nested else row + int(fractions.argmax()), name)
        row += len(micros)


def _instants(values: pa.Array) -> Iterator[pa.Array]:
    if types.is_timestamp(values.type):
        yield values
    elif types.is_struct(values.type):
        for inner in values.flatten():
            yield from _instants(inner)
    elif types.is_map(values.type):
        yield from _instants(values.keys)
        yield from _instants(values.items)
    else:
        yield from _instants(values.values)


def _numbers(times: pa.Array) -> np.ndarray:
    numbers: np.ndarray = times.view(pa.int64()).fill_null(0).to_numpy()
    return numbers


def first_fraction(times: pa.Array) -> int | None:
    """Return the index of the first time in nanoseconds that is no whole microsecond; None if all are."""
    fractions = _numbers(times) % 1000
    return int((fractions != 0).argmax()) if fractions.any() else None


def too_fine(path: str | InputFile, row: int | None, name: str) -> DataError:
    """Return the error of a time with a fraction below a microsecond, with its row if it is known."""
    place = "" if row is None else f"row {row + 1}: "
    what = f"column {name} has a time with a fraction below a microsecond, which no TIMESTAMP holds"
    return DataError("BAD_ROW", f"{path}: {place}{what}; {MICROSECONDS}, under a new name")


class Times96:
    """Columns of times of 96 bits in some row groups: a day in 32 bits and nanoseconds in 64 bits, both signed.

    Arrow ignores both signs. Spark writes negative days for years before -4712.
    """

    def __init__(self, path: InputFile, groups: list[int], names: list[str], rows: int) -> None:
        self._path, self._groups, self._names, self._rows = path, groups, names, rows
        self._millis = self._read("ms") if names else iter(())

    def _read(self, unit: str) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(arrow_source(self._path), coerce_int96_timestamp_unit=unit) as file:
            options = {"row_groups": self._groups, "columns": self._names, "use_threads": False}
            yield from file.iter_batches(self._rows, **options)

    def as_spark_has_them(self, number: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Correct the next batch, with its number, which Arrow has read in microseconds."""
        millis = next(self._millis)  # milliseconds do not overflow
        for name in self._names:
            far = _numbers(millis.column(name)) >= _FAR_MILLIS
            if not far.any():
                continue
            nanos = next(islice(self._read("ns"), number, None))
            at = rows.schema.get_field_index(name)
            values = rows.column(at)
            micros = _numbers(values)
            fractions = _numbers(nanos.column(name)) - micros * 1000
            below = fractions == 2**64 % 1000  # a day before the epoch of the format
            signs = np.where(far, np.uint64(_TURN_MICROS % 2**64), np.uint64(0))
            signs += np.where(far & below, np.uint64(2**64 // 1000), np.uint64(0))
            moved = (micros.view(np.uint64) - signs).view(np.int64)
            made = pa.array(moved, mask=values.is_null().to_numpy(zero_copy_only=False))
            rows = rows.set_column(at, name, made.cast(values.type))
        return rows
