"""Files of Parquet that a task reads by itself: the rows are Spark's, or Spark reads the file."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

import boatlift as bl
from boatlift.connectors.files.formats import parquet_rows
from boatlift.connectors.files.formats.parquet_rows import ReadParquet
from boatlift.connectors.kit import struct_of
from boatlift.errors import DataError
from boatlift.tasks.parameters import JobParameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAN, ZERO = float("nan"), -0.0
NTZ = [datetime(1, 1, 1), datetime(2026, 3, 29, 2, 30), None]  # noqa: DTZ001 - without a time zone
PLAIN: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "flag": ("BOOLEAN", pa.bool_(), [True, None, False]),
    "tiny": ("TINYINT", pa.int8(), [-128, 127, None]),
    "small": ("SMALLINT", pa.int16(), [-32768, None, 32767]),
    "whole": ("INT", pa.int32(), [None, -(2**31), 2**31 - 1]),
    "large": ("BIGINT", pa.int64(), [-(2**63), 2**63 - 1, None]),
    "single": ("FLOAT", pa.float32(), [NAN, ZERO, float("-inf")]),
    "double": ("DOUBLE", pa.float64(), [ZERO, NAN, 5e-324]),
    "text": ("STRING", pa.string(), ["", None, "ü\0\U0001f600"]),
    "bytes": ("BINARY", pa.binary(), [b"", b"\xff\0", None]),
    "short": ("DECIMAL(9, 2)", pa.decimal128(9, 2), [Decimal("-1.25"), None, Decimal("9999999.99")]),
    "long": ("DECIMAL(38, 10)", pa.decimal128(38, 10), [Decimal("1E-10"), Decimal("-1E27"), None]),
    "day": ("DATE", pa.date32(), [date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31)]),
    "at": ("TIMESTAMP", pa.timestamp("us", "UTC"), [datetime(1500, 1, 1, tzinfo=UTC), None, datetime.now(UTC)]),
    "local": ("TIMESTAMP_NTZ", pa.timestamp("us"), NTZ),
}
"""Column to its declared type, its type in Arrow, and values; the days are on both sides of the calendar's change."""


def table(**replaced: pa.Array) -> pa.Table:
    columns = {name: pa.array(values, kind) for name, (_, kind, values) in PLAIN.items()}
    return pa.table(dict(reversed((columns | replaced).items())))


def schema_of(*names: str) -> str:
    return ", ".join(f"{name} {PLAIN[name][0]}" for name in names or PLAIN)


def both_ways(spark: SparkSession, source: Any) -> tuple[DataFrame, list[Any] | None]:
    """Return the rows of a source's first step as Spark reads them, and as a task does; None if it does not."""
    position = source.next(source.start())
    assert position is not None
    frame = source.capabilities.parameterized_read.load_parameterized(spark)
    parameters = source.capabilities.parameterized_read.parameters_for(position, "")
    if parameters is None:
        return source.load(spark, position), None
    with JobParameters(0, 0, source=parameters).to_tasks(spark.sparkContext):
        return source.load(spark, position), [exact(row) for row in frame.collect()]


def exact(row: Any) -> list[Any]:
    """Return values of which two are equal only if they are the same: NaN too, and the sign of a zero."""
    return [(float.hex(value) if isinstance(value, float) else value) for value in row]


def test_rows_of_every_plain_type_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """Several files of several row groups, whose columns have another order than the declared ones."""
    for number in range(3):
        pq.write_table(table().slice(number % 2), tmp_path / f"{number}.parquet", row_group_size=2)
    source = bl.files(tmp_path, format="parquet", schema=schema_of(), max_files_per_step=3)
    rows, told = both_ways(spark, source)
    assert told == sorted((exact(row) for row in rows.collect()), key=lambda row: row[-1])
    assert [row[-1] >> 40 for row in told] == [0, 0, 0, 1, 1, 2, 2, 2], "the place of the file is in the position"


def dictionary(kind: pa.DataType, values: list[Any]) -> pa.Array:
    return pa.array(values, kind).dictionary_encode()


