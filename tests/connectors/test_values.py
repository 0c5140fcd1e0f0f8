"""Text that is a value, and text that is none: the table of docs/values.md over every way in, and laws."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from boatlift.connectors import files
from boatlift.connectors.kafka.value_format import value_format_of
from boatlift.connectors.kit import struct_of
from boatlift.connectors.kit.arrow_text import times_as_text
from boatlift.connectors.kit.text_forms import TextForm, TextForms
from boatlift.connectors.kit.text_rows import Texts
from boatlift.connectors.push.rows import PushedRows
from boatlift.connectors.sqlite.table import declared_values
from boatlift.dataflow.columns import literal
from boatlift.dataflow.contracts import BAD_ROW
from boatlift.errors import DataError, InvalidError
from connectors.source_laws import drain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "values.md").read_text()


def table() -> Iterator[tuple[str, list[str], list[str]]]:
    """Each type of the page's table, with the texts that are values and those that are none."""
    for line in PAGE.splitlines():
        if re.match(r"\| `[A-Z]", line):
            kinds, *texts = (re.findall("`([^`]*)`", cell) for cell in line.strip("|").split("|"))
            for kind in kinds:
                yield kind, texts[0], texts[1]


def value_of(kind: str, text: str) -> Any:
    """The value of a text by Python, of which the table says that it is one."""
    match kind.partition("(")[0]:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            return int(text)
        case "FLOAT" | "DOUBLE":
            return float(text)
        case "DECIMAL":
            return Decimal(text)
        case "BOOLEAN":
            return text.lower() == "true"
        case "DATE":
            return date.fromisoformat(text)
        case "TIMESTAMP":
            found = datetime.fromisoformat(text.replace(" UTC", "Z"))
            return found if found.tzinfo else found.replace(tzinfo=UTC)
        case "TIMESTAMP_NTZ":
            return datetime.fromisoformat(text)
    return text


TAKEN = [(kind, text) for kind, taken, _ in table() for text in taken]
REFUSED = [(kind, text) for kind, _, refused in table() for text in refused]
KINDS = sorted({kind for kind, _ in [*TAKEN, *REFUSED]})
NAMES = {kind: f"c{number}" for number, kind in enumerate(KINDS)}
SCHEMA = "n INT, " + ", ".join(f"{name} {kind}" for kind, name in NAMES.items())


def as_csv(number: int, kind: str, text: str) -> str:
    return ";".join([str(number), *(f'"{text}"' if other == kind else "" for other in KINDS)])


def is_bare(kind: str, text: str) -> bool:
    """Whether JSON has the text as a number or a boolean."""
    number = r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?"
    return re.fullmatch("true|false" if kind == "BOOLEAN" else number, text) is not None


def as_json(number: int, kind: str, text: str) -> str:
    bare = is_bare(kind, text) and not (kind.startswith("DECIMAL") and number % 2)
    return f'{{"n": {number}, "{NAMES[kind]}": {text if bare else json.dumps(text)}}}'


def found_in(rows: DataFrame) -> dict[int, Any]:
    """The values of rows by their numbers; instants in UTC."""
    held = rows.toArrow().to_pylist()
    return {row["n"]: next((v for name, v in row.items() if name[0] == "c" and v is not None), None) for row in held}


def same(found: Any, expected: Any, kind: str) -> bool:
    if isinstance(expected, float):
        near = kind == "FLOAT" and math.isclose(found, expected, rel_tol=1e-6)
        return (
            (math.isnan(found) and math.isnan(expected))
            or near
            or (found, math.copysign(1, found))
            == (
                expected,
                math.copysign(1, expected),
            )
        )
    return bool(found == expected)


def test_the_table_has_all_types_of_text() -> None:
    assert len(TAKEN) > 40
    assert len(REFUSED) > 50
    assert {"INT", "DOUBLE", "DECIMAL(10,2)", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"} < set(KINDS)


BARE = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "BOOLEAN")
"""The types whose values JSON has without quotes, but for NaN and infinities."""
TAKEN_OF_JSON = [
    (kind, text) for kind, text in TAKEN if kind not in BARE or is_bare(kind, text) or text.strip("-")[0] in "NIi"
]

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "CSV": ("a.csv", {"separator": ";"}),
    "CSV of several lines": ("a.csv", {"separator": ";", "multi_line": True}),
    "CSV in ranges": ("a.csv", {"separator": ";", "max_bytes_per_step": 1000}),
    "JSON lines": ("a.jsonl", {}),
    "a JSON document": ("a.json", {"multi_line": True}),
}


