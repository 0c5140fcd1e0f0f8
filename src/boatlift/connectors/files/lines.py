"""The lines of files, or of ranges of them, with their offsets, read in tasks.

Spark's own readers of text give no offsets. Ranges of a file need them, and so do bad rows. Lines end as Spark ends
them: by LF, by CR LF, or by CR alone. A byte order mark at the beginning of a file is no part of the first line.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from boatlift.connectors.files.compression import DAMAGE, damage_of, is_compressed, opened
from boatlift.connectors.kit.object_place import InputFile, ObjectVersion, place_of
from boatlift.dataflow.columns import ORDINAL
from boatlift.decoders import packed_decoder
from boatlift.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LONGEST = 16 << 20
"""The bytes that a line may have by default."""

SPAN_BYTES = 16 << 20
"""A file is cut into parts of about this size, unless it is compressed."""

TASK_BYTES = 4 << 20
"""A task reads at least this much, if there is so much: starting a task takes longer than reading less."""

BLANK = bytes(range(33))
"""The characters that Spark trims off a line before it asks whether the line is blank."""

LINES = f"value BINARY, file STRING, offset BIGINT, size BIGINT, {ORDINAL} INT"
"""The columns of lines: their bytes without the end, the file's name, their offset, and the index of their step.

For a line that is too long `value` has the first bytes, and `size` the number of all bytes; otherwise `size` is NULL.
"""

_HEAD = 1 << 16
_CHUNK = 1 << 20
_END = re.compile(rb"\r\n|\n|\r")


class LongLine(bytes):
    """The first bytes of a line or element that exceeds the bound; `size` is the number of all its bytes."""

    size: int


def cut(text: bytes, size: int) -> LongLine:
    """Return the first bytes of a text of this size."""
    line = LongLine(text[:_HEAD])
    line.size = size
    return line


class _Line:
    """A line whose end was not found yet: all its bytes, or the first ones if it is too long."""

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
    path: InputFile, begin: int = 0, end: int | None = None, most: int = LONGEST, *, at_line: bool = False
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield the lines of a file that begin in a range of its bytes, with their offsets, in batches.

    A line of more than `most` bytes comes alone, as a `LongLine`.

    Law: the lines of adjacent ranges are the lines of the whole file.

    Args:
        at_line: Whether a line begins at `begin`; otherwise the end of the line before is looked for.
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


def has_long_line(path: InputFile, most: int) -> bool:
    """Return whether a file that is not compressed has a line of more than `most` bytes."""
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
    """Cut text behind the ends of lines; the unfinished line, perhaps empty, comes last."""
    if b"\r" not in text:
        lines = text.split(b"\n")
        return [*(line + b"\n" for line in lines[:-1]), lines[-1]]
    ends = [0, *(match.end() for match in _END.finditer(text)), len(text)]
    return [text[begin:end] for begin, end in pairwise(ends)]


def _trimmed(offsets: list[int], lines: list[bytes]) -> tuple[list[int], list[bytes]]:
    lines = [line if isinstance(line, LongLine) else line.rstrip(b"\r\n") for line in lines]
    if offsets and offsets[0] == 0 and lines[0].startswith(codecs.BOM_UTF8) and not isinstance(lines[0], LongLine):
        offsets[0] = len(codecs.BOM_UTF8)
        lines[0] = lines[0][offsets[0] :]
    return offsets, lines


def _apart(offsets: list[int], lines: list[bytes], most: int) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield lines in batches; a long line has a batch of its own."""
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


class Span(NamedTuple):
    """The lines or row groups of a file that begin in a range of its bytes.

    Attributes:
        begin, end: The range, after decompression; None: to the end.
        ordinal: The index of the step that takes the file.
        at_line: Whether a line begins at `begin`; otherwise the end of the line before is looked for.
        place: The file's place in its step.
        version: The state of an object; None: the path is that of a local file.
    """

    path: str
    name: str
    begin: int
    end: int | None
    ordinal: int
    at_line: bool = True
    place: int = 0
    version: ObjectVersion | None = None

    @property
    def input(self) -> InputFile:
        """The file or the object."""
        return place_of(self.path, self.version)


