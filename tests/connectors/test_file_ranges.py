"""Large files in ranges over several steps: every line once, as Spark's own reader has it."""

from __future__ import annotations

import gzip
import logging
import re
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.connectors import files
from boatlift.connectors.files import lines as lines_module
from boatlift.connectors.files.lines import lines_in
from boatlift.connectors.files.ranges import FileRange, range_in
from boatlift.connectors.files.source import FilesSource
from boatlift.dataflow import Json
from boatlift.errors import DataError
from connectors.conformance import ordered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id INT, text STRING"


def steps(source: FilesSource, cursor: Json | None = None) -> tuple[list[Json], Json]:
    positions, cursor = [], cursor or source.start()
    while (position := source.next(cursor)) is not None:
        positions.append(position)
        cursor = source.advance(cursor, position)
    return positions, cursor


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\n\n", b"defghijk" * 3]), max_size=40).map(b"".join)


@given(TEXTS, st.integers(1, 60), st.integers(0, 5))
def test_ranges_are_all_bytes_once_and_end_with_a_line(content: bytes, most: int, begin: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "a", content)
        place = begin = min(begin, len(content))
        while place < len(content):
            found = range_in(path, place, most)
            assert found is not None
            end, size = found["end"], found["of"]
            assert size == len(content)
            part = content[place:end]
            assert part.endswith(b"\n") or end == size
            assert len(part) <= most or b"\n" not in part[:-1], "more than the bound is one line"
            longer = content[place : place + most]
            assert end == size or len(part) > most or b"\n" not in longer[len(part) :], "as many lines as fit"
            place = end


@given(TEXTS, st.lists(st.integers(0, 300), max_size=5))
def test_tasks_read_every_line_once_however_a_range_is_divided(content: bytes, cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder), "a", b"before\n" + content)
        begin, size = len(b"before\n"), path.stat().st_size
        places = sorted({begin, size, *(min(begin + cut, size) for cut in cuts)})
        found: list[bytes] = []
        for start, end in pairwise(places):
            for _, lines in lines_in(path, start, end, at_line=start == begin):
                found += lines
        expected = re.split(rb"\r\n|\n|\r", content)
        assert found == (expected if expected[-1] else expected[:-1])


def test_a_large_file_takes_several_steps_and_small_ones_stay_together(tmp_path: Path) -> None:
    for name, rows in (("a", 1), ("b", 30), ("c", 1), ("d", 1)):
        write(tmp_path, f"{name}.csv", "id,text\n" + "1,x\n" * rows)
    source = files(tmp_path, format="csv", schema=SCHEMA, max_files_per_step=9, max_bytes_per_step=50)
    positions, cursor = steps(source)
    assert [[file["path"] for file in position["files"]] for position in positions] == [
        ["a.csv"], ["b.csv"], ["b.csv"], ["b.csv"], ["c.csv", "d.csv"],
    ]  # fmt: skip
    assert [(file["begin"], file["end"]) for position in positions[1:4] for file in position["files"]] == [
        (8, 56), (56, 104), (104, 128),
    ]  # fmt: skip
    assert list(cursor["taken"]) == [
        "a.csv", "b.csv:8-56", "b.csv:56-104", "b.csv:104-128", "b.csv", "c.csv", "d.csv",
    ]  # fmt: skip
    assert "part" not in cursor
    assert source.names(positions[1]) == f"{tmp_path / 'b.csv'}, bytes 8 to 56"
    assert sum(source.size_bytes(position) for position in positions[1:4]) == 120


