"""Bad rows of files, sorted out: what fits is what a strict source gives, and a dead letter has place and reason."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.connectors import files
from boatlift.connectors.files import lines
from boatlift.connectors.files.source import FilesSource
from boatlift.connectors.kit import SourceWrapper
from boatlift.dataflow import BAD_ROW, Source
from boatlift.errors import InvalidError
from connectors.conformance import ordered
from connectors.source_laws import drain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "a INT NOT NULL, b INT, c STRING"
GOOD_CSV = ["1,2,x", "", "3,,", '4,5,"y,z"', "  ", '-6,7,"']
GOOD_JSON = ['{"a": 1, "b": 2, "c": "x"}', "", '{"a": 3}', '{"c": {"k": 1}, "a": 4, "more": 5}', "  "]
BAD_CSV = {
    "1,x,y": "column b is 'x', which is no int",
    "1,99999999999,y": "column b is '99999999999', which is no int",
    "1,2.5,y": "column b is '2.5', which is no int",
    ",2,y": "column a is NULL, and the schema has it as NOT NULL",
    "1,2": "it has 2 fields, the schema 3: '1,2'",
    "1,2,y,z": "it has 4 fields, the schema 3: '1,2,y,z'",
    "a,b,c": "column a is 'a', which is no int",
}
BAD_JSON = {
    '{"a": 1, "b": "x"}': 'column b is "x", which is no int',
    '{"a": 1, "b": 99999999999}': "column b is 99999999999, which is no int",
    '{"b": 1}': "column a is NULL, and the schema has it as NOT NULL",
    '{"a": null, "b": 1}': "column a is NULL, and the schema has it as NOT NULL",
    '{"a": 1}{"a": 2}': 'it is no single JSON value (Extra data at column 9): \'{"a": 1}{"a": 2}\'',
    '{"a": 1} junk': "it is no single JSON value (Extra data at column 10): '{\"a\": 1} junk'",
    '{"a": 1': "it is no single JSON value (Expecting ',' delimiter at column 8): '{\"a\": 1'",
    "[1]": "it is no object: '[1]'",
    "null": "it is no object: 'null'",
    '{"a": 1, "a": 2}': "the key 'a' is given twice: '{\"a\": 1, \"a\": 2}'",
    **{
        text: f"it has half of a surrogate pair, or U+FFFF, which is no character: {text!r}"
        for text in (r'{"a": 1, "c": "\ud800"}', r'{"a": 1, "c": "\uffff"}', '{"a": 1, "c": "\uffff"}')
    },
}
KINDS = {
    "csv": ("a.csv", ["a,b,c"], GOOD_CSV, BAD_CSV),
    "json": ("a.jsonl", [], GOOD_JSON, BAD_JSON),
}
each_kind = pytest.mark.parametrize("kind", KINDS)


def sorting(source: Source) -> Source:
    sorts = source.capabilities.bad_rows
    assert sorts is not None
    return sorts.sorting_out()


def parts_of(spark: SparkSession, source: Source) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Return the rows that fit, and the dead letters."""
    (position,), _ = drain(source, source.start())
    rows = source.load(spark, position)
    assert rows.schema == source.schema(spark)
    sorts = source.capabilities.bad_rows
    assert sorts is not None
    dead_letters = sorts.dead_letters(rows.where(rows[BAD_ROW].isNotNull()))
    assert dead_letters.columns == ["file", "offset", "text", "reason"]
    fitting = rows.where(rows[BAD_ROW].isNull()).drop(BAD_ROW)
    return ordered(map(tuple, fitting.collect())), sorted(map(tuple, dead_letters.collect()))


def mixed(good: Sequence[str], bad: Sequence[str]) -> list[str]:
    return [each for pair in zip(good * len(bad), bad, strict=False) for each in pair]


