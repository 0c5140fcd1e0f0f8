"""JSON and CSV as people have them: what `files` reads of them, what it refuses, and how it says so."""

from __future__ import annotations

import bz2
import gzip
import random
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from boatlift.connectors import files
from boatlift.connectors.files.compression import damage_of, opened
from boatlift.connectors.files.lines import lines_in
from boatlift.connectors.files.source import FilesSource
from boatlift.errors import BoatliftError, DataError, InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "a INT, b INT, c STRING"
BODY = b"a,b,c\n1,2,x\n3,4,y\n"
LINES = b'{"a": 1, "b": 2, "c": "x"}\n{"a": 3, "b": 4, "c": "y"}\n'
ARRAY = b'[{"a": 1, "b": 2, "c": "x"},\n {"a": 3, "b": 4, "c": "y"}]\n'
ROWS = [(1, 2, "x"), (3, 4, "y")]


def zstd(content: bytes) -> bytes:
    made = pa.BufferOutputStream()
    with pa.CompressedOutputStream(made, "zstd") as stream:
        stream.write(content)
    return bytes(made.getvalue())


COMPRESSED = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


def source_of(folder: Path, name: str, content: bytes | str, schema: str = SCHEMA, **options: Any) -> FilesSource:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return files(folder / name, schema=schema, **options)


def rows_of(spark: SparkSession, source: FilesSource) -> list[tuple[Any, ...]]:
    position = source.next(source.start())
    assert position is not None
    return [tuple(row) for row in source.load(spark, position).collect()]


def refusal(spark: SparkSession, source: FilesSource, use: str = "all") -> str:
    """The text of the error at a bad row."""
    position = source.next(source.start())
    assert position is not None
    rows = source.load(spark, position)
    if use == "an unused column":
        rows = rows.select("a")
    elif use == "a filter that drops the row":
        rows = rows.where("a = 1").select("a")
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|MALFORMED_RECORD") as caught:
        rows.count() if use == "a count" else rows.collect()
    explained = source.diagnose(position, str(caught.value))
    assert isinstance(explained, DataError)
    assert explained.condition == "BAD_ROW"
    return str(explained)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("x.json", {}),
        ("x.jsonl.gz", {}),
        ("x.gz", {"schema": SCHEMA}),
        ("x.txt", {"schema": SCHEMA, "format": "xml"}),
        ("x.csv", {"schema": SCHEMA, "separator": "||"}),
        ("x.csv", {"schema": SCHEMA, "separator": ""}),
        ("x.csv", {"schema": SCHEMA, "escape": None}),
        ("x.csv", {"schema": SCHEMA, "quote": "''"}),
        ("x.csv", {"schema": SCHEMA, "encoding": "utf-16"}),
        ("x.json", {"schema": SCHEMA, "header": False}),
        ("x.json", {"schema": SCHEMA, "encoding": "iso-8859-1"}),
        ("x.json", {"schema": "a INTERVAL DAY"}),
        ("x.parquet", {"date_format": "dd.MM.yyyy"}),
        ("x.parquet", {"multi_line": True}),
    ],
)
def test_options_that_make_no_sense_are_refused(path: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]"):
        files(path, **options)


@pytest.mark.parametrize(
    ("name", "format"),
    [("x.csv", "csv"), ("x.csv.gz", "csv"), ("x.json", "json"), ("x.jsonl.zst", "json"), ("x.ndjson.bz2", "json")],
)
def test_the_suffix_says_the_format_behind_a_compression(name: str, format: str) -> None:  # noqa: A002
    assert files(name, schema=SCHEMA).describe()["format"] == format


