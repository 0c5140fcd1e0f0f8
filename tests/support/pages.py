"""The code of README, quickstart, tutorial, guide and the page on operating, as their readers would take it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = [
    "FOLLOWED",
    "PAGES",
    "ROOT",
    "TEXT",
    "TUTORIAL",
    "Block",
    "anchors_of",
    "block_of_file",
    "blocks",
    "blocks_of",
    "built",
    "flights_of",
    "grown",
    "links_of",
]

ROOT = Path(__file__).parents[2]
TUTORIAL = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
FOLLOWED = [ROOT / "docs" / "quickstart.md", *TUTORIAL]
"""The pages that a reader follows from the first block to the last; `test_tutorial.py` does."""

PAGES = [
    ROOT / "README.md",
    *FOLLOWED,
    *sorted((ROOT / "docs" / "guide").glob("*.md")),
    ROOT / "docs" / "operate.md",
    ROOT / "docs" / "console.md",
    ROOT / "docs" / "kubernetes.md",
    ROOT / "docs" / "limits.md",
    ROOT / "docs" / "figures.md",
]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of code.

    Attributes:
        page: The page.
        section: The heading that it stands under: the page's, or one of the second level.
        language: The word after its fence; empty for a block of commands to be typed one by one.
        line: The page's line that its text begins at.
        text: The code of the block.
    """

    page: Path
    section: str
    language: str
    line: int
    text: str


def blocks(section: str | None = None, language: str | None = None) -> list[Block]:
    """Return the pages' blocks of code in order, all of them or those of a section and a language."""
    return [
        block
        for page in PAGES
        for block in blocks_of(page)
        if (section is None or block.section == section) and (language is None or block.language == language)
    ]


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of one page in order."""
    heading = ""
    opened: tuple[str, int] | None = None
    lines = page.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines):
        if opened is None and re.match("##? ", line):
            heading = line.lstrip("#").strip()
        elif line.startswith("```"):
            if opened is None:
                opened = line.removeprefix("```").strip(), number + 1
            else:
                name, first = opened
                yield Block(page, heading, name, first + 1, "".join(lines[first:number]))
                opened = None
    assert opened is None, f"{page} has a fence that is not closed"


def block_of_file(name: str) -> Block:
    """Return the block that a page gives as a whole file: its first line is the file's name."""
    (block,) = [block for block in blocks(language="python") if re.match(rf"# {re.escape(name)}\n", block.text)]
    return block


def links_of(page: Path) -> list[tuple[Path, str]]:
    """Return the links of a page of Markdown to files of the repository: each with its anchor, empty if it has none."""
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    paths = [link.partition("#")[::2] for link in links if "://" not in link]
    return [((page.parent / path).resolve() if path else page, anchor) for path, anchor in paths]


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page of Markdown."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def grown(program: str, block: Block) -> str:
    """Return the program of the tutorial after a block of it: its beginning, an addition, or a changed line."""
    if block.language == "diff":
        removed, added = (
            "".join(line[1:] for line in block.text.splitlines(keepends=True) if line[0] == sign) for sign in "-+"
        )
        assert program.count(removed) == 1, f"{block.page} line {block.line} changes what is not there"
        return program.replace(removed, added)
    first, _, rest = block.text.partition("\n")
    if first == "# flights.py, added":
        return program + rest
    assert first == "# flights.py"
    return block.text


def flights_of(page: int) -> str:
    """Return `flights.py` as it is at the end of a page of the tutorial, counted from 1."""
    program = ""
    for block in (block for each in TUTORIAL[:page] for block in blocks_of(each)):
        if block.language == "diff" or re.match(r"# flights\.py(?:, added)?\n", block.text):
            program = grown(program, block)
    return program


def built(*parts: str, without: str = "") -> dict[str, Any]:
    """Execute the program that the guide adds to (the tutorial's second page), and parts of the guide after it.

    Returns:
        What they name.
    """
    names: dict[str, Any] = {}
    for text in (flights_of(2), *parts):
        exec(compile(text.replace(without, "") if without else text, "a page", "exec"), names)
    return names
