"""The pages lead to each other, define their words, and name what there is."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest

import boatlift as bl
from boatlift.conditions import CONDITIONS
from support.pages import FOLLOWED, ROOT, anchors_of, links_of

README, ARCHITECTURE, DESIGN = ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "docs" / "design.md"
GLOSSARY, WALK = ROOT / "docs" / "glossary.md", ROOT / "docs" / "a-step.md"
PAGES = [README, ARCHITECTURE, ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "benchmarks").glob("*.md"))

NARROW = [README, ARCHITECTURE, ROOT / "CHANGELOG.md", DESIGN, *sorted((ROOT / "docs" / "guide").glob("*.md"))]
NARROW += sorted((ROOT / "docs" / "decisions").glob("*.md"))

WORDS = {
    "step",
    "source",
    "sink",
    "transform",
    "view",
    "processor",
    "unit",
    "epoch",
    "batch",
    "policy",
    "regime",
    "ephemeral",
    "lazy",
    "eager",
    "History",
    "checkpoint",
    "determinant",
    "position",
    "cursor",
    "payload",
    "logged message",
    "frontier",
    "stable frontier",
    "logical time",
    "projection",
    "fixed",
    "widening",
    "release rule",
    "watermark",
    "lateness",
    "dead letters",
    "set aside",
    "skip",
    "ledger",
    "at least once",
    "exactly once",
    "cached plan",
    "long-running job",
    "barrier tasks",
    "iteration",
    "loop checkpoint",
    "compacted segment",
    "key checkpoint",
    "run",
    "delta",
    "tier",
    "store",
    "claim",
    "fence",
    "zombie",
    "key group",
    "rescale",
    "incarnation",
}
"""Words without which the code and the pages cannot be read."""


def short(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for path, anchor in links_of(page):
        assert path.exists(), f"{short(page)} links {path}"
        assert not anchor or anchor in anchors_of(path), f"{short(page)} links {short(path)}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_every_source_file_that_a_page_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.(?:py|sh|xml))`", page.read_text(encoding="utf-8")))
    tops = (ROOT, ROOT / "src" / "boatlift")
    assert [path for path in sorted(named) if not any((top / path).exists() for top in tops)] == []


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_every_public_name_that_a_page_writes_is_exported(page: Path) -> None:
    written = set(re.findall(r"\bbl\.([A-Za-z]\w*)", page.read_text(encoding="utf-8")))
    assert written <= set(bl.__all__)


# Pages of formats name keys of metadata that look like modules.
@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "formats"], ids=short)
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    for name in set(re.findall(r"`(boatlift(?:\.\w+)+)`", page.read_text(encoding="utf-8"))):
        module, _, member = name.rpartition(".")
        assert importlib.util.find_spec(name) or hasattr(importlib.import_module(module), member), name


@pytest.mark.parametrize("page", PAGES, ids=short)
def test_every_condition_that_a_page_names_is_one(page: Path) -> None:
    named = set(re.findall(r"`\[([A-Z]+(?:_[A-Z]+)*)\]", page.read_text(encoding="utf-8")))
    assert sorted(named - set(CONDITIONS)) == []


def test_what_is_exported_can_be_imported_and_nothing_else_is() -> None:
    assert bl.__all__ == sorted(set(bl.__all__), key=lambda name: (name.lower() == name, name))
    for name in bl.__all__:
        assert getattr(bl, name) is not None
    modules = {path.stem for path in Path(bl.__file__).parent.iterdir()}
    others = {name for name in vars(bl) if not name.startswith("_")} - set(bl.__all__) - modules
    assert others <= {"annotations", "importlib", "Any", "TYPE_CHECKING"}


@pytest.mark.parametrize(
    "room",
    ["connectors", "connectors.kafka", "dataflow", "recovery", "runtime.machine", "storage", "testing", "times"],
)
def test_what_a_room_exports_can_be_imported(room: str) -> None:
    module = importlib.import_module(f"boatlift.{room}")
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []


def test_the_glossary_defines_each_word_once_in_one_sentence_and_leads_on() -> None:
    text = GLOSSARY.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| (.+?) \| (.+?) \|$", text, re.MULTILINE)
    words = [word for word, _, _ in rows]
    assert sorted(set(words)) == sorted(words)
    assert set(words) >= WORDS
    assert [word for word, meaning, more in rows if len(meaning) < 20 or "](" not in more] == []
    assert [word for word, meaning, _ in rows if re.search(r"\. |\.$", meaning)] == []


def test_no_other_page_has_a_list_of_words() -> None:
    lists = [
        page for page in PAGES if page != GLOSSARY and re.search(r"^\| word \|", page.read_text("utf-8"), re.MULTILINE)
    ]
    assert lists == []


def test_the_glossary_is_one_hop_from_readme_and_leads_to_what_it_rests_on() -> None:
    assert (GLOSSARY, "") in links_of(README)
    led = {path for path, _ in links_of(GLOSSARY)}
    assert {
        DESIGN,
        ROOT / "docs/formats/run.md",
        ROOT / "docs/decisions/0002-one-object-numbering-as-the-fence.md",
    } <= led


def test_architecture_has_two_pages_at_most() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").split()) <= 1800


def test_every_citation_of_the_design_names_one_of_its_sections() -> None:
    sections = set(re.findall(r"^## (\d+)\. ", DESIGN.read_text(encoding="utf-8"), re.MULTILINE))
    assert sections == {str(number) for number in range(1, 11)}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *PAGES]:
        for cited in re.findall(r"[Dd]esign(?:\.md)?,? sections? (\d+(?:(?:, | and )\d+)*)", path.read_text("utf-8")):
            assert set(re.findall(r"\d+", cited)) <= sections, f"{path}: design, section {cited}"


def test_the_design_says_what_of_its_sources_is_not_built_and_why() -> None:
    _, _, after = DESIGN.read_text(encoding="utf-8").partition("### What is not built, and why\n")
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", after.partition("\n## ")[0], re.MULTILINE)
    reasons = {what: why for what, why in rows if set(what) != {"-"}}
    for what in ("at least once (Falkirk Wheel", "vector clocks (Clonos", "(FLIP-76)", "(dist-design)"):
        assert [why for row, why in reasons.items() if what in row and len(why) > 40], what


def test_sources_are_cited_by_their_names() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *PAGES]
    assert [short(path) for path in files if re.search(r"\bseed \d{3}\b", path.read_text("utf-8"), re.IGNORECASE)] == []


def test_readme_is_a_front_page() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.encode()) <= 9 * 1024


@pytest.mark.parametrize("page", [*NARROW, GLOSSARY, WALK, *FOLLOWED], ids=short)
def test_lines_have_120_columns_at_most_but_for_tables_and_code(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def names_in(path: Path) -> set[str]:
    """The functions and classes of a module, methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
    return found


def test_the_walk_through_a_step_names_functions_that_are_there() -> None:
    text = WALK.read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", text, re.MULTILINE)
    assert len(named) > 30
    package = Path(bl.__file__).parent
    assert [(path, name) for path, name in named if name not in names_in(package / path)] == []
    assert len(text.splitlines()) <= 120


def test_the_page_of_the_api_has_every_public_name() -> None:
    spec = importlib.util.spec_from_file_location("documentation_site", ROOT / "scripts" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)
    page = site.api()  # ends the process if a name is in no group
    assert [name for name in bl.__all__ if f"bl.{name}" not in page] == []
