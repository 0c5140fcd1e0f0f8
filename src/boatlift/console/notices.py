"""Lines on standard error: what a command is doing while nothing else can be seen, and warnings of Boatlift.

The module imports nothing that takes long, so that the first line comes at once.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["notice", "print_warnings"]


def notice(text: str, *, quiet: bool = False) -> None:
    """Write a line about what is being done now, unless `quiet` is set."""
    if not quiet:
        print(f"boatlift: {text}", file=sys.stderr, flush=True)


def print_warnings() -> None:
    """Write warnings as lines like all others of the command line, unless logging is set up already."""
    root = logging.getLogger()
    if not root.handlers:
        handler = _Lines()
        handler.setFormatter(logging.Formatter("boatlift: %(message)s"))
        root.addHandler(handler)


class _Lines(logging.Handler):
    """A handler that looks up standard error at each warning, because a live table replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        print(self.format(record), file=sys.stderr, flush=True)
