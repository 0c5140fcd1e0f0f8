"""Files in a bucket have the rows, the bad rows and the refusals of the same files in a folder."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.errors import BoatliftError, DataError, InvalidError
from boatlift.tasks.parameters import JobParameters
from boatlift.testing.object_server import ObjectServer
from connectors.conformance import ordered
from connectors.source_laws import drain
from connectors.test_parquet_rows import exact, schema_of, table
from connectors.test_text_files import COMPRESSED
from support.buckets import upload

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MANY = "".join(f"{number},{number * number},text {number}\n" for number in range(300)).encode()
OBJECTS = "".join(json.dumps({"a": number, "b": -number, "c": "é" * (number % 9)}) + "\n" for number in range(300))
SCHEMA = "a INT, b INT, c STRING"
TYPES = "a BOOLEAN, b TINYINT, c SMALLINT, d BIGINT, e FLOAT, f DOUBLE, g DECIMAL(20, 4), h DATE, i TIMESTAMP, j STRING"
ROW = "true,-128,32767,9223372036854775807,1.5,-0.0,12345.6789,2026-03-29,2026-03-29T02:30:00Z,ü\n,,,,NaN,5e-324,,,,\n"

TEXTS: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "csv": ("x.csv", b"a,b,c\n" + MANY, {}),
    "every type": ("x.csv", ROW.encode(), {"schema": TYPES, "header": False}),
    "a mark and CR LF": ("x.csv", b"\xef\xbb\xbfa,b,c\r\n1,2,x\r\n\r\n3,4,\r\n", {}),
    "CR alone": ("x.csv", b"a,b,c\r1,2,x\r3,4,y\r", {}),
    "quotes": ("x.csv", b'a,b,c\n1,2,"x,\\"y\\""\n3,,""\n', {}),
    "quotes doubled": ("x.csv", b'a,b,c\n1,2,"x,""y"""\n', {"escape": '"'}),
    "no quotes": ("x.csv", b'a;b;c\n1;2;"x\n', {"separator": ";", "quote": None}),
    "tabs": ("x.csv", b"a\tb\tc\n1\t2\tx y\n3\t\t\n\t\t\n", {"separator": "\t"}),
    "latin": ("x.csv", "a,b,c\n1,2,süß\n".encode("latin-1"), {"encoding": "iso-8859-1"}),
    "of another encoding": ("x.csv", "a,b,c\n1,2,süß\n".encode("latin-1"), {}),
    "forms": ("x.csv", b"a;b;c\n1.234;2;ja\n", {"separator": ";", "thousands": ".", "decimal": ","}),
    "a word for NULL": ("x.csv", b"a,b,c\n1,-,-\n", {"null_value": "-"}),
    "no line end": ("x.csv", b"a,b,c\n1,2,x\n3,4,y", {}),
    "csv in ranges": ("x.csv", b"\xef\xbb\xbfa,b,c\n" + MANY, {"max_bytes_per_step": 700}),
    "json": ("x.jsonl", OBJECTS.encode(), {}),
    "json in ranges": ("x.jsonl", OBJECTS.encode(), {"max_bytes_per_step": 900}),
    "nested json": (
        "x.json",
        b'{"a": [1, null], "b": {"k": 2.5, "l": {"x": [true]}}, "c": {"m": "n"}}\n\n{"a": []}\n',
        {"schema": "a ARRAY<INT>, b STRUCT<k: DOUBLE, l: MAP<STRING, ARRAY<BOOLEAN>>>, c MAP<STRING, STRING>"},
    ),
    "an array": ("x.json", b'[{"a": 1, "b": 2, "c": "x"},\n {"a": 3, "b": 4}]\n', {"multi_line": True}),
    **{f"csv{end}": (f"x.csv{end}", pack(b"a,b,c\n" + MANY), {}) for end, pack in COMPRESSED.items()},
    **{f"json{end}": (f"x.json{end}", pack(OBJECTS.encode()), {}) for end, pack in COMPRESSED.items()},
}

BAD: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "a value": ("x.csv", b"a,b,c\n1,2,x\n3,y,z\n", {}),
    "fields": ("x.csv", b"a,b,c\n1,2,x\n3,4\n", {}),
    "a NULL": ("x.csv", b"a,b,c\n1,2,x\n,2,x\n", {"schema": "a INT NOT NULL, b INT, c STRING"}),
    "a long line": ("x.csv", b"a,b,c\n1,2," + b"x" * 100 + b"\n", {"max_line_bytes": 50}),
    "a long line of many": ("x.csv", b"a,b,c\n" + MANY + b"1,2," + b"x" * 70_000 + b"\n", {"max_line_bytes": 100}),
    "packed": ("x.csv.gz", COMPRESSED[".gz"](b"a,b,c\n1,2,x\n3,y,z\n"), {}),
    "a range": ("x.csv", b"a,b,c\n" + MANY + b"3,y,z\n", {"max_bytes_per_step": 3000}),
    "json": ("x.jsonl", b'{"a": 1}\n{"a": "x"}\n', {}),
    "no json": ("x.jsonl", b'{"a": 1}\n{"a": 1} junk\n', {}),
    "an array": ("x.json", b'[{"a": 1},\n {"a": "x"}]\n', {"multi_line": True}),
    "tabs": ("x.csv", b"a\tb\tc\n1\t2\tx y\n3\ty\t\n", {"separator": "\t"}),
}