def test_a_name_of_a_range_is_none_of_a_file() -> None:
    assert FileRange.named("x:y/a.csv") is None
    part = FileRange("x:y/a.csv", 3, 17)
    assert FileRange.named(part.name) == part


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("a.csv.gz", {}, "it is compressed"),
        ("a.csv", {"multi_line": True}, "a row may have several lines"),
        ("a.csv", {"separator": "\t"}, "white space"),
    ],
)
def test_a_file_that_cannot_be_divided_is_a_warning_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, options: dict[str, Any], said: str
) -> None:
    separator = options.get("separator", ",")
    content = f"id{separator}text\n" + f"1{separator}abcdefghijklmnopqrstuvwxyz\n" * 5
    for number in range(3):
        write(tmp_path, f"{number}{name}", gzip.compress(content.encode()) if name.endswith("gz") else content)
    source = files(tmp_path, format="csv", schema=SCHEMA, max_bytes_per_step=20, **options)
    with caplog.at_level(logging.WARNING):
        positions, _ = steps(source)
    assert [len(position["files"]) for position in positions] == [1, 1, 1]
    assert all("size" in position["files"][0] for position in positions)
    (record,) = caplog.records
    assert said in record.getMessage()


def divided(tmp_path: Path) -> tuple[FilesSource, Path, Json]:
    """A file of which the first range is taken."""
    path = write(tmp_path, "a.csv", "id,text\n" + "".join(f"{n},text {n}\n" for n in range(10, 40)))
    source = files(tmp_path, format="csv", schema=SCHEMA, max_bytes_per_step=100)
    position = source.next(source.start())
    assert position is not None
    return source, path, source.advance(source.start(), position)


def test_a_file_that_changes_its_size_between_ranges_is_refused(tmp_path: Path) -> None:
    source, path, cursor = divided(tmp_path)
    whole = path.read_bytes()
    for content in (whole + b"1,x\n", whole[:-1], whole[:50]):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=rf"\[INPUT_CHANGED\].*a\.csv has {len(content)} bytes, but had {len(whole)}"
        ):
            source.next(cursor)
    path.unlink()
    with pytest.raises(DataError, match=r"\[INPUT_MISSING\].*a\.csv is gone, and its first \d+ bytes were taken"):
        source.next(cursor)
    path.write_bytes(whole)
    assert source.next(cursor) is not None


def test_everything_is_proved_while_a_file_is_taken_in_ranges(tmp_path: Path) -> None:
    source, path, cursor = divided(tmp_path)
    source.verify_everything(cursor)
    whole = path.read_bytes()
    path.write_bytes(whole[:10] + b"?" + whole[11:])
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
        source.verify_everything(cursor)
    path.write_bytes(whole + b"more\n")
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
        source.verify_everything(cursor)


CSV = [
    ("plain", {}, b"id,text\n1,a\n2,b\n\n3,\n4,NULL\n5,\"q,\"\"x\"\"\"\n6,a\\b\n7,\xc3\xa4\xff\n  \n8,last"),
    ("ends of lines", {}, b"id,text\r\n1,a\r\n2,b\r3,c\n\r\n4,d\r\n"),
    ("mark", {"header": False}, b"\xef\xbb\xbf1,a\n2,b\n3,c\n"),
    ("mark and header", {}, b"\xef\xbb\xbfid,text\n1,a\n2,b\n"),
    ("latin", {"encoding": "iso-8859-1", "separator": ";"}, b"id;text\n1;\xe4\xf6\n2;\xdf\n3;x\n"),
    ("no quotes", {"quote": None, "null_value": "-"}, b'id,text\n1,"a\n-,b"\n3,-\n'),
    ("doubled", {"escape": '"'}, b'id,text\n1,"say ""a"""\n2,"b\\"\n3,c\n'),
]  # fmt: skip


@pytest.mark.spark
@pytest.mark.parametrize(("what", "options", "content"), CSV, ids=[each[0] for each in CSV])
def test_ranges_of_csv_have_the_rows_of_the_file(
    spark: SparkSession, tmp_path: Path, what: str, options: dict[str, Any], content: bytes
) -> None:
    write(tmp_path, "a.csv", content)
    options = {"null_value": "NULL", **options}
    whole = files(tmp_path, format="csv", schema=SCHEMA, **options)
    (position,), _ = steps(whole)
    expected = ordered(map(tuple, whole.load(spark, position).collect()))
    source = files(tmp_path, format="csv", schema=SCHEMA, max_bytes_per_step=6, **options)
    positions, cursor = steps(source)
    assert len(positions) > 1
    found = [tuple(row) for position in positions for row in source.load(spark, position).collect()]
    assert ordered(found) == expected
    assert source.load(spark, positions[0]).schema == whole.load(spark, position).schema
    together = source.load_together(spark, positions)
    assert ordered(map(tuple, together.drop("_ordinal").collect())) == expected
    part = source.advance(source.start(), positions[0])
    assert ordered(map(tuple, source.load_everything(spark, part).collect())) == ordered(
        map(tuple, source.load(spark, positions[0]).collect())
    )
    assert ordered(map(tuple, source.load_everything(spark, cursor).collect())) == expected


