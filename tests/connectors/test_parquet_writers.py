"""Parquet of pandas, Polars, DuckDB, PyArrow and Spark: both readers give Spark's rows, or the same condition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.errors import BoatliftError
from boatlift.tasks.parameters import JobParameters

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MOMENT = dt.datetime(2024, 2, 29, 1, 2, 3, 456789, tzinfo=dt.UTC)
MICROS = int(MOMENT.timestamp()) * 10**6 + 456789
LOCAL = MOMENT.replace(tzinfo=None)

TYPES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None]),
    "int8": (pa.int8(), [-128, None]),
    "int16": (pa.int16(), [-32768, None]),
    "int32": (pa.int32(), [-(2**31), None]),
    "int64": (pa.int64(), [-(2**63), None]),
    "uint8": (pa.uint8(), [255, None]),
    "uint16": (pa.uint16(), [2**16 - 1, None]),
    "uint32": (pa.uint32(), [2**32 - 1, None]),
    "uint64": (pa.uint64(), [2**64 - 1, None]),
    "float": (pa.float32(), [float("nan"), None]),
    "double": (pa.float64(), [-0.0, None]),
    "string": (pa.string(), ["ü\0", None]),
    "large string": (pa.large_string(), ["", None]),
    "string view": (pa.string_view(), ["a text of more than twelve bytes", None]),
    "json": (pa.json_(), ["{}", None]),
    "binary": (pa.binary(), [b"\xff", None]),
    "large binary": (pa.large_binary(), [b"", None]),
    "binary view": (pa.binary_view(), [b"\xff", None]),
    "fixed": (pa.binary(2), [b"ab", None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", None]),
    "decimal": (pa.decimal128(38, 2), [Decimal("-1.25"), None]),
    "decimal32": (pa.decimal32(5, 2), [Decimal("1.25"), None]),
    "decimal256": (pa.decimal256(38, 2), [Decimal("1.25"), None]),
    "date": (pa.date32(), [dt.date(1, 1, 1), None]),
    "date64": (pa.date64(), [dt.date(9999, 12, 31), None]),
    "seconds": (pa.timestamp("s", "UTC"), [1, None]),
    "milliseconds": (pa.timestamp("ms"), [1, None]),
    "microseconds": (pa.timestamp("us", "Europe/Paris"), [-1, None]),
    "duration": (pa.duration("us"), [1, None]),
    "null": (pa.null(), [None, None]),
    "list": (pa.list_(pa.int32()), [[1, None], None]),
    "large list": (pa.large_list(pa.string()), [[], None]),
    "fixed list": (pa.list_(pa.int32(), 2), [[1, 2], None]),
    "struct": (pa.struct({"a": pa.int32(), "b": pa.string_view()}), [{"a": None, "b": "x"}, None]),
    "map": (pa.map_(pa.string(), pa.uint8()), [[("a", 1)], None]),
    "map of lists": (pa.map_(pa.string(), pa.list_(pa.struct({"a": pa.int8()}))), [[("a", [{"a": 1}])], None]),
}
"""Types that Spark reads, of PyArrow's own writer."""

PLAIN = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float", "double", "string"),
    *("large string", "binary", "large binary", "decimal", "date", "date64", "seconds", "milliseconds", "microseconds"),
]
"""Those that a task reads, too."""

CODECS = ("none", "snappy", "gzip", "zstd", "lz4")

ONLY_ARROW: dict[str, tuple[pa.DataType, list[Any], list[Any], dict[str, Any]]] = {
    "nanoseconds": (pa.timestamp("ns", "UTC"), [MICROS * 1000, None], [LOCAL, None], {}),
    "local nanoseconds": (pa.timestamp("ns"), [-1000, None], [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), None], {}),  # noqa: DTZ001
    "brotli": (pa.int64(), [1, None], [1, None], {"compression": "brotli"}),
}
"""What Spark does not read: how Arrow writes it, and what both readers give."""