REFUSED: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "another header": ("x.csv", b"a,b,d\n1,2,x\n", {}),
    "no header": ("x.csv", b"\n\n", {}),
    "no bytes": ("x.csv", b"", {}),
    "a codec": ("x.csv.xz", b"a,b,c\n1,2,x\n", {"format": "csv"}),
    "a colon": ("a:b.csv", b"a,b,c\n1,2,x\n", {}),
    "a damaged archive": ("x.csv.gz", b"\x1f\x8b\x08\x00", {}),
    "a value that is too large": ("x.json", b"[" + b" " * 100 + b"]", {"multi_line": True, "max_line_bytes": 50}),
    "no Parquet": ("x.parquet", b"PAR1 but not really", {}),
    "other columns": ("x.parquet", b"", {}),
}


@pytest.fixture
def both(objects_for_tasks: ObjectServer, tmp_path: Path) -> tuple[Path, str]:
    """A folder, and the URL under which `upload` puts its files."""
    folder = tmp_path / "in"
    folder.mkdir()
    return folder, objects_for_tasks.url(tmp_path.name)


def sources(both: tuple[Path, str], name: str, options: dict[str, Any]) -> list[Any]:
    """Return the sources of the folder and of the bucket."""
    folder, url = both
    upload(folder, url.removeprefix("s3://boatlift/"))
    suffix = "".join(Path(name).suffixes)
    kind = {} if ".parquet" in name else {"schema": SCHEMA}
    return [bl.files(f"{place}/*{suffix}", **{**kind, **options}) for place in (folder, url)]


def rows_of(spark: SparkSession, source: Any) -> tuple[list[list[Any]], list[Any]]:
    """Return the rows of each step, and of the first one as a cached plan reads them, if it does."""
    positions, _ = drain(source, source.start())
    rows = [ordered(exact(row) for row in source.load(spark, position).collect()) for position in positions]
    read = source.capabilities.parameterized_read
    if read is None:
        return rows, rows[0]
    frame = read.load_parameterized(spark)
    if (parameters := read.parameters_for(positions[0], "")) is None:
        return rows, rows[0]
    with JobParameters(0, 0, source=parameters).to_tasks(spark.sparkContext):
        return rows, ordered(exact(row) for row in frame.collect())


@pytest.mark.parametrize("kind", TEXTS)
def test_text_has_the_rows_of_local_files(spark: SparkSession, both: tuple[Path, str], kind: str) -> None:
    name, content, options = TEXTS[kind]
    (both[0] / name).write_bytes(content)
    if kind == "forms":
        options = {**options, "true_values": ["ja"], "schema": "a INT, b DOUBLE, c BOOLEAN"}
    local, remote = sources(both, name, options)
    expected, cached = rows_of(spark, local)
    found, found_by_plan = rows_of(spark, remote)
    assert (found, found_by_plan) == (expected, cached)
    assert found_by_plan == found[0]
    assert sum(map(len, found)) > 0


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_row_stops_a_step_with_the_words_of_local_files(
    spark: SparkSession, both: tuple[Path, str], kind: str
) -> None:
    name, content, options = BAD[kind]
    (both[0] / name).write_bytes(content)
    said = []
    for source, place in zip(sources(both, name, options), both, strict=True):
        positions, _ = drain(source, source.start())
        *fine, last = positions
        assert all(source.load(spark, position).collect() for position in fine)
        with pytest.raises(Exception, match=r"\S") as caught:
            source.load(spark, last).collect()
        explained = source.diagnose(last, str(caught.value)) or _sealed(caught.value)
        assert isinstance(explained, DataError), caught.value
        said.append(str(explained).replace(str(place), "PLACE"))
    assert said[1] == said[0]
    assert said[0].startswith("[BAD_ROW] PLACE/")


def _sealed(error: BaseException) -> DataError | None:
    """Return the error of a task, as a host finds it in the text of a failed job."""
    found = re.search(r"\[BAD_ROW\] [^\n]*?max_line_bytes", str(error))
    return None if found is None else DataError("BAD_ROW", found[0].removeprefix("[BAD_ROW] "))


