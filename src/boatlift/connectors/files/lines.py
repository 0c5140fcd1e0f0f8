"""The lines of files with their offsets, read by the tasks: where a row may be bad, its place has to be known.

Spark's own readers of text give no place. Lines end as they do there: by LF, by CR LF, or by CR alone. A byte order
mark at the beginning of a file is no part of the first line.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from boatlift.connectors.files.compression import DAMAGE, damage_of, opened, without_compression
from boatlift.dataflow.columns import ORDINAL
from boatlift.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["LINES", "ReadLines", "Span", "divided", "lines_in"]

LINES = "value BINARY, file STRING, offset BIGINT"
"""The columns of lines: their bytes without the end, the name of the file, and where they begin in it."""

SPAN_BYTES = 16 << 20
"""A file is cut into parts of about so many bytes, unless it is compressed."""

_CHUNK = 1 << 20
_END = re.compile(rb"\r\n|\n|\r")


class Span(NamedTuple):
    """The lines of a file that begin in a range of its bytes.

    Attributes:
        path: The file.
        name: Its name within the source.
        begin, end: The range; bytes of a compressed file are counted as they are decompressed. None: to the end.
        ordinal: The index of the step that takes the file, if several are read together; else None.
    """

    path: str
    name: str
    begin: int
    end: int | None
    ordinal: int | None


@dataclass(frozen=True, slots=True)
class ReadLines:
    """Reads the spans of each task whose number it gets.

    Attributes:
        source: The source's name, for errors.
        header: Whether the first line of a file that is not blank is no row.
        encoding: The encoding, as Python calls it; the bytes of lines are UTF-8.
        tasks: The spans of each task.
    """

    source: str
    header: bool
    encoding: str
    tasks: tuple[tuple[Span, ...], ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the spans."""
        from boatlift.connectors.kit.tasks import guarded

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for span in self.tasks[number]:
                    rows = self.read(span)
                    while (made := guarded(self.source, lambda: next(rows, None))) is not None:  # noqa: B023
                        yield made

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Read the lines of a span.

        Raises:
            DataError: `[BAD_ROW]` the file cannot be decompressed.
        """
        import pyarrow as pa

        skips = self.header and span.begin == 0
        try:
            for offsets, lines in lines_in(Path(span.path), span.begin, span.end):
                if skips:
                    first = next((n for n, line in enumerate(lines) if line.strip(_BLANK)), len(lines))
                    skips = first == len(lines)
                    del offsets[: first + 1], lines[: first + 1]
                if self.encoding != "utf-8":
                    lines[:] = [line.decode(self.encoding).encode() for line in lines]
                count = len(lines)
                columns = {
                    "value": pa.array(lines, pa.binary()),
                    "file": pa.repeat(pa.scalar(span.name, pa.string()), count),
                    "offset": pa.array(offsets, pa.int64()),
                }
                if span.ordinal is not None:
                    columns[ORDINAL] = pa.repeat(pa.scalar(span.ordinal, pa.int32()), count)
                yield pa.record_batch(columns)
        except DAMAGE as error:
            if (damage := damage_of(Path(span.path))) is not None:
                raise DataError("BAD_ROW", damage) from error
            raise


_BLANK = bytes(range(33))
"""The characters that Spark trims off a line before it asks whether the line is blank."""


def lines_in(path: Path, begin: int = 0, end: int | None = None) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield the lines of a file that begin in a range of its bytes, with their offsets, some at a time.

    Law: the lines of ranges that follow one another without a gap are those of the whole file.
    """
    with opened(path) as file:
        place = max(0, begin - 1)
        if place:
            file.seek(place)
        rest = b""
        begun = begin > 0  # a line that began before the range, as long as its end was not found
        while chunk := file.read(_CHUNK):
            while chunk.endswith(b"\r") and (more := file.read(1)):
                chunk += more  # whether CR ends the line alone, the next character says
            *lines, rest = _split(rest + chunk)
            offsets = [*accumulate(map(len, lines), initial=place)]
            place = offsets.pop()
            if begun and lines:
                begun, lines, offsets = False, lines[1:], offsets[1:]
            count = len(lines) if end is None else bisect_left(offsets, end)
            yield _trimmed(offsets[:count], lines[:count])
            if end is not None and place >= end and not begun:
                return
        if rest and not begun:
            yield _trimmed([place], [rest])


def _split(text: bytes) -> list[bytes]:
    """Cut text behind the ends of lines; what follows the last one comes last, perhaps empty."""
    if b"\r" not in text:
        lines = text.split(b"\n")
        return [*(line + b"\n" for line in lines[:-1]), lines[-1]]
    ends = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(ends)]


def _trimmed(offsets: list[int], lines: list[bytes]) -> tuple[list[int], list[bytes]]:
    """Return lines without their ends, and without the mark at the beginning of a file."""
    lines = [line.rstrip(b"\r\n") for line in lines]
    if offsets and offsets[0] == 0 and lines[0].startswith(codecs.BOM_UTF8):
        offsets[0] = len(codecs.BOM_UTF8)
        lines[0] = lines[0][offsets[0] :]
    return offsets, lines


def divided(files: Sequence[tuple[Path, str, int | None]], tasks: int) -> tuple[tuple[Span, ...], ...]:
    """Divide files among tasks; a compressed file is one task's.

    Args:
        files: The path of each, its name within the source, and its ordinal.
        tasks: How many tasks there are at most.
    """
    spans = []
    for path, name, ordinal in files:
        size = path.stat().st_size
        begins = [0] if without_compression(path) != path else [*range(0, size, SPAN_BYTES)]
        ends = [*begins[1:], None]
        spans += [(Span(str(path), name, b, e, ordinal), (e or size) - b) for b, e in zip(begins, ends, strict=True)]
    total, made = sum(size for _, size in spans), [list[Span]() for _ in range(max(1, tasks))]
    taken = 0
    for span, size in spans:
        made[min(taken * len(made) // max(1, total), len(made) - 1)].append(span)
        taken += size
    return tuple(tuple(each) for each in made if each)
