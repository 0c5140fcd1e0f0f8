"""README, quickstart and tutorial, followed word by word: each page's program, commands and output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.pages import FOLLOWED, TUTORIAL, block_of_file, blocks, blocks_of
from support.reader import Reader, cut_year, matches, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of a year, a file a week."""
    return cut_year(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def reader(tmp_path: Path, year: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reader:
    """A reader in an empty folder but for the flights."""
    (tmp_path / "year").symlink_to(year)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return Reader(tmp_path, capsys)


@pytest.mark.spark
def test_the_first_program_prints_what_is_printed_below_it(tmp_path: Path) -> None:
    (tmp_path / "visits.py").write_text(block_of_file("visits.py").text, encoding="utf-8")
    (shell,) = blocks("Boatlift", "sh")
    _, _, run, *printed = shell.text.splitlines()
    binaries = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-ec", run],
        cwd=tmp_path,
        env={**os.environ, "PATH": binaries},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    first, last = (line.removeprefix("# ") for line in printed if line != "# …")
    assert next(line for line in told if line.startswith("shown ")) == first
    assert told[-1] == last


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_a_page_gives_what_it_shows(page: Path, reader: Reader, spark: SparkSession) -> None:
    for earlier in TUTORIAL[: FOLLOWED.index(page) - 1] if page in TUTORIAL else ():
        reader.skim(earlier)
    reader.follow(page)


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_every_page_shows_output_and_leads_on(page: Path) -> None:
    assert any(shown for block in blocks_of(page) if block.language == "sh" for _, shown in typed(block))
    *_, last = page.read_text(encoding="utf-8").split("\n\n")
    following = FOLLOWED.index(page) + 1
    assert following == len(FOLLOWED) or f"({FOLLOWED[following].relative_to(page.parent)})" in last
    assert {block.language for block in blocks_of(page)} <= {"python", "diff", "sh"}


def test_lines_that_are_left_out_may_be_any() -> None:
    assert matches(["a …", "…", "d"], "x\na b\nc\nd\n")
    assert not matches(["a", "d"], "a\nc\nd\n")