@pytest.mark.parametrize(
    ("column", "kind", "array"),
    [
        ("text", "STRING", lambda: pa.array(["a", None, "b"], pa.large_string())),
        ("bytes", "BINARY", lambda: pa.array([b"a", None, b"b"], pa.large_binary())),
        ("small", "SMALLINT", lambda: pa.array([1, None, 255], pa.uint8())),
        ("large", "DECIMAL(20, 0)", lambda: pa.array([1, None, 2**64 - 1], pa.uint64())),
        ("local", "TIMESTAMP_NTZ", lambda: pa.array([1, None, -1], pa.timestamp("ms"))),
        ("at", "TIMESTAMP", lambda: pa.array([1, None, -1], pa.timestamp("ms", "Europe/Paris"))),
    ],
    ids=["large text", "large bytes", "unsigned", "unsigned 64", "milliseconds", "of a zone"],
)
def test_a_column_of_a_like_type_has_the_values_of_spark(
    spark: SparkSession, tmp_path: Path, column: str, kind: str, array: Callable[[], pa.Array]
) -> None:
    pq.write_table(pa.table({column: array()}), tmp_path / "0.parquet")
    rows, told = both_ways(spark, bl.files(tmp_path, format="parquet", schema=f"{column} {kind}"))
    assert told == [exact(row) for row in rows.collect()]
    assert len(told) == 3


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("text", lambda: pa.array(["a", None, "b"], pa.string()).dictionary_encode()),
        ("items", lambda: pa.array([[1], None, []], pa.list_(pa.int64()))),
    ],
    ids=["dictionary", "nested"],
)
def test_a_column_of_another_type_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, column: str, array: Callable[[], pa.Array]
) -> None:
    pq.write_table(pa.table({column: array()}), tmp_path / "0.parquet")
    kind = "ARRAY<BIGINT>" if column == "items" else "STRING"
    rows, told = both_ways(spark, bl.files(tmp_path, format="parquet", schema=f"{column} {kind}"))
    assert told is None
    assert rows.count() == 3


@pytest.mark.parametrize(
    "about",
    [
        {"org.apache.spark.version": "2.4.8"},
        {"org.apache.spark.legacyDateTime": ""},
        {"org.apache.spark.legacyINT96": ""},
    ],
)
def test_a_file_of_the_old_calendar_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, about: dict[str, str]
) -> None:
    pq.write_table(table().select(["day"]).replace_schema_metadata(about), tmp_path / "0.parquet")
    rows, told = both_ways(spark, bl.files(tmp_path, format="parquet", schema=schema_of("day")))
    assert told is None
    assert rows.count() == 3


@pytest.mark.parametrize(("version", "is_told"), [("3.0.1", False), ("3.1.0", True)])
def test_times_of_96_bits_of_spark_3_0_are_left_to_spark(
    spark: SparkSession, tmp_path: Path, version: str, is_told: bool
) -> None:
    """It wrote them by the old calendar, and no key of the footer says so."""
    old = table().select(["at"]).replace_schema_metadata({"org.apache.spark.version": version})
    pq.write_table(old, tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    rows, told = both_ways(spark, bl.files(tmp_path, format="parquet", schema=schema_of("at")))
    assert (told is not None) == is_told
    assert told is None or told == [exact(row) for row in rows.collect()]


def test_a_session_that_converts_times_of_96_bits_reads_them_itself(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table().select(["at"]), tmp_path / "0.parquet", use_deprecated_int96_timestamps=True)
    setting = "spark.sql.parquet.int96TimestampConversion"
    spark.conf.set(setting, "true")
    try:
        assert both_ways(spark, bl.files(tmp_path, format="parquet", schema=schema_of("at")))[1] is None
    finally:
        spark.conf.unset(setting)


def test_a_file_of_sparks_own_is_read_by_a_task(spark: SparkSession, tmp_path: Path) -> None:
    pq.write_table(table(), tmp_path / "raw.parquet")
    names = list(PLAIN)
    spark.read.schema(schema_of(*names)).parquet(str(tmp_path / "raw.parquet")).coalesce(1).write.parquet(
        str(tmp_path / "in")
    )
    rows, told = both_ways(spark, bl.files(tmp_path / "in" / "*.parquet", schema=schema_of(*names)))
    assert told == [exact(row) for row in rows.collect()]
    (file,) = (tmp_path / "in").glob("*.parquet")
    assert "int96" in str(pq.ParquetFile(file).schema), "as Spark writes times by default"


@pytest.mark.parametrize(
    ("schema", "column"),
    [("whole INT", pa.repeat(7, 300_000).cast(pa.int32())), ("text STRING", pa.repeat("x" * 1000, 20_000))],
    ids=["many rows", "many bytes"],
)
def test_a_file_that_is_small_by_compression_alone_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, schema: str, column: pa.Array
) -> None:
    many = pa.table({schema.split(maxsplit=1)[0]: column})
    pq.write_table(many, tmp_path / "0.parquet", use_dictionary=False, compression="zstd")
    assert (tmp_path / "0.parquet").stat().st_size < 40_000
    rows, told = both_ways(spark, bl.files(tmp_path, format="parquet", schema=schema))
    assert told is None
    assert rows.count() == len(column)


