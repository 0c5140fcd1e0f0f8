"""What `files` takes for input, what it refuses, and how it says so."""

from __future__ import annotations

import json
import os
import re
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from boatlift.connectors import files
from boatlift.connectors.files.listing import Listing
from boatlift.connectors.files.source import FilesSource
from boatlift.connectors.kit.declared_columns import TYPE_WORDS, columns_of, struct_of
from boatlift.dataflow.contracts import Json, Names
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "a INT, b INT, c STRING"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def csv(folder: Path, **options: object) -> FilesSource:
    return files(folder, format="csv", schema=SCHEMA, **options)  # type: ignore[arg-type]


def taken(source: FilesSource, cursor: Json | None = None) -> list[list[str]]:
    """The names of each step until nothing is new."""
    steps, cursor = [], cursor or source.start()
    while (position := source.next(cursor)) is not None:
        steps.append([file["path"] for file in position["files"]])
        cursor = source.advance(cursor, position)
    return steps


def first(source: FilesSource) -> Json:
    position = source.next(source.start())
    assert position is not None
    return position


def test_unfinished_and_hidden_files_are_no_input(tmp_path: Path) -> None:
    for name in ("_a.csv", ".a.csv", "a.csv.tmp", ".a.csv.crc", "a.csv.crc", "b.csv"):
        write(tmp_path, name, "a,b,c\n1,2,x\n")
    (tmp_path / "folder.csv").mkdir()
    assert taken(csv(tmp_path)) == [["b.csv"]]
    (tmp_path / "a.csv.tmp").rename(tmp_path / "a.csv")
    assert taken(csv(tmp_path)) == [["a.csv"], ["b.csv"]]


def test_a_glob_may_have_wildcards_in_folders(tmp_path: Path) -> None:
    for name in ("x/1.csv", "y/1.csv", "y/_2.csv", "_z/1.csv", "y/1.txt", "deep/er/1.csv"):
        write(tmp_path, name, "a,b,c\n")
    assert taken(files(tmp_path / "*" / "*.csv", schema=SCHEMA)) == [["x/1.csv"], ["y/1.csv"]]
    assert taken(files(tmp_path / "x" / "1.csv", schema=SCHEMA)) == [["1.csv"]]


def test_files_that_come_later_are_found_whatever_their_names_sort_like(tmp_path: Path) -> None:
    source = csv(tmp_path)
    write(tmp_path, "m.csv", "a,b,c\n")
    position = first(source)
    cursor = source.advance(source.start(), position)
    assert source.next(cursor) is None
    for name in ("z.csv", "a.csv"):
        write(tmp_path, name, "a,b,c\n")
    assert taken(source, cursor) == [["a.csv"], ["z.csv"]]


def test_a_step_has_at_most_so_many_files_and_bytes(tmp_path: Path) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.csv", "a,b,c\n1,2,x\n" * (10 if number == 1 else 1))
    one = (tmp_path / "0.csv").stat().st_size
    assert taken(csv(tmp_path, max_files_per_step=2)) == [["0.csv", "1.csv"], ["2.csv", "3.csv"], ["4.csv"]]
    limited = csv(tmp_path, max_files_per_step=9, max_bytes_per_step=2 * one)
    assert taken(limited) == [["0.csv"], *[["1.csv"]] * 5, ["2.csv", "3.csv"], ["4.csv"]], "the second in ranges"


