"""What a dataflow reads from the text of SQL, before there is a session: the streams in it, the views of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from boatlift.errors import InvalidError

__all__ = ["is_table_in", "views_of"]

_NO_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
_NO_CODE_OR_NAME = re.compile(rf"{_NO_CODE.pattern}|`[^`]*`", re.DOTALL)
_FROM = re.compile(
    r"\b(?:from|table)\b(.*?)(?=\b(?:select|where|group|order|having|limit|union|except|intersect|minus|window)\b|$)",
    re.IGNORECASE | re.DOTALL,
)


def is_table_in(query: str, stream: str) -> bool:
    """Return whether a name stands in a query where tables stand."""
    table = re.compile(rf"(?:^|,|\bjoin\b)[\s(]*(?:lateral\s+)?`?{re.escape(stream)}(?![\w.])", re.IGNORECASE)
    return any(table.search(clause) for clause in _FROM.findall(_NO_CODE.sub(" ", query)))


_CREATE = re.compile(
    r"create\s+(?:or\s+replace\s+)?(?:temporary\s+|temp\s+)?view\s+(?:`([^`]+)`|(\w+))\s+as\b(.*)",
    re.IGNORECASE | re.DOTALL,
)


def views_of(path: str | PathLike[str]) -> dict[str, str]:
    """Return the views of a file, by name, in its order.

    Raises:
        InvalidError: `[BAD_VIEW]` the file cannot be read, has another statement, or two views of one name.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError("BAD_VIEW", f"cannot read {path}: {error}") from error
    views: dict[str, str] = {}
    for statement in _statements(text):
        code = _NO_CODE_OR_NAME.sub(_without_comment, statement).strip()
        found = _CREATE.fullmatch(code)
        if found is None:
            first = " ".join(code.split())[:60]
            raise InvalidError("BAD_VIEW", f"{path} has a statement that is no CREATE VIEW … AS: {first}")
        name = found[1] or found[2]
        if name in views:
            raise InvalidError("BAD_VIEW", f"{path} has two views {name}: give one another name")
        views[name] = found[3].strip()
    if not views:
        raise InvalidError("BAD_VIEW", f"{path} has no CREATE VIEW … AS")
    return views


def _without_comment(found: re.Match[str]) -> str:
    return " " if found[0].startswith(("--", "/*")) else found[0]


def _statements(text: str) -> Iterator[str]:
    """Split text at semicolons outside of comments, strings and quoted names."""
    begin = 0
    blank = _NO_CODE_OR_NAME.sub(lambda found: " " * len(found[0]), text)
    for found in re.finditer(r";|\Z", blank):
        statement = text[begin : found.start()]
        if blank[begin : found.start()].strip():
            yield statement
        begin = found.end()