@pytest.mark.spark
@each_kind
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
@pytest.mark.parametrize("span", [16 << 20, 7], ids=["one part", "parts of 7 bytes"])
def test_rows_that_fit_are_those_of_a_strict_source_and_the_rest_are_dead_letters(
    tmp_path: Path, spark: SparkSession, kind: str, packed: bool, span: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SPAN_BYTES", span)
    monkeypatch.setattr(lines, "TASK_BYTES", span)
    name, header, good, bad = KINDS[kind]
    text = "\n".join([*header, *mixed(good, list(bad)), ""])
    for folder, content in (("good", "\n".join([*header, *(good * len(bad))[: len(bad)], ""])), ("all", text)):
        (tmp_path / folder).mkdir()
        data = content.encode()
        (tmp_path / folder / (name + (".gz" if packed else ""))).write_bytes(gzip.compress(data) if packed else data)
    strict = files(tmp_path / "good" / f"{name}*", schema=SCHEMA, format=kind)  # type: ignore[arg-type]
    (position,), _ = drain(strict, strict.start())
    expected = ordered(map(tuple, strict.load(spark, position).collect()))
    everything = sorting(files(tmp_path / "all" / f"{name}*", schema=SCHEMA, format=kind))  # type: ignore[arg-type]
    fitting, dead_letters = parts_of(spark, everything)
    assert fitting == expected
    file = name + (".gz" if packed else "")
    assert len(dead_letters) == len(bad)
    for each in bad:
        (dead_letter,) = [found for found in dead_letters if found[2] == each]
        assert (dead_letter[0], dead_letter[3]) == (file, f"[BAD_ROW] {bad[each]}")
        assert text.encode()[dead_letter[1] - 1 :].startswith(f"\n{each}\n".encode()) or dead_letter[1] == 0


@pytest.mark.spark
@each_kind
def test_ranges_of_a_file_have_its_rows_and_dead_letters(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    name, header, good, bad = KINDS[kind]
    (tmp_path / name).write_text("\n".join([*header, *mixed(good, list(bad)), ""]))
    whole = sorting(files(tmp_path / name, schema=SCHEMA, format=kind))  # type: ignore[arg-type]
    cut = sorting(files(tmp_path / name, schema=SCHEMA, format=kind, max_bytes_per_step=25))  # type: ignore[arg-type]
    (position,), _ = drain(whole, whole.start())
    positions, cursor = drain(cut, cut.start())
    assert len(positions) > 3
    expected = ordered(map(tuple, whole.load(spark, position).collect()))
    parts = [row for each in positions for row in map(tuple, cut.load(spark, each).collect())]
    assert ordered(parts) == expected
    everything = cut.capabilities.rescannable
    assert everything is not None
    assert ordered(map(tuple, everything.load_everything(spark, cursor).collect())) == expected


@pytest.mark.spark
@each_kind
def test_steps_that_are_read_together_have_the_rows_of_each(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    name, header, good, bad = KINDS[kind]
    for number in range(3):
        content = "\n".join([*header, *good[number : number + 1], *list(bad)[number:]])
        (tmp_path / f"{number}-{name}").write_text(content)
    source = sorting(files(tmp_path, schema=SCHEMA, format=kind))  # type: ignore[arg-type]
    positions, _ = drain(source, source.start())
    many = source.capabilities.reads_many_steps
    assert many is not None
    together = many.load_together(spark, positions)
    for ordinal, position in enumerate(positions):
        alone = source.load(spark, position)
        mine = together.where(f"_ordinal = {ordinal}").drop("_ordinal")
        assert mine.schema == alone.schema
        assert ordered(map(tuple, mine.collect())) == ordered(map(tuple, alone.collect()))


@pytest.mark.spark
@each_kind
@pytest.mark.parametrize("use", ["an unused column", "a filter that drops the row", "a count", "IS NOT NULL"])
def test_a_null_where_there_must_be_none_stops_a_strict_source(
    tmp_path: Path, spark: SparkSession, kind: str, use: str
) -> None:
    name, header, good, _ = KINDS[kind]
    bad = ",2,y" if kind == "csv" else '{"b": 2, "c": "y"}'
    (tmp_path / name).write_text("\n".join([*header, good[0], bad]))
    source = files(tmp_path / name, schema=SCHEMA)
    (position,), _ = drain(source, source.start())
    rows = source.load(spark, position)
    assert all(field.nullable for field in rows.schema.fields)
    uses = {
        "an unused column": lambda: rows.select("c").collect(),
        "a filter that drops the row": lambda: rows.where("b > 2").collect(),
        "a count": rows.count,
        "IS NOT NULL": lambda: rows.where("a IS NOT NULL").collect(),
    }
    with pytest.raises(Exception, match="MALFORMED_RECORD") as caught:
        uses[use]()
    explained = source.diagnose(position, str(caught.value))
    assert explained is not None
    assert "column a is NULL, and the schema has it as NOT NULL" in str(explained)


@pytest.mark.spark
def test_texts_that_are_not_utf_8(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a.jsonl").write_bytes('{"a": 1}\n{"a": 2, "c": "é"}\n'.encode("latin-1"))
    fitting, dead_letters = parts_of(spark, sorting(files(tmp_path, schema=SCHEMA, format="json")))
    assert fitting == [(1, None, None)]
    ((file, offset, text, reason),) = dead_letters
    assert (file, offset, text) == ("a.jsonl", 9, '{"a": 2, "c": "\ufffd"}')
    assert reason.startswith("[BAD_ROW] it is not UTF-8")
    (tmp_path / "a.csv").write_bytes("a,b,c\n1,2,é\n1,é,é\n".encode("latin-1"))
    source = files(tmp_path / "a.csv", schema=SCHEMA, encoding="iso-8859-1")
    assert parts_of(spark, sorting(source)) == (
        [(1, 2, "é")],
        [("a.csv", 12, "1,é,é", "[BAD_ROW] column b is 'é', which is no int")],
    )


@pytest.mark.spark
@pytest.mark.parametrize("separator", ["\t", " "])
def test_a_row_of_nulls_alone_is_a_row_and_no_blank_line(tmp_path: Path, spark: SparkSession, separator: str) -> None:
    texts = [separator.join(fields) for fields in ("abc", "123", ["", "", ""], "4x6")]
    (tmp_path / "a.csv").write_text("\n".join([texts[0], "", *texts[1:], ""]))
    source = files(tmp_path / "a.csv", schema="a INT, b INT, c INT", separator=separator)
    fitting, dead_letters = parts_of(spark, sorting(source))
    assert sorted(fitting, key=repr) == [(1, 2, 3), (None, None, None)]
    assert [dead_letter[2] for dead_letter in dead_letters] == [texts[3]]


@pytest.mark.spark
def test_dates_of_a_form(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "a.csv").write_text("d\n31.01.2013\n31.02.2013\n2013-01-31\n")
    _, dead_letters = parts_of(spark, sorting(files(tmp_path / "a.csv", schema="d DATE", date_format="dd.MM.yyyy")))
    assert [dead_letter[3] for dead_letter in dead_letters] == [
        f"[BAD_ROW] column d is '{day}', which is no date of the form dd.MM.yyyy"
        for day in ("31.02.2013", "2013-01-31")
    ]


@pytest.mark.spark
def test_a_compressed_file_that_was_cut_stops(tmp_path: Path, spark: SparkSession) -> None:
    content = gzip.compress("".join(f"{i},{i * 7919 % 10007},{i:x}\n" for i in range(100_000)).encode())
    (tmp_path / "a.csv.gz").write_bytes(content[: len(content) // 2])
    source = sorting(files(tmp_path, format="csv", schema=SCHEMA, header=False))
    (position,), _ = drain(source, source.start())
    with pytest.raises(Exception, match=r"\[BAD_ROW\] .*a\.csv\.gz cannot be decompressed"):
        source.load(spark, position).collect()


@pytest.mark.spark
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "compressed"])
def test_elements_of_one_array_are_sorted_out_too(
    tmp_path: Path, spark: SparkSession, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SPAN_BYTES", 7)
    monkeypatch.setattr(lines, "TASK_BYTES", 7)
    good = [each for each in GOOD_JSON if each.strip()] * len(BAD_JSON)
    bad = [each for each in BAD_JSON if each != '{"a": 1']  # which takes the elements behind it along
    write = gzip.compress if packed else bytes
    for folder, elements in (("good", good[: len(bad)]), ("all", mixed(good, bad))):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.json").with_suffix(".json.gz" if packed else ".json").write_bytes(
            write(("\ufeff [" + "\n,".join(elements) + "]\n").encode())
        )
    strict = files(tmp_path / "good" / "a.json*", schema=SCHEMA, format="json", multi_line=True)
    (position,), _ = drain(strict, strict.start())
    expected = ordered(map(tuple, strict.load(spark, position).collect()))
    sorted_out = sorting(files(tmp_path / "all" / "a.json*", schema=SCHEMA, format="json", multi_line=True))
    fitting, dead_letters = parts_of(spark, sorted_out)
    assert fitting == expected
    text = (("\ufeff [" + "\n,".join(mixed(good, bad)) + "]\n").encode()).decode()
    assert sorted((element, reason) for _, _, element, reason in dead_letters) == sorted(
        (element, f"[BAD_ROW] {BAD_JSON[element]}") for element in bad
    )
    for _, offset, element, _ in dead_letters:
        assert text.encode()[offset:].startswith(element.encode())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("text", "fitting", "bad"),
    [
        ("[{'a': 1, 'c': 'x,]'}, {\"a\": 2}]", [(2, None, None)], ["{'a': 1, 'c': 'x,]'}"]),
        (" \n", [], [""]),
        ('[{"a": 1}}', [(1, None, None)], ["}"]),
        ('[{"a": 1}, {"a": %s}]' % ("1" * 5000), [(1, None, None)], ['{"a": %s}' % ("1" * 5000)]),
    ],
    ids=["single quotes", "blank", "another bracket", "a long number"],
)
def test_a_file_of_one_value_is_judged_as_strictly_as_it_is_read(
    tmp_path: Path, spark: SparkSession, text: str, fitting: list[Any], bad: list[str]
) -> None:
    (tmp_path / "a.json").write_text(text)
    source = files(tmp_path, schema=SCHEMA, format="json", multi_line=True)
    rows, dead_letters = parts_of(spark, sorting(source))
    assert (rows, [dead_letter for _, _, dead_letter, _ in dead_letters]) == (fitting, bad)
    (position,), _ = drain(source, source.start())
    strict = source.load(spark, position)
    if bad:
        with pytest.raises(Exception, match="MALFORMED_RECORD"):
            strict.collect()
    else:
        assert ordered(map(tuple, strict.collect())) == fitting


def test_a_schema_says_what_is_not_null() -> None:
    declared = (
        "a INT not null, `b c` STRUCT<x: INT NOT NULL>, c DECIMAL(5, 2) NOT NULL COMMENT 'x', d INT COMMENT 'NOT NULL'"
    )
    for multi_line in (False, True):
        assert files("x.json", schema=declared, multi_line=multi_line).describe()["not_null"] == ["a", "c"]
    assert "not_null" not in files("x.json", schema="a INT").describe()


@pytest.mark.parametrize(
    "source",
    [
        lambda: bl.files("x.parquet", schema="a INT"),
        lambda: bl.files("x.csv", schema="a INT", multi_line=True),
        lambda: bl.push("a INT"),
        lambda: bl.generator({"a": "id"}, rows_per_step=10),
        lambda: bl.kafka.source("localhost:1", topic="t"),
    ],
)
def test_sources_without_bad_rows_refuse_to_sort_them_out(source: Any) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] rows has no bad rows to give"):
        bl.Dataflow("flow").source("rows", source(), bad_rows="dead_letters")


def test_options_and_calls_that_make_no_sense_are_refused() -> None:
    flow = bl.Dataflow("flow")
    source = bl.files("x.csv", schema="a INT")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] rows: bad_rows is 'drop': choose 'stop' or 'dead_letters'"):
        flow.source("rows", source, bad_rows="drop")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] bad: rows is no source that sorts out bad rows"):
        flow.source("rows", source).bad_rows("bad")
    sorted_out = flow.source("others", source, bad_rows="dead_letters")
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] worse: bad is no source"):
        sorted_out.bad_rows("bad").bad_rows("worse")
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] more keeps the number of dead letters"):
        sorted_out.bad_rows("more", policy=bl.Ephemeral())  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] late: lateness is"):
        flow.source("late", source, bad_rows="dead_letters", lateness={})
    assert "late_source" not in flow.processors, "what is refused leaves nothing behind"


@pytest.mark.spark
def test_a_column_with_the_name_of_bad_rows_is_refused(spark: SparkSession) -> None:
    source = sorting(files("x.csv", schema=f"a INT, {BAD_ROW.upper()} INT"))
    with pytest.raises(InvalidError, match=r"\[RESERVED_NAME\]"):
        source.schema(spark)


def test_a_wrapped_source_is_wrapped_when_it_sorts_out_bad_rows() -> None:
    class Counting(SourceWrapper):
        polls = 0

        def next(self, cursor: Any) -> Any:
            self.polls += 1
            return self.source.next(cursor)

    wrapped = sorting(Counting(files(Path(__file__).parent / "*.csv", schema="a INT")))
    assert isinstance(wrapped, Counting)
    assert isinstance(wrapped.source, FilesSource)
    assert wrapped.describe()["bad_rows"] == "dead_letters"
    assert wrapped.next(wrapped.start()) is None
    assert wrapped.polls == 1
