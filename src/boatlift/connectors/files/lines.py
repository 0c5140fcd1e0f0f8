"""The lines of files, or of ranges of them, with their offsets, read by the tasks.

A range of a file has to be read so, and rows of which some may be bad: their places have to be known.

Spark's own readers of text give no place. Lines end as they do there: by LF, by CR LF, or by CR alone. A byte order
mark at the beginning of a file is no part of the first line.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from boatlift.connectors.files.compression import DAMAGE, damage_of, opened, without_compression
from boatlift.dataflow.columns import ORDINAL
from boatlift.decoders import packed_decoder
from boatlift.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.files.formats import Lines

__all__ = ["BLANK", "LINES", "ReadLines", "Span", "divided", "lines_in", "lines_of", "parameters_of", "rows_of_spans"]

LINES = f"value BINARY, file STRING, offset BIGINT, {ORDINAL} INT"
"""The columns of lines: their bytes without the end, the name of the file, where they begin in it, and their step."""

SPAN_BYTES = 16 << 20
"""A file is cut into parts of about so many bytes, unless it is compressed."""

TASK_BYTES = 4 << 20
"""A task reads at least so many bytes, if there are: starting a task takes longer than reading fewer."""

_CHUNK = 1 << 20
_END = re.compile(rb"\r\n|\n|\r")


class Span(NamedTuple):
    """The lines of a file, or the row groups, that begin in a range of its bytes.

    Attributes:
        path: The file.
        name: Its name within the source.
        begin, end: The range; bytes of a compressed file are counted as they are decompressed. None: to the end.
        ordinal: The index of the step that takes the file.
        at_line: Whether a line begins at `begin`; else the end of the line before is looked for.
        place: The file's place in its step.
    """

    path: str
    name: str
    begin: int
    end: int | None
    ordinal: int
    at_line: bool = True
    place: int = 0


@dataclass(frozen=True, slots=True)
class ReadLines:
    """Reads the spans of each task whose number it gets.

    Attributes:
        source: The source's name, for errors.
        header: Whether the first line of a file that is not blank is no row.
        encoding: The encoding, as Python calls it; the bytes of lines are UTF-8.
        texts_in: Reads lines; see `Lines.texts_in`.
        tasks: The spans of each task; None: the job's parameters name them.
    """

    source: str
    header: bool
    encoding: str
    texts_in: Callable[..., Iterator[tuple[list[int], list[bytes]]]]
    tasks: tuple[tuple[Span, ...], ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the spans."""
        return rows_of_spans(batches, self.source, self.tasks, self.read)

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Read the lines of a span.

        Raises:
            DataError: `[BAD_ROW]` the file cannot be decompressed, `[INPUT_MISSING]` it is gone.
        """
        import pyarrow as pa

        skips = self.header and span.begin == 0
        try:
            for offsets, lines in self.texts_in(Path(span.path), span.begin, span.end, at_line=span.at_line):
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
                    ORDINAL: pa.repeat(pa.scalar(span.ordinal, pa.int32()), count),
                }
                yield pa.record_batch(columns)
        except FileNotFoundError as error:
            raise DataError("INPUT_MISSING", f"{span.path} is gone, and a step needs it: put it back") from error
        except DAMAGE as error:
            if (damage := damage_of(Path(span.path))) is not None:
                raise DataError("BAD_ROW", damage) from error
            raise


_SPANS = packed_decoder(list[Span])


def parameters_of(spans: Sequence[Span]) -> bytes:
    """Return the parameters of a job whose one task reads spans."""
    return msgspec.msgpack.encode(spans)


def spans_of_job() -> list[Span]:
    """Return the spans that the parameters of this task's job name."""
    from boatlift.connectors.kit.tasks import job_parameters

    spans: list[Span] = _SPANS.decode(job_parameters().source)
    return spans


def rows_of_spans(
    batches: Iterator[pa.RecordBatch],
    source: str,
    tasks: Sequence[Sequence[Span]] | None,
    read: Callable[[Span], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the spans of each task whose number comes, in order.

    Args:
        batches: The numbers of tasks.
        source: The source's name, for errors.
        tasks: The spans of each task; None: the job's parameters name them.
        read: Reads a span.
    """
    from boatlift.connectors.kit.tasks import guarded

    for batch in batches:
        for number in batch.column(0).to_pylist():
            for span in guarded(source, spans_of_job) if tasks is None else tasks[number]:
                rows = read(span)
                while (made := guarded(source, lambda: next(rows, None))) is not None:  # noqa: B023
                    yield made


BLANK = bytes(range(33))
"""The characters that Spark trims off a line before it asks whether the line is blank."""


def lines_in(
    path: Path, begin: int = 0, end: int | None = None, *, at_line: bool = False
) -> Iterator[tuple[list[int], list[bytes]]]:
    """Yield the lines of a file that begin in a range of its bytes, with their offsets, some at a time.

    Law: the lines of ranges that follow one another without a gap are those of the whole file.
    """
    with opened(path) as file:
        place = begin if at_line else max(0, begin - 1)
        if place:
            file.seek(place)
        rest = b""
        begun = begin > 0 and not at_line  # a line that began before the range, as long as its end was not found
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


def lines_of(spark: SparkSession, source: str, lines: Lines, spans: Sequence[Span]) -> DataFrame:
    """Return the lines of spans, in tasks: `value` (binary), `file`, `offset` and `_ordinal`.

    Args:
        spark: The session.
        source: The source's name, for errors.
        lines: How a line is a row.
        spans: Files, or ranges of files that begin at a line.
    """
    sizes = [(span.end or Path(span.path).stat().st_size) - span.begin for span in spans]
    number = max(1, min(spark.sparkContext.defaultParallelism, sum(sizes) // TASK_BYTES))
    tasks = divided(spans, number, divisible=lines.divisible)
    read = ReadLines(source, lines.header, lines.encoding, lines.texts_in, tasks)
    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(read, LINES)


def divided(spans: Sequence[Span], tasks: int, *, divisible: bool = True) -> tuple[tuple[Span, ...], ...]:
    """Divide spans among tasks, in order; a compressed file is one task's.

    Args:
        spans: Files, or ranges of files that begin at a line.
        tasks: How many tasks there are at most.
        divisible: Whether a range of a file can be read by itself.
    """
    parts = []
    for span in spans:
        path = Path(span.path)
        last = span.end or path.stat().st_size
        whole = not divisible or without_compression(path) != path
        begins = [span.begin] if whole else [*range(span.begin, last, SPAN_BYTES)]
        ends = [*begins[1:], span.end]
        for begin, end in zip(begins, ends, strict=True):
            part = span._replace(begin=begin, end=end, at_line=begin == span.begin)
            parts.append((part, (end or last) - begin))
    total, made = sum(size for _, size in parts), [list[Span]() for _ in range(max(1, tasks))]
    taken = 0
    for part, size in parts:
        made[min(taken * len(made) // max(1, total), len(made) - 1)].append(part)
        taken += size
    return tuple(tuple(each) for each in made if each)
