"""The pages of a store that a real run on Spark has made, in a real browser."""

from __future__ import annotations

import importlib.resources
import json
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.runtime.inspect.contents import log_at
from boatlift.runtime.inspect.picture import picture_of
from boatlift.storage.log import Log
from boatlift.storage.records.facts import StepDigest
from boatlift.storage.records.records import Claim
from support.any_connector import ANY
from support.browser import Opens, go, screenshot
from support.commands import exit_status
from support.console import Reader, consoling
from support.engine.hosts import open_store
from support.engine.memory_engine import PROGRAM, recorded
from support.worlds.facts import made
from support.worlds.logs import claimed

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.browser

PAGES = {"flow": "", "steps": "steps", "failure": "failure", "store": "store", "rows": "rows", "history": "history"}
HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;"


def flow_in(folder: Path) -> bl.Dataflow:
    """A dataflow with a chain, two aggregates, a lookup and sinks of both deliveries."""
    flow = bl.Dataflow("visits")
    rows = flow.source("visits", bl.generator({"page": "id % 7", "ms": "10 + id % 13"}, rows_per_step=500, steps=9))
    clean = rows.transform("clean", lambda frame: frame.where(F.col("ms") > 10))
    clean.sink("kept", bl.parquet(folder / "kept"))
    pages = clean.group_by("page").agg(
        "pages", F.count("*").alias("visits"), F.sum("ms").alias("ms"), policy=bl.Lazy(every=4)
    )
    pages.sink("shown", bl.sqlite(folder / "visits.db", table="pages", key=["page"]))
    slow = clean.group_by("ms").agg("slow", F.count("*").alias("visits"), policy=bl.Eager())
    slow.sink("desk", bl.stdout())
    asked = flow.source("questions", bl.generator({"page": "id % 7"}, rows_per_step=5, steps=3))
    asked.lookup("answered", live=pages.by("page")).sink("answers", bl.parquet(folder / "answers"))
    return flow


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    folder = tmp_path_factory.mktemp("visits")
    bl.run(flow_in(folder), folder / "store", available_now=True, spark=spark)
    return folder / "store"


@pytest.fixture(scope="module")
def reader(planned: Path) -> Iterator[Reader]:
    with consoling(planned) as made:
        yield made


def wider(page: Page) -> list[str]:
    """The elements that are wider than the window, but for those inside something that scrolls."""
    found: list[str] = page.evaluate(
        """() => [...document.body.querySelectorAll("*")].filter((each) => {
            for (let above = each; above; above = above.parentElement)
              if (["auto", "scroll", "hidden"].includes(getComputedStyle(above).overflowX)) return false;
            const { left, right } = each.getBoundingClientRect();
            return right > innerWidth + 1 || left < -1 && !each.classList.contains("skip");
          }).map((each) => `${each.tagName}.${each.className}`)"""
    )
    whole = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [*found, *(["the page"] if whole else [])]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 768, 1440])
def test_every_page_fits_its_window_and_complains_of_nothing(
    reader: Reader, opened: Opens, width: int, scheme: str
) -> None:
    page = opened(reader.console.url, width=width, scheme=scheme)
    for name, address in PAGES.items():
        go(page, address)
        assert wider(page) == [], name
        screenshot(page, f"{name}-{width}-{scheme}")


def test_the_picture_has_a_card_for_each_unit_and_source_a_row_for_each_sink_and_an_edge_for_each_input(
    planned: Path, reader: Reader, opened: Opens
) -> None:
    page = opened(reader.console.url)
    picture = picture_of(log_at(planned).history.program)
    names = [each.name for each in (*picture.sources, *picture.units)]
    cards = page.locator(".card")
    assert sorted(card.get_attribute("data-name") or "" for card in cards.all()) == sorted(names)
    for name in names:
        assert name in (page.locator(f".card[data-name='{name}']").get_attribute("aria-label") or "")
    edges = {(e.get_attribute("data-sender"), e.get_attribute("data-reader")) for e in page.locator("path.edge").all()}
    assert edges == {(edge.sender, edge.reader) for edge in picture.edges}
    sinks = {e.get_attribute("data-sink"): e.locator(".seen").inner_text() for e in page.locator(".sink").all()}
    held = reader.document("status")["sinks"]
    assert sinks == {name: str(step) for name, step in held.items()}
    assert min(held.values()) >= 2
    boxes = [card.bounding_box() for card in cards.all()]
    for a, b in combinations([box for box in boxes if box], 2):
        assert (
            a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]
        )  # fmt: skip


