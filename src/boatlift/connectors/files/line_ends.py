"""Where lines of text begin and end, in files of any length with lines of any length."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path

from boatlift.connectors.files.compression import opened

LONGEST = 16 << 20
"""A line may have so many bytes, if a source says nothing else."""

_HEAD = 1 << 16
_CHUNK = 1 << 20
_END = re.compile(rb"\r\n|\n|\r")


class LongLine(bytes):
    """The first bytes of a line, or of another piece of a file, that is longer than it may be.

    Attributes:
        size: The number of all of its bytes.
    """

    size: int


def cut(text: bytes, size: int) -> LongLine:
    """Return the first bytes of a text that has so many bytes."""
    line = LongLine(text[:_HEAD])
    line.size = size
    return line


class _Line:
    """A line whose end was not found yet: the first bytes of a long one, else all."""

    def __init__(self, most: int) -> None:
        self._most, self._pieces = most, list[bytes]()
        self._without_end = self.size = 0

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._without_end += len(piece.rstrip(b"\r\n"))
        self._pieces.append(piece)
        if self._without_end > self._most:
            self._pieces = [b"".join(self._pieces)[:_HEAD]]

    def text(self) -> bytes:
        whole = b"".join(self._pieces)
        return whole if self._without_end <= self._most else cut(whole[: self._without_end], self._without_end)


def lines_in(
    path: Path, begin: int = 0, end: int | None = None, most: int = LONGEST, *, at_line: bool = False
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield the lines of a file that begin in a range of its bytes, with their offsets, some at a time.

    A line of more than `most` bytes comes alone, as a `LongLine`.

    Law: the lines of ranges that follow one another without a gap are those of the whole file.
    """
    with opened(path) as file:
        place = begin if at_line else max(0, begin - 1)
        if place:
            file.seek(place)
        open_line = _Line(most)
        begun = begin > 0 and not at_line  # a line that began before the range, as long as its end was not found
        held = b""
        while (more := file.read(_CHUNK)) or held:
            chunk = held + more
            held = b"\r" if more and chunk.endswith(b"\r") else b""  # whether it ends a line alone, the next byte says
            *lines, rest = _split(chunk[:-1] if held else chunk)
            if lines:
                open_line.add(lines[0])
                sizes = [open_line.size, *map(len, lines[1:])]
                lines[0] = open_line.text()
                offsets = [*accumulate(sizes, initial=place)]
                place = offsets.pop()
                open_line = _Line(most)
                if begun:
                    begun, lines, offsets = False, lines[1:], offsets[1:]
                count = len(lines) if end is None else bisect_left(offsets, end)
                yield from _apart(*_trimmed(offsets[:count], lines[:count]), most)
                if end is not None and place >= end:
                    return
            open_line.add(rest)
        if open_line.size and not begun:
            yield from _apart(*_trimmed([place], [open_line.text()]), most)


def has_long_line(path: Path, most: int) -> bool:
    """Return whether a file that is not compressed has a line of more than so many bytes."""
    if path.stat().st_size <= most:
        return False
    with path.open("rb") as file:
        begin = place = 0
        while chunk := file.read(_CHUNK):
            ends = [at for at in (chunk.find(b"\n"), chunk.find(b"\r")) if at >= 0]
            if place + (min(ends) if ends else len(chunk)) - begin > most:
                return True
            if ends:
                begin = place + max(chunk.rfind(b"\n"), chunk.rfind(b"\r")) + 1
                if most < _CHUNK and any(len(line.rstrip(b"\r\n")) > most for line in _split(chunk)):
                    return True
            place += len(chunk)
    return False


def _split(text: bytes) -> list[bytes]:
    """Cut text behind the ends of lines; what follows the last one comes last, perhaps empty."""
    if b"\r" not in text:
        lines = text.split(b"\n")
        return [*(line + b"\n" for line in lines[:-1]), lines[-1]]
    ends = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(ends)]


def _trimmed(offsets: list[int], lines: list[bytes]) -> tuple[list[int], list[bytes]]:
    """Return lines without their ends, and without the mark at the beginning of a file."""
    lines = [line if isinstance(line, LongLine) else line.rstrip(b"\r\n") for line in lines]
    if offsets and offsets[0] == 0 and lines[0].startswith(codecs.BOM_UTF8) and not isinstance(lines[0], LongLine):
        offsets[0] = len(codecs.BOM_UTF8)
        lines[0] = lines[0][offsets[0] :]
    return offsets, lines


def _apart(offsets: list[int], lines: list[bytes], most: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield lines, each long one alone."""
    begin = 0
    if lines and (isinstance(lines[0], LongLine) or max(map(len, lines)) > most):
        for number, line in enumerate(lines):
            if isinstance(line, LongLine) or len(line) > most:
                if begin < number:
                    yield offsets[begin:number], lines[begin:number]
                yield [offsets[number]], [line if isinstance(line, LongLine) else cut(line, len(line))]
                begin = number + 1
    if begin < len(lines) or not lines:
        yield offsets[begin:], lines[begin:]