def test_files_that_wait_are_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        write(tmp_path, f"{number}.csv", "a,b,c\n1,2,x\n")
    listings, real = [], os.scandir

    def counted(path: str) -> object:
        listings.append(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", counted)
    source = csv(tmp_path)
    assert taken(source) == [[f"{number}.csv"] for number in range(5)]
    assert len(listings) == 2, "the second finds nothing new"


def test_files_that_come_and_go_while_others_wait(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, f"{number}.csv", "a,b,c\n1,2,x\n")
    source = csv(tmp_path)
    cursor = source.advance(source.start(), first(source))
    write(tmp_path, "+.csv", "a,b,c\n1,2,x\n")
    (tmp_path / "1.csv").unlink()
    assert taken(source, cursor) == [["2.csv"], ["3.csv"], ["+.csv"]]


def test_a_position_that_came_to_nothing_is_offered_again(tmp_path: Path) -> None:
    for number in range(4):
        write(tmp_path, f"{number}.csv", "a,b,c\n1,2,x\n")
    source = csv(tmp_path)
    after = source.advance(source.start(), first(source))
    lost = source.next(after)
    assert source.next(after) == lost
    assert taken(source, after) == [["1.csv"], ["2.csv"], ["3.csv"]]
    assert taken(source) == [["0.csv"], ["1.csv"], ["2.csv"], ["3.csv"]], "as after a rollback to the start"


def test_globs_find_what_the_system_finds(tmp_path: Path) -> None:
    (tmp_path / "y").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "y", target_is_directory=True)
    for name in ("y/[1].csv", "y/2.csv", "x/2.csv/3.csv", "y/2.CSV", "10.csv"):
        write(tmp_path, name, "a,b,c\n1,2,x\n")
    (tmp_path / "y" / "dead.csv").symlink_to(tmp_path / "nowhere")
    for pattern in ("*/*.csv", "y/[[]1].csv", "[xy]/2.csv", "*/2.csv/*", "?0.csv", "l*k/*", "*/[!2].csv", "*"):
        found = sorted(each for each in glob(str(tmp_path / pattern)) if Path(each).is_file())  # noqa: PTH207
        listing = Listing(tmp_path / pattern)
        assert sorted(str(listing.path_of(name)) for name in listing.names()) == found, pattern


def test_a_file_that_grows_while_it_is_read_is_left_for_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a.csv", "a,b,c\n1,2,x\n")
    real = os.fstat

    def grown(descriptor: int) -> os.stat_result:
        result = real(descriptor)
        with path.open("a") as file:
            file.write("3,4,y\n")
        return result

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", grown)
        assert taken(csv(tmp_path)) == []
    assert taken(csv(tmp_path)) == [["a.csv"]]


def test_names_do_not_depend_on_where_the_folder_is(tmp_path: Path) -> None:
    write(tmp_path, "here/a.csv", "a,b,c\n1,2,x\n")
    position = first(csv(tmp_path / "here"))
    (tmp_path / "here").rename(tmp_path / "there")
    csv(tmp_path / "there").verify(position)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        ("x", {"schema": SCHEMA}),
        ("x.csv", {}),
        ("x.csv", {"schema": "a"}),
        ("x.csv", {"schema": ""}),
        ("x.csv", {"schema": "a INT, A INT"}),
        ("x.csv", {"schema": "a ARRAY<INT>"}),
        ("x.csv", {"schema": SCHEMA, "max_files_per_step": 0}),
        ("x.csv", {"schema": SCHEMA, "max_files_per_step": 1.5}),
        ("x.csv", {"schema": SCHEMA, "max_bytes_per_step": 0}),
        ("**/x.csv", {"schema": SCHEMA}),
    ],
)
def test_options_that_make_no_sense_are_refused(path: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]"):
        files(path, **options)  # type: ignore[arg-type]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    source = csv(tmp_path / "no")
    with pytest.raises(InvalidError, match=r"\[NO_INPUT\]"):
        source.next(source.start())
    with pytest.raises(UnavailableError, match=r"\[INPUT_UNAVAILABLE\]"):
        source.next({"taken": Names(["a.csv"])})  # it was there once


def test_a_name_that_spark_cannot_read_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "10:30.csv", "a,b,c\n")
    with pytest.raises(InvalidError, match=r"\[BAD_NAME\].*10:30"):
        taken(csv(tmp_path))


@pytest.mark.parametrize("tail", [False, True])
def test_a_name_that_is_no_utf_8_is_refused_and_shown_by_its_bytes(tmp_path: Path, *, tail: bool) -> None:
    """No log and no message can hold it; the files before it are taken."""
    for name in (b"a.csv", b"caf\xe9.csv", b".caf\xe9.csv"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("a,b,c\n1,2,x\n")
    source = csv(tmp_path, tail=tail)
    told = r"\[BAD_NAME\] the name of file \S+/caf\\xe9\.csv is no UTF-8.*: rename it"
    with pytest.raises(InvalidError, match=told) as refused:
        source.next(source.start() if tail else source.advance(source.start(), first(source)))
    assert str(refused.value).encode()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")).rename(tmp_path / "café.csv")
    assert sorted(name for step in taken(csv(tmp_path, tail=tail)) for name in step) == ["a.csv", "café.csv"]
    for path in (os.fsdecode(b"/caf\xe9/*.csv"), "a\0b.csv"):
        with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] path .* is no UTF-8, or has a zero byte"):
            files(path, schema=SCHEMA)


