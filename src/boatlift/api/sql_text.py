"""The streams in the text of a query, and the views of a file of SQL, found without a session."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from boatlift.errors import InvalidError

NO_CODE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
NO_CODE_OR_NAME = re.compile(rf"{NO_CODE.pattern}|`[^`]*`", re.DOTALL)
_TOKEN = re.compile(r"`[^`]*`|\w+|[^\s\w]")
_TABLES_FOLLOW = frozenset({"from", "join", "table"})
_NO_NAMES = frozenset({"select", "values", "lateral", "table", "with", "from", "(", ")"})
_TABLES_END = re.compile(
    r"(select|with|where|having|limit|union|except|intersect|minus|window|qualify) .*"
    r"|(group|order|cluster|distribute|sort) by"
)


def is_table_in(query: str, stream: str) -> bool:
    """Return whether a query has a stream as a table."""
    return stream.lower() in tables_in(query)


def tables_in(query: str) -> Iterator[str]:
    """Yield the names of a query's tables, in small letters, without qualified ones.

    A table follows FROM, JOIN and TABLE, and a comma in a FROM clause, at any depth of parentheses.
    """
    clauses = [_Clause(call=False)]
    expected, before = False, ""
    tokens = [token.lower() for token in _TOKEN.findall(NO_CODE.sub(" ", query))]
    for word, behind in zip(tokens, [*tokens[1:], ""], strict=True):
        clause = clauses[-1]
        if expected and word not in _NO_NAMES:
            expected = False
            if behind != ".":
                yield word.strip("`")
        elif word == "(":
            clauses.append(_Clause(call=not expected and before.isidentifier()))
        elif word == ")":
            if len(clauses) > 1:
                clauses.pop()
            expected = False
        elif word == "from" and (before == "distinct" or (clause.call and before != "(")):
            pass  # IS DISTINCT FROM, extract(YEAR FROM …)
        elif word in _TABLES_FOLLOW:
            expected = clause.lists_tables = True
        elif word == "," and clause.lists_tables:
            expected = True
        elif _TABLES_END.fullmatch(f"{word} {behind}"):
            expected = clause.lists_tables = False
            clause.call &= word not in ("select", "with")
        before = word


@dataclass(slots=True)
class _Clause:
    """The state of a level of parentheses.

    Attributes:
        call: Whether it has the arguments of a function: a FROM among these is no clause.
        lists_tables: Whether a table may follow a comma.
    """

    call: bool
    lists_tables: bool = False


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
        code = NO_CODE_OR_NAME.sub(_without_comment, statement).strip()
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
    blank = NO_CODE_OR_NAME.sub(lambda found: " " * len(found[0]), text)
    for found in re.finditer(r";|\Z", blank):
        statement = text[begin : found.start()]
        if blank[begin : found.start()].strip():
            yield statement
        begin = found.end()
