"""Files that grew and are done: what is told of those that were renamed or replaced."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.connectors.files import done
from boatlift.connectors.files.done import DoneFiles
from boatlift.connectors.files.prefixes import Prefix, prefix_of
from boatlift.dataflow import Json
from boatlift.errors import DataError
from connectors.test_tailed_files import append, tailed, take

TEXT = b"id,text\n1,one\n2,two"


def taken_whole(folder: Path, name: str = "a.csv") -> tuple[Callable[[Json], Json | None], Json]:
    """Let a source take a file and find it done; return its `next`, and the cursor."""
    os.utime(append(folder / name, TEXT), (0, 0))
    source = tailed(folder, tail="1 hour")
    taken, cursor = take(source, source.start())
    assert (taken, list(cursor["taken"])) == ([(name, b"1,one\n"), (name, b"2,two")], [name])
    return source.next, cursor


def test_a_renamed_one_is_told_and_not_taken_again(tmp_path: Path) -> None:
    choose, cursor = taken_whole(tmp_path)
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    for _ in range(2):
        with pytest.raises(DataError, match=r"\[INPUT_ROTATED\] .*b\.csv is the file that had the name a\.csv"):
            choose(cursor)
    (tmp_path / "b.csv").rename(tmp_path / "a.csv")
    assert choose(cursor) is None, "put back, it goes on"


@pytest.mark.parametrize("renamed", ["_old", "b.csv"])
def test_another_file_under_its_name_is_told(tmp_path: Path, renamed: str) -> None:
    choose, cursor = taken_whole(tmp_path)
    (tmp_path / "a.csv").rename(tmp_path / renamed)
    append(tmp_path / "a.csv", b"id,text\n3,three\n4,four\n5,five\n")
    with pytest.raises(DataError, match=r"\[INPUT_ROTATED\]"):
        choose(cursor)


def test_a_copy_in_its_place_is_no_other_file(tmp_path: Path) -> None:
    choose, cursor = taken_whole(tmp_path)
    for _ in range(2):
        shutil.copy(tmp_path / "a.csv", tmp_path / "_copy")
        (tmp_path / "_copy").rename(tmp_path / "a.csv")
        assert choose(cursor) is None
    (tmp_path / "a.csv").rename(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"\[INPUT_ROTATED\]"):
        choose(cursor)


def test_one_that_was_removed_leaves_its_inode_to_others(tmp_path: Path) -> None:
    path = append(tmp_path / "logs.csv", TEXT)
    files, prefix, inode = DoneFiles(tmp_path), prefix_of(path, len(TEXT)), path.stat().st_ino
    assert prefix is not None
    files.add("logs.csv", inode, prefix)
    path.unlink()
    append(tmp_path / "new.csv", b"id,text\n3,three\n4,four\n")
    append(tmp_path / "same.csv", TEXT)
    files.refuse_changed([("new.csv", inode)])
    files.refuse_changed([("same.csv", inode)])  # what was removed is forgotten
    assert files._files == {}


def test_files_in_several_folders(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        os.utime(append(tmp_path / folder / "a.csv", TEXT), (0, 0))
    source = tailed(tmp_path / "*" / "*.csv", tail="1 hour")
    _, cursor = take(source, source.start())
    assert source.next(cursor) is None
    (tmp_path / "y" / "a.csv").rename(tmp_path / "x" / "b.csv")
    with pytest.raises(DataError, match=r"\[INPUT_ROTATED\] .*x/b\.csv is the file that had the name y/a\.csv"):
        source.next(cursor)


def test_the_newest_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(done, "REMEMBERED", 2)
    files = DoneFiles(tmp_path)
    for name in ("a", "b", "c"):
        files.add(name, 1, Prefix(0, "", ""))
    assert [*files._files] == ["b", "c"]