def test_all_files_of_a_step_count(spark: SparkSession, tmp_path: Path) -> None:
    for name in "ab":
        pq.write_table(pa.table({"whole": pa.repeat(7, 200_000).cast(pa.int32())}), tmp_path / f"{name}.parquet")
    for files, is_told in ((1, True), (2, False)):
        source = bl.files(tmp_path, format="parquet", schema="whole INT", max_files_per_step=files)
        rows, told = both_ways(spark, source)
        assert (told is not None, rows.count()) == (is_told, files * 200_000)


@pytest.mark.parametrize(("kind", "column"), [("datetime", "day"), ("int96", "at")])
def test_a_session_that_shifts_old_days_reads_files_of_unknown_origin_itself(
    spark: SparkSession, tmp_path: Path, kind: str, column: str
) -> None:
    old = table().select([column, "whole"])
    pq.write_table(old, tmp_path / "0.parquet", use_deprecated_int96_timestamps=kind == "int96")
    setting = f"spark.sql.parquet.{kind}RebaseModeInRead"
    source = bl.files(tmp_path, format="parquet", schema=schema_of("whole", column))
    before, unshifted = spark.conf.get(setting), both_ways(spark, source)[1]
    spark.conf.set(setting, "LEGACY")
    try:
        rows, told = both_ways(spark, source)
        assert told is None
        assert [exact(row) for row in rows.collect()] != unshifted, "Spark shifts it"
    finally:
        spark.conf.set(setting, before)


def test_a_file_that_is_gone_or_broken_is_named(tmp_path: Path) -> None:
    from boatlift.connectors.files.lines import Span

    pq.write_table(table(), path := tmp_path / "0.parquet", compression="none")
    columns = to_arrow_schema(struct_of(schema_of()), timezone="UTC")
    read = ReadParquet("the files", columns, positioned=False, ordinals=False, tasks=None)
    span = Span(str(path), "0.parquet", 0, None, 0)
    assert sum(batch.num_rows for batch in read.read(span)) == 3
    pq.write_table(table().select(["day"]), path)
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\] \S+0.parquet lacks \['at', 'bytes', "):
        list(read.read(span))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"\[BAD_ROW\] \S+0.parquet cannot be read as Parquet"):
        list(read.read(span))
    path.unlink()
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\] \S+0.parquet is gone"):
        list(read.read(span))


def test_the_parameters_of_a_position_are_found_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    footer = parquet_rows.metadata_of
    for number in range(2):
        pq.write_table(table(), tmp_path / f"{number}.parquet")
    source = bl.files(tmp_path, format="parquet", schema=schema_of(), max_files_per_step=1)
    read = source.capabilities.parameterized_read
    read.load_parameterized(spark)
    first = source.next(source.start())
    second = source.next(source.advance(source.start(), first))
    monkeypatch.setattr(parquet_rows, "metadata_of", lambda path: asked.append(path) or footer(path))
    both = [read.parameters_for(first, ""), read.parameters_for(second, "")]
    assert None not in both
    assert both[0] != both[1]
    assert len(asked) == 2
    assert [read.parameters_for(second, ""), read.parameters_for(dict(second), "")] == both[1:] * 2
    assert len(asked) == 2
    assert read.parameters_for(first, "") == both[0]