@pytest.mark.parametrize("pattern", ["a.csv", "*.csv"])
def test_a_path_that_cannot_be_looked_at_is_named(tmp_path: Path, pattern: str) -> None:
    closed = tmp_path / ("x" * 300)  # the system refuses such a name to root too
    with pytest.raises(UnavailableError, match=r"\[INPUT_UNAVAILABLE\] \S+x/\S+\.csv cannot be looked at \("):
        files(closed / pattern, schema=SCHEMA)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "")
    with pytest.raises(DataError, match=r"\[INPUT_EMPTY\].*a\.csv"):
        taken(csv(tmp_path))


def test_schemas_are_read_as_spark_reads_them() -> None:
    ddl = "`odd, name` decimal(10, 2) NOT NULL COMMENT 'a, b', n: LONG, s STRUCT<x: INT, y: ARRAY<STRING>>, d DEC"
    assert columns_of(ddl) == (
        ("odd, name", "decimal(10,2)"),
        ("n", "bigint"),
        ("s", "struct<x:int,y:array<string>>"),
        ("d", "decimal(10,0)"),
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("a INTT", "column a has the type INTT, which Spark does not know: write INT or BIGINT"),
        ("a INT, b Strng NOT NULL", "column b has the type Strng, which Spark does not know: write STRING"),
        ("`a b` DECIMEL(10, 2)", "column a b has the type DECIMEL, which Spark does not know: write DECIMAL"),
        ("a ARAY<INT>", "column a has the type ARAY, which Spark does not know: write ARRAY"),
        ("a TEXT", "column a has the type TEXT, which Spark does not know: write a type such as STRING, INT, BIGINT,"),
    ],
)
@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_the_error_of_an_unknown_type_names_similar_types(tmp_path: Path, format: str, schema: str, said: str) -> None:  # noqa: A002
    with pytest.raises(InvalidError, match=re.escape(f"[BAD_OPTION] {said}")):
        files(tmp_path, format=format, schema=schema)


@pytest.mark.parametrize("kind", ["BINARY", "ARRAY<INT>", "STRUCT<x: INT>", "VARCHAR(3)", "INTERVAL DAY", "VARIANT"])
def test_a_known_type_that_csv_cannot_hold_is_an_error_of_its_own(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] CSV cannot hold column a of type .*: declare it as string"):
        files(tmp_path, format="csv", schema=f"a {kind}")


@pytest.mark.spark
def test_every_word_that_a_type_may_begin_with_is_one_of_sparks(spark: SparkSession) -> None:
    whole = {"array": "array<int>", "map": "map<int, int>", "struct": "struct<x: int>", "interval": "interval day"}
    whole |= {word: f"{word}(4)" for word in ("char", "character", "varchar")}
    whole |= {word: f"{word}(4326)" for word in ("geometry", "geography")}
    for word in TYPE_WORDS:
        assert struct_of(f"a {whole.get(word, word)}").names == ["a"]


@pytest.mark.spark
def test_schemas_are_read_as_spark_reads_them_by_spark(spark: SparkSession) -> None:
    from pyspark.sql.types import StructType

    ddl = (
        "a INT, b INTEGER, c LONG, d BIGINT, e SHORT, f BYTE, g FLOAT, h REAL, i DOUBLE, j BOOLEAN, k STRING, l DATE, "
        "m TIMESTAMP, n TIMESTAMP_NTZ, o DECIMAL, p DECIMAL(5), q NUMERIC(38, 9), r BINARY, `s``t` INT COMMENT 'x'"
    )
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    assert columns_of(ddl) == columns_of(schema)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("a,b", r"lacks \['c'\]"),
        ("a,b,c,d", r"has \['d'\]"),
        ("a,b,d", r"lacks \['c'\] and has \['d'\]"),
        ("b,a,c", r"has columns \['b', 'a', 'c'\]"),
        ("A,b,c", r"lacks \['a'\]"),
        ("\n", "no header line"),
    ],
)
def test_a_csv_header_that_differs_is_refused_when_the_step_is_closed(tmp_path: Path, header: str, said: str) -> None:
    write(tmp_path, "a.csv", f"{header}\n")
    with pytest.raises(DataError, match=rf"\[BAD_HEADER\].*a\.csv.*{said}"):
        taken(csv(tmp_path))


