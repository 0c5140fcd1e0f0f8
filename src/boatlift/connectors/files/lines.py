"""The lines of files, or of ranges of them, with their offsets, read by the tasks.

A range of a file has to be read so, and rows of which some may be bad: their places have to be known.

Spark's own readers of text give no place. Lines end as they do there: by LF, by CR LF, or by CR alone. A byte order
mark at the beginning of a file is no part of the first line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from boatlift.connectors.files.compression import DAMAGE, damage_of, without_compression
from boatlift.connectors.files.line_ends import LongLine
from boatlift.dataflow.columns import ORDINAL
from boatlift.decoders import packed_decoder
from boatlift.errors import DataError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.connectors.files.formats import Lines

LINES = f"value BINARY, file STRING, offset BIGINT, size BIGINT, {ORDINAL} INT"
"""The columns of lines: their bytes without the end, the name of the file, where they begin in it, and their step.

Of a long line `value` has the first bytes, and `size` the number of all; else `size` is NULL.
"""

SPAN_BYTES = 16 << 20
"""A file is cut into parts of about so many bytes, unless it is compressed."""

TASK_BYTES = 4 << 20
"""A task reads at least so many bytes, if there are: starting a task takes longer than reading fewer."""


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
        most: How many bytes a line may have.
        cuts: Whether of a longer line its first bytes are read; else it is an error.
        tasks: The spans of each task; None: the job's parameters name them.
    """

    source: str
    header: bool
    encoding: str
    texts_in: Callable[..., Iterator[tuple[list[int], list[bytes]]]]
    most: int
    cuts: bool
    tasks: tuple[tuple[Span, ...], ...] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows_of_spans(batches, self.source, self.tasks, self.read)

    def read(self, span: Span) -> Iterator[pa.RecordBatch]:
        """Read the lines of a span.

        Raises:
            DataError: `[BAD_ROW]` the file cannot be decompressed, or has a long line; `[INPUT_MISSING]` it is gone.
        """
        import pyarrow as pa

        skips = self.header and span.begin == 0
        try:
            for offsets, lines in self.texts_in(Path(span.path), span.begin, span.end, self.most, at_line=span.at_line):
                size = lines[0].size if lines and isinstance(lines[0], LongLine) else None
                if size is not None and not self.cuts:
                    message = f"{span.path}, the line at byte {offsets[0]}, {too_long(size, self.most)}"
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


def too_long(size: int | str, most: int) -> str:
    """Return, in words, what is wrong with a long line."""
    return f"has {size} bytes, more than max_line_bytes={most}"


def lines_of(spark: SparkSession, source: str, lines: Lines, spans: Sequence[Span], *, cuts: bool = False) -> DataFrame:
    """Return the lines of spans, in tasks; see `LINES`.

    Args:
        spark: The session.
        source: The source's name, for errors.
        lines: How a line is a row.
        spans: Files, or ranges of files that begin at a line.
        cuts: Whether of a long line its first bytes are read; else it is an error.
    """
    sizes = [(span.end or Path(span.path).stat().st_size) - span.begin for span in spans]
    number = max(1, min(spark.sparkContext.defaultParallelism, sum(sizes) // TASK_BYTES))
    tasks = divided(spans, number, divisible=lines.divisible)
    read = ReadLines(source, lines.header, lines.encoding, lines.texts_in, lines.most, cuts, tasks)
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
