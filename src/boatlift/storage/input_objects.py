"""The facts about single objects of an input log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from boatlift.errors import DataError
from boatlift.storage.records.codec import decode_input

__all__ = ["InputPart", "number_in", "rows_in"]


@dataclass(frozen=True, slots=True)
class InputPart:
    """The facts about an object with rows that need no second read.

    Attributes:
        base: How many rows were ever pushed before its first.
        rows: How many rows it has.
        size: Its bytes.
        checksum: Its checksum, 16 bytes.
    """

    base: int
    rows: int
    size: int
    checksum: bytes


def rows_in(path: Path) -> tuple[int, bytes]:
    """Return how many rows were pushed before an object's, and the object's rows as an Arrow stream.

    Raises:
        DataError: `[CORRUPT]`.
    """
    found = decode_input(path.read_bytes(), str(path))
    return found.base, found.rows


def number_in(name: str) -> int:
    """Return the number in an object's name.

    Raises:
        DataError: `[CORRUPT]` no object of an input log has such a name.
    """
    digits = name.rpartition("/")[2]
    if len(digits) != 12 or not digits.isdecimal():
        raise DataError("CORRUPT", f"{name} is no object of an input log: move it away")
    return int(digits)