REFUSED: dict[str, tuple[Callable[[], pa.Table], dict[str, Any], str]] = {
    "half": (lambda: _of(pa.float16(), [1.5]), {}, r"\[BAD_HEADER\] .* column c, FIXED_LEN_BYTE_ARRAY \(FLOAT16\)"),
    "uuid": (lambda: _of(pa.uuid(), [bytes(16)]), {}, r"\[BAD_HEADER\] .* column c, FIXED_LEN_BYTE_ARRAY \(UUID\)"),
    "time32": (lambda: _of(pa.time32("ms"), [1]), {}, r"\[BAD_HEADER\] .* column c, INT32 \(TIME\)"),
    "time64": (lambda: _of(pa.time64("ns"), [1000]), {}, r"\[BAD_HEADER\] .* column c, INT64 \(TIME\)"),
    "long decimal": (lambda: _of(pa.decimal256(50, 2), [Decimal(1)]), {}, r"\[BAD_HEADER\] .*\(DECIMAL\)"),
    "nanoseconds in a list": (
        lambda: _of(pa.list_(pa.timestamp("ns")), [[1000]]),
        {},
        r"\[BAD_HEADER\] .* nanoseconds in column c, and column c has the type list.*coerce_timestamps='us'",
    ),
    "no columns": (lambda: pa.table({"a": [1]}).select([]), {}, r"\[BAD_HEADER\] .* no columns"),
    "one name": (lambda: pa.table({"a": [1], "A": [2]}), {}, r"\[BAD_HEADER\] .* two columns of one name"),
    "a fraction": (
        lambda: _of(pa.timestamp("ns"), [1000, None, 1001]),
        {},
        r"\[BAD_ROW\] .*: row 3: column c has a time with a fraction below a microsecond",
    ),
    "a fraction of 96 bits": (
        lambda: _of(pa.timestamp("ns"), [None, 1000, 7]),
        {"use_deprecated_int96_timestamps": True},
        r"\[BAD_ROW\] .*: row 3: column c has a time with a fraction below a microsecond",
    ),
}


def _of(kind: pa.DataType, values: list[Any]) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


def read(spark: SparkSession, path: Path, schema: str | None = None) -> Iterator[list[list[Any]]]:
    """Yield the rows of a file as Spark's side of the source reads them, and as a task does, if it may."""
    source = bl.files(path, schema=schema)
    source.schema(spark)
    position = source.next(source.start())
    assert position is not None
    yield exact(source.load(spark, position).drop("_position").collect())
    tasks = source.capabilities.parameterized_read
    assert tasks is not None
    frame = tasks.load_parameterized(spark).drop("_position")
    if (parameters := tasks.parameters_for(position, "")) is not None:
        with JobParameters(0, 0, source=parameters).to_tasks(spark.sparkContext):
            yield exact(frame.collect())


def exact(rows: list[Any]) -> list[list[Any]]:
    return [[value.hex() if isinstance(value, float) else value for value in row] for row in rows]


def refusal(spark: SparkSession, path: Path) -> str:
    try:
        rows = list(read(spark, path))
    except BoatliftError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a job that fails: the engine takes the error out of its text
        return str(error)
    pytest.fail(f"{path.name} is read: {rows}")


