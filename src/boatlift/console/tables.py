"""Tables and text that lose nothing: folded to the width of a terminal, and in full width elsewhere."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table

__all__ = ["console", "moment", "table"]

FULL_WIDTH = 100_000
"""Of what is no terminal: a pipe or a file has no width."""


def console() -> Console:
    """Return a console over standard output."""
    return Console() if sys.stdout.isatty() else Console(width=FULL_WIDTH, soft_wrap=True)


def table(*headings: str, title: str | None = None) -> Table:
    """Return an empty table whose cells are folded where there is no room, and never cut."""
    made = Table(title=title, title_justify="left")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    return made


def moment(milliseconds: int) -> str:
    """Return a time of day in UTC; a dash if it is not known."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if milliseconds else "-"