def test_headers_that_are_right_though_they_look_otherwise(tmp_path: Path) -> None:
    write(tmp_path, "bom.csv", "\ufeffa,b,c\n1,2,x\n")
    write(tmp_path, "quoted.csv", '"a","b","c"\r\n1,2,x\r\n')
    write(tmp_path, "blank.csv", "\n\na,b,c\n1,2,x\n")
    assert len(taken(csv(tmp_path))) == 3
    assert taken(files(tmp_path, format="csv", schema="x INT, y INT, z STRING", header=False))


def parquet_file(path: Path, **columns: pa.Array) -> None:
    pq.write_table(pa.table(columns), path)


def test_parquet_columns_are_held_against_the_schema(tmp_path: Path) -> None:
    longs, texts = pa.array([1], pa.int64()), pa.array(["x"])
    parquet_file(tmp_path / "a.parquet", id=longs, text=texts)
    parquet_file(tmp_path / "b.parquet", text=texts, id=longs)
    declared = files(tmp_path, format="parquet", schema="id BIGINT, text STRING")
    assert len(taken(declared)) == 2
    inferred = files(tmp_path / "*.parquet")
    assert inferred.describe()["schema"] == declared.describe()["schema"]
    parquet_file(tmp_path / "c.parquet", id=pa.array([1], pa.int32()), text=texts)
    for source in (declared, inferred):
        with pytest.raises(DataError, match=r"\[BAD_HEADER\].*c\.parquet: column id is int, not bigint"):
            taken(source)
    parquet_file(tmp_path / "c.parquet", id=longs)
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*c\.parquet lacks \['text'\]"):
        taken(declared)
    (tmp_path / "c.parquet").write_bytes(b"PAR1 is not enough")
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*c\.parquet is not a whole Parquet file"):
        taken(declared)


def test_parquet_without_a_schema_needs_a_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match=r"\[NO_INPUT\].*schema="):
        files(tmp_path, format="parquet").describe()


@pytest.mark.spark
def test_parquet_that_spark_wrote_is_taken_as_spark_reads_it(tmp_path: Path, spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT 1Y a, 2S b, 3 c, 4L d, 0.5F e, 0.5D f, true g, 'x' h, X'01' i, DATE'2013-01-31' j, "
        "TIMESTAMP'2013-01-31' k,"
        "TIMESTAMP_NTZ'2013-01-31' l, 1.50BD m, array(1) n, named_struct('x', 1L) o, map('k', 2) p"
    )
    rows.write.parquet(str(tmp_path / "out"))
    before = spark.conf.get("spark.sql.parquet.outputTimestampType")
    assert before is not None
    spark.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    try:
        rows.write.mode("append").parquet(str(tmp_path / "out"))
    finally:
        spark.conf.set("spark.sql.parquet.outputTimestampType", before)
    for source in (
        files(tmp_path / "out", format="parquet", max_files_per_step=9),
        files(tmp_path / "out", format="parquet", schema=rows.schema, max_files_per_step=9),
    ):
        position = first(source)
        assert len(position["files"]) == 2
        assert source.load(spark, position).drop("_position").collect() == rows.collect() * 2


@pytest.mark.spark
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("3,zz,y", "column b is 'zz', which is no int"),
        ("3,99999999999,y", "column b is '99999999999', which is no int"),
        ("3,1.5,y", "column b is '1.5', which is no int"),
        ("3, 4,y", "column b is ' 4', which is no int"),
        ("3,4", "it has 2 fields, the schema 3"),
        ("3,4,y,z", "it has 4 fields, the schema 3"),
    ],
)
@pytest.mark.parametrize("use", ["an unused column", "a filter that drops the row", "a count"])
def test_a_row_that_does_not_fit_is_refused_with_file_line_and_value(
    tmp_path: Path, spark: SparkSession, row: str, said: str, use: str
) -> None:
    write(tmp_path, "1.csv", "a,b,c\n1,2,x\n")
    write(tmp_path, "2.csv", f'a,b,c\n1,2,x\n\n{row}\n5,"6",z\n')
    source = csv(tmp_path, max_files_per_step=2)
    position = first(source)
    rows = source.load(spark, position)
    if use == "an unused column":
        rows = rows.select("a")
    elif use == "a filter that drops the row":
        rows = rows.where("a = 1").select("c")
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|MALFORMED_RECORD") as caught:
        rows.count() if use == "a count" else rows.collect()
    explained = source.diagnose(position, str(caught.value))
    assert isinstance(explained, DataError)
    assert explained.condition == "BAD_ROW"
    assert f"{tmp_path / '2.csv'} line 4: {said}" in str(explained)