@pytest.mark.parametrize("kind", [kind for kind in BAD if kind != "an array"])
def test_bad_rows_are_sorted_out_as_of_local_files(spark: SparkSession, both: tuple[Path, str], kind: str) -> None:
    name, content, options = BAD[kind]
    (both[0] / name).write_bytes(content)
    made = []
    for source in sources(both, name, options):
        sorting = source.capabilities.bad_rows.sorting_out()
        positions, _ = drain(sorting, sorting.start())
        rows = [sorting.load(spark, position) for position in positions]
        letters = [
            letter for each in rows for letter in sorting.dead_letters(each.where("_bad_row IS NOT NULL")).collect()
        ]
        good = [ordered(map(str, each.where("_bad_row IS NULL").collect())) for each in rows]
        made.append((good, letters, sorting.places(letters)))
    assert made[1] == made[0]
    assert len(made[0][1]) == 1


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_is_refused_with_the_condition_of_local_files(both: tuple[Path, str], kind: str) -> None:
    name, content, options = REFUSED[kind]
    (both[0] / name).write_bytes(content)
    if kind == "other columns":
        pq.write_table(pa.table({"z": [1]}), both[0] / name)
        options = {"schema": SCHEMA}
    if kind == "no Parquet":
        options = {"schema": SCHEMA}
    said = []
    for source in sources(both, name, options):
        with pytest.raises(BoatliftError) as caught:
            source.next(source.start())
        said.append(caught.value.condition)
    assert said[1] == said[0]


NESTED: dict[str, tuple[str, pa.Array]] = {
    "lists": ("v ARRAY<INT>", pa.array([[1, None], [], None], pa.list_(pa.int32()))),
    "lists of lists": ("v ARRAY<ARRAY<STRING>>", pa.array([[["a"], None, []], [[None]], None])),
    "maps": (
        "v MAP<STRING, DOUBLE>",
        pa.array([[("a", 0.5), ("b", None)], [], None], pa.map_(pa.string(), pa.float64())),
    ),
    "structs": (
        "v STRUCT<x: BIGINT, y: STRUCT<z: DECIMAL(9, 2), d: DATE, at: TIMESTAMP>>",
        pa.array(
            [
                {"x": 1, "y": {"z": Decimal("1.25"), "d": None, "at": datetime(2026, 1, 1, tzinfo=UTC)}},
                {"y": None},
                None,
            ],
            pa.struct(
                {
                    "x": pa.int64(),
                    "y": pa.struct({"z": pa.decimal128(9, 2), "d": pa.date32(), "at": pa.timestamp("us", "UTC")}),
                }.items()
            ),
        ),
    ),
    "structs in lists in maps": (
        "v MAP<INT, ARRAY<STRUCT<x: BOOLEAN>>>",
        pa.array(
            [[(1, [{"x": True}, None])], [(2, None)], None],
            pa.map_(pa.int32(), pa.list_(pa.struct([("x", pa.bool_())]))),
        ),
    ),
}


@pytest.mark.parametrize("kind", ["plain", "plain in ranges", *NESTED])
@pytest.mark.parametrize("declared", [True, False], ids=["declared", "of the file"])
def test_parquet_has_the_rows_of_local_files(
    spark: SparkSession, both: tuple[Path, str], kind: str, *, declared: bool
) -> None:
    """Nested columns too, which Spark reads in a folder and PyArrow in a bucket."""
    options: dict[str, Any] = {"max_bytes_per_step": 1500} if kind == "plain in ranges" else {"max_files_per_step": 2}
    schema, made = (NESTED[kind][0], pa.table({"v": NESTED[kind][1]})) if kind in NESTED else (schema_of(), table())
    for number in range(2):
        pq.write_table(made, both[0] / f"{number}.parquet", row_group_size=2)
    local, remote = sources(both, "x.parquet", options | ({"schema": schema} if declared else {}))
    assert local.schema(spark) == remote.schema(spark)
    assert str(rows_of(spark, remote)) == str(rows_of(spark, local))


def test_nested_columns_that_spark_has_written_are_read(spark: SparkSession, both: tuple[Path, str]) -> None:
    columns = "id, array(id, NULL) AS l, map(id, struct(id AS x)) AS m, named_struct('d', DATE'1500-01-01') AS s"
    made = both[0].parent / "made"
    spark.sql(f"SELECT {columns} FROM range(0, 50, 1, 1)").write.parquet(str(made))
    next(made.glob("part-*.parquet")).rename(both[0] / "x.parquet")
    local, remote = sources(both, "x.parquet", {})
    assert str(rows_of(spark, remote)) == str(rows_of(spark, local))


@pytest.mark.parametrize("kind", ["nanoseconds", "times of 96 bits", "a list of two levels"])
def test_nested_columns_that_may_be_read_otherwise_are_refused(both: tuple[Path, str], kind: str) -> None:
    path, times = both[0] / "x.parquet", pa.array([[datetime(2026, 1, 1)]], pa.list_(pa.timestamp("us")))  # noqa: DTZ001
    match kind:
        case "nanoseconds":
            pq.write_table(pa.table({"v": times.cast(pa.list_(pa.timestamp("ns")))}), path)
        case "times of 96 bits":
            pq.write_table(pa.table({"v": times}), path, use_deprecated_int96_timestamps=True)
        case _:
            pq.write_table(
                pa.table({"v": pa.array([[1]], pa.list_(pa.int32()))}), path, use_compliant_nested_type=False
            )
    _, remote = sources(both, "x.parquet", {})
    condition = {"nanoseconds": "BAD_HEADER"}.get(kind, "TYPE_REFUSED")
    with pytest.raises((InvalidError, DataError), match=rf"\[{condition}\] .*x.parquet"):
        remote.next(remote.start())
