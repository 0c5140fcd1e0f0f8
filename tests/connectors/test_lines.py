"""Lines of files with their offsets: those of ranges are those of the whole, and what Spark reads."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.connectors.files import lines as lines_module
from boatlift.connectors.files.lines import Span, divided, lines_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"", b"\xef\xbb\xbf", "é".encode()])).map(
    b"".join
)


def found(path: Path, begin: int = 0, end: int | None = None) -> list[tuple[int, bytes]]:
    return [each for offsets, lines in lines_in(path, begin, end) for each in zip(offsets, lines, strict=True)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "text"


@given(text=TEXTS, cuts=st.sets(st.integers(0, 30)), chunk=st.integers(1, 8))
def test_lines_of_ranges_are_those_of_the_file(path: Path, text: bytes, cuts: set[int], chunk: int) -> None:
    path.write_bytes(text)
    whole = found(path)
    first, *others = text.splitlines() or [None]
    expected = [] if first is None else [first.removeprefix(b"\xef\xbb\xbf"), *others]
    assert [line for _, line in whole] == expected
    assert all(text[offset:].startswith(line) for offset, line in whole)
    ranges = [0, *sorted(cuts - {0})]
    ends = [*ranges[1:], None]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lines_module, "_CHUNK", chunk)
        parts = [each for begin, end in zip(ranges, ends, strict=True) for each in found(path, begin, end)]
    assert parts == whole


def test_compressed_files_are_read_whole_and_others_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "SPAN_BYTES", 100)
    text = b"".join(b"%d\n" % number for number in range(200))
    for name, content in (("a.csv", text), ("b.csv.gz", gzip.compress(text)), ("c.csv.bz2", bz2.compress(text))):
        (tmp_path / name).write_bytes(content)
    for name, parts in (("a.csv", 7), ("b.csv.gz", 1), ("c.csv.bz2", 1)):
        spans = [span for task in divided([Span(str(tmp_path / name), name, 0, None, 0)], 3) for span in task]
        assert len(spans) == parts
        lines = [line for span in spans for _, line in found(Path(span.path), span.begin, span.end)]
        assert lines == text.split()


def test_tasks_have_about_as_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "SPAN_BYTES", 100)
    for name in "abc":
        (tmp_path / name).write_bytes(b"x" * 1000)
    tasks = divided([Span(str(tmp_path / name), name, 0, None, 0) for name in "abc"], 4)
    assert [len(task) for task in tasks] == [8, 7, 8, 7]
    assert divided([], 4) == ()


@pytest.mark.spark
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_spark_ends_lines_there_too(tmp_path: Path, spark: SparkSession, end: str) -> None:
    file = tmp_path / "text"
    file.write_bytes(f"\ufeffa{end}{end}b{end}c".encode())
    ours = [line.decode() for _, line in found(file)]
    assert [row["value"] for row in spark.read.text(str(file)).collect()] == ours == ["a", "", "b", "c"]
