"""Large files of Parquet in ranges of row groups: every row once, as Spark's own reader has it."""

from __future__ import annotations

import datetime as dt
import logging
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boatlift.connectors import files
from boatlift.connectors.files.formats.parquet import ParquetFormat
from boatlift.connectors.files.formats.parquet_rows import begins_of
from boatlift.connectors.files.ranges import footer_of
from boatlift.connectors.files.source import FilesSource
from boatlift.dataflow import Json
from boatlift.errors import DataError
from connectors.conformance import ordered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY, NOON = dt.date(1969, 12, 31), dt.datetime(1969, 12, 31, 12, 0, 0, 123456)  # noqa: DTZ001
UTC = dt.UTC
COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [True, False]),
    "tiny": (pa.int8(), [-128, 127]),
    "small": (pa.int16(), [-(2**15), 2**15 - 1]),
    "whole": (pa.int32(), [-(2**31), 2**31 - 1]),
    "large": (pa.int64(), [-(2**63), 2**63 - 1]),
    "utiny": (pa.uint8(), [0, 255]),
    "usmall": (pa.uint16(), [0, 2**16 - 1]),
    "uwhole": (pa.uint32(), [0, 2**32 - 1]),
    "ularge": (pa.uint64(), [0, 2**64 - 1]),
    "single": (pa.float32(), [float("-inf"), 0.1]),
    "double": (pa.float64(), [-0.0, float("nan")]),
    "text": (pa.string(), ["", "ä\u0000b"]),
    "long text": (pa.large_string(), ["x" * 1000, "y"]),
    "bytes": (pa.binary(), [b"", b"\xff\x00"]),
    "day": (pa.date32(), [DAY, dt.date(9999, 12, 31)]),
    "price": (pa.decimal128(7, 2), [Decimal("-99999.99"), Decimal("0.01")]),
    "sum": (pa.decimal128(15, 3), [Decimal("-999999999999.999"), Decimal("0.001")]),
    "great": (pa.decimal128(38, 9), [Decimal("-12345678901234567890.123456789"), Decimal(0)]),
    "at": (pa.timestamp("us", "UTC"), [NOON.replace(tzinfo=UTC), dt.datetime(2400, 1, 1, tzinfo=UTC)]),
    "at ms": (pa.timestamp("ms", "Europe/Berlin"), [dt.datetime(2024, 3, 31, 1, tzinfo=UTC)] * 2),
    "local": (pa.timestamp("us"), [NOON, dt.datetime(2400, 1, 1)]),  # noqa: DTZ001
    "local ms": (pa.timestamp("ms"), [dt.datetime(2024, 3, 31, 2, 30)] * 2),  # noqa: DTZ001
}


def table_of_all_types(rows: int = 40) -> pa.Table:
    draw = random.Random(1)
    return pa.table(
        {
            name: pa.array([draw.choice([*values, None]) for _ in range(rows)], kind)
            for name, (kind, values) in COLUMNS.items()
        }
    )


def write(path: Path, table: pa.Table, group: int = 9, **options: Any) -> Path:
    pq.write_table(table, path, row_group_size=group, **options)
    return path


def steps(source: FilesSource) -> tuple[list[Json], Json]:
    positions, cursor = [], source.start()
    while (position := source.next(cursor)) is not None:
        positions.append(position)
        cursor = source.advance(cursor, position)
    return positions, cursor


