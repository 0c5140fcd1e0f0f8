"""What a command tells on standard error: what it is doing while nothing else can be seen, and warnings of Boatlift.

Imports nothing that takes long: the first line comes at once.
"""

from __future__ import annotations

import logging
import sys

__all__ = ["begin_warnings", "tell"]


def tell(text: str, *, quiet: bool = False) -> None:
    """Write a line about what is being done now, unless it is to be quiet."""
    if not quiet:
        print(f"boatlift: {text}", file=sys.stderr, flush=True)


def begin_warnings() -> None:
    """Write warnings as lines like all others of the command line, instead of as Python does where nothing is set up."""
    root = logging.getLogger()
    if not root.handlers:
        handler = _Lines()
        handler.setFormatter(logging.Formatter("boatlift: %(message)s"))
        root.addHandler(handler)


class _Lines(logging.Handler):
    """Writes to what is standard error when a warning comes: a live table replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        print(self.format(record), file=sys.stderr, flush=True)
