"""Files of one JSON array, object by object."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from boatlift.connectors.files.compression import opened
from boatlift.connectors.files.json_lines import JsonLines
from boatlift.connectors.files.line_ends import LONGEST, cut
from boatlift.connectors.kit.json_values import JsonValues

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_AT_ONCE = 1 << 20
_BLANK = b" \t\r\n"
_TOKEN = re.compile(rb""""(?:[^"\\]|\\.)*+"?|'(?:[^'\\]|\\.)*+'?|[][{},]""", re.DOTALL)
"""A text in quotes, single ones too, which are no JSON, or a character that opens, closes or divides.

If the second quote of a text is missing, the text reaches to the end of the file.
"""


@dataclass(frozen=True, slots=True)
class JsonObjects(JsonLines):
    """Elements of an array, of which each is an object; a file without an array is one element."""

    divisible = False

    def texts_in(
        self,
        path: Path,
        begin: int = 0,
        end: int | None = None,
        most: int = LONGEST,
        *,
        at_line: bool = True,  # noqa: ARG002 - of lines
    ) -> Iterator[tuple[list[int], list[bytes]]]:
        assert (begin, end) == (0, None), "a file of one value has no parts"
        offsets, texts, size = list[int](), list[bytes](), 0
        for offset, text in objects_in(path):
            if len(text) > most:
                yield [offset], [cut(text, len(text))]
                continue
            offsets.append(offset)
            texts.append(text)
            size += len(text)
            if size >= _AT_ONCE:
                yield offsets, texts
                offsets, texts, size = [], [], 0
        yield offsets, texts

    def sorted_out(self, lines: DataFrame, schema: StructType, kept: Sequence[str], bad_row: Column) -> DataFrame:
        return JsonValues(self.forms, blanks=False).sorted_out(lines, schema, kept, bad_row)


def objects_in(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the offsets and the texts of the elements of a file's array; if it has none, all of its text.

    Law: if the file is an array, the texts are its elements; else at least one text is no JSON value. That is a `,`
    that lacks an element beside it; the `[` of an array without an end; its last bracket, with the text behind it, if
    that bracket is a `}` or there is such text; or an element whose brackets do not match, with the elements behind it.

    Raises:
        OSError, EOFError, zlib.error: the file cannot be read; see `DAMAGE`.
    """
    with opened(path) as file:
        text = file.read()
    begin = len(codecs.BOM_UTF8) if text.startswith(codecs.BOM_UTF8) else 0
    begin += len(text) - begin - len(text[begin:].lstrip(_BLANK))
    if text[begin : begin + 1] != b"[":
        yield begin, text[begin:].rstrip(_BLANK)
        return
    depth, last = 0, begin
    for token in _TOKEN.finditer(text, begin):
        character, place = token[0], token.start()
        if character in (b"[", b"{"):
            depth += 1
        elif character in (b"]", b"}"):
            depth -= 1
        if depth and (character != b"," or depth > 1):
            continue
        element = _element(text, last + 1, place)
        if element is not None:
            yield element
        elif depth or last > begin:
            yield place if depth else last, b","
        last = place
        if not depth:
            if character != b"]" or text[place + 1 :].strip(_BLANK):
                yield place, text[place:].rstrip(_BLANK)
            return
    if (element := _element(text, last + 1, len(text))) is not None:
        yield element
    yield begin, b"["


def _element(text: bytes, begin: int, end: int) -> tuple[int, bytes] | None:
    element = text[begin:end].strip(_BLANK)
    return (text.index(element, begin), element) if element else None
