"""Values of rows as text for people: exact, and cut where they are long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

MOST_COLUMNS = 100

MOST_CHARACTERS = 1_000
"""A longer text is cut, and ends with `…`."""

_AHEAD = 400  # bytes of a binary value that are shown


def shown_row(values: Sequence[Any]) -> list[str | None]:
    r"""Return the values of a row as text, at most `MOST_COLUMNS` of them; None stays None.

    Examples:
        >>> shown_row([1, True, 2.5, None, "text", b"\x00\xff"])
        ['1', 'true', '2.5', None, 'text', '0x00ff']
    """
    return [None if value is None else _cut(_text(value)) for value in values[:MOST_COLUMNS]]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}…"


def _text(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value[: MOST_CHARACTERS + 1]
        case bytes():
            return f"0x{value[:_AHEAD].hex()}{'…' if len(value) > _AHEAD else ''}"
        case Decimal():
            return format(value, "f")
        case datetime() | date() | time():
            return value.isoformat()
        case list() | dict() | tuple():
            return json.dumps(value, ensure_ascii=False, default=_text)
        case _:
            return str(value)
