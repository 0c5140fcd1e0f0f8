"""Files that grow: whole lines, once, whatever happens to the file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boatlift.connectors import files
from boatlift.connectors.files.follow import source as source_module
from boatlift.connectors.files.follow import unchanged
from boatlift.connectors.files.follow.source import TailedFilesSource
from boatlift.dataflow import Json
from boatlift.errors import BoatliftError, DataError, InvalidError
from connectors.conformance import ordered
from connectors.source_laws import recorded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id INT, text STRING"
HOUR = 3600 * 10**9


def tailed(folder: Path, format: str = "csv", tail: bool | str = True, **options: Any) -> TailedFilesSource:  # noqa: A002
    source = files(folder, format=format, schema=SCHEMA, tail=tail, **options)  # type: ignore[arg-type]
    assert isinstance(source, TailedFilesSource)
    return source


def append(path: Path, content: str | bytes) -> Path:
    with path.open("ab") as file:
        file.write(content if isinstance(content, bytes) else content.encode())
    return path


def take(source: TailedFilesSource, cursor: Json) -> tuple[list[tuple[str, bytes]], Json]:
    """Return the name and the bytes of each entry of each step until nothing is new."""
    taken = []
    while (position := source.next(cursor)) is not None:
        for file in position["files"]:
            path = source._listing.path_of(file["path"])
            taken.append((file["path"], path.read_bytes()[file["begin"] : file["end"]]))
        cursor = recorded(source, source.advance(cursor, position))
    return taken, cursor


def test_a_line_is_taken_once_it_has_its_end(tmp_path: Path) -> None:
    source, path = tailed(tmp_path), tmp_path / "a.csv"
    cursor = source.start()
    for piece, expected in (
        (b"", None),
        (b"id,te", None),
        (b"xt", None),
        (b"\n", None),
        (b"1,", None),
        (b"one\r\n2,t", b"1,one\r\n"),
        (b"w", None),
        (b"o\n3,three\n\n4", b"2,two\n3,three\n\n"),
        (b",four\n", b"4,four\n"),
    ):
        append(path, piece)
        taken, cursor = take(source, cursor)
        assert taken == ([] if expected is None else [("a.csv", expected)]), piece


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_two_names_of_one_file_are_refused(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    source, path = tailed(tmp_path), append(tmp_path / "2026.csv", b"id,text\n1,one\n")
    link(path, tmp_path / "current.csv")
    with pytest.raises(DataError, match=r"\[INPUT_ROTATED\] .* are names of one file"):
        source.next(source.start())


def test_a_header_is_read_once_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    source = tailed(tmp_path)
    append(tmp_path / "a.csv", "id,text\n1,one\n")
    _, cursor = take(source, source.start())
    append(tmp_path / "a.csv", "id,other\n")
    taken, cursor = take(source, cursor)
    assert taken == [("a.csv", b"id,other\n")], "which is a row"
    append(tmp_path / "b.csv", "id,other\n1,one\n")
    with pytest.raises(DataError, match=r"\[BAD_HEADER\].*b\.csv"):
        source.next(cursor)


@pytest.mark.parametrize(
    ("format", "options", "content", "begin"),
    [
        ("csv", {"header": False}, b"\xef\xbb\xbf1,a\n", 3),
        ("csv", {}, b"\xef\xbb\xbf\n  \nid,text\n1,a\n", 15),
        ("json", {}, b'\xef\xbb\xbf{"id": 1}\n', 3),
    ],
)
def test_rows_begin_behind_a_mark_and_a_header(
    tmp_path: Path,
    format: str,  # noqa: A002
    options: dict[str, Any],
    content: bytes,
    begin: int,
) -> None:
    append(tmp_path / "a", content)
    source = tailed(tmp_path, format, **options)
    position = source.next(source.start())
    assert position is not None
    (file,) = position["files"]
    assert (file["begin"], file["end"]) == (begin, len(content))


def test_a_step_takes_as_much_as_it_may_and_no_file_waits_for_ever(tmp_path: Path) -> None:
    source = tailed(tmp_path, max_files_per_step=2, max_bytes_per_step=10, header=False)
    for name in "abc":
        append(tmp_path / name, "1,x\n" * 5)
    cursor, steps = source.start(), []
    for _ in range(8):
        append(tmp_path / "a", "1,x\n" * 5)  # which grows more quickly than it is taken
        position = source.next(cursor)
        assert position is not None
        steps.append([(file["path"], file["end"] - file["begin"]) for file in position["files"]])
        assert sum(size for _, size in steps[-1]) <= 10
        cursor = source.advance(cursor, position)
    assert {name for step in steps for name, _ in step} == {"a", "b", "c"}
    assert steps[:3] == [[("a", 8)], [("b", 8)], [("c", 8)]]
    append(tmp_path / "d", "1,a line of more bytes than a step has\n")
    assert ("d", b"1,a line of more bytes than a step has\n") in take(source, cursor)[0]


def test_small_files_are_taken_together(tmp_path: Path) -> None:
    source = tailed(tmp_path, max_files_per_step=9, max_bytes_per_step=10, header=False)
    for name in "abc":
        append(tmp_path / name, "1,x\n")
    position = source.next(source.start())
    assert position is not None
    assert [file["path"] for file in position["files"]] == ["a", "b"]


def test_a_poll_opens_no_file_that_was_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        append(tmp_path / f"{number}.csv", "id,text\n1,x\n2,y")
    source = tailed(tmp_path)
    _, cursor = take(source, source.start())
    opened: list[str] = []
    real = Path.open

    def recording(self: Path, *args: Any, **kwargs: Any) -> Any:
        opened.append(self.name)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", recording)
    assert source.next(cursor) is None
    assert opened == []
    with real(tmp_path / "7.csv", "ab") as file:
        file.write(b"z\n")
    assert source.next(cursor) is not None
    assert set(opened) == {"7.csv"}


def test_a_file_that_rests_is_done_and_costs_no_further_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = append(tmp_path / "a.csv", "id,text\n1,one\n2,two")
    source = tailed(tmp_path, tail="1 hour")
    now = [path.stat().st_mtime_ns]
    source._growing._clock = lambda: now[0]
    cursor = source.start()
    first = source.next(cursor)
    assert first is not None
    cursor = source.advance(cursor, first)
    now[0] += HOUR - 1
    assert source.next(cursor) is None
    now[0] += 1
    last = source.next(cursor)
    assert last is not None
    assert (last["files"][0]["begin"], last["files"][0]["end"], last["files"][0]["done"]) == (14, 19, True)
    cursor = source.advance(cursor, last)
    assert (list(cursor["taken"]), cursor["open"]) == (["a.csv"], {})
    source.verify(last)
    looked: list[str] = []
    real = Path.is_file
    monkeypatch.setattr(Path, "is_file", lambda self: looked.append(self.name) or real(self))
    assert source.next(cursor) is None
    assert looked == []
    append(path, " and more\n")
    source.verify(first)
    with pytest.raises(
        DataError, match=r"\[INPUT_CHANGED\].*a\.csv has 29 bytes, but had 19 when it was taken for done"
    ):
        source.verify(last)


def test_a_file_that_is_written_to_while_it_is_taken_is_not_done(tmp_path: Path) -> None:
    path = append(tmp_path / "a.csv", "id,text\n1,one\n2,t")
    source = tailed(tmp_path, tail="1 hour", max_bytes_per_step=3)
    os.utime(path, (0, 0))
    first = source.next(source.start())
    assert first is not None
    cursor, real = source.advance(source.start(), first), source_module.lengthened
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "lengthened", lambda *given: append(path, "wo\n") and real(*given))
        assert source.next(cursor) is None
    assert take(source, cursor)[0] == [("a.csv", b"2,two\n")]


def test_a_file_that_rests_behind_its_last_line_has_an_empty_step(tmp_path: Path) -> None:
    path = append(tmp_path / "a.csv", "id,text\n1,one\n")
    (tmp_path / "empty.csv").touch()
    source = tailed(tmp_path, tail="1 hour")
    _, cursor = take(source, source.start())
    source._growing._clock = lambda: path.stat().st_mtime_ns + HOUR
    position = source.next(cursor)
    assert position is not None
    (file,) = position["files"]
    assert (file["begin"], file["end"], file["done"]) == (14, 14, True)
    cursor = source.advance(cursor, position)
    assert source.next(cursor) is None, "an empty file waits for its first line"
    source.verify_everything(cursor)
    append(path, "2,two\n")
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
        source.verify_everything(cursor)


def shrink(path: Path) -> None:
    os.truncate(path, 17)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def alter(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"two", b"tow"))


def rewrite_longer(path: Path) -> None:
    path.write_bytes(b"id,text\n" + b"9,nine\n" * 20)


def replace(path: Path) -> None:
    path.rename(path.with_name("_old"))
    append(path, b"id,text\n" + b"9,nine\n" * 20)


def remove(path: Path) -> None:
    path.unlink()


def rename(path: Path) -> None:
    path.rename(path.with_name("a.csv.1"))


def rotate(path: Path) -> None:
    """As logrotate does it: the file gets another name that matches, and a new one its name."""
    path.rename(path.with_name("a.csv.1"))
    append(path, b"id,text\n")


def rotate_to_longer(path: Path) -> None:
    path.rename(path.with_name("a.csv.1"))
    append(path, b"id,text\n" + b"9,nine\n" * 20)


def link(path: Path) -> None:
    path.with_name("0.csv").hardlink_to(path)


BROKEN = [
    (shrink, "INPUT_SHRANK"),
    (empty, "INPUT_SHRANK"),
    (alter, "INPUT_CHANGED"),
    (rewrite_longer, "INPUT_CHANGED"),
    (replace, "INPUT_CHANGED"),
    (remove, "INPUT_MISSING"),
    (rename, "INPUT_MISSING"),
    (rotate, "INPUT_SHRANK"),
    (rotate_to_longer, "INPUT_CHANGED"),
    (link, "INPUT_ROTATED"),
]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("broke", "condition"), BROKEN, ids=[broke.__name__ for broke, _ in BROKEN])
def test_a_file_that_is_not_what_it_was_stops_before_anything_is_taken(
    tmp_path: Path, broke: Callable[[Path], None], condition: str, restarted: bool
) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    path = append(folder / "a.csv", "id,text\n1,one\n2,two\n")
    source = tailed(folder)
    _, cursor = take(source, source.start())
    shutil.copytree(folder, tmp_path / "copy")
    broke(path)
    append(folder / "0.csv" if broke is not link else path, "id,text\n")  # which would be taken first
    if restarted:
        source = tailed(folder)
    with pytest.raises(DataError, match=rf"\[{condition}\].*a\.csv.* taken") as caught:
        source.next(cursor)
    assert "put the file back" in caught.value.message
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    append(path, "3,three\n")
    assert take(source, cursor)[0] == [("a.csv", b"3,three\n")], "put back, it goes on"


def seen_but_not_taken(folder: Path) -> tuple[TailedFilesSource, Json]:
    """Return a source, a file a step, that has looked at files of which it took one."""
    for name in ("a.csv", "b.csv", "c.csv"):
        append(folder / name, f"id,text\n1,{name}\n")
    source = tailed(folder, max_files_per_step=1)
    _, cursor = take(source, source.start())
    for name in ("a.csv", "b.csv", "c.csv"):
        append(folder / name, "2,two\n")
    position = source.next(cursor)
    assert position is not None
    assert [file["path"] for file in position["files"]] == ["a.csv"]
    return source, source.advance(cursor, position)


def rotate_all(path: Path) -> None:
    """As `logrotate` does it with numbers, oldest first: nothing has the name that it had."""
    path.with_name("c.csv").unlink()
    path.rename(path.with_name("c.csv"))
    path.with_name("a.csv").rename(path)
    append(path.with_name("a.csv"), "id,text\n")


@pytest.mark.parametrize(
    ("broke", "condition"),
    [
        (empty, "INPUT_SHRANK"),
        (remove, "INPUT_MISSING"),
        (replace, "INPUT_CHANGED"),
        (rotate_all, "INPUT_SHRANK"),
    ],
)
def test_between_a_look_and_a_step_too(tmp_path: Path, broke: Callable[[Path], None], condition: str) -> None:
    source, cursor = seen_but_not_taken(tmp_path)
    broke(tmp_path / "b.csv")
    with pytest.raises(DataError, match=rf"\[{condition}\]"):
        source.next(cursor)


def test_a_rotation_between_a_look_and_a_step_gives_no_row_twice(tmp_path: Path) -> None:
    """Of files that were not begun: the names are others, and each file is taken once under its new name."""
    for name in ("a.csv", "b.csv", "c.csv"):
        append(tmp_path / name, f"id,text\n1,{name}\n")
    source = tailed(tmp_path, max_files_per_step=1)
    first = source.next(source.start())
    assert first is not None
    cursor = source.advance(source.start(), first)
    (tmp_path / "c.csv").rename(tmp_path / "d.csv")
    (tmp_path / "b.csv").rename(tmp_path / "c.csv")
    append(tmp_path / "b.csv", "id,text\n1,new\n")
    taken, _ = take(source, cursor)
    assert taken == [("b.csv", b"1,new\n"), ("c.csv", b"1,b.csv\n"), ("d.csv", b"1,c.csv\n")]


def test_a_header_that_ends_while_its_file_is_looked_at_costs_no_line(tmp_path: Path) -> None:
    path = append(tmp_path / "a.csv", "id,te")
    source = tailed(tmp_path, tail="1 hour")
    os.utime(path, (0, 0))
    growing, begin = source._growing, source._format.rows_begin
    appended = [b"xt\n1,one\n"]

    class Growing:
        def __getattr__(self, name: str) -> Any:
            return getattr(source._format, name)

        def rows_begin(self, path: Path) -> int:
            if appended:
                append(path, appended.pop())
            return begin(path)

    growing._format = Growing()  # type: ignore[assignment]
    taken, _ = take(source, source.start())
    assert taken == [], "the file had a writer"
    assert take(source, source.start())[0] == [("a.csv", b"1,one\n")]


def test_a_copy_with_the_same_bytes_goes_on(tmp_path: Path) -> None:
    path = append(tmp_path / "a.csv", "id,text\n1,one\n")
    source = tailed(tmp_path)
    _, cursor = take(source, source.start())
    shutil.copy(path, tmp_path / "_copy")
    (tmp_path / "_copy").rename(path)
    append(path, "2,two\n")
    assert take(source, cursor)[0] == [("a.csv", b"2,two\n")]


def test_a_copy_that_differs_far_before_its_end_is_found(tmp_path: Path) -> None:
    """In one process: the whole of another file is compared."""
    path = append(tmp_path / "a.csv", b"id,text\n" + b"1,one\n" * (4 * unchanged.BLOCK // 6))
    source = tailed(tmp_path)
    _, cursor = take(source, source.start())
    (tmp_path / "_copy").write_bytes(path.read_bytes().replace(b"one", b"eno", 1))
    (tmp_path / "_copy").rename(path)
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\]"):
        source.next(cursor)


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("x/*.parquet", {"schema": None}, "Parquet has no lines"),
        ("x/*.csv.gz", {}, "it is compressed"),
        ("x/*.csv", {"multi_line": True}, "a row may have several lines"),
        ("x/*.json", {"multi_line": True}, "a row may have several lines"),
        ("x/*.csv", {"separator": "\t"}, "white space"),
        ("x/*.csv", {"tail": "soon"}, "tail='soon': write a number and a unit"),
        ("x/*.csv", {"tail": 60}, "tail is 60"),
        ("x/*.csv", {"tail": None}, "tail is None"),
    ],
)
def test_what_has_no_lines_is_not_followed(path: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\].*{said}"):
        files(path, **{"schema": SCHEMA, "tail": True, **options})


def test_a_compressed_file_among_those_that_grow_is_refused(tmp_path: Path) -> None:
    append(tmp_path / "a.csv.gz", b"\x1f\x8b")
    with pytest.raises(BoatliftError, match=r"\[BAD_NAME\].*a\.csv\.gz cannot be followed.*compressed"):
        tailed(tmp_path).next(tailed(tmp_path).start())


def test_the_idle_time_is_no_part_of_the_program(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", "id,text\n")
    assert tailed(tmp_path).describe() == tailed(tmp_path, tail="1 hour").describe()
    assert tailed(tmp_path).describe() != files(tmp_path, format="csv", schema=SCHEMA).describe()


@pytest.mark.spark
def test_bad_rows_have_their_places_in_the_file(spark: SparkSession, tmp_path: Path) -> None:
    path, source = tmp_path / "a.csv", tailed(tmp_path).sorting_out()
    cursor, rows, dead_letters = source.start(), [], []
    for piece in ("id,text\n1,one\nbad", ",row\n2,two\n3\n", "4,four\n"):
        append(path, piece)
        while (position := source.next(cursor)) is not None:
            source.verify(position)
            loaded = source.load(spark, position)
            rows += [tuple(row)[:2] for row in loaded.where("_bad_row IS NULL").collect()]
            dead_letters += source.dead_letters(loaded.where("_bad_row IS NOT NULL")).collect()
            cursor = source.advance(cursor, position)
    assert rows == [(1, "one"), (2, "two"), (4, "four")]
    content = path.read_bytes()
    assert [(dead_letter["file"], dead_letter["text"]) for dead_letter in dead_letters] == [
        ("a.csv", "bad,row"),
        ("a.csv", "3"),
    ]
    assert all(
        content[dead_letter["offset"] :].startswith(dead_letter["text"].encode()) for dead_letter in dead_letters
    )


@pytest.mark.spark
def test_everything_of_files_that_grow_and_are_done(spark: SparkSession, tmp_path: Path) -> None:
    source = tailed(tmp_path, tail="1 hour")
    append(tmp_path / "a.csv", "id,text\n1,one\n2,two")
    append(tmp_path / "b.csv", "id,text\n")
    os.utime(tmp_path / "a.csv", (0, 0))
    os.utime(tmp_path / "b.csv", (0, 0))
    append(tmp_path / "c.csv", "id,text\n3,three\n4,fo")
    cursor, rows = source.start(), []
    while (position := source.next(cursor)) is not None:
        rows += source.load(spark, position).collect()
        cursor = source.advance(cursor, position)
    assert set(cursor["taken"]) == {"a.csv", "b.csv"}
    assert ordered(map(tuple, rows)) == [(1, "one"), (2, "two"), (3, "three")]
    source.verify_everything(cursor)
    append(tmp_path / "c.csv", "ur\n")
    source.verify_everything(cursor)
    assert ordered(map(tuple, source.load_everything(spark, cursor).collect())) == ordered(map(tuple, rows))


@pytest.mark.spark
def test_a_bad_row_is_reported_by_its_line_though_a_line_is_being_written(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "a.csv", "id,text\n1,one\ntwo,two\n3,th")
    source = tailed(tmp_path)
    position = source.next(source.start())
    assert position is not None
    with pytest.raises(Exception, match="MALFORMED") as caught:
        source.load(spark, position).collect()
    error = source.diagnose(position, str(caught.value))
    assert isinstance(error, DataError)
    assert "line 3: column id is 'two'" in error.message