@pytest.mark.spark
def test_what_spark_could_not_read_because_the_file_changed_is_said_so(tmp_path: Path, spark: SparkSession) -> None:
    path = write(tmp_path, "1.csv", "a,b,c\n1,2,x\n")
    source = csv(tmp_path)
    position = first(source)
    path.write_text("a,b,c\n1,x,x\n")
    with pytest.raises(Exception, match="MALFORMED_RECORD") as caught:
        source.load(spark, position).collect()
    explained = source.diagnose(position, str(caught.value))
    assert isinstance(explained, BoatliftError)
    assert explained.condition == "INPUT_CHANGED"


@pytest.mark.spark
def test_a_parquet_file_damaged_inside_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": list(range(10000))}), path)
    content = bytearray(path.read_bytes())
    content[4:64] = b"\xff" * 60  # the header of its first page
    path.write_bytes(content)
    source = files(path)
    position = first(source)
    with pytest.raises(Exception, match=r"FAILED_READ_FILE|CANNOT_READ_FILE") as caught:
        source.load(spark, position).collect()
    explained = source.diagnose(position, str(caught.value))
    assert isinstance(explained, DataError)
    assert explained.condition == "BAD_ROW"
    assert "a.parquet cannot be read as Parquet" in str(explained)


@pytest.mark.spark
def test_null_values_and_quotes(tmp_path: Path, spark: SparkSession) -> None:
    write(tmp_path, "a.csv", 'a;b;c\nNA;1;NA\n2;;""\n3;NA;"x;""y"\n')
    source = csv(tmp_path, null_value="NA", separator=";", escape='"')
    rows = source.load(spark, first(source)).collect()
    assert [tuple(row) for row in rows] == [(None, 1, None), (2, None, ""), (3, None, 'x;"y')]


@pytest.mark.spark
def test_names_are_names_and_no_globs(tmp_path: Path, spark: SparkSession) -> None:
    for number, name in enumerate(("a[1].csv", "a1.csv", "b{x,y}*?.csv", "c d%20#e+.csv", "ü.csv", "b\\e.csv")):
        write(tmp_path, name, f"a,b,c\n{number},0,x\n")
    source = csv(tmp_path, max_files_per_step=9)
    position = first(source)
    read = source.load(spark, position).collect()
    assert sorted(row.a for row in read) == [0, 1, 2, 3, 4, 5]
    alone = [{"files": [file]} for file in position["files"]]
    assert sorted(row.a for each in alone for row in source.load(spark, each).collect()) == [0, 1, 2, 3, 4, 5]
    odd = tmp_path / "odd [1]{2}"
    for name in ("a.csv", "b.csv"):
        write(odd, name, "a,b,c\n7,0,x\n")
    both = csv(odd, max_files_per_step=2)
    assert both.load(spark, first(both)).count() == 2
    together = source.load_together(spark, alone).collect()
    assert sorted((row._ordinal, row.a) for row in together) == [
        (ordinal, row.a) for ordinal, each in enumerate(alone) for row in source.load(spark, each).collect()
    ]


@pytest.mark.spark
def test_positions_of_parquet_rows_distinguish_files(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("b c%20+.parquet", "a'[x].parquet"):
        parquet_file(tmp_path / name, id=pa.array(range(3)))
    source = files(tmp_path, format="parquet", max_files_per_step=2)
    rows = source.load(spark, first(source))
    assert sorted(row._position for row in rows.collect()) == [0, 1, 2, *((1 << 40) + i for i in range(3))]
    assert not files(tmp_path / "*" / "*.parquet").positioned


@pytest.mark.spark
def test_loading_gives_spark_the_same_plan_for_every_step(tmp_path: Path, spark: SparkSession) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path, name, "a,b,c\n1,2,x\n")
    source = csv(tmp_path)
    position = first(source)
    following = source.next(source.advance(source.start(), position))
    assert following is not None
    plans = [source.load(spark, p)._jdf.queryExecution().analyzed().canonicalized() for p in (position, following)]
    texts = [plan.toString() for plan in plans]
    assert texts[0] == texts[1]
    assert json.dumps(position) != json.dumps(following)