@pytest.mark.parametrize("name", ["a.csv.lz4", "a.csv.snappy", "a.csv.zip", "a.csv.GZ"])
@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_compression_that_spark_reads_otherwise_or_not_is_refused(tmp_path: Path, name: str, format: str) -> None:  # noqa: A002
    source = source_of(tmp_path, name, b"\x04\x22\x4d\x18", format=format)
    with pytest.raises(InvalidError, match=r"\[BAD_NAME\].*compress it as \.gz, \.bz2 or \.zst"):
        source.next(source.start())


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_header_in_a_compressed_file_is_compared(tmp_path: Path, suffix: str) -> None:
    source = source_of(tmp_path, f"a.csv{suffix}", COMPRESSED[suffix](b"a,b\n1,2\n"))
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*lacks \['c'\]"):
        source.next(source.start())


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("content", [b"a,b,c\n1,2,x\n", b""])
def test_what_is_no_compressed_file_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    source = source_of(tmp_path, f"a.csv{suffix}", content or COMPRESSED[suffix](BODY * 9)[:12])
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*cannot be decompressed"):
        source.next(source.start())


@pytest.mark.spark
@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.csv", BODY, {}),
        ("a.csv", BODY, {"multi_line": True}),
        ("a.jsonl", LINES, {}),
        ("a.json", ARRAY, {"multi_line": True}),
    ],
)
def test_compressed_files_are_read(
    tmp_path: Path, spark: SparkSession, suffix: str, name: str, content: bytes, options: dict[str, Any]
) -> None:
    packed = COMPRESSED[suffix](content) if suffix else content
    assert rows_of(spark, source_of(tmp_path, name + suffix, packed, **options)) == ROWS