@pytest.mark.spark
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"compression": "zstd", "use_dictionary": False},
        {"version": "1.0"},
        {"store_schema": False},
        {"use_deprecated_int96_timestamps": True},
    ],
    ids=["plain", "zstd", "version 1", "no Arrow schema", "INT96"],
)
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_ranges_have_the_rows_that_spark_reads(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any], zone: str
) -> None:
    table = table_of_all_types()
    if options.get("version") == "1.0":  # which has no unsigned 32 bits
        table = table.drop_columns(["uwhole"])
    path = write(tmp_path / "a.parquet", table, **options)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        whole = files(tmp_path, format="parquet")
        (position,), _ = steps(whole)
        expected = whole.load(spark, position)
        source = files(tmp_path, format="parquet", max_bytes_per_step=path.stat().st_size // 3)
        positions, _ = steps(source)
        assert len(positions) > 2
        found = source.load(spark, positions[0])
        for each in positions[1:]:
            found = found.union(source.load(spark, each))
        assert found.schema == expected.schema
        columns = [f"CAST({name} AS STRING)" for name in ("`at`", "`at ms`", "local", "`local ms`")]
        both = [
            ordered(map(tuple, map(repr_of_row, rows.selectExpr("*", *columns).collect())))
            for rows in (found, expected)
        ]
        assert both[0] == both[1]
        assert len(both[0]) == 40
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def repr_of_row(row: Any) -> tuple[str, ...]:
    return tuple(map(repr, row))  # NaN is NaN, and 0.0 is not -0.0


@pytest.mark.spark
def test_what_spark_wrote_is_taken_in_ranges(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get("parquet.block.size", None)
    spark.conf.set("parquet.block.size", "20000")
    try:
        rows = spark.range(20_000).selectExpr(
            "id",
            "sha1(CAST(id AS STRING)) AS text",
            "timestamp_seconds(id * 1000) AS at",
            "date_from_unix_date(id) AS day",
        )
        rows.coalesce(1).write.parquet(str(tmp_path / "out"))
    finally:
        spark.conf.unset("parquet.block.size") if before is None else spark.conf.set("parquet.block.size", before)
    (path,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_metadata(path).num_row_groups > 3
    source = files(tmp_path / "out", format="parquet", max_bytes_per_step=path.stat().st_size // 3)
    positions, _ = steps(source)
    assert len(positions) > 2
    found = [row for position in positions for row in source.load(spark, position).collect()]
    assert [row["_position"] for row in found] == list(range(20_000))
    assert [tuple(row)[:4] for row in found] == [tuple(row) for row in rows.collect()]


@pytest.mark.spark
def test_positions_are_those_of_the_whole_file(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": list(range(100))}), group=7)
    source = files(tmp_path, format="parquet", max_bytes_per_step=300)
    positions, cursor = steps(source)
    assert len(positions) > 3
    rows = source.load_together(spark, positions).collect()
    assert [(row["id"], row["_position"]) for row in rows] == [(n, n) for n in range(100)]
    assert [row["_ordinal"] for row in rows] == sorted(row["_ordinal"] for row in rows)
    assert {row["_ordinal"] for row in rows} == set(range(len(positions)))
    part = source.advance(source.start(), positions[0])
    assert set(part["part"]) == {"path", "end", "of", "footer"}
    assert source.load_everything(spark, part).count() == source.load(spark, positions[0]).count()
    assert source.load_everything(spark, cursor).count() == 100


@pytest.mark.spark
def test_a_row_group_of_many_batches_has_one_position_a_row(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": list(range(150_000))}), group=140_000)
    source = files(tmp_path, format="parquet", max_bytes_per_step=path.stat().st_size // 2)
    positions, _ = steps(source)
    assert [source.load(spark, each).where("id = _position").count() for each in positions] == [140_000, 10_000]


def test_a_range_is_as_many_row_groups_as_fit_and_one_at_least(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": list(range(100))}), group=7)
    begins, size = begins_of(pq.read_metadata(path)), path.stat().st_size
    groups = ParquetFormat(positioned=True)
    for most in (1, begins[1] - 4, begins[1] - 3, begins[3] - 4, begins[3] - 5, size):
        begin, ends = begins[0], []
        while begin < size:
            found = groups.next_range(path, begin, most)
            assert found is not None
            assert found["of"] == size
            ends.append(found["end"])
            longer = [end for end in (*begins, size) if found["end"] < end <= begin + most]
            assert not longer, "as many as fit"
            assert found["end"] - begin <= most or not [each for each in begins if begin < each < found["end"]]
            begin = found["end"]
        assert set(ends) <= {*begins, size}


def nothing(table: pa.Table) -> pa.Table:
    return table


def of_the_old_calendar(rows: pa.Table) -> pa.Table:
    with_days = rows.append_column("day", pa.array([0] * len(rows), pa.date32()))
    return with_days.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})


@pytest.mark.parametrize(
    ("made", "options", "said"),
    [
        (nothing, {"group": 1000}, "one row group"),
        (lambda t: t.append_column("list", pa.array([[1]] * len(t))), {}, "column list has the type list"),
        (lambda t: t.append_column("at", pa.array([0] * len(t), pa.time64("us"))), {}, "column at has the type"),
        (of_the_old_calendar, {}, "of an old calendar"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_divided_is_taken_whole_with_one_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    made: Callable[[pa.Table], pa.Table],
    options: dict[str, Any],
    said: str,
) -> None:
    table = made(pa.table({"id": list(range(100))}))
    for name in ("a", "b"):
        write(tmp_path / f"{name}.parquet", table, **options)
    with caplog.at_level(logging.WARNING):
        positions, _ = steps(files(tmp_path, format="parquet", max_bytes_per_step=100))
    assert [[("size" in file) for file in position["files"]] for position in positions] == [[True], [True]]
    (record,) = caplog.records
    assert said in record.getMessage()


def test_a_file_that_changes_between_ranges_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": list(range(100))}), group=7)
    source = files(tmp_path, format="parquet", max_bytes_per_step=300)
    position = source.next(source.start())
    assert position is not None
    cursor = source.advance(source.start(), position)
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[-20] ^= 1
    for content, said in ((whole + b"x", "bytes, but had"), (bytes(flipped), "has another footer")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=rf"\[INPUT_CHANGED\].*{said}"):
            source.next(cursor)
        with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
            source.verify(position)
        with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
            source.verify_everything(cursor)
    path.unlink()
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\]"):
        source.next(cursor)
    path.write_bytes(whole)
    source.verify_everything(cursor)
    assert source.next(cursor) is not None


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"x" * 1000)
    source = files(tmp_path, format="parquet", schema="id BIGINT", max_bytes_per_step=100)
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*not a whole Parquet file"):
        source.next(source.start())


def test_the_footer_is_what_says_where_rows_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"id": list(range(100))}), group=7)
    content, digest = bytearray(path.read_bytes()), footer_of(path)
    length = int.from_bytes(content[-8:-4], "little")
    for place, changes in ((len(content) - 8 - length, True), (len(content) - 9 - length, False), (5, False)):
        content[place] ^= 1
        path.write_bytes(content)
        assert (footer_of(path) != digest) == changes
        content[place] ^= 1


@pytest.mark.spark
def test_a_row_group_that_is_damaged_inside_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", pa.table({"text": [f"text {n}" * 9 for n in range(100)]}), group=30)
    begins = begins_of(pq.read_metadata(path))
    content = bytearray(path.read_bytes())
    content[begins[1] : begins[1] + 30] = b"\xff" * 30
    path.write_bytes(content)
    source = files(tmp_path, format="parquet", max_bytes_per_step=path.stat().st_size // 3)
    positions, _ = steps(source)
    with pytest.raises(Exception, match=r"\[BAD_ROW\].*a\.parquet cannot be read as Parquet"):
        [source.load(spark, position).collect() for position in positions]