def written(way: str, cases: list[tuple[str, str]]) -> str:
    if WAYS[way][0] == "a.csv":
        return "\n".join(["n;" + ";".join(NAMES.values()), *(as_csv(n, *case) for n, case in enumerate(cases)), ""])
    lines = [as_json(n, *case) for n, case in enumerate(cases)]
    return "[" + ",\n".join(lines) + "]" if way == "a JSON document" else "\n".join(lines)


@pytest.mark.spark
@pytest.mark.parametrize("way", WAYS)
def test_files_take_what_the_table_takes(tmp_path: Path, spark: SparkSession, way: str) -> None:
    name, options = WAYS[way]
    taken = TAKEN if "CSV" in way else TAKEN_OF_JSON
    (tmp_path / name).write_text(written(way, taken))
    source = files(tmp_path / name, schema=SCHEMA, **options)
    positions, _ = drain(source, source.start())
    found = {n: value for each in positions for n, value in found_in(source.load(spark, each)).items()}
    wrong = [
        (kind, text, found.get(n))
        for n, (kind, text) in enumerate(taken)
        if not same(found.get(n), value_of(kind, text), kind)
    ]
    assert wrong == []


@pytest.mark.spark
@pytest.mark.parametrize("way", [way for way in WAYS if way != "CSV of several lines"])
def test_what_the_table_refuses_is_a_bad_row_of_files(tmp_path: Path, spark: SparkSession, way: str) -> None:
    name, options = WAYS[way]
    (tmp_path / name).write_text(written(way, REFUSED))
    sorts = files(tmp_path / name, schema=SCHEMA, **options).capabilities.bad_rows
    assert sorts is not None
    source = sorts.sorting_out()
    positions, _ = drain(source, source.start())
    rows = [row for each in positions for row in source.load(spark, each).collect()]
    assert [REFUSED[row["n"]] for row in rows if row[BAD_ROW] is None] == []
    assert len(rows) == len(REFUSED)


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["DOUBLE", "DECIMAL(10,2)", "DATE", "TIMESTAMP"])
def test_what_the_table_refuses_stops_a_strict_source_of_csv(tmp_path: Path, spark: SparkSession, kind: str) -> None:
    text = next(text for each, text in REFUSED if each == kind)
    for multi_line in (False, True):
        (tmp_path / "a.csv").write_text(f'n;x\n1;\n2;""\n3;"{text}"\n')
        source = files(tmp_path / "a.csv", schema=f"n INT, x {kind}", separator=";", multi_line=multi_line)
        (position,), _ = drain(source, source.start())
        with pytest.raises(Exception, match="MALFORMED_RECORD") as caught:
            source.load(spark, position).select("n").collect()
        told = source.diagnose(position, str(caught.value))
        assert f"a.csv line 4: column x is {text!r}, which is no {kind.lower()}" in str(told)


@pytest.mark.spark
def test_messages_of_kafka_are_read_by_the_same_table(spark: SparkSession) -> None:
    quoted = [(kind, f'"{text}"') for kind, text in TAKEN if kind in BARE and is_bare(kind, text)]
    cases = [*TAKEN_OF_JSON, *REFUSED, *quoted]
    values = [(as_json(n, *case).replace('\\"', "").encode(), n) for n, case in enumerate(cases)]
    messages = spark.createDataFrame(values, "value BINARY, _position BIGINT").selectExpr(
        "*", "'t' AS topic", "0 AS partition", "_position AS offset", "now() AS timestamp", "value AS key"
    )
    made = value_format_of("json", SCHEMA, {}, None, headers=False)
    rows = type(made)(SCHEMA, sorts=True).rows(messages, ordinals=False)  # type: ignore[call-arg]
    bad = {row["_position"] for row in rows.where(f"{BAD_ROW} IS NOT NULL").collect()}
    assert [cases[n] for n in sorted(bad)] == [*REFUSED, *quoted]
    found = found_in(made.rows(messages.where(f"_position < {len(TAKEN_OF_JSON)}"), ordinals=False).drop("_position"))
    assert all(same(found[n], value_of(*case), case[0]) for n, case in enumerate(TAKEN_OF_JSON))


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_pushes_take_nothing_that_the_table_refuses(kind: str, text: str) -> None:
    rows = PushedRows(struct_of_python(kind))
    for value in (json.dumps(text), text):
        with pytest.raises(DataError, match=r"\[BAD_ROW\]"):
            rows.of_json(f'{{"x": {value}}}'.encode())