@pytest.mark.parametrize("codec", CODECS)
def test_every_type_in_every_codec_has_the_rows_of_spark(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    """One type that is left to Spark leaves a file to Spark: so the other types are in a file of their own, too."""
    for file, names in (("all", list(TYPES)), ("plain", PLAIN)):
        columns = {name: pa.array(values, kind) for name, (kind, values) in TYPES.items() if name in names}
        pq.write_table(pa.table(columns), path := tmp_path / f"{file}.parquet", compression=codec)
        wanted = exact(spark.read.parquet(str(path)).collect())
        found = list(read(spark, path))
        assert found == [wanted] * (2 if file == "plain" else 1)


@pytest.mark.parametrize("name", ONLY_ARROW)
def test_what_spark_does_not_read_is_read_the_same_by_both(spark: SparkSession, tmp_path: Path, name: str) -> None:
    kind, values, wanted, options = ONLY_ARROW[name]
    path = tmp_path / "0.parquet"
    pq.write_table(_of(kind, values), path, row_group_size=1, **options)
    declared = {"brotli": "c BIGINT", "nanoseconds": "c TIMESTAMP"}.get(name, "c TIMESTAMP_NTZ")
    for schema in (None, declared):
        assert list(read(spark, path, schema)) == [[[value] for value in wanted]] * 2


def test_what_neither_reads_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    import re

    whole = b""
    for name, (table, options, wanted) in REFUSED.items():
        path = tmp_path / name.replace(" ", "_") / "0.parquet"
        path.parent.mkdir()
        pq.write_table(table(), path, **options)
        whole = path.read_bytes()
        assert re.search(wanted, refusal(spark, path)), refusal(spark, path)
    for content in (b"id,k\n1,2\n", whole[:-20], b"PAR1"):
        path.write_bytes(content)
        assert "[BAD_HEADER]" in refusal(spark, path)
        assert "is not a whole Parquet file" in refusal(spark, path)


def test_a_geometry_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow takes its type for that of plain bytes."""
    point = "X'0101000000000000000000F03F0000000000000040'"
    spark.sql(f"SELECT st_geomfromwkb({point}) AS c").coalesce(1).write.parquet(str(tmp_path / "out"))
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_schema(path).field("c").type == pa.binary()
    assert "[BAD_HEADER]" in refusal(spark, path)
    assert "column c, BYTE_ARRAY (GEOMETRY)" in refusal(spark, path)


def test_times_of_96_bits_before_the_first_day_are_sparks(spark: SparkSession, tmp_path: Path) -> None:
    """Arrow takes the number of such a day for that of a day far in the future."""
    moments = ", ".join(f"({number}, timestamp_micros({micros}))" for number, micros in enumerate((-(2**62), 0, 2**62)))
    rows = spark.sql(f"SELECT * FROM VALUES {moments}, (3, NULL) AS t(id, c)").coalesce(1)
    rows.write.parquet(str(tmp_path / "out"))
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert "int96" in str(pq.ParquetFile(path).schema)
    source = bl.files(path)
    source.schema(spark)
    position = source.next(source.start())
    tasks = source.capabilities.parameterized_read
    assert tasks is not None
    assert position is not None
    query = "id", "unix_micros(c)"
    frame = tasks.load_parameterized(spark).selectExpr(*query)
    parameters = tasks.parameters_for(position, "")
    assert parameters is not None
    with JobParameters(0, 0, source=parameters).to_tasks(spark.sparkContext):
        found = {tuple(row) for row in frame.collect()}
    assert found == {tuple(row) for row in source.load(spark, position).selectExpr(*query).collect()}
    assert found == {(0, -(2**62)), (1, 0), (2, 2**62), (3, None)}


def test_files_of_other_writers_are_read_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Pandas' default is nanoseconds."""
    moments = [MOMENT, None]
    frame = pd.DataFrame({"id": [1, 2], "at": pd.to_datetime(moments, utc=True), "s": ["a", None]}, index=[7, 8])
    frame.at_type = str(frame["at"].dtype)
    assert "ns" in frame.at_type
    frame.to_parquet(tmp_path / "pandas.parquet", index=False)
    frame.iloc[:2].set_index("s").reset_index()[["id", "at", "s"]].to_parquet(tmp_path / "again.parquet")
    for unit in ("us", "ns", "ms"):
        made = pl.DataFrame(
            {"id": [1, 2], "at": moments, "s": ["a", None]}, schema_overrides={"at": pl.Datetime(unit, "UTC")}
        )
        made.write_parquet(tmp_path / f"polars_{unit}.parquet", compression="brotli" if unit == "us" else "zstd")
    of_table = (
        f"SELECT * FROM (VALUES (1, TIMESTAMPTZ '{MOMENT.isoformat()}', 'a'), (2, NULL, NULL)) AS t(id, \"at\", s)"
    )
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for codec in ("zstd", "brotli", "lz4_raw"):
            made = f'SELECT id::BIGINT AS id, "at", s FROM ({of_table})'
            db.execute(f"COPY ({made}) TO '{tmp_path}/duck_{codec}.parquet' (FORMAT parquet, COMPRESSION {codec})")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 8
    for name in names:
        at = LOCAL.replace(microsecond=456000) if name == "polars_ms.parquet" else LOCAL
        for rows in read(spark, tmp_path / name, "id BIGINT, at TIMESTAMP, s STRING"):
            assert rows == [[1, at, "a"], [2, None, None]], name
