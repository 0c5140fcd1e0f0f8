"""The pages of decisions follow one template, and their index and their references to each other agree."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

from support.pages import ROOT

FOLDER = ROOT / "docs" / "decisions"
INDEX = FOLDER / "README.md"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path != INDEX)
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]
CONVERSE = {"Replaced by": "Replaces", "Replaced in part by": "Replaces in part", "Extended by": "Extends"}
CONVERSE |= {active: passive for passive, active in CONVERSE.items()}
HEAD = re.compile(
    r"# (?P<number>\d{4}): (?P<title>[^\n]+)\n\n"
    r"\*\*Status:\*\* (?P<status>[^*#]+)\n\n"
    r"\*\*Date:\*\* (?P<date>\S+)\n\n## "
)
LINK = r"\[(\d{4})\]\(([^)]+)\)"


@dataclass(frozen=True, slots=True)
class Page:
    """What the head of a page says.

    Attributes:
        number: Four digits.
        title: The title behind the number.
        date: The day of the decision, as written.
        relations: The sentences of the status about other decisions: their verbs, and the files that they name.
        sections: The headings of the second level with the text below each.
    """

    number: str
    title: str
    date: str
    relations: set[tuple[str, str]]
    sections: list[tuple[str, str]]


def read(path: Path) -> Page:
    text = path.read_text(encoding="utf-8")
    head = HEAD.match(text)
    assert head, f"{path.name} has no title, status and date in this order"
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    sections = list(zip(parts[::2], parts[1::2], strict=True))
    return Page(head["number"], head["title"], head["date"], relations_of(head["status"]), sections)


def relations_of(status: str) -> set[tuple[str, str]]:
    relations = set()
    first, *others = " ".join(status.split()).removesuffix(".").split(". ")
    for sentence in others if first == "Accepted" else [first, *others]:
        said = re.fullmatch(rf"([A-Z][a-z ]+) {LINK}(?:, {LINK})*", sentence)
        assert said, f"{sentence!r} is no relation to other decisions"
        assert said[1] in CONVERSE, f"{said[1]!r} is not one of {sorted(CONVERSE)}"
        for number, file in re.findall(LINK, sentence):
            assert file.startswith(number), f"{number} links {file}"
            relations.add((said[1], file))
    return relations


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower().replace("'", "")).strip("-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem[:4])
def test_a_page_has_a_date_and_four_sections_and_the_name_of_its_title(path: Path) -> None:
    page = read(path)
    assert path.name == f"{page.number}-{slug(page.title)}.md"
    assert date.fromisoformat(page.date).isoformat() == page.date
    assert [heading for heading, _ in page.sections] == SECTIONS
    assert [heading for heading, text in page.sections if not text.strip()] == []


def test_a_number_is_given_once() -> None:
    assert PAGES
    assert [number for number, times in Counter(path.name[:4] for path in PAGES).items() if times > 1] == []


def test_a_page_that_another_one_replaces_or_extends_says_so_too() -> None:
    said = {(path.name, verb, other) for path in PAGES for verb, other in read(path).relations}
    assert sorted(said - {(other, CONVERSE[verb], name) for name, verb, other in said}) == []


def test_the_index_has_the_number_the_title_and_the_successors_of_each_page() -> None:
    rows = re.findall(rf"^\| {LINK} \| (.+?) \|(.*)\|$", INDEX.read_text(encoding="utf-8"), re.MULTILINE)
    listed = [(number, file, title, {file for _, file in re.findall(LINK, rest)}) for number, file, title, rest in rows]
    pages = [(path.name, read(path)) for path in PAGES]
    assert listed == [
        (page.number, name, page.title, {file for verb, file in page.relations if verb.startswith("Replaced")})
        for name, page in pages
    ]
