"""Lines without end, archives that unpack to a multiple, deep and long values: each is a bad row, within bounds."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import boatlift as bl
from boatlift.connectors.files import lines as lines_module
from boatlift.connectors.files.lines import LongLine, has_long_line, lines_in
from boatlift.connectors.kit.json_values import MOST, beyond_bounds, json_fault
from boatlift.connectors.kit.text_forms import TextForms
from boatlift.dataflow import BAD_ROW
from boatlift.errors import DataError
from boatlift.tasks.parameters import JobParameters
from connectors.source_laws import drain
from connectors.test_bad_rows import parts_of, sorting

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIB = 1 << 20
BOMB = 300 * MIB


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("long") / "text"


@pytest.fixture(scope="module")
def bomb(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of 300 KB: two rows, and one line of 300 MiB between them."""
    file = tmp_path_factory.mktemp("bomb") / "a.csv.gz"
    with gzip.open(file, "wb", compresslevel=9) as into:
        into.write(b"id,s\n1,a\n")
        for _ in range(BOMB // MIB):
            into.write(b"x" * MIB)
        into.write(b"\n2,b\n")
    assert file.stat().st_size < 400_000
    return file


@given(
    text=st.lists(st.sampled_from([b"a", b"bcd" * 5, b"\n", b"\r", b"\r\n"])).map(b"".join),
    most=st.integers(1, 20),
    chunk=st.integers(1, 8),
)
@example(text=b"\naa\n", most=1, chunk=8)
def test_a_line_is_long_by_its_bytes_alone(path: Path, text: bytes, most: int, chunk: int) -> None:
    path.write_bytes(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines_module, "_CHUNK", chunk)
        patched.setattr(lines_module, "_HEAD", 3)
        found = [list(zip(*batch, strict=True)) for batch in lines_in(path, most=most)]
        assert has_long_line(path, most) == any(len(line) > most for line in text.splitlines())
    lines = [(offset, line, getattr(line, "size", len(line))) for batch in found for offset, line in batch]
    whole = text.splitlines()
    assert [(line, size) for _, line, size in lines] == [
        (line[:3] if len(line) > most else line, len(line)) for line in whole
    ]
    assert all(text[offset : offset + size] == line for (offset, _, size), line in zip(lines, whole, strict=True))
    assert all(len(batch) == 1 for batch in found if any(isinstance(line, LongLine) for _, line in batch))


def test_a_line_of_300_mib_takes_no_more_memory_than_its_bound(bomb: Path) -> None:
    tracemalloc.start()
    try:
        sizes = [getattr(line, "size", len(line)) for _, lines in lines_in(bomb) for line in lines]
        assert tracemalloc.get_traced_memory()[1] < 64 * MIB
    finally:
        tracemalloc.stop()
    assert sizes == [4, 3, BOMB, 3]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("[" * 5_000, "it is nested too deeply"),
        ("[" * 999 + "]" * 999, "it is nested too deeply"),
        ("9" * 100_000, "it has a number of too many digits"),
        ("9" * 1_001, "it has a number of too many digits"),
        (json.dumps("x" * (MOST["text"] + 1)), "it has a text of 20,000,001 characters"),
        (json.dumps({"n" * 100_000: 1}), "it has a name of 100,000 characters"),
    ],
    ids=["open", "deep", "digits", "a digit more", "text", "name"],
)
def test_the_fault_of_a_value_beyond_sparks_bounds_names_the_bound(value: str, reason: str) -> None:
    text = f'{{"id": 2, "s": {value}}}'
    told = json_fault(text, ["id", "s"], (("id", "bigint"), ("s", "string")), [], TextForms())
    assert told.startswith(reason)
    assert len(told) < 400