@dataclass(frozen=True, slots=True)
class ReadLines:
    """Reads the spans of each task whose number it gets.

    Attributes:
        header: Whether the first line of a file that is not blank is no row.
        encoding: The encoding, as Python calls it; the bytes of lines are UTF-8.
        cuts: Whether a longer line is cut; otherwise it is an error.
        tasks: The spans of each task; None: the job's parameters name them.
    """

    source: str
    header: bool
    encoding: str
    texts_in: Callable[..., Iterator[tuple[list[int], list[bytes]]]]
    most: int
    cuts: bool
    tasks: tuple[tuple[Span, ...], ...] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows_of_spans(batches, self.source, self.tasks, self.read)

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        skips = self.header and span.begin == 0
        try:
            for offsets, lines in self.texts_in(span.input, span.begin, span.end, self.most, at_line=span.at_line):
                size = lines[0].size if lines and isinstance(lines[0], LongLine) else None
                if size is not None and not self.cuts:
                    message = f"{span.input}, the line at byte {offsets[0]}, {too_long(size, self.most)}"
                    raise DataError("BAD_ROW", f"{message}: cut it, or give a larger max_line_bytes")
                if skips:
                    first = next((n for n, line in enumerate(lines) if line.strip(BLANK)), len(lines))
                    skips = first == len(lines)
                    del offsets[: first + 1], lines[: first + 1]
                if self.encoding != "utf-8":
                    lines[:] = [line.decode(self.encoding).encode() for line in lines]
                count = len(lines)
                columns = {
                    "value": pa.array(lines, pa.binary()),
                    "file": pa.repeat(pa.scalar(span.name, pa.string()), count),
                    "offset": pa.array(offsets, pa.int64()),
                    "size": pa.repeat(pa.scalar(size, pa.int64()), count),
                    ORDINAL: pa.repeat(pa.scalar(span.ordinal, pa.int32()), count),
                }
                yield pa.record_batch(columns)
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{span.input} is gone, and a step needs it: put it back") from error
        except DAMAGE as error:
            if (damage := damage_of(span.input)) is not None:
                raise DataError("BAD_ROW", damage) from error
            raise


_SPANS = packed_decoder(list[Span])


def rows_of_spans(
    batches: Iterator[pa.RecordBatch],
    source: str,
    tasks: Sequence[Sequence[Span]] | None,
    read: Callable[[Span], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the spans of each task whose number comes, in order."""
    from boatlift.connectors.kit.tasks import guarded_rows, parts_of_tasks

    for spans in parts_of_tasks(batches, source, tasks, _SPANS.decode):
        for span in spans:
            yield from guarded_rows(source, read(span))


def too_long(size: int | str, most: int) -> str:
    """Return the fault of a long line, in words."""
    return f"has {size} bytes, more than max_line_bytes={most}"


def lines_of(spark: SparkSession, read: ReadLines, spans: Sequence[Span], *, divisible: bool) -> DataFrame:
    """Return the lines of spans, read in tasks, with the columns `LINES`.

    Args:
        divisible: Whether a part of a file can be read alone.
    """
    sizes = [(span.end or span.input.stat().st_size) - span.begin for span in spans]
    number = max(1, min(spark.sparkContext.defaultParallelism, sum(sizes) // TASK_BYTES))
    tasks = divided(spans, number, divisible=divisible)
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(replace(read, tasks=tasks), LINES)


def divided(spans: Sequence[Span], tasks: int, *, divisible: bool = True) -> tuple[tuple[Span, ...], ...]:
    """Divide spans among tasks, in order; one task reads a compressed file."""
    parts = []
    for span in spans:
        last = span.end or span.input.stat().st_size
        whole = not divisible or is_compressed(span.input)
        begins = [span.begin] if whole else [*range(span.begin, last, SPAN_BYTES)]
        for begin, end in zip(begins, [*begins[1:], span.end], strict=True):
            part = span._replace(begin=begin, end=end, at_line=begin == span.begin)
            parts.append((part, (end or last) - begin))
    return shared_out(parts, tasks)


def shared_out(parts: Sequence[tuple[Span, int]], tasks: int) -> tuple[tuple[Span, ...], ...]:
    """Give each of at most so many tasks consecutive spans of about the same size; each span comes with its size."""
    total, made = sum(size for _, size in parts), [list[Span]() for _ in range(max(1, tasks))]
    taken = 0
    for part, size in parts:
        made[min(taken * len(made) // max(1, total), len(made) - 1)].append(part)
        taken += size
    return tuple(tuple(each) for each in made if each)
