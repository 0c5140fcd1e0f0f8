"""The page *Rows*, of sinks that a real run on Spark has written; and the charts of that run."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from support.browser import Opens, go, screenshot
from support.console import consoling
from support.waiting import until

if TYPE_CHECKING:
    from playwright.sync_api import Route

pytestmark = [pytest.mark.browser, pytest.mark.spark]

HOSTILE = "<img src=x onerror=alert(1)>\"'&amp;"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    folder = tmp_path_factory.mktemp("rows")
    flow = bl.Dataflow("rows")
    rows = flow.source("ids", bl.generator({"k": "id % 450", "v": "id"}, rows_per_step=450, steps=2))
    rows.sink("every", bl.parquet(folder / "every"))
    texts = F.when(F.col("k") == 0, F.lit(HOSTILE)).when(F.col("k") == 1, F.repeat(F.lit("long"), 2500))
    named = rows.transform(
        "named", lambda frame: frame.withColumn("name", texts.when(F.col("k") == 2, F.lit("\u202eright to left\u202c")))
    )
    sums = named.group_by("k").agg("sums", F.sum("v").alias("total"), F.max("name").alias("name"))
    sums.sink("kept", bl.sqlite(folder / "rows.db", table="sums", key=["k"]))
    sums.sink("desk", bl.stdout())
    bl.run(flow, folder / "store", available_now=True, spark=spark)
    return folder


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (390, "dark")])
def test_rows_are_those_of_the_table_page_by_page(folder: Path, opened: Opens, width: int, scheme: str) -> None:
    with sqlite3.connect(folder / "rows.db") as database:
        held = database.execute("SELECT k, total, name FROM sums ORDER BY k").fetchall()
    with consoling(folder / "store") as reader:
        page = opened(reader.console.url, width=width, scheme=scheme)
        shown: list[list[str]] = []
        go(page, "rows/kept")
        while True:
            shown += [row.locator("th, td").all_inner_texts() for row in page.locator(".rows tbody tr").all()]
            following = page.get_by_role("link", name="next")
            if not following.count():
                break
            address = following.get_attribute("href") or ""
            following.click()
            page.wait_for_selector(f"html[data-at='{address}']")
        assert len(shown) == len(held) == 450
        assert [row[:2] for row in shown] == [[str(k), str(total)] for k, total, _ in held]
        assert shown[0][2] == HOSTILE
        assert shown[1][2] == "long" * 250 + "…"
        assert "right to left" in shown[2][2]
        assert shown[3][2] == "NULL"
        assert "visible: step 1" in page.locator(".rows .hint").first.inner_text()
        assert page.locator("img:not([src='mark.svg'])").count() == 0
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        go(page, "rows/kept")
        screenshot(page, f"rows-kept-{width}-{scheme}")
        page.get_by_role("link", name="every").click()
        page.locator(".rows h2", has_text="Rows of every").wait_for()
        assert page.locator(".rows thead th").all_inner_texts() == ["step", "k", "v"]
        page.get_by_role("link", name="desk").click()
        page.locator(".rows .empty", has_text="reads no rows of a sink of the kind stdout").wait_for()


def test_the_charts_of_a_run_that_has_stopped_are_there(folder: Path, opened: Opens) -> None:
    with consoling(folder / "store") as reader:
        page = opened(reader.console.url)
        titles = ["Rows a second", "From input to visible", "Steps that wait", "Bytes that wait"]
        assert [each.get_attribute("data-chart") for each in page.locator(".chart").all()] == titles
        assert page.locator("[data-chart='Rows a second'] .mark.claim").count() == 1
        series = reader.document("series")["series"]

        def pointed() -> re.Match[str] | None:  # the chart may be drawn again meanwhile
            page.locator("[data-chart='Rows a second'] svg").hover()
            words = page.locator("[data-chart='Rows a second'] figcaption").inner_text()
            return re.search(r"\d\d:\d\d:\d\d", words)

        until(pointed)
        assert sum(value or 0 for value in series["shown"]) > 0
        for name, seconds in (("1 h", 3600), ("24 h", 86400)):
            with page.expect_response(lambda answer, asked=seconds: f"seconds={asked}" in answer.url):  # type: ignore[misc]
                page.get_by_role("button", name=name).click()
            page.locator(".charts .choice .on", has_text=name).wait_for()


def test_an_address_that_is_none_and_a_value_that_is_not_known_break_no_page(folder: Path, opened: Opens) -> None:
    with consoling(folder / "store") as reader:
        page = opened(reader.console.url, may_fail=True)
        page.evaluate("location.hash = '#/rows/%'")
        page.get_by_text("there is no sink %").wait_for()
        page.evaluate("location.hash = '#/failure/%'")
        page.get_by_text("there is no processor %").wait_for()
        known = json.dumps({**reader.document("series"), "version": 1})

        def unknown(route: Route) -> None:
            series = json.loads(known)
            series["series"]["p99"][-1] = None
            route.fulfill(json=series)

        page.route("**/api/v1/series*", unknown)
        page.evaluate("location.hash = '#/'")
        page.locator("svg[aria-label*='p99 –']").wait_for()