@pytest.mark.spark
@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_a_compressed_file_that_was_cut_is_refused(tmp_path: Path, spark: SparkSession, suffix: str, name: str) -> None:
    content = "".join(f"{i},{i * 7919 % 10007},{i:x}\n" for i in range(100_000)).encode()
    if name == "a.jsonl":
        content = "".join(f'{{"a": {i}, "b": {i * 7919 % 10007}}}\n' for i in range(100_000)).encode()
    packed = COMPRESSED[suffix](content)
    options = {} if "j" in name else {"header": False}
    source = source_of(tmp_path, name + suffix, packed[: len(packed) // 2], **options)
    with pytest.raises(Exception, match=rf"DataError: \[BAD_ROW\] \S+/{name}{suffix} cannot be decompressed"):
        rows_of(spark, source)  # by tasks
    if name == "a.csv":  # by Spark's own reader
        whole = files(tmp_path / (name + suffix), schema=SCHEMA, multi_line=True, **options)
        assert "cannot be decompressed" in refusal(spark, whole)


@pytest.mark.spark
@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("behind", ["nothing", "zeros", "text", "as much again"])
def test_bytes_behind_compressed_ones_are_read_as_spark_does(
    tmp_path: Path, spark: SparkSession, suffix: str, behind: str
) -> None:
    packed = COMPRESSED[suffix](b"a,b,c\n1,2,x\n")
    path = tmp_path / f"a.csv{suffix}"
    path.write_bytes(
        packed + {"nothing": b"", "zeros": bytes(40), "text": b"text behind it", "as much again": packed}[behind]
    )
    try:
        rows = [row["value"] for row in spark.read.text(str(path)).collect()]
    except Exception:  # noqa: BLE001 - of Java, of many kinds
        assert damage_of(path) is not None
    else:
        assert damage_of(path) is None
        assert [line.decode() for _, lines in lines_in(path) for line in lines] == rows


def test_a_file_of_several_members_of_gzip_is_read_whole(tmp_path: Path) -> None:
    parts = [random.Random(seed).randbytes(size) for seed, size in enumerate((1, 3 << 20, 0, 70_000))]
    (tmp_path / "a.gz").write_bytes(b"".join(map(gzip.compress, parts)))
    with opened(tmp_path / "a.gz") as file:
        assert file.read() == b"".join(parts)
    with opened(tmp_path / "a.gz") as file:
        assert b"".join(iter(lambda: file.read(1000), b"")) == b"".join(parts)


@pytest.mark.parametrize(("blank", "begin"), [("", 6), ("\n", 6), (" \n", 6)])
@pytest.mark.parametrize("before", ["", "\n", "\x1f\n"])
def test_rows_begin_behind_the_first_line_that_is_not_blank(
    tmp_path: Path, before: str, blank: str, begin: int
) -> None:
    source = source_of(tmp_path, "a.csv", f"{before}a,b,c\n{blank}1,2,x\n")
    assert source.next(source.start()) is not None
    assert source._format.rows_begin(tmp_path / "a.csv") == begin + len(before)


@pytest.mark.spark
@pytest.mark.parametrize("bound", [None, 10])
def test_lines_may_end_in_a_carriage_return_alone(tmp_path: Path, spark: SparkSession, bound: int | None) -> None:
    source = source_of(tmp_path, "a.csv", "\ra,b,c\r1,2,x\r3,4,y\r", max_bytes_per_step=bound)
    assert rows_of(spark, source) == [(1, 2, "x"), (3, 4, "y")]
    bad = source_of(tmp_path, "b.csv", "a,b,c\r1,2,x\r3,four,y\r")
    assert "b.csv line 3: column b is 'four', which is no int" in refusal(spark, bad)
    other = source_of(tmp_path, "c.csv", "a,c\r1,2\r")
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*lacks \['b'\]"):
        other.next(other.start())


@pytest.mark.spark
def test_quotes_and_escapes(tmp_path: Path, spark: SparkSession) -> None:
    content = "a|b|c\n1|2|'x|''y'\n3|4|\"z\n"
    source = source_of(tmp_path, "a.csv", content, separator="|", quote="'", escape="'")
    assert rows_of(spark, source) == [(1, 2, "x|'y"), (3, 4, '"z')]
    unquoted = source_of(tmp_path, "b.csv", 'a,b,c\n1,2,"x\n3,4,y"\n', quote=None)
    assert rows_of(spark, unquoted) == [(1, 2, '"x'), (3, 4, 'y"')]


@pytest.mark.spark
@pytest.mark.parametrize("null_value", ["", "NA"])
@pytest.mark.parametrize("escape", ['"', "\\"])
@pytest.mark.parametrize("multi_line", [False, True])
def test_two_quotes_are_the_empty_text_whatever_other_options_say(
    tmp_path: Path, spark: SparkSession, multi_line: bool, escape: str, null_value: str
) -> None:
    options: Any = {"multi_line": multi_line, "escape": escape, "null_value": null_value}
    source = source_of(tmp_path, "a.csv", 'a,b,c\n1,"",""\n2,3,\n', **options)
    assert rows_of(spark, source) == [(1, None, ""), (2, 3, None)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("encoding", "python"), [("utf-8", "utf-8"), ("utf-8", "utf-8-sig"), ("iso-8859-1", "latin-1")]
)
@pytest.mark.parametrize("multi_line", [False, True])
def test_encodings(tmp_path: Path, spark: SparkSession, encoding: Any, python: str, multi_line: bool) -> None:
    content = "ä,b\n1,é\n".encode(python)
    source = source_of(tmp_path, "a.csv", content, "`ä` INT, b STRING", encoding=encoding, multi_line=multi_line)
    assert rows_of(spark, source) == [(1, "é")]
    bad = source_of(
        tmp_path,
        "b.csv",
        content + "é,é\n".encode(python.removesuffix("-sig")),
        "`ä` INT, b STRING",
        encoding=encoding,
        multi_line=multi_line,
    )
    assert "line 3: column ä is 'é', which is no int" in refusal(spark, bad)


@pytest.mark.spark
def test_a_quoted_field_over_several_lines(tmp_path: Path, spark: SparkSession) -> None:
    content = 'a,b,c\n1,2,"x\n\ny"\n3,4,z\n'
    assert rows_of(spark, source_of(tmp_path, "a.csv", content, multi_line=True)) == [(1, 2, "x\n\ny"), (3, 4, "z")]
    bad = source_of(tmp_path, "b.csv", content + '5,six,"p\nq"\n', multi_line=True)
    assert "b.csv line 6: column b is 'six', which is no int" in refusal(spark, bad)


@pytest.mark.spark
@pytest.mark.parametrize("escape", ['"', "\\"])
def test_line_ends_within_quotes_stay_as_they_are(tmp_path: Path, spark: SparkSession, escape: str) -> None:
    """Also of files that end their rows in other ways, read as one step."""
    rows = [(1, 1, "x\r\ny"), (2, 2, "p\nq"), (3, 3, "r\rs"), (4, 4, "z")]
    for number, end in enumerate(("\r\n", "\n", "\r")):
        content = end.join(["a,b,c", *(f'{a},{b},"{c}"' for a, b, c in rows), ""])
        (tmp_path / f"{number}.csv").write_bytes(content.encode())
    source = files(tmp_path / "*.csv", schema=SCHEMA, multi_line=True, escape=escape, max_files_per_step=3)
    assert sorted(rows_of(spark, source)) == sorted(rows * 3)


@pytest.mark.spark
def test_rows_that_end_in_several_ways_are_refused_if_a_field_would_change(tmp_path: Path, spark: SparkSession) -> None:
    mixed = "a,b,c\r\n1,2,x\n3,4,y\r\n"
    source = source_of(tmp_path, "b.csv", mixed + '5,6,"p\r\nq"\n', multi_line=True)
    position = source.next(source.start())
    assert position is not None
    with pytest.raises(DataError, match=r"\[BAD_ROW\] .*b.csv has rows that end with '\\n' and '\\r\\n', and a field"):
        source.load(spark, position)


DATED = "d DATE, t TIMESTAMP, n TIMESTAMP_NTZ"
FORMATS = {"date_format": "dd.MM.yyyy", "timestamp_format": "dd.MM.yyyy HH:mm"}


@pytest.mark.spark
def test_dates_and_timestamps_of_a_form(tmp_path: Path, spark: SparkSession) -> None:
    expected = [(date(2013, 1, 31), datetime(2013, 1, 31, 5, 17), datetime(2013, 1, 31, 5, 17))]  # noqa: DTZ001
    day, minute = "31.01.2013", "31.01.2013 05:17"
    csv = source_of(tmp_path, "a.csv", f"d,t,n\n{day},{minute},{minute}\n", DATED, **FORMATS)
    lines = source_of(tmp_path, "a.json", f'{{"d": "{day}", "t": "{minute}", "n": "{minute}"}}\n', DATED, **FORMATS)
    assert rows_of(spark, csv) == rows_of(spark, lines) == expected


@pytest.mark.spark
@pytest.mark.parametrize("name", ["a.csv", "a.json"])
@pytest.mark.parametrize("day", ["2013-01-31", "31.1.2013", "31.02.2013", "31.01.2013x", "31.01.13"])
def test_a_date_of_another_form_is_refused(tmp_path: Path, spark: SparkSession, name: str, day: str) -> None:
    content = f"d\n{day}\n" if name == "a.csv" else f'{{"d": "{day}"}}\n'
    said = refusal(spark, source_of(tmp_path, name, content, "d DATE", date_format="dd.MM.yyyy"))
    assert f"column d is {day!r}" in said.replace('"', "'")
    assert "which is no date of the form dd.MM.yyyy" in said


@pytest.mark.spark
@pytest.mark.parametrize("pattern", ["foo", "dd.MM.YYYY", "dd'"])
@pytest.mark.parametrize("option", ["date_format", "timestamp_format"])
def test_a_pattern_that_spark_does_not_know_is_refused(spark: SparkSession, option: str, pattern: str) -> None:
    options: Any = {option: pattern}
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {option} is "):
        files("x.csv", schema=SCHEMA, **options).schema(spark)


@pytest.mark.spark
def test_json_lines_are_read_as_objects(tmp_path: Path, spark: SparkSession) -> None:
    content = '\ufeff{"c": "x", "more": [1], "b": null, "a": 1}\n\n  \n{}\r\n{"a": 2, "b": 3, "c": {"k": [1, "é"]}}'
    source = source_of(tmp_path, "a.jsonl", content)
    assert rows_of(spark, source) == [(1, None, "x"), (None, None, None), (2, 3, '{"k":[1,"é"]}')]


@pytest.mark.spark
def test_a_number_in_a_text_of_json_keeps_its_digits(tmp_path: Path, spark: SparkSession) -> None:
    """Spark reads a number with a fraction or an exponent as the nearest DOUBLE, and gives that as text."""
    numbers = ["12345678901234567890123.10", "1e2", "-0", "9007199254740993"]
    texts = [*numbers, '{"k":[1.10,"2.50"]}', '"1.10"']
    objects = [f'{{"c": {text}, "d": [{text}]}}' for text in texts]
    expected = [(text.strip('"'), [text.strip('"')]) for text in texts]
    for options, content in (({}, "\n".join(objects)), ({"multi_line": True}, f"[{','.join(objects)}]")):
        source = source_of(tmp_path, "a.json", content, "c STRING, d ARRAY<STRING>", **options)
        assert rows_of(spark, source) == expected


@pytest.mark.spark
def test_nested_types_of_json(tmp_path: Path, spark: SparkSession) -> None:
    schema = "`a b.c` ARRAY<INT>, m MAP<STRING, DOUBLE>, s STRUCT<x: INT, y: ARRAY<STRING>>, z DECIMAL(5, 2), w BINARY"
    content = '{"a b.c": [1, 2], "m": {"k": 0.5}, "s": {"x": 1, "y": ["p"]}, "z": 1.25, "w": "eHl6"}\n'
    ((first, mapped, struct, decimal, binary),) = rows_of(spark, source_of(tmp_path, "a.json", content, schema))
    assert (first, mapped, tuple(struct), str(decimal)) == ([1, 2], {"k": 0.5}, (1, ["p"]), "1.25")
    assert bytes(binary) == b"xyz"


@pytest.mark.spark
@pytest.mark.parametrize("separator", ["\t", " ", ","])
def test_a_row_of_nulls_alone_is_a_row(tmp_path: Path, spark: SparkSession, separator: str) -> None:
    lines = [separator.join(fields) for fields in ("abc", "123", ["", "", ""], "456")]
    source = source_of(tmp_path, "a.csv", "\n".join(lines) + "\n", "a INT, b INT, c INT", separator=separator)
    assert sorted(rows_of(spark, source), key=repr) == [(1, 2, 3), (4, 5, 6), (None, None, None)]


@pytest.mark.spark
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"a": 3, "b": "zz"}', 'column b is "zz", which is no int'),
        ('{"a": 3, "b": "4"}', 'column b is "4", which is no int'),
        ('{"a": 3, "b": 99999999999}', "column b is 99999999999, which is no int"),
        ('{"a": 3, "b": 1.5}', "column b is 1.5, which is no int"),
        ('{"a": 3, "b": [4]}', "column b is [4], which is no int"),
        ('{"a": 3, "b": 4', "it is no single JSON value"),
        ('{"a": 3}{"a": 4}', "it is no single JSON value"),
        ('{"a": 3},{"a": 4}', "it is no single JSON value"),
        ('{"a": 3} junk', "it is no single JSON value"),
        ('{"a": 3}]', "it is no single JSON value"),
        ('{"a": 3}]} junk', "it is no single JSON value"),
        ('{"a": 3}],"x":[{"b": 4}', "it is no single JSON value"),
        ('{"a": 3}],"_boatlift_rows":[{"a": 9}', "it is no single JSON value"),
        ('],"x":[', "it is no single JSON value"),
        ('{"a": 3},"x":{"b": 4}', "it is no single JSON value"),
        ('[{"a": 3}]', "it is no object"),
        ("3", "it is no object"),
        ("null", "it is no object"),
        ("a,b,c", "it is no single JSON value"),
    ],
)
@pytest.mark.parametrize("use", ["an unused column", "a filter that drops the row", "a count"])
def test_a_line_that_does_not_fit_is_refused(
    tmp_path: Path, spark: SparkSession, row: str, said: str, use: str
) -> None:
    source = source_of(tmp_path, "a.jsonl", f'{{"a": 1}}\n\n{row}\n{{"a": 5}}\n')
    assert f"{tmp_path / 'a.jsonl'} line 3: {said}" in refusal(spark, source, use)


