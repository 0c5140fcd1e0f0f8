"""Values of rows as text for people: exact, and cut where they are long."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from boatlift.dataflow.contracts import SinkPlace
from boatlift.errors import UnavailableError

MOST_COLUMNS = 100

MOST_CHARACTERS = 1_000
"""A longer text is cut, and ends with `…`."""

_AHEAD = 400  # bytes of a binary value that are shown


def named_in(of: SinkPlace, name: str) -> str:
    """Return an entry of a sink's place that is a text.

    Examples:
        >>> named_in(SinkPlace("flights", "out", "0" * 32, {"kind": "parquet", "path": "/data/out"}), "path")
        '/data/out'

    Raises:
        UnavailableError: `[SINK_FAILED]` there is none: a sink of a program's own has described itself otherwise.
    """
    value = of.place.get(name)
    if isinstance(value, str) and value:
        return value
    raise lacking(of, name)


def lacking(of: SinkPlace, name: str) -> UnavailableError:
    """Return the error about a place that does not tell where rows are."""
    kind = of.place.get("kind")
    return UnavailableError(
        "SINK_FAILED",
        f"sink {of.sink} describes itself as {kind}, without the {name} of its rows: read them with a program of yours",
    )


def not_here(path: Path) -> UnavailableError:
    """Return the error about a place that is not there."""
    return UnavailableError(
        "SINK_FAILED", f"there is no {path} on this computer: run boatlift console where the sink is"
    )


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
