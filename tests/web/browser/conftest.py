"""A real browser: Debian's Chromium, driven by Playwright. A test fails if a page logs, fails, or asks anybody else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from support.browser import Opens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """The one browser of a test run."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        assert "CI" not in os.environ, "there is no Chromium: make setup installs it"
        pytest.skip("there is no Chromium: sudo apt-get install -y chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Browser) -> Iterator[Opens]:
    """Opens pages; at the end of the test none of them may have complained, or asked another origin."""
    faults: list[str] = []
    contexts: list[BrowserContext] = []

    def open_page(
        url: str, *, width: int = 1440, height: int = 900, scheme: str = "light", may_fail: bool = False
    ) -> Page:
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        origin = urlsplit(url).netloc

        def logged(message: object) -> None:
            gone = "ERR_CONNECTION_REFUSED" in message.text  # type: ignore[attr-defined]  # the test has ended its server
            if message.type in ("error", "warning") and not may_fail and not gone:  # type: ignore[attr-defined]
                faults.append(f"console: {message.text}")  # type: ignore[attr-defined]

        page.on("console", logged)
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (faults.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda asked: urlsplit(asked.url).netloc != origin and faults.append(f"asks {asked.url}"))
        page.goto(url)
        page.wait_for_selector("html[data-drawn]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert faults == []
