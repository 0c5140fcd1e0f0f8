"""What the rows of a processor are: appended rows, changes of rows, or a whole table at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["RowKind", "Rows", "not_all_new", "one_order"]


class RowKind(Enum):
    """What one message says about the rows before it."""

    APPEND = "new rows"
    """Rows are only ever added."""
    CHANGES = "changes"
    """Rows carry `_weight`: some take others back."""
    TABLE = "whole tables"
    """Each message takes the place of all messages before it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows that a processor gives.

    Attributes:
        origin: The processor.
        kind: What a message says about the rows before it.
        source_times: True if the times of the rows are those of sources; else they are those of the processor, or of
            one before it.
        rereadable: True if the rows are those of a source, through nothing but deterministic transforms.
        ordered_within: The part of a source's input, in words, whose rows keep their order within a step, such as
            `file`; None: the rows of a step have no order. Nothing is said of the rows of two such parts.
        unique: Columns whose values differ between any two rows that hold at one time; None if none are known.
    """

    origin: str
    kind: RowKind = RowKind.APPEND
    source_times: bool = True
    rereadable: bool = False
    ordered_within: str | None = None
    unique: tuple[str, ...] | None = None


def one_order(inputs: Sequence[Rows]) -> str | None:
    """Return the part of the input within which rows keep their order where several streams become one."""
    parts = [rows.ordered_within for rows in inputs]
    named = dict.fromkeys(part for part in parts if part is not None)
    return " or ".join(named) if None not in parts else None


def not_all_new(processor: str, rows: Rows, remedy: str) -> str:
    """Return the message of an error about an input that gives changes or whole tables.

    Args:
        processor: The processor that reads the rows.
        rows: The rows.
        remedy: What to do.
    """
    return (
        f"{processor} takes from {rows.origin}, which gives {rows.kind.value}, and {processor} can take new rows "
        f"alone: {remedy}"
    )