def struct_of_python(kind: str) -> Any:
    from pyspark.sql import types as T

    kinds = {
        "TINYINT": T.ByteType(),
        "SMALLINT": T.ShortType(),
        "INT": T.IntegerType(),
        "BIGINT": T.LongType(),
        "FLOAT": T.FloatType(),
        "DOUBLE": T.DoubleType(),
        "DECIMAL(10,2)": T.DecimalType(10, 2),
        "BOOLEAN": T.BooleanType(),
        "DATE": T.DateType(),
        "TIMESTAMP": T.TimestampType(),
        "TIMESTAMP_NTZ": T.TimestampNTZType(),
    }
    return T.StructType([T.StructField("x", kinds[kind])])


# -- laws: the reader and Python read the same value, or both refuse ---------------------------------------------------


def by_python(kind: str, text: str) -> Any:
    """The value of a text of digits, signs, points and exponents by Python's exact numbers; None if it is none."""
    with suppress(ValueError, InvalidOperation):
        if kind == "BIGINT":
            return int(text) if abs(int(text)) < 2**63 else None
        if kind == "DOUBLE":
            return float(text) if math.isfinite(float(text)) else None
        number = Decimal(text)
        exponent = re.search("[eE][-+]?([0-9]+)", text)
        if exponent and len(exponent[1]) > 3:
            return None
        return number if number == round(number, 2) and abs(number) < 10**8 else None
    return None


def texts_of(frame: DataFrame, kind: str, form: TextForm) -> dict[int, Any]:
    """The values of texts by their numbers, without those that are none."""
    from pyspark.sql import functions as F

    texts = Texts(frame, "struct(x)", "false", struct_of(f"x {kind}"), TextForms(form))
    rows = texts.sorted_out(["n"], F.lit("bad")).collect()
    return {row["n"]: row["x"] for row in rows if row[BAD_ROW] is None}


@pytest.mark.spark
def test_python_reads_the_same_numbers_or_both_refuse(spark: SparkSession) -> None:
    draw = random.Random(65)
    pieces = [
        "0",
        "00",
        "1",
        "5",
        "12",
        "999",
        "1234567",
        "-",
        "+",
        ".",
        "e",
        "E",
        "e2",
        "e-2",
        "e40",
        "e400",
        "e-1234",
    ]
    texts = sorted({"".join(draw.choices(pieces, k=draw.randint(1, 5))) for _ in range(6000)})
    frame = spark.createDataFrame(list(enumerate(texts)), "n INT, x STRING")
    for kind in ("BIGINT", "DOUBLE", "DECIMAL(10,2)"):
        expected = {n: value for n, text in enumerate(texts) if (value := by_python(kind, text)) is not None}
        assert len(expected) > 100
        assert texts_of(frame, kind, TextForm()) == expected
    for mark, thousands in ((",", None), (",", "."), (".", " "), ("'", ",")):
        form = TextForm(decimal=mark, thousands=thousands)
        written = [f"{each % 10**7:,}.{each % 100:02d}" for each in range(7, 10**9, 10**7)]
        changed = [text.translate(str.maketrans({",": thousands or "", ".": mark})) for text in written]
        found = texts_of(spark.createDataFrame(list(enumerate(changed)), "n INT, x STRING"), "DECIMAL(10,2)", form)
        assert found == {n: Decimal(text.replace(",", "")) for n, text in enumerate(written)}


