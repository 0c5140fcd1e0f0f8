"""A reader of the quickstart and the tutorial, who types each block of a page and sees what is printed below it.

A block of the program is written to its file. A block of commands is typed command by command: `boatlift` in this
process, on its one Spark session, everything else in a shell. A block with `&` or `wait` is a shell's as a whole.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from boatlift.console.app import main
from support.pages import ROOT, TUTORIAL, Block, blocks_of, grown

__all__ = ["Reader", "cut_year", "matches", "typed"]

CUT = "python ../examples/cut_flights.py year"
INSTALLS = ("pip install", "python3 -m venv", "mkdir try &&")


def cut_year(folder: Path) -> Path:
    """Cut the flights as the tutorial's first page does, in a folder like a clone; return their folder."""
    (folder / "examples").symlink_to(ROOT / "examples")
    (folder / "try").mkdir()
    assert CUT in [command for block in blocks_of(TUTORIAL[0]) for command, _ in typed(block)]
    words = [sys.executable, *CUT.split()[1:]]
    done = subprocess.run(words, cwd=folder / "try", capture_output=True, text=True, check=True)
    assert done.stdout == "336776 flights\n"
    return folder / "try" / "year"


def typed(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a block, which may have several lines, with the lines that are printed below it."""
    command, shown = "", list[str]()
    for line in block.text.splitlines():
        if line.startswith("# ") and not command.endswith("\n"):
            shown.append(line.removeprefix("# "))
            continue
        if command and not command.endswith("\n"):
            yield command, shown
            command, shown = "", []
        command += line
        try:
            shlex.split(command, comments=True)
        except ValueError:  # a quotation goes on in the next line
            command += "\n"
    yield command, shown


def matches(shown: list[str], printed: str) -> bool:
    """Whether lines are among those that were printed, one after the other; `…` stands for any text or lines."""
    parts = ["(?:.*\n)*?" if line == "…" else re.escape(line.rstrip()).replace("…", ".*") + " *\n" for line in shown]
    return re.search("^" + "".join(parts), printed, re.MULTILINE) is not None


class Reader:
    """Follows pages in a folder that is laid out as `try` in a clone.

    Args:
        folder: The folder; `year` has the files that the tutorial's first page cuts.
        capture: What this process prints.
    """

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capture = folder, capture
        self._program, self._failed = "", False

    def skim(self, page: Path) -> None:
        """Take the program and the input of a page, and run nothing."""
        for block in blocks_of(page):
            if block.language == "diff" or block.text.startswith("# "):
                self._write(block)
            for command, _ in typed(block) if block.language == "sh" else ():
                if re.match(r"(?:mkdir|cp|mv|head|echo|printf) ", command) and not command.startswith(INSTALLS):
                    self._shell(command)

    def follow(self, page: Path) -> None:
        """Type every block of a page.

        Raises:
            AssertionError: a command prints something else than the page shows.
        """
        for block in blocks_of(page):
            if block.language != "sh":
                self._write(block)
            elif re.search(r" &\s", block.text):
                self._check(
                    block, block.text, self._shell(block.text), [line for _, each in typed(block) for line in each]
                )
            else:
                for command, shown in typed(block):
                    if not command.startswith((*INSTALLS, CUT)):
                        self._check(block, command, self._type(command), shown)

    def _write(self, block: Block) -> None:
        named = re.match(r"# (\w+\.py)(?:, added|, whole)?\n", block.text)
        if block.language == "python" and named is None:
            sys.modules.pop("flights", None)
            exec(compile(block.text, str(block.page), "exec"), {})
        elif ", whole\n" in block.text:
            assert block.text.partition("\n")[2] == self._program.partition("\n")[2]
        else:
            name = "flights.py" if named is None else named[1]
            self._program = grown(self._program, block) if name == "flights.py" else block.text
            (self._folder / name).write_text(self._program, encoding="utf-8")

    def _type(self, command: str) -> str:
        if not command.startswith("boatlift "):
            return self._shell(command)
        sys.modules.pop("flights", None)
        self._capture.readouterr()
        words = shlex.split(command, comments=True)
        if self._failed and words[1] == "run":
            words.append("--take-over")  # a reader's process ended with its failed run, and this one lives on
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sys, "argv", words)
            try:
                main()
                self._failed = False
            except SystemExit as ended:
                self._failed = words[1] == "run" and bool(ended.code)
        out, err = self._capture.readouterr()
        return out + err

    def _shell(self, command: str) -> str:
        path = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["sh", "-c", command], cwd=self._folder, env={**os.environ, "PATH": path}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        return done.stdout

    def _check(self, block: Block, command: str, printed: str, shown: list[str]) -> None:
        place = f"{block.page.relative_to(ROOT)} line {block.line}: {command}"
        if os.environ.get("SHOW_PAGES"):
            with self._capture.disabled():
                print(f"\n=== {place}\n{printed}")
        else:
            assert "Traceback" not in printed, f"{place}\n{printed}"
            assert matches(shown, printed), f"{place}\n{printed}"
