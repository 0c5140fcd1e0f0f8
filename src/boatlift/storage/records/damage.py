"""What is said of a store that is damaged: no command mends one, so its remedy is a copy."""

from __future__ import annotations

from boatlift.errors import DataError

__all__ = ["RESTORE", "contradictory"]

RESTORE = "restore it from a copy"


def contradictory(processor: str, what: str) -> DataError:
    """Return the error for records that are whole, but that no execution gives together.

    Args:
        processor: The processor that they are about.
        what: What the log says of it.
    """
    return DataError("CORRUPT", f"the log says of {processor} what no execution gives: {what}: {RESTORE}")
