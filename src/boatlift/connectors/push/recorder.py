"""Records pushes: what comes while one object is written goes into the next, together, so that many clients share a sync."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate, takewhile
from typing import Any

import pyarrow as pa

from boatlift.connectors.push.rows import PushedRows
from boatlift.dataflow.contracts import Receipt
from boatlift.errors import BoatliftError, InternalError, InvalidError, UnavailableError
from boatlift.storage.input_log import InputLog
from boatlift.storage.records.codec import Push
from boatlift.storage.unlogged_input import UnloggedInput

__all__ = ["Recorder"]

LARGEST_ROWS = 64 << 20
"""Bytes of rows that are pushed at once, as Arrow has them."""

OBJECT_BYTES = 32 << 20
"""An object takes no further push once it has so many bytes of rows: what waits behind it need not wait for all of them."""


@dataclass(slots=True)
class _Waiting:
    """A push that nobody has heard of yet."""

    rows: pa.RecordBatch
    push: Push
    answer: Future[Receipt] = field(default_factory=Future)


class Recorder:
    """Writes the input log of a source on a thread of its own, from `begin` to `close`.

    Laws:
        * An answer comes once the push is durable; if `until_stable`, once its rows were freed, or at the end, saying that they were not: if nobody
          keeps them, by an error.
        * Of pushes with one key one is recorded; the others are answered with it, or refused if their rows are others.
        * The first failure fails everything that is not durable, and everything later.

    Args:
        source: Its name, for errors.
        log: Claimed. Of one that keeps no rows nothing is taken in before `go_on_from`.
        rows: How rows are written.
        clock: Milliseconds since 1970.
        remember: How many milliseconds keys are remembered.
        most_waiting: How many bytes of rows may be there that are not free.
        until_stable: See the laws.
    """

    def __init__(
        self,
        source: str,
        log: InputLog | UnloggedInput,
        rows: PushedRows,
        *,
        clock: Callable[[], int],
        remember: int,
        most_waiting: int,
        until_stable: bool,
    ) -> None:
        self._source, self._log, self._rows, self._clock = source, log, rows, clock
        self._remember, self._most, self._until_stable = remember, most_waiting, until_stable
        self._changed = threading.Condition()
        self._waiting: list[_Waiting] = []
        self._unstable: list[tuple[int, Future[Receipt], Receipt]] = []
        self._freed = self._told_free = self._queued = 0
        self._full = False
        self._failure: BoatliftError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"boatlift-push-{source}", daemon=True)
        self._thread.start()

    @property
    def failure(self) -> BoatliftError | None:
        """Why it records nothing any more, if it does not."""
        return self._failure

    @property
    def awaited(self) -> bool:
        """Whether somebody waits until rows are free: to hear of it, or to push more."""
        return bool(self._unstable) or self._full

    def go_on_from(self, cursor: Mapping[str, Any]) -> None:
        """Learns from where on steps take what is pushed."""
        if isinstance(self._log, UnloggedInput) and not self._log.begun:
            self._log.begin(cursor)
            with self._changed:
                self._changed.notify_all()

    def put(self, rows: pa.RecordBatch, key: str | None) -> Future[Receipt]:
        """Hands rows over; none are taken at once, and nothing is remembered of them.

        Raises:
            BoatliftError: as the answer may: nothing was recorded.
        """
        digest = self._rows.digest(rows) if key else b""
        waiting = _Waiting(rows, Push(key or "", rows.num_rows, digest, self._clock()))
        if not rows.num_rows:
            waiting.answer.set_result(Receipt(0, repeated=False, stable=True))
            return waiting.answer
        if rows.nbytes > LARGEST_ROWS:
            raise InvalidError(
                "PUSH_TOO_LARGE", f"{rows.nbytes:,} bytes are more than {LARGEST_ROWS:,}: push them in parts"
            )
        with self._changed:
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise UnavailableError(
                    "NOT_RUNNING", f"{self._source} takes no more rows: push again once its dataflow runs"
                )
            known = self._log.find(key) if key and self._log.begun else None
            if known is not None:
                self._refuse_other(known, digest)
            elif self._log.waiting + self._queued > self._most:
                self._full = True
                raise UnavailableError(
                    "PUSH_FULL",
                    f"more than {self._most:,} bytes that were pushed to {self._source} wait until no failure can need them: push again later",
                )
            self._queued += rows.nbytes
            self._waiting.append(waiting)
            self._changed.notify_all()
        return waiting.answer

    def found(self, key: str) -> Receipt | None:
        """Tells what is recorded with a key; of rows that nobody keeps, once they are stable.

        Raises:
            BoatliftError: it cannot tell any more: others may have recorded something.
        """
        if self._failure is not None:
            raise self._failure
        if not self._log.begun:
            raise UnavailableError("NOT_RUNNING", f"{self._source} does not take rows yet: ask again in a moment")
        known = self._log.find(key)
        stable = known is not None and self._log.is_freed(known.number)
        if known is None or not (stable or self._log.keeps_rows):
            self._log.check_newest()
            return None
        return Receipt(known.rows, repeated=True, stable=stable)

    def free(self, number: int) -> None:
        """Learns that nobody needs rows up to an object any more."""
        with self._changed:
            self._freed = max(self._freed, number)
            self._changed.notify_all()

    def close(self) -> None:
        """Records what was handed over, and answers it; then ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    # -- its thread ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or (self._log.begun and (self._waiting or self._freed > self._told_free))
                )
                group, freed = self._next_group(), self._freed
                if not group and freed == self._told_free and self._closed:
                    break
            try:
                if group and not self._log.begun:
                    raise self._ended()
                if self._failure is None and self._log.begun:
                    self._write(group)
                    self._free(freed)
            except BoatliftError as error:
                self._fail(error)
            except Exception as error:  # noqa: BLE001 - everyone is told: this thread must not die silently
                self._fail(InternalError("INTERNAL", f"pushes to {self._source} cannot be recorded: {error!r}"))
            self._told_free = freed
            if self._failure is not None:
                self._refuse(group, self._failure)
        self._tell_unstable()

    def _next_group(self) -> list[_Waiting]:
        sizes = accumulate(waiting.rows.nbytes for waiting in self._waiting)
        count = 1 + sum(1 for _ in takewhile(lambda size: size < OBJECT_BYTES, sizes))
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        self._queued -= sum(waiting.rows.nbytes for waiting in group)
        return group

    def _write(self, group: list[_Waiting]) -> None:
        new: dict[str, _Waiting] = {}
        made: list[_Waiting] = []
        again: list[_Waiting] = []
        for waiting in group:
            key = waiting.push.key
            if key and (key in new or self._log.find(key) is not None):
                again.append(waiting)
            else:
                made.append(waiting)
                new[key] = waiting
        if made:
            number = self._log.append([w.push for w in made], self._rows.stream([w.rows for w in made]))
            for waiting in made:
                self._answer(waiting, number, repeated=False)
        for waiting in again:
            known = self._log.find(waiting.push.key)
            assert known is not None
            try:
                self._refuse_other(known, waiting.push.digest)
            except InvalidError as error:
                waiting.answer.set_exception(error)
            else:
                self._answer(waiting, known.number, repeated=True)

    def _answer(self, waiting: _Waiting, number: int, *, repeated: bool) -> None:
        stable = self._log.is_freed(number)
        if self._until_stable and not stable:
            self._unstable.append((number, waiting.answer, Receipt(waiting.push.rows, repeated, True)))
        else:
            waiting.answer.set_result(Receipt(waiting.push.rows, repeated, stable))

    def _free(self, freed: int) -> None:
        if freed == self._told_free:
            return
        self._log.free(freed, self._clock() - self._remember)
        self._full = False
        left = []
        for number, answer, receipt in self._unstable:
            if number <= freed:
                answer.set_result(receipt)
            else:
                left.append((number, answer, receipt))
        self._unstable = left

    def _fail(self, error: BoatliftError) -> None:
        with self._changed:
            self._failure = self._failure or error
            group, self._waiting = self._waiting, []
        self._refuse(group, error)
        self._tell_unstable()

    def _tell_unstable(self) -> None:
        """Answers who waits for more than that rows are recorded: that they are, or else that they may be lost."""
        unstable, self._unstable = self._unstable, []
        for _, answer, receipt in unstable:
            if self._log.keeps_rows:
                answer.set_result(Receipt(receipt.rows, receipt.repeated, stable=False))
            else:
                answer.set_exception(self._failure or self._ended())

    def _ended(self) -> UnavailableError:
        return UnavailableError(
            "NOT_RUNNING",
            f"the run ended before it was certain that what was pushed to {self._source} is kept: push it again, with its key, once the dataflow runs",
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
                f"other rows were pushed to {self._source} with the key {known.key!r}: give what is new a key of its own",
            )
