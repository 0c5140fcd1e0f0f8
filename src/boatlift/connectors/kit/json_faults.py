"""Why the text of one JSON value is no row, in words."""

from __future__ import annotations

import json
from collections.abc import Collection

from boatlift.connectors.kit.date_patterns import DatePatterns
from boatlift.connectors.kit.declared_columns import Columns, null_fault
from boatlift.connectors.kit.json_bounds import beyond_bounds

__all__ = ["json_fault"]

_SHOWN = 200


def json_fault(
    text: str | bytes, unread: Collection[str], columns: Columns, required: Collection[str], patterns: DatePatterns
) -> str:
    """Return what is wrong with the text of one object.

    Args:
        text: The text; bytes of it may be no UTF-8.
        unread: The columns that could not be read of it, or are NULL.
        columns: The declared columns.
        required: Those that are NOT NULL.
        patterns: How text says dates and times.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            return f"it is not UTF-8 ({error})"
    if (beyond := beyond_bounds(text)) is not None:
        return f"{beyond}: {text[:_SHOWN]!r}"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        return f"it is no single JSON value ({error.msg} at column {error.colno}): {text[:_SHOWN]!r}"
    except RecursionError:
        return f"it is nested too deeply: {text[:_SHOWN]!r}"
    if not isinstance(found, dict):
        return f"it is no object: {text[:_SHOWN]!r}"
    for name, kind in columns:
        if name in unread and (value := found.get(name)) is not None:
            shown = json.dumps(value, ensure_ascii=False)[:_SHOWN]
            return f"column {name} is {shown}, which is no {kind}{patterns.of(kind)}"
    nulls = (null_fault(name) for name in required if name in unread)
    return next(nulls, f"it does not fit the schema: {text[:_SHOWN]!r}")