@pytest.mark.spark
def test_ranges_of_json_have_the_rows_of_the_file(spark: SparkSession, tmp_path: Path) -> None:
    lines = ['{"id": 1, "text": "ä"}', "", '{"text": null}', '{"id": 3, "more": [1]}\r', "  ", '{"id": 4, "text": "x"}']
    write(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + "\n".join(lines).encode())
    whole = files(tmp_path, format="json", schema=SCHEMA)
    (position,), _ = steps(whole)
    source = files(tmp_path, format="json", schema=SCHEMA, max_bytes_per_step=20)
    positions, _ = steps(source)
    assert len(positions) > 2
    found = [tuple(row) for position in positions for row in source.load(spark, position).collect()]
    assert ordered(found) == ordered(map(tuple, whole.load(spark, position).collect()))
    assert len(found) == 4


@pytest.mark.spark
@pytest.mark.parametrize(
    ("format", "bad", "said"),
    [
        ("csv", b"9,x,more\n", "it has 3 fields"),
        ("csv", b"nine,x\n", "column id is 'nine', which is no int"),
        ("csv", b"9\n", "it has 1 fields"),
        ("json", b'{"id": "nine", "text": "x"}\n', 'column id is "nine", which is no int'),
        ("json", b'{"id": 9} {"id": 10}\n', "no single JSON value"),
        ("json", b'{"id": 9, "text": "\xff"}\n', "is not UTF-8"),
    ],
)  # fmt: skip
def test_the_error_of_a_bad_row_of_a_range_has_its_line_in_the_file(
    spark: SparkSession,
    tmp_path: Path,
    format: str,  # noqa: A002
    bad: bytes,
    said: str,
) -> None:
    """Also where no column of it is used."""
    good = b"1,x\n" if format == "csv" else b'{"id": 1, "text": "x"}\n'
    header = b"id,text\n" if format == "csv" else good
    write(tmp_path, f"a.{format}", header + good * 8 + bad + good * 8)
    source = files(tmp_path, format=format, schema=SCHEMA, max_bytes_per_step=5 * len(good))  # type: ignore[arg-type]
    positions, _ = steps(source)
    failed = []
    for position in positions:
        for use in (lambda rows: rows.count(), lambda rows: rows.where("text = 'never'").select("text").collect()):
            try:
                use(source.load(spark, position))
            except Exception as error:  # noqa: BLE001 - of Spark
                failed.append((position, source.diagnose(position, str(error))))
    assert len(failed) == 2, "in one step, both ways"
    for position, error in failed:
        assert isinstance(error, DataError), position
        assert error.condition == "BAD_ROW"
        assert "line 10" in error.message
        assert said in error.message


@pytest.mark.spark
def test_a_range_that_many_tasks_read_has_each_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "SPAN_BYTES", 1000)
    monkeypatch.setattr(lines_module, "TASK_BYTES", 1000)
    write(tmp_path, "a.csv", "id,text\n" + "".join(f"{n},{'x' * (n % 50)}\n" for n in range(3000)))
    source = files(tmp_path, format="csv", schema=SCHEMA, max_bytes_per_step=50_000)
    positions, _ = steps(source)
    assert len(positions) == 2
    rows = [source.load(spark, position) for position in positions]
    assert max(each.rdd.getNumPartitions() for each in rows) > 1
    assert sorted(row["id"] for each in rows for row in each.collect()) == list(range(3000))
