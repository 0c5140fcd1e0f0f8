"""The kinds of rows: appended rows, changes, or a whole table at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class RowKind(Enum):
    """The relation of one message to the rows before it."""

    APPEND = "new rows"
    """Rows are only ever added."""
    CHANGES = "changes"
    """Rows have a `_weight`: −1 retracts a row."""
    TABLE = "whole tables"
    """Each message replaces all messages before it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The output rows of a processor.

    Attributes:
        source_times: True if the times are those of sources, and no processor has introduced times of its own.
        rereadable: True if the rows are a source's, through deterministic transforms only.
        ordered_within: The part of a source's input whose rows keep their order within a step, such as `file`; rows of
            two such parts have no order. None: the rows of a step have no order.
        unique: Columns that identify a row among the current ones; None if none are known.
    """

    origin: str
    kind: RowKind = RowKind.APPEND
    source_times: bool = True
    rereadable: bool = False
    ordered_within: str | None = None
    unique: tuple[str, ...] | None = None


def one_order(inputs: Sequence[Rows]) -> str | None:
    """Return `ordered_within` for several streams that become one."""
    parts = [rows.ordered_within for rows in inputs]
    named = dict.fromkeys(part for part in parts if part is not None)
    return " or ".join(named) if None not in parts else None


def not_all_new(processor: str, rows: Rows, remedy: str) -> str:
    """Return the error message for a processor that reads changes or whole tables, and needs new rows."""
    return f"{processor} reads {rows.origin}, which emits {rows.kind.value}, and accepts only new rows: {remedy}"
