"""Errors about a damaged store: no command mends one, so the remedy is a copy."""

from __future__ import annotations

from boatlift.errors import DataError

__all__ = ["RESTORE", "contradictory"]

RESTORE = "restore it from a copy"


def contradictory(processor: str, what: str) -> DataError:
    """Return the error for records that are whole, but that no execution writes together.

    Args:
        processor: The processor that the records are about.
        what: The contradiction.
    """
    return DataError("CORRUPT", f"no execution writes what the log says of {processor}: {what}: {RESTORE}")
