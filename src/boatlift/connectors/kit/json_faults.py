"""The reason why the text of one JSON value is no row, in words."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from boatlift.connectors.kit.declared_columns import Columns, null_fault
from boatlift.connectors.kit.text_forms import TextForms

_SHOWN = 200

MOST = {"depth": 1_000, "digits": 1_000, "text": 20_000_000, "name": 50_000}
"""The bounds of Spark's JSON parser: levels, and characters of a number, a string and a name."""

_AROUND = 2
"""The levels of the wrapper around a text; see `json_values`."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?|[][{}]|-?\d[-+.\deE]*+', re.DOTALL)


def json_fault(
    text: str | bytes, unread: Collection[str], columns: Columns, required: Collection[str], forms: TextForms
) -> str:
    """Return the fault of the text of one object.

    Args:
        text: The text; bytes may be no UTF-8.
        unread: The columns that could not be read, or are NULL.
        required: The columns that are NOT NULL.
        forms: The forms of values in text.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode()
        except UnicodeDecodeError as error:
            return f"it is not UTF-8 ({error})"
    if (beyond := beyond_bounds(text)) is not None:
        return f"{beyond}: {text[:_SHOWN]!r}"
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_WrittenNumber)
        is_text = "\uffff" not in text and _is_text(json.dumps(found, ensure_ascii=False))
    except json.JSONDecodeError as error:
        return f"it is no single JSON value ({error.msg} at column {error.colno}): {text[:_SHOWN]!r}"
    except _Flaw as flaw:
        return f"{flaw}: {text[:_SHOWN]!r}"
    except RecursionError:
        return f"it is nested too deeply: {text[:_SHOWN]!r}"
    if not is_text:
        return f"it has half of a surrogate pair, or U+FFFF, which is no character: {text[:_SHOWN]!r}"
    if not isinstance(found, dict):
        return f"it is no object: {text[:_SHOWN]!r}"
    for name, kind in columns:
        if name in unread and (value := found.get(name)) is not None:
            shown = value if isinstance(value, _WrittenNumber) else json.dumps(value, ensure_ascii=False)
            return f"column {name} is {shown[:_SHOWN]}, which is no {kind}{forms.of(name).of(kind)}"
    nulls = (null_fault(name) for name in required if name in unread)
    return next(nulls, f"it does not fit the schema: {text[:_SHOWN]!r}")


class _Flaw(ValueError):  # noqa: N818 - it is no error of this program
    """A fault that Python's JSON parser accepts."""


class _WrittenNumber(str):
    """The text of a number."""

    __slots__ = ()


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    names = set[str]()
    for name, _ in pairs:
        if name in names:
            raise _Flaw(f"the key {name!r} is given twice")
        names.add(name)
    return dict(pairs)


def _constant(name: str) -> object:
    raise _Flaw(f"{name} is no JSON: write it in quotes")


def _is_text(text: str) -> bool:
    return "\uffff" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def beyond_bounds(text: str) -> str | None:
    """Return, in words, the bound of Spark's parser that a text exceeds; None if none."""
    if len(text) < min(MOST.values()) - _AROUND:
        return None
    depth = 0
    for token in _TOKEN.finditer(text):
        match token[0][0]:
            case '"':
                kind = "name" if token[1] else "text"
                size = len(token[0]) if len(token[0]) <= MOST[kind] else _characters(token[0], token[1] or "")
                if size > MOST[kind]:
                    return f"it has a {kind} of {size:,} characters, and Spark reads {MOST[kind]:,}"
            case "[" | "{":
                depth += 1
                if depth + _AROUND > MOST["depth"]:
                    return "it is nested too deeply"
            case "]" | "}":
                depth -= 1
            case _ if len(token[0]) > MOST["digits"]:
                return "it has a number of too many digits"
    return None


def _characters(quoted: str, behind: str) -> int:
    quoted = quoted.removesuffix(behind)
    try:
        return len(json.loads(quoted))
    except ValueError:
        return len(quoted) - 2
