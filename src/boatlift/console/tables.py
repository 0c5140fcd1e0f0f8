"""Tables and text on standard output: folded to the width of a terminal, in full width elsewhere, and never cut."""

from __future__ import annotations

import json
import sys
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.table import Table

from boatlift.connectors.kit.arrow_text import time_of

FULL_WIDTH = 100_000
"""The width where standard output is no terminal: a pipe or a file has none."""


def console() -> Console:
    """Return a console over standard output."""
    return Console() if sys.stdout.isatty() else Console(width=FULL_WIDTH, soft_wrap=True)


def show(*lines: RenderableType) -> None:
    """Print tables, trees or text with rich's markup."""
    for line in lines:
        console().print(line)


JSON_VERSION = 1
"""Rises when a field of the commands' JSON is removed or changes its meaning; new fields may come at any time."""


def print_json(value: Any) -> None:
    """Print a struct or a dictionary as one indented object of JSON, with the version of its shape."""
    print(json.dumps({"version": JSON_VERSION, **msgspec.to_builtins(value, enc_hook=str)}, indent=2))


def table(*headings: str, title: str | None = None) -> Table:
    """Return an empty table whose cells are folded where there is no room, and never cut."""
    empty = Table(title=title, title_justify="left")
    for heading in headings:
        empty.add_column(heading, overflow="fold")
    return empty


def moment(milliseconds: int | None) -> str:
    """Return a time of day in UTC; a dash if unknown."""
    return f"{time_of(milliseconds * 1000)[:-7].replace('T', ' ')} UTC" if milliseconds else "-"
