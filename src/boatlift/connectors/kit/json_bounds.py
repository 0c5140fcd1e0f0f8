"""The bounds within which Spark's parser of JSON reads a text."""

from __future__ import annotations

import json
import re

MOST = {"depth": 1_000, "digits": 1_000, "text": 20_000_000, "name": 50_000}
"""The levels of a text, the characters of a number, of a text in quotes and of a name."""

_AROUND = 2
"""The levels of what a text is put into before it is read; see `json_values`."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"(\s*+:)?|[][{}]|-?\d[-+.\deE]*+', re.DOTALL)


def beyond_bounds(text: str) -> str | None:
    """Return, in words, which bound a text goes beyond; None if none."""
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
