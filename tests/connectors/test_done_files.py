"""Files that grew and are done: errors if they are renamed or replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.connectors.files.follow import unchanged
from boatlift.connectors.files.follow.unchanged import DoneFiles, Prefix, Stamp, prefix_of
from boatlift.dataflow import Json
from boatlift.errors import DataError
from connectors.test_tailed_files import append, tailed, take

TEXT = b"id,text\n1,one\n2,two"


def taken_whole(folder: Path, name: str = "a.csv", text: bytes = TEXT) -> tuple[Callable[[Json], Json | None], Json]:
    """Let a source take a file and find it done; return its `next`, and the cursor."""
    os.utime(append(folder / name, text), (0, 0))
    source = tailed(folder, tail="1 hour")
    _, cursor = take(source, source.start())
    assert list(cursor["taken"]) == [name]
    return source.next, cursor


def test_a_renamed_file_is_an_error_and_not_taken_again(tmp_path: Path) -> None:
    choose, cursor = taken_whole(tmp_path)
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    for _ in range(2):
        with pytest.raises(DataError, match=r"\[INPUT_ROTATED\] .*b\.csv is the file that had the name a\.csv"):
            choose(cursor)
    (tmp_path / "b.csv").rename(tmp_path / "a.csv")
    assert choose(cursor) is None, "put back, it goes on"


@pytest.mark.parametrize("renamed", ["_old", "b.csv", None])
@pytest.mark.parametrize("seen", [False, True], ids=["at once", "after a look"])
@pytest.mark.parametrize("text", [TEXT, b"id,text\n"], ids=["rows", "a header alone"])
def test_another_file_under_its_name_is_reported(tmp_path: Path, renamed: str | None, seen: bool, text: bytes) -> None:
    choose, cursor = taken_whole(tmp_path, text=text)
    if renamed is None:
        (tmp_path / "a.csv").unlink()
    else:
        (tmp_path / "a.csv").rename(tmp_path / renamed)
    if seen and renamed != "b.csv":
        assert choose(cursor) is None, "a file may be removed"
    append(tmp_path / "a.csv", b"id,text\n3,three\n4,four\n5,five\n")
    with pytest.raises(DataError, match=r"\[INPUT_(ROTATED|CHANGED)\] .*a\.csv"):
        choose(cursor)


def test_a_file_that_is_written_to_is_reported_at_the_next_change_of_its_folder(tmp_path: Path) -> None:
    choose, cursor = taken_whole(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert choose(cursor) is None
    append(tmp_path / "a.csv", "x\n3,three\n")
    assert choose(cursor) is None, "no name has changed"
    append(tmp_path / "b.csv", "id,text\n")
    with pytest.raises(DataError, match=r"\[INPUT_CHANGED\] .*a\.csv has 29 bytes, but had 19"):
        choose(cursor)


def test_a_look_asks_for_no_done_file_while_no_folder_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose, cursor = taken_whole(tmp_path)
    os.utime(tmp_path, (0, 0))
    assert choose(cursor) is None
    listed: list[Path] = []
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: listed.append(folder) or real(folder))
    assert choose(cursor) is None
    assert listed == [tmp_path], "for files that are not done"
    os.utime(tmp_path, (1, 1))
    assert choose(cursor) is None
    assert listed == [tmp_path] * 3


@pytest.mark.parametrize("copies", [1, 3])
def test_a_copy_in_its_place_is_no_other_file(tmp_path: Path, copies: int) -> None:
    choose, cursor = taken_whole(tmp_path)
    for _ in range(copies):
        shutil.copy(tmp_path / "a.csv", tmp_path / "_copy")
        (tmp_path / "_copy").rename(tmp_path / "a.csv")
        assert choose(cursor) is None
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"\[INPUT_ROTATED\]"):
        choose(cursor)


def done_in(path: Path, *, has_rows: bool = True) -> DoneFiles:
    files, stamp = DoneFiles(path.parent), Stamp.of(path.stat())
    prefix = prefix_of(path, stamp.size)
    assert prefix is not None
    files.add(path.name, stamp, prefix, has_rows=has_rows)
    return files


def test_a_removed_file_leaves_its_inode_to_others(tmp_path: Path) -> None:
    path = append(tmp_path / "logs.csv", TEXT)
    files, stamp = done_in(path), Stamp.of(path.stat())
    path.unlink()
    append(tmp_path / "new.csv", b"id,text\n3,three\n4,four\n")
    append(tmp_path / "same.csv", TEXT)
    files.refuse_changed({"new.csv": stamp})
    files.refuse_changed({"same.csv": stamp})  # that the name went was seen


def test_a_new_file_with_the_inode_and_the_header_of_one_without_rows_is_a_new_file(tmp_path: Path) -> None:
    path = append(tmp_path / "logs.csv", b"id,text\n")
    files, stamp = done_in(path, has_rows=False), Stamp.of(path.stat())
    path.unlink()
    append(tmp_path / "new.csv", b"id,text\n3,three\n")
    files.refuse_changed({"new.csv": stamp})


def test_a_file_that_may_grow_is_not_remembered_as_done(tmp_path: Path) -> None:
    source = tailed(tmp_path, tail="1 hour")
    append(tmp_path / "a.csv", "id,text\n1,one\n")
    take(source, source.start())
    assert source._growing._done._files == {}


def test_files_in_several_folders(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        os.utime(append(tmp_path / folder / "a.csv", TEXT), (0, 0))
    source = tailed(tmp_path / "*" / "*.csv", tail="1 hour")
    _, cursor = take(source, source.start())
    assert source.next(cursor) is None
    (tmp_path / "x" / "a.csv").rename(tmp_path / "_x")
    (tmp_path / "x").rmdir()
    assert source.next(cursor) is None, "a folder may be removed"
    (tmp_path / "x").mkdir()
    (tmp_path / "y" / "a.csv").rename(tmp_path / "x" / "b.csv")
    with pytest.raises(DataError, match=r"\[INPUT_ROTATED\] .*x/b\.csv is the file that had the name y/a\.csv"):
        source.next(cursor)


def test_the_newest_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "REMEMBERED", 2)
    files = DoneFiles(tmp_path)
    for number, name in enumerate(("x/a", "b", "c")):
        files.add(name, Stamp(1, number, 1, 1), Prefix(0, "", ""), has_rows=True)
    assert [*files._files] == ["b", "c"]
    assert [*files._names.values()] == ["b", "c"]
    assert [*files._folders] == [""]
