"""Compaction of pushed rows that replace one another: the log keeps the current rows only.

A compacted segment is made in two passes over a span of the log. The first pass reads the columns of the key and finds
the last row of each key; the second pass copies these rows. So memory holds the keys of a span, and never all its rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from boatlift.connectors.push.steps import DELETED, PUSHED
from boatlift.errors import BoatliftError, InternalError
from boatlift.storage.input_log import InputLog
from boatlift.storage.input_objects import LogSpan, sum_of
from boatlift.storage.records.codec import CompactedPart, CompactedSegment

PART_BYTES = 32 << 20
"""A part of a compacted segment takes no further rows once it has this size."""


def last_rows(read: Callable[[], Iterable[pa.RecordBatch]], key: Sequence[str], *, whole: bool) -> Iterator[pa.Table]:
    """Yield the rows that no later row of their key replaces, in their order.

    Laws:
        * With the result in the place of these rows, a log has the same newest row of each key, whatever rows come
          before and after.
        * The result has rows that delete only if they could delete a row before these: with `whole` it has none.

    Args:
        read: Returns the rows, in their order, with `_deleted` and `_pushed`; called twice.
        whole: Whether no rows come before these.
    """
    keys = pa.concat_tables(pa.table(batch).select([*key, PUSHED]) for batch in read())
    last = keys.group_by(list(key)).aggregate([(PUSHED, "max")]).column(f"{PUSHED}_max")
    places = np.sort(last.to_numpy())
    del keys, last
    for batch in read():
        pushed = batch.column(PUSHED).to_numpy()
        at = np.minimum(np.searchsorted(places, pushed), len(places) - 1)
        stays = places[at] == pushed
        if whole:
            stays &= ~batch.column(DELETED).to_numpy(zero_copy_only=False)
        if stays.any():
            yield pa.table(batch.filter(pa.array(stays)))


class CompactedSegments:
    """Compacts the free rows of an input log, one segment after the other, each on a thread of its own.

    Laws:
        * Only `settle` changes the log, and only the log's one writer calls it.
        * A compacted segment has the rows that `last_rows` finds in its span, and the digest of the span's objects as
          they were read.

    Args:
        done: Called from the thread when a segment is made, or has failed.
    """

    def __init__(self, log: InputLog, token: int, key: Sequence[str], done: Callable[[], None]) -> None:
        self._log, self._token, self._key, self._done = log, token, key, done
        self._thread: threading.Thread | None = None
        self._ends = threading.Event()
        self._made: CompactedSegment | BoatliftError | None = None

    @property
    def under_way(self) -> bool:
        return self._thread is not None

    @property
    def ready(self) -> bool:
        """Whether `settle` has something to do."""
        return self._made is not None

    def begin(self) -> None:
        """Begin a segment, if it is worth its bytes and none is under way."""
        if self._thread is None and (span := self._log.replaceable()) is not None:
            name = f"boatlift-compaction-{self._log.source}"
            self._thread = threading.Thread(target=self._work, args=(span,), name=name, daemon=True)
            self._thread.start()

    def settle(self, remember: int) -> bool:
        """Put a segment that was made in the place of its rows; return whether there was one."""
        if self._made is None:
            return False
        assert self._thread is not None
        self._thread.join()
        made, self._made = self._made, None
        try:
            if isinstance(made, BoatliftError):
                raise made
            self._log.replace(made, remember)
        finally:
            self._thread = None  # so a segment is under way until its rows are replaced, as other threads see it
        return True

    def close(self, *, in_order: bool) -> None:
        """End the segment under way, and delete parts that no segment needs.

        Args:
            in_order: Whether everything that the log wrote is known to be durable. Otherwise nothing is deleted: a key
                checkpoint may name parts of the segment under way.
        """
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        if in_order:
            self._log.release()

    def _work(self, span: LogSpan) -> None:
        try:
            self._made = self._compacted_part(span)
        except BoatliftError as error:
            self._made = self._fenced_or(error)
        except Exception as error:  # noqa: BLE001 - the writer gets it: this thread must not die silently
            self._made = InternalError("INTERNAL", f"the pushes to {self._log.source} cannot be compacted: {error!r}")
        self._done()

    def _fenced_or(self, error: BoatliftError) -> BoatliftError:
        """Return the cause of an error: a newer owner may have deleted the objects that this one reads."""
        try:
            self._log.check_newest()
        except BoatliftError as fenced:
            return fenced
        return error

    def _compacted_part(self, span: LogSpan) -> CompactedSegment | None:
        numbers = frozenset(span.numbers)
        digests = [part.checksum for number, part in self._log.parts(0) if number in numbers]
        parts: list[CompactedPart] = []
        rows: list[pa.Table] = []
        for table in last_rows(lambda: self._rows(span), self._key, whole=span.first == 1):
            if self._ends.is_set():
                return None
            rows.append(table)
            if sum(each.nbytes for each in rows) >= PART_BYTES:
                parts.append(self._write(span.last, len(parts), rows))
                rows = []
        if rows:
            parts.append(self._write(span.last, len(parts), rows))
        digest = sum_of([*(each.digest for each in span.compacted), *digests])
        return CompactedSegment(span.first, span.last, digest.to_bytes(16), tuple(parts))

    def _write(self, last: int, place: int, tables: list[pa.Table]) -> CompactedPart:
        table = pa.concat_tables(tables).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return self._log.compacted_parts.write(self._token, last, place, len(table), sink.getvalue().to_pybytes())

    def _rows(self, span: LogSpan) -> Iterator[pa.RecordBatch]:
        for part in (part for each in span.compacted for part in each.parts):
            yield from pa.ipc.open_stream(self._log.compacted_parts.read(part))
        for base, rows in self._log.read_rows(span.numbers):
            yield from numbered(base, rows)


def numbered(base: int, rows: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an object with `_pushed`; rows of compacted segments have it already."""
    for batch in pa.ipc.open_stream(rows):
        if PUSHED in batch.schema.names:
            yield batch
            continue
        number = pa.array(np.arange(base, base + len(batch)), pa.int64())
        yield pa.RecordBatch.from_arrays([*batch.columns, number], [*batch.schema.names, PUSHED])
        base += len(batch)