@pytest.mark.spark
def test_options_say_other_forms_for_a_source_and_for_a_column(tmp_path: Path, spark: SparkSession) -> None:
    schema = "d DATE, t TIMESTAMP_NTZ, p DECIMAL(10,2), w DOUBLE, b BOOLEAN, i INT"
    options: dict[str, Any] = {
        "date_format": "dd.MM.yyyy",
        "true_values": ["yes"],
        "false_values": ["no"],
        "columns": {
            "p": {"decimal": ",", "thousands": "."},
            "t": {"timestamp_format": "dd.MM.yyyy HH:mm"},
            "i": {"thousands": "'", "decimal": "."},
        },
    }
    good = {"d": "05.01.2024", "t": "05.01.2024 10:30", "p": "1.234,50", "w": "1.5", "b": "yes", "i": "1'000"}
    bad = {"d": "2024-01-05", "t": "2024-01-05 10:30", "p": "1,234.50", "w": "1,5", "b": "ja", "i": "1'00"}
    expected = (date(2024, 1, 5), datetime.fromisoformat("2024-01-05 10:30"), Decimal("1234.50"), 1.5, True, 1000)
    rows = [good, *({**good, name: text} for name, text in bad.items())]
    (tmp_path / "a.csv").write_text("\n".join(["d;t;p;w;b;i", *(";".join(row.values()) for row in rows)]))
    objects = [{**row, "w": 1.5 if row["w"] == "1.5" else row["w"]} for row in rows]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, objects)))
    (tmp_path / "b.json").write_text(json.dumps(objects))
    for name, more in (("a.csv", {"separator": ";"}), ("a.jsonl", {}), ("b.json", {"multi_line": True})):
        sorts = files(tmp_path / name, schema=schema, **options, **more).capabilities.bad_rows
        assert sorts is not None
        source: Any = sorts.sorting_out()
        (position,), _ = drain(source, source.start())
        loaded = source.load(spark, position)
        assert [tuple(row)[:6] for row in loaded.where(f"{BAD_ROW} IS NULL").collect()] == [expected], name
        reasons = [row["reason"] for row in source.dead_letters(loaded.where(f"{BAD_ROW} IS NOT NULL")).collect()]
        assert len(reasons) == len(bad)
        assert all(any(f"column {column} is" in reason for reason in reasons) for column in bad)
    columns = options.pop("columns")
    kafka = value_format_of("json", schema, options, columns, headers=False)
    values = [(json.dumps(objects[0]).encode(), 0)]
    messages = spark.createDataFrame(values, "value BINARY, _position BIGINT").selectExpr(
        "*", "'t' AS topic", "0 AS partition", "_position AS offset"
    )
    assert [tuple(row)[:6] for row in kafka.rows(messages, ordinals=False).collect()] == [expected]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decimal": "5"}, r"decimal is '5': give one character"),
        ({"decimal": ",", "thousands": ","}, r"decimal and thousands are both ','"),
        ({"thousands": ".."}, r"thousands is '\.\.': give one character"),
        ({"true_values": "yes"}, r"true_values is 'yes': give a list of texts such as \['yes'\]"),
        ({"true_values": ["1"], "false_values": ["1"]}, "'1' is true and false"),
        ({"date_format": 5}, "date_format is 5: give a pattern"),
        ({"columns": ["x"]}, r"columns is \['x'\]: give the options of columns by their names"),
        ({"columns": {"y": {}}}, r"columns names 'y', and the schema has \['x'\]"),
        ({"columns": {"x": ","}}, "columns has ',' for x"),
        ({"columns": {"x": {"decimals": ","}}}, "'decimals' of column x is no option: choose from date_format"),
        ({"columns": {"x": {"decimal": ""}}}, "decimal of column x is ''"),
    ],
)
def test_bad_options_say_what_to_write(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {said}"):
        files("x.csv", schema="x DOUBLE", **options)
    text = {name: value for name, value in options.items() if name != "columns"}
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {said}"):
        value_format_of("json", "x DOUBLE", text, options.get("columns"), headers=False)
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\].*choose format='json'"):
        value_format_of("raw", None, text, options.get("columns"), headers=False)


def test_usual_options_do_not_change_the_identity_of_a_source() -> None:
    plain = files("x.csv", schema="x DOUBLE").describe()
    assert files("x.csv", schema="x DOUBLE", decimal=".", true_values=(), columns={"x": {}}).describe() == plain
    assert "decimal" not in plain
    assert files("x.csv", schema="x DOUBLE", decimal=",").describe() == {**plain, "decimal": ","}


@pytest.mark.spark
@pytest.mark.parametrize("escaped", ["true", "false"])
def test_a_literal_is_its_text_however_spark_reads_backslashes(spark: SparkSession, escaped: str) -> None:
    name = "spark.sql.parser.escapedStringLiterals"
    spark.conf.set(name, escaped)
    try:
        for text in ("", "x", r"\A\d\z", "it's", r"\'", "a\nb\uffff", '"', "\\"):
            assert spark.sql(f"SELECT {literal(text)} AS x").first()["x"] == text  # type: ignore[index]
    finally:
        spark.conf.unset(name)


def test_times_of_day_are_read_back_from_their_texts() -> None:
    times = pa.array([time(23, 59, 59, 1), None, time(0, 0)], pa.time64("us"))
    for kind in (pa.time64("us"), pa.time64("ns"), pa.time32("s")):
        expected = times.cast(kind, safe=False)
        texts = times_as_text(expected).to_pylist()
        assert declared_values("results", pa.field("at", kind), texts) == expected