@pytest.mark.spark
def test_the_first_line_is_found_behind_a_byte_order_mark(tmp_path: Path, spark: SparkSession) -> None:
    source = source_of(tmp_path, "a.jsonl", '\ufeff{"a": "x"}\n')
    assert 'line 1: column a is "x", which is no int' in refusal(spark, source)


@pytest.mark.spark
def test_bytes_that_are_not_utf_8_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    content = '{"a": 1}\n{"c": "é"}\n'.encode("latin-1")
    assert "a.jsonl line 2 is not UTF-8" in refusal(spark, source_of(tmp_path, "a.jsonl", content))
    assert "a.json line 2 is not UTF-8" in refusal(spark, source_of(tmp_path, "a.json", content, multi_line=True))


@pytest.mark.spark
@pytest.mark.parametrize(
    ("content", "rows"),
    [
        ('\ufeff\n {\n"a": 1,\n"b": 2\n}\n', [(1, 2, None)]),
        ('[{"a": 1},\n{"b": 2}\n]', [(1, None, None), (None, 2, None)]),
        ("[]", []),
    ],
)
def test_one_value_a_file(tmp_path: Path, spark: SparkSession, content: str, rows: list[tuple[Any, ...]]) -> None:
    assert rows_of(spark, source_of(tmp_path, "a.json", content, multi_line=True)) == rows