def test_a_value_within_the_bounds_is_none_of_these() -> None:
    escaped = json.dumps("ä" * (MOST["name"] // 4))
    for text in ("[" * 998 + "]" * 998, "1" * 1_000, escaped + ":", json.dumps(["[" * 2_000, "9" * 2_000])):
        assert beyond_bounds(text) is None


def task_rows(spark: SparkSession, source: Any) -> list[Any]:
    position = source.next(source.start())
    tasks = source.capabilities.parameterized_read
    frame = tasks.load_parameterized(spark)
    with JobParameters(0, 0, source=tasks.parameters_for(position, "")).to_tasks(spark.sparkContext):
        return list(frame.collect())


@pytest.mark.spark
def test_a_long_line_is_a_dead_letter_or_a_bad_row(spark: SparkSession, tmp_path: Path, bomb: Path) -> None:
    lines = ['{"id": 1, "s": "a"}', '{"id": 2, "s": "%s"}' % ("y" * 3 * MIB), '{"id": 3}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    (tmp_path / "b.csv").write_text("id,s\n1,a\n2," + "y" * 3 * MIB + "\n3,\n")
    one, other = tmp_path / "a.jsonl", tmp_path / "b.csv"
    cases: list[tuple[Path, int | None, list[Any], int, str, str]] = [
        (bomb, None, [(1, "a"), (2, "b")], 9, "x" * 65_536, f"{BOMB} bytes, more than max_line_bytes=16777216"),
        (one, MIB, [(1, "a"), (3, None)], 20, lines[1][:65_536], "3145746 bytes, more than max_line_bytes=1048576"),
        (other, MIB, [(1, "a"), (3, None)], 9, "2," + "y" * 65_534, "3145730 bytes, more than max_line_bytes=1048576"),
    ]
    for file, most, rows, offset, head, reason in cases:
        strict = bl.files(file, schema="id INT, s STRING", max_line_bytes=most)
        fitting, dead_letters = parts_of(spark, sorting(strict))
        assert fitting == rows
        ((name, at, text, told),) = dead_letters
        assert (name, at, text, told.startswith(f"[BAD_ROW] it has {reason}")) == (file.name, offset, head, True)
        position = strict.next(strict.start())
        wanted = rf"\[BAD_ROW\] \S+{file.name}, the line at byte {offset}, has \d+ bytes"
        for read in (lambda: strict.load(spark, position).collect(), lambda: task_rows(spark, strict)):  # noqa: B023
            with pytest.raises(Exception, match=wanted):
                read()
    wide = bl.files(tmp_path / "b.csv", schema="id INT, s STRING", max_line_bytes=4 * MIB)
    assert sorted(row["id"] for row in wide.load(spark, wide.next(wide.start())).collect()) == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.parametrize("options", [{"max_bytes_per_step": 100}, {"tail": True}], ids=["in ranges", "that grows"])
def test_a_long_line_of_a_file_taken_in_parts_is_a_dead_letter_too(
    spark: SparkSession, tmp_path: Path, options: dict[str, Any]
) -> None:
    lines = ["id,s", *(f"{number},a" for number in range(50)), "50," + "y" * 3000, "51,b"]
    (tmp_path / "a.csv").write_text("".join(f"{line}\n" for line in lines))
    source = sorting(bl.files(tmp_path / "a.csv", schema="id INT, s STRING", max_line_bytes=1000, **options))
    positions, _ = drain(source, source.start())
    assert len(positions) == 1 if "tail" in options else len(positions) > 3
    rows = [row for position in positions for row in source.load(spark, position).collect()]
    assert sorted(row["id"] for row in rows if row[BAD_ROW] is None) == [*range(50), 51]
    (bad,) = (row[BAD_ROW] for row in rows if row[BAD_ROW] is not None)
    assert (bytes(bad["line"]).decode(), bad["size"]) == (lines[51], 3003)


@pytest.mark.spark
def test_a_file_of_one_value_has_bounds_too(spark: SparkSession, tmp_path: Path) -> None:
    constraints: Any = spark._jvm.com.fasterxml.jackson.core.StreamReadConstraints  # type: ignore[union-attr]
    known = {"depth": "MAX_DEPTH", "digits": "MAX_NUM_LEN", "text": "MAX_STRING_LEN", "name": "MAX_NAME_LEN"}
    assert {kind: getattr(constraints, f"DEFAULT_{name}") for kind, name in known.items()} == MOST
    for name, value, reason in (
        ("deep", "[" * 5_000, "nested too deeply"),
        ("long", '[{"id": ' + "9" * 100_000 + "}]", "a number of too many digits"),
        ("named", '[{"id": 2, "' + "n" * 100_000 + '": 1}]', "a name of 100,000 characters"),
    ):
        (tmp_path / f"{name}.json").write_text(value)
        source = bl.files(tmp_path / f"{name}.json", schema="id INT", multi_line=True)
        position = source.next(source.start())
        assert position is not None
        with pytest.raises(Exception, match="MALFORMED_RECORD") as failed:
            source.load(spark, position).collect()
        told = source.diagnose(position, str(failed.value))
        assert isinstance(told, DataError)
        assert (told.condition, reason in told.message) == ("BAD_ROW", True)
    with gzip.open(tmp_path / "bomb.json.gz", "wb") as into:
        into.writelines(b" " * MIB for _ in range(130))
    source = bl.files(tmp_path / "bomb.json.gz", schema="id INT", multi_line=True)
    with pytest.raises(DataError, match=r"\[BAD_ROW\] .* has more than max_line_bytes=134217728 bytes in one value"):
        source.next(source.start())
    (tmp_path / "quote.csv").write_text('id,s\n1,"' + "x\n" * MIB)
    source = bl.files(tmp_path / "quote.csv", schema="id INT, s STRING", multi_line=True, max_line_bytes=MIB)
    position = source.next(source.start())
    assert position is not None
    with pytest.raises(Exception) as failed:
        source.load(spark, position).collect()
    told = source.diagnose(position, str(failed.value))
    assert isinstance(told, DataError)
    assert "a field of more than max_line_bytes=1048576 characters" in told.message


@pytest.mark.spark
def test_lines_of_many_fields_and_of_a_wide_field_are_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """Python's parser of CSV, which says why, has a bound for fields; Spark's has one for their number."""
    (tmp_path / "a.csv").write_text("id,s\n1,a\n" + "x," * 30_000 + "\nb," + "y" * 200_000 + "\n2,b\n")
    fitting, dead_letters = parts_of(spark, sorting(bl.files(tmp_path / "a.csv", schema="id INT, s STRING")))
    assert fitting == [(1, "a"), (2, "b")]
    assert [reason[:40] for *_, reason in dead_letters] == [
        "[BAD_ROW] it has 30001 fields, the schem",
        "[BAD_ROW] it does not fit the schema: 'b",
    ]