def test_a_unit_says_which_options_of_its_policy_the_store_does_not_tell(reader: Reader, opened: Opens) -> None:
    page = opened(reader.console.url)
    for unit in reader.document("snapshot")["picture"]["units"]:
        said = f"the store does not tell {', '.join(unit['unrecorded'])}"
        title = page.locator(f".card[data-name='{unit['name']}'] .policy").get_attribute("title") or ""
        assert title.endswith(said) == unit["policy"].startswith("Lazy("), title
        page.locator(f".card[data-name='{unit['name']}']").click()
        page.wait_for_selector(f".details[aria-label='{unit['name']}']")
        assert (page.locator(".details .untold").count() == 1) == unit["policy"].startswith("Lazy(")


def costs_on_cards(page: Page) -> dict[str, tuple[bool, str]]:
    """Whether each card is pressed, and its text; read at once, because a page that is drawn again has new cards."""
    cards = page.evaluate(
        """() => [...document.querySelectorAll(".card.unit")].map((card) =>
            [card.dataset.name, card.ariaPressed === "true", card.querySelector(".cost").innerText])"""
    )
    return {name: (pressed, said) for name, pressed, said in cards}


def test_what_if_says_what_explain_says_and_the_address_alone_gives_the_same(
    planned: Path, reader: Reader, opened: Opens, capsys: pytest.CaptureFixture[str]
) -> None:
    names = list(reader.document("status")["processors"])
    page = opened(reader.console.url)
    for failed in (each for number in (1, 2, 3) for each in combinations(names, number)):
        assert exit_status(["explain", "--store", str(planned), "--fail", ",".join(failed), "--json"]) in (0, None)
        explained = json.loads(capsys.readouterr().out)["processors"]
        go(page, f"failure/{','.join(failed)}")
        cards = costs_on_cards(page)
        assert {name for name, (pressed, _) in cards.items() if pressed} == set(failed)
        for name, (_, said) in cards.items():
            again = explained[name]["steps"]
            nothing = "nothing again" if name in failed else "goes on"
            assert f"· {again:,} again ·" in said if again else said == nothing, (failed, name, said)
    last = costs_on_cards(page)
    alone = opened(reader.console.url)  # the token stays in the tab
    go(alone, f"failure/{','.join(failed)}")
    assert costs_on_cards(alone) == last
    go(page, "failure")
    page.locator(f".card[data-name='{names[0]}']").click()
    page.wait_for_selector(f".card[data-name='{names[0]}'][aria-pressed=true]")
    page.locator(f".card[data-name='{names[1]}']").click()
    page.wait_for_selector(f".card[data-name='{names[1]}'][aria-pressed=true]")
    assert page.url.endswith(f"#/failure/{','.join(sorted(names[:2]))}")


def test_a_reader_without_the_token_sees_why(reader: Reader, opened: Opens) -> None:
    page = opened(reader.console.url.partition("#")[0], may_fail=True)
    assert page.locator(".trouble").inner_text().startswith("[BAD_TOKEN]")


def test_the_token_leaves_the_address_and_lives_as_long_as_the_tab(reader: Reader, opened: Opens) -> None:
    page = opened(reader.console.url)
    assert reader.token not in page.url
    page.reload()
    page.wait_for_selector(".card")


