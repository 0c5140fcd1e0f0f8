"""What tests of pages share: how a page is opened, gone through, and kept as a picture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["Opens", "go", "screenshot"]

PICTURES = Path(__file__).resolve().parents[2] / "artifacts" / "pages"

Opens = Callable[..., "Page"]
"""Opens a page by its address; see `tests/web/browser/conftest.py`."""


def go(page: Page, address: str) -> None:
    """Go to a page of the console, and wait until it is drawn."""
    page.evaluate("address => { location.hash = address }", f"#/{address}")
    page.wait_for_selector(f"html[data-at='#/{address}']")


def screenshot(page: Page, name: str) -> None:
    """Keep a picture of a page, for people to look at."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(PICTURES / f"{name}.png"), full_page=True)
