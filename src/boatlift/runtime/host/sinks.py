"""Sinks: commits, and questions about what a sink holds after a commit without an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from boatlift.errors import UnavailableError
from boatlift.runtime.host.event_queue import Answer
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.sink_commits import SinkCommits, UnrecordedError
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import CommitSink, Message, ReopenSink
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.storage.records.records import SinkCommit
from boatlift.times import Frontier, last_of

__all__ = ["SinkCalls"]


class SinkCalls:
    """Carries out `CommitSink` and `ReopenSink`.

    A commit without an answer counts as a failure once the machine asks for the sink's position because of it.

    Args:
        commits: Hands steps to sinks.
        workers, failures, log: Of the host.
        watch: Called with a `commit` for each step that became visible.
    """

    def __init__(
        self,
        commits: SinkCommits,
        workers: Workers,
        failures: Failures,
        log: LogCalls,
        watch: Callable[[Progress], None],
    ) -> None:
        self._commits, self._workers, self._failures, self._log, self._watch = commits, workers, failures, log, watch
        self._errors: dict[str, tuple[int, UnavailableError]] = {}
        self._newest: dict[str, ReopenSink] = {}

    def commit(self, order: CommitSink) -> None:
        """Hand a sink its next steps."""
        self._workers.submit(self._commit, order, self._commits.held[order.sink])

    def reopen(self, order: ReopenSink) -> None:
        """Ask a sink for its position, after a rest if it has just failed."""
        self._newest[order.sink] = order
        rest = 0.0
        if (failure := self._errors.pop(order.sink, None)) is not None:
            rest = self._failures.rest_after(order.sink, *failure)
        self._workers.submit_after(rest, self._reopen, order)

    def _commit(self, order: CommitSink, last: int) -> Answer:
        try:
            self._commits.place(order, last, self._log.make_durable)
        except UnrecordedError as error:  # the store has failed, not the sink: the run ends
            raise error.cause from error
        except UnavailableError as error:
            cause = error
            return lambda: self._unknown(order, cause)
        return lambda: self._committed(order)

    def _unknown(self, order: CommitSink, error: UnavailableError) -> Iterable[events.Event]:
        self._errors[order.sink] = last_of(order.frontier), error
        yield events.CommitUnknown(order.sink, order.incarnation, order.frontier)
        self._errors.pop(order.sink, None)  # by now the machine has asked for the sink's position, or needs no answer

    def _committed(self, order: CommitSink) -> Iterable[events.Event]:
        for step, messages in order.steps:
            self._watch(Progress("commit", order.sink, step, numOutputRows=sum(map(_rows_of, messages))))
        last = last_of(order.frontier)
        self._commits.held[order.sink] = last
        self._failures.went_on(order.sink, last)
        self._remember(order.sink, last)
        yield events.SinkCommitted(order.sink, order.incarnation, order.frontier)

    def _reopen(self, order: ReopenSink) -> Answer:
        try:
            last = self._commits.position(order.sink)
        except UnavailableError as error:
            cause = error
            return lambda: self._reopen_again(order, cause)
        return lambda: self._positioned(order, last)

    def _reopen_again(self, order: ReopenSink, error: UnavailableError) -> Iterable[events.Event]:
        if self._newest[order.sink] is order:
            rest = self._failures.rest_after(order.sink, self._commits.held[order.sink], error)
            self._workers.submit_after(rest, self._reopen, order)
        return ()

    def _positioned(self, order: ReopenSink, last: int) -> Iterable[events.Event]:
        if last > self._commits.held[order.sink]:
            self._failures.went_on(order.sink, last)
        self._commits.held[order.sink] = last
        self._remember(order.sink, last)
        yield events.SinkPosition(order.sink, order.incarnation, Frontier.up_to(last))

    def _remember(self, sink: str, last: int) -> None:
        """Let the position of a sink become durable before anything that rests on it.

        Where the log is the sink's account, the position is durable already, and a later one may be, too.
        """
        if self._commits.keeps_ledger(sink):
            self._log.remember(SinkCommit(sink, last))


def _rows_of(message: Message) -> int:
    payload = payload_of(message.payload)
    return payload.rows or 0 if isinstance(payload, RunsPayload) else 0