def test_a_damaged_log_gives_its_condition_and_no_blank_page(planned: Path, tmp_path: Path, opened: Opens) -> None:
    store = shutil.copytree(planned, tmp_path / "store")
    newest = max((store / "log").iterdir())
    newest.chmod(0o644)
    newest.write_bytes(newest.read_bytes()[:-1] + b"\0")
    with consoling(store) as reader:
        page = opened(reader.console.url, may_fail=True)
        assert page.locator(".trouble").inner_text().startswith("[CORRUPT]")
        assert wider(page) == []


def test_names_and_texts_that_are_html_stay_text(tmp_path: Path, opened: Opens) -> None:
    """A program records what its author wrote, and a process its host's name: none of it is markup."""
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).transform("clean", ANY).sink("all", ANY)
    program: dict[str, Any] = recorded(plan(flow))
    program["source rows"] = {"kind": HOSTILE, "note": HOSTILE * 400, "far": "\u202eright to left\u202c"}
    environment = {"spark": HOSTILE, "python": HOSTILE * 400, "long": "x" * 10_000}
    claimed(open_store(tmp_path), Claim(HOSTILE, 1, 1_700_000_000_000, program, environment))
    with consoling(tmp_path) as reader:
        for width in (390, 1440):
            page = opened(reader.console.url, width=width)
            page.locator(".card.source").click()
            for address in PAGES.values():
                go(page, address)
                assert wider(page) == [], address
                assert page.locator("img:not([src='mark.svg'])").count() == 0
            go(page, "history")
            assert HOSTILE in page.locator(".events").inner_text()


def test_a_program_of_300_units_has_its_table_first_and_the_picture_of_a_chosen_one(
    tmp_path: Path, opened: Opens
) -> None:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    for n in range(300):
        rows.group_by("k").agg(f"sums{n}", ANY).sink(f"out{n}", ANY)
    claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, recorded(plan(flow)), {}))
    with consoling(tmp_path) as reader:
        page = opened(reader.console.url)
        assert page.locator(".card").count() == 0
        assert page.locator(".processors tbody tr").count() == 300
        page.locator("button[data-keep='row sums7']").click()
        page.locator(".card[data-name=sums7]").wait_for()
        for address in PAGES.values():
            go(page, address)
            assert wider(page) == []


def test_a_clock_that_is_behind_is_told_and_leaves_no_nonsense(tmp_path: Path, opened: Opens) -> None:
    later = 4_000_000_000_000
    log = Log.open(open_store(tmp_path), "flow", clock=lambda: later)
    log.claim(Claim("host", 1, later, PROGRAM, {}))
    log.append([made(0, "rows"), StepDigest("clean", 0, "d", 10, 2.5)])
    with consoling(tmp_path) as reader:
        page = opened(reader.console.url)
        assert "by the clock of this console" in page.locator(".banner").inner_text()
        for address in PAGES.values():
            go(page, address)
            text = page.locator("body").inner_text()
            assert [word for word in ("NaN", "undefined", "Invalid Date") if word in text] == [], address


def test_the_keyboard_alone_reaches_every_card_and_page(reader: Reader, opened: Opens) -> None:
    page = opened(reader.console.url)
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement?.dataset?.keep ?? ''"))
    names = [*reader.document("status")["processors"], *reader.document("status")["closed"]]
    assert reached >= {f"card {name}" for name in names} | {f"tab {address}" for address in PAGES.values()}
    page.locator(".card.unit").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".details")
    assert page.evaluate("document.activeElement?.dataset?.keep ?? ''").startswith("card ")
    page.keyboard.press("Escape")
    page.wait_for_selector(".details", state="detached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(reader: Reader, opened: Opens, scheme: str) -> None:
    rules = (importlib.resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    page = opened(reader.console.url, scheme=scheme)
    page.evaluate(rules)
    for name, address in PAGES.items():
        go(page, address)
        if not address:
            page.locator(".card.unit").first.click()
            page.wait_for_selector(".details")
        found = page.evaluate(
            "async () => (await axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})).violations"
        )
        told = [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in found]
        assert told == [], f"{name}: {json.dumps(told, indent=1)}"