@pytest.mark.spark
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('[{"a": 1},\n{"b": "x"}]', 'object 2 of 2: column b is "x", which is no int'),
        ('[{"a": 1}, 3]', "object 2 of 2: it is no object"),
        ('[{"a": 1}, null]', "object 2 of 2: it is no object"),
        ('{"a": 1.5}', "object 1 of 1: column a is 1.5, which is no int"),
        ('{"a": 1}\n{"a": 2}\n', "line 2: it is no single JSON value"),
        ('{"a": 1},\n{"a": 2}\n', "line 1: it is no single JSON value"),
        ('[{"a": 1}]\n[{"a": 2}]', "line 2: it is no single JSON value"),
        ('[{"a": 1}', "line 1: it is no single JSON value"),
        ('[{"a": 1}],"x":[{"b": 4}]', "line 1: it is no single JSON value"),
        ('{"a": 1}],"x":[{"b": 4}', "line 1: it is no single JSON value"),
        ('[{"a": 1}]} junk', "line 1: it is no single JSON value"),
        ("\n", "line 2: it is no single JSON value"),
    ],
)
@pytest.mark.parametrize("use", ["an unused column", "a count"])
def test_a_file_that_is_not_one_value_that_fits_is_refused(
    tmp_path: Path, spark: SparkSession, content: str, said: str, use: str
) -> None:
    source = source_of(tmp_path, "a.json", content, multi_line=True)
    assert f"{tmp_path / 'a.json'} {said}" in refusal(spark, source, use)


@pytest.mark.spark
@pytest.mark.parametrize(("name", "options"), [("a.jsonl", {}), ("a.json", {"multi_line": True})])
def test_a_changed_file_is_an_error_of_its_own(
    tmp_path: Path, spark: SparkSession, name: str, options: dict[str, Any]
) -> None:
    source = source_of(tmp_path, name, '{"a": 1}', **options)
    position = source.next(source.start())
    assert position is not None
    (tmp_path / name).write_text('{"a": x}')
    with pytest.raises(Exception, match="MALFORMED_RECORD") as caught:
        source.load(spark, position).collect()
    explained = source.diagnose(position, str(caught.value))
    assert isinstance(explained, BoatliftError)
    assert explained.condition == "INPUT_CHANGED"
