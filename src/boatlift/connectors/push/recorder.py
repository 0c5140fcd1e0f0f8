"""Records pushes. Pushes that come while an object is written share the next object, and so one sync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any

import msgspec
import pyarrow as pa

from boatlift.connectors.push.compacted import CompactedSegments
from boatlift.connectors.push.rows import ParsedRows, PushedRows
from boatlift.dataflow.contracts import Receipt
from boatlift.errors import BoatliftError, DataError, InternalError, InvalidError, UnavailableError
from boatlift.storage.input_log import InputLog
from boatlift.storage.records.codec import Push
from boatlift.storage.unlogged_input import UnloggedInput

LARGEST_ROWS = 64 << 20
"""The most bytes of the rows of one push, in Arrow."""

OBJECT_BYTES = 32 << 20
"""An object takes no further push once it has this size, so that later pushes do not wait long."""


def _answer_to_come() -> Future[Receipt]:
    answer = Future[Receipt]()
    answer.set_running_or_notify_cancel()  # a client that goes cancels nothing that is recorded
    return answer


@dataclass(slots=True, eq=False)
class _Waiting:
    """A push without an answer; its rows are converted in its turn if they are `parsed`."""

    rows: pa.RecordBatch | None
    push: Push
    size: int
    parsed: ParsedRows | None = None
    answer: Future[Receipt] = field(default_factory=_answer_to_come)


class Recorder:
    """Writes the input log of a source on a thread of its own, from `begin` to `close`.

    Laws:
        * A push is answered once it is durable; with `until_stable`, once its rows are free. When the recorder closes,
          the remaining answers say that rows are not stable; if no log keeps the rows, they are errors.
        * Compacted segments replace free rows; a push waits for one no longer than for a key checkpoint.
        * One of several pushes with the same key is recorded. The others get its answer, or are refused if their rows
          differ.
        * The first failure fails every push that is not durable, and every later push.

    Args:
        log: The claimed log. A log without rows takes no push before `go_on_from`.
        clock: Returns milliseconds since 1970.
        remember: The milliseconds for which keys are remembered.
        most_keys: The most keys that are remembered; pushes with further keys are refused.
        most_waiting: The most bytes of rows that may wait until they are free.
        compacted: Makes the compaction, given a function to call when a segment is made; None: rows are not compacted.
        answered: Returns those of some keys that have answers, which outlive the log's keys; None: there are none.

    Attributes:
        failure: The error that ended the recording; None while it goes on.
        announce: Called after rows are recorded.
    """

    def __init__(
        self,
        source: str,
        log: InputLog | UnloggedInput,
        rows: PushedRows,
        *,
        clock: Callable[[], int],
        remember: int,
        most_keys: int,
        most_waiting: int,
        until_stable: bool,
        compacted: Callable[[Callable[[], None]], CompactedSegments] | None = None,
        answered: Callable[[Sequence[str]], Container[str]] | None = None,
    ) -> None:
        self._source, self._log, self._rows, self._clock = source, log, rows, clock
        self._remember, self._most_keys = remember, most_keys
        self._most, self._until_stable, self._answered = most_waiting, until_stable, answered
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._unstable: list[tuple[int, Future[Receipt], Receipt]] = []
        self._freed = self._acted_free = self._queued = 0
        self._full = self._forgets = False
        self.failure: BoatliftError | None = None
        self._closed = False
        self.announce: Callable[[], None] = lambda: None
        self._compacted = None if compacted is None else compacted(self._notify)
        if self._compacted is not None:
            self._compacted.begin()  # rows may have become free when an earlier owner ended
        self._thread = threading.Thread(target=self._work, name=f"boatlift-push-{source}", daemon=True)
        self._thread.start()

    @property
    def awaited(self) -> bool:
        """Whether a client waits until rows are free: for an answer, or for room to push more."""
        return bool(self._unstable) or self._full

    def go_on_from(self, cursor: Mapping[str, Any]) -> None:
        """Set the cursor from which steps take pushes; a log without rows begins with the first call."""
        if isinstance(self._log, UnloggedInput) and not self._log.begun:
            self._log.begin(cursor)
            self._notify()

    def put(self, rows: pa.RecordBatch, key: str | None, digest: bytes = b"") -> Future[Receipt]:
        """Queue the rows of a push. A push without rows is answered at once, and its key is not remembered.

        Args:
            digest: What the key stands for; empty for the values of the rows. Of such a push that is repeated without
                rows the answer is that of the recorded one.

        Raises:
            BoatliftError: no row was recorded; the answer may raise the same errors.
        """
        if digest and key and not rows.num_rows and (repeated := self._repeated(key, digest)) is not None:
            return repeated
        digest = digest or (self._rows.digest(rows) if key else b"")
        return self._queue(_Waiting(rows, Push(key or "", rows.num_rows, digest, self._clock()), rows.nbytes))

    def _repeated(self, key: str, digest: bytes) -> Future[Receipt] | None:
        with self._changed:
            known = self._log.find(key) if self._log.begun else None
            if known is None:
                return None
            self._refuse_other(known, digest)
            answer: Future[Receipt] = Future()
            answer.set_result(Receipt(known.rows, repeated=True, stable=self._log.is_freed(known.number)))
            return answer

    def put_parsed(self, rows: ParsedRows, key: str | None) -> Future[Receipt]:
        """Queue the rows of a push, which are converted with those of the pushes beside it. Raises as `put`."""
        push = Push(key or "", len(rows.rows), b"", self._clock())
        return self._queue(_Waiting(None, push, rows.size, rows))

    def _queue(self, waiting: _Waiting) -> Future[Receipt]:
        key = waiting.push.key
        if not waiting.push.rows:
            waiting.answer.set_result(Receipt(0, repeated=False, stable=True))
            return waiting.answer
        _check_size(waiting.size)
        with self._changed:
            if self.failure is not None:
                raise self.failure
            if self._closed:
                raise UnavailableError(
                    "NOT_RUNNING", f"{self._source} takes no more rows: push again once its dataflow runs"
                )
            known = self._log.find(key) if key and self._log.begun else None
            if known is not None:
                if waiting.rows is not None:
                    self._refuse_other(known, waiting.push.digest)
            elif key and len(self._log.keys) >= self._most_keys:
                self._forgets = True
                self._changed.notify_all()
                raise UnavailableError(
                    "KEYS_FULL",
                    f"{self._source} remembers {self._most_keys:,} keys, and none is old enough to be forgotten: push "
                    "again later, with the same key; or let its dataflow run with a shorter remember_keys or more "
                    "max_remembered_keys",
                )
            elif self._log.waiting + self._queued > self._most:
                self._full = True
                raise UnavailableError(
                    "PUSH_FULL",
                    f"more than {self._most:,} bytes that were pushed to {self._source} wait until no failure can need "
                    "them: push again later",
                )
            self._queued += waiting.size
            self._waiting.append(waiting)
            self._changed.notify_all()
        return waiting.answer

    def found(self, key: str) -> Receipt | None:
        """Return the receipt of a key; a log without rows knows only keys whose rows are stable.

        Raises:
            BoatliftError: recording has failed, and another owner may have recorded more.
        """
        if self.failure is not None:
            raise self.failure
        if not self._log.begun:
            raise UnavailableError("NOT_RUNNING", f"{self._source} does not take rows yet: ask again in a moment")
        known = self._log.find(key)
        stable = known is not None and self._log.is_freed(known.number)
        if known is None or not (stable or self._log.keeps_rows):
            self._log.check_newest()
            return None
        return Receipt(known.rows, repeated=True, stable=stable)

    def free(self, number: int) -> None:
        """Free the objects up to a number: no recovery needs their rows."""
        with self._changed:
            self._freed = max(self._freed, number)
            self._changed.notify_all()

    def close(self) -> None:
        """Record and answer the queued pushes; then end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        if self._compacted is not None:
            self._compacted.close(in_order=self.failure is None)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: (
                        (self._closed and not self._compacts)
                        or (self._compacts and self._compacted is not None and self._compacted.ready)
                        or (self._log.begun and (self._waiting or self._forgets or self._freed > self._acted_free))
                    )
                )
                group, freed, full = self._next_group(), self._freed, self._forgets
                self._forgets = False
                if not group and freed == self._acted_free and self._closed and not self._compacts:
                    break
            try:
                if group and not self._log.begun:
                    raise self._ended()
                if self.failure is None and self._log.begun:
                    self._write(group)
                    self._free(freed)
                    self._compact(freed)
                    self._log.remember(self._clock() - self._remember, full=full)
            except BoatliftError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - every client gets the error: this thread must not die silently
                self._fail(InternalError("INTERNAL", f"pushes to {self._source} cannot be recorded: {error!r}"))
            self._acted_free = freed
            if self.failure is not None:
                self._refuse(group, self.failure)
        self._answer_unstable()

    def _next_group(self) -> list[_Waiting]:
        sizes = accumulate(waiting.size for waiting in self._waiting)
        count = 1 + sum(1 for _ in takewhile(lambda size: size < OBJECT_BYTES, sizes))
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        self._queued -= sum(waiting.size for waiting in group)
        return group

    def _write(self, group: list[_Waiting]) -> None:
        group = self._without_answers(self._converted(group))
        new = set[str]()
        made, again = list[_Waiting](), list[_Waiting]()
        for waiting in group:
            key = waiting.push.key
            is_known = bool(key) and (key in new or self._log.find(key) is not None)
            (again if is_known else made).append(waiting)
            new.add(key)
        if made:
            number = self._log.append(
                [w.push for w in made], self._rows.stream([w.rows for w in made if w.rows is not None])
            )
            self.announce()
            for waiting in made:
                self._answer(waiting, number, waiting.push.rows, repeated=False)
        for waiting in again:
            known = self._log.find(waiting.push.key)
            assert known is not None
            try:
                self._refuse_other(known, waiting.push.digest)
            except InvalidError as error:
                waiting.answer.set_exception(error)
            else:
                self._answer(waiting, known.number, known.rows, repeated=True)

    def _converted(self, group: list[_Waiting]) -> list[_Waiting]:
        """Convert the rows of pushes, together if all fit; return the pushes that fit, after refusing the others."""
        parsed = [each for each in group if each.rows is None]
        try:
            self._convert(parsed)
        except Exception:  # noqa: BLE001 - each is converted again below, and raises it
            for each in parsed:
                try:
                    self._convert([each])
                except (DataError, InvalidError) as error:
                    each.answer.set_exception(error)
                except Exception as error:  # noqa: BLE001 - it is of this push alone
                    said = f"a push to {self._source} cannot be converted: {error!r}"
                    each.answer.set_exception(InternalError("INTERNAL", said))
        return [each for each in group if each.rows is not None]

    def _convert(self, parsed: list[_Waiting]) -> None:
        made = self._rows.of_parsed([each.parsed for each in parsed if each.parsed is not None])
        for rows, _ in made[:1]:
            _check_size(rows.get_total_buffer_size())  # of all: they are slices of one batch
        for each, (rows, digest) in zip(parsed, made, strict=True):
            each.rows = rows
            if each.push.key:
                each.push = msgspec.structs.replace(each.push, digest=digest)

    def _without_answers(self, group: list[_Waiting]) -> list[_Waiting]:
        """Return the pushes but for those whose key has an answer, though the log has forgotten it."""
        unknown = [each for each in group if each.push.key and self._log.find(each.push.key) is None]
        if self._answered is None or not unknown:
            return group
        done = set(unknown)
        try:
            found = self._answered([each.push.key for each in unknown])
        except UnavailableError as error:
            self._refuse(unknown, error)
        else:
            done = {each for each in unknown if each.push.key in found}
            for each in done:
                each.answer.set_result(Receipt(each.push.rows, repeated=True, stable=True))
        return [each for each in group if each not in done]

    def _answer(self, waiting: _Waiting, number: int, rows: int, *, repeated: bool) -> None:
        stable = self._log.is_freed(number)
        if self._until_stable and not stable:
            self._unstable.append((number, waiting.answer, Receipt(rows, repeated, True)))
        else:
            waiting.answer.set_result(Receipt(rows, repeated, stable))

    def _free(self, freed: int) -> None:
        if freed == self._acted_free:
            return
        self._log.free(freed, self._clock() - self._remember)
        self._full = False
        for number, answer, receipt in self._unstable:
            if number <= freed:
                answer.set_result(receipt)
        self._unstable = [each for each in self._unstable if each[0] > freed]

    @property
    def _compacts(self) -> bool:
        """Whether a segment is under way, or waits to replace its rows."""
        return self.failure is None and self._compacted is not None and self._compacted.under_way

    def _compact(self, freed: int) -> None:
        """Put a segment that was made in the place of its rows, and begin another if more rows are free."""
        if self._compacted is None:
            return
        replaced = self._compacted.settle(self._clock() - self._remember)
        if freed != self._acted_free or (replaced and not self._closed):
            self._compacted.begin()

    def _fail(self, error: BoatliftError) -> None:
        with self._changed:
            self.failure = self.failure or error
            group, self._waiting = self._waiting, []
        self._refuse(group, error)
        self._answer_unstable()

    def _answer_unstable(self) -> None:
        """Answer the pushes that wait for stability: their rows are only recorded, or may be lost."""
        unstable, self._unstable = self._unstable, []
        for _, answer, receipt in unstable:
            if self._log.keeps_rows:
                answer.set_result(Receipt(receipt.rows, receipt.repeated, stable=False))
            else:
                answer.set_exception(self.failure or self._ended())

    def _ended(self) -> UnavailableError:
        return UnavailableError(
            "NOT_RUNNING",
            f"the run ended before it was certain that the rows pushed to {self._source} are kept: push them again, "
            "with their key, once the dataflow runs",
        )

    @staticmethod
    def _refuse(group: list[_Waiting], error: BoatliftError) -> None:
        for waiting in group:
            if not waiting.answer.done():
                waiting.answer.set_exception(error)

    def _refuse_other(self, known: Push, digest: bytes) -> None:
        if known.digest != digest:
            raise InvalidError(
                "KEY_REUSED",
                f"other rows were pushed to {self._source} with the key {known.key!r}: give new rows a key of their "
                "own",
            )


def _check_size(size: int) -> None:
    if size > LARGEST_ROWS:
        raise InvalidError("PUSH_TOO_LARGE", f"{size:,} bytes are more than {LARGEST_ROWS:,}: push them in parts")
