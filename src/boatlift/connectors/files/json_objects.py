"""Files of one JSON array, object by object."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from boatlift.connectors.files.compression import opened
from boatlift.connectors.files.json_lines import JsonLines

__all__ = ["JsonObjects", "objects_in"]

_BLANK = b" \t\r\n"
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[][{},]', re.DOTALL)
"""A piece of text in quotes, or a character that opens, closes or divides; text without its second quote has no end."""


@dataclass(frozen=True, slots=True)
class JsonObjects(JsonLines):
    """Elements of an array, of which each is an object; a file without an array is one element."""

    divisible = False

    def texts_in(
        self,
        path: Path,
        begin: int = 0,
        end: int | None = None,
        *,
        at_line: bool = True,  # noqa: ARG002 - of lines
    ) -> Iterator[tuple[list[int], list[bytes]]]:
        """Yield the elements of a file with their offsets."""
        assert (begin, end) == (0, None), "a file of one value has no parts"
        yield objects_in(path)


def objects_in(path: Path) -> tuple[list[int], list[bytes]]:
    """Return the offsets and the texts of the elements of a file's array; if it has none, all of its text.

    Law: if the file is an array, the texts are its elements; else at least one text is no JSON value. That is a `,`
    that lacks an element beside it; the `[` of an array without an end; a `]` with the text behind it; or an element
    whose brackets do not match, with the elements behind it.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read; see `DAMAGE`.
    """
    with opened(path) as file:
        text = file.read()
    begin = len(codecs.BOM_UTF8) if text.startswith(codecs.BOM_UTF8) else 0
    begin += len(text) - begin - len(text[begin:].lstrip(_BLANK))
    if text[begin : begin + 1] != b"[":
        rest = text[begin:].rstrip(_BLANK)
        return ([begin], [rest]) if rest else ([], [])
    found: list[tuple[int, bytes]] = []
    depth, last = 0, begin
    for token in _TOKEN.finditer(text, begin):
        character = token[0]
        if character in (b"[", b"{"):
            depth += 1
        elif character in (b"]", b"}"):
            depth -= 1
        if (character == b"," and depth == 1) or depth == 0:
            element = _element(text, last + 1, token.start())
            if element is not None:
                found.append(element)
            elif depth or last > begin:
                found.append((token.start() if depth else last, b","))
            last = token.start()
        if depth == 0:
            break
    if depth:
        if (element := _element(text, last + 1, len(text))) is not None:
            found.append(element)
        found.append((begin, b"["))
    elif text[last + 1 :].strip(_BLANK):
        found.append((last, text[last:].rstrip(_BLANK)))
    return [offset for offset, _ in found], [each for _, each in found]


def _element(text: bytes, begin: int, end: int) -> tuple[int, bytes] | None:
    """Return the place and the text of an element; None if there is none."""
    element = text[begin:end].strip(_BLANK)
    return (text.index(element, begin), element) if element else None
