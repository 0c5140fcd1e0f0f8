"""Sinks: commits, the steps that sinks hold, and commits without an answer."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from boatlift.dataflow import Delivery
from boatlift.dataflow.contracts import KeepsNote
from boatlift.dataflow.identified_rows import waits_for_nothing
from boatlift.errors import BoatliftError, UnavailableError
from boatlift.recovery import RecoveryGraph
from boatlift.runtime.engine import Engine, StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.host.context import HostContext, handles
from boatlift.runtime.host.deadlines import Deadlines, GiveUp
from boatlift.runtime.host.event_loop import Answer
from boatlift.runtime.host.failures import Failures
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.overrides import Overrides
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import CommitSink, CommitTogether, Execute, ReopenSink
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import NOTHING, RunsPayload, payload_of
from boatlift.storage.records.records import SinkCommit
from boatlift.storage.records.stream import Tail
from boatlift.storage.store import Store
from boatlift.times import Frontier, last_of

HeldSteps = Sequence[tuple[str, int]]
"""The sinks that hold a step already, each with the number that the step has there."""


def carriers_of(engine: Engine, store: Store) -> frozenset[str]:
    """Return the sinks whose acts carry what the log of a store lacks; none if the log is quick."""
    if not store.requests.rides:
        return frozenset()
    able = {name: each.sink.capabilities.keeps_note for name, each in engine.plan.sinks.items()}
    return frozenset(name for name, keeps in able.items() if keeps is not None and keeps.note_bytes)


def unawaited_of(engine: Engine) -> frozenset[str]:
    """Return the sinks that wait for no log: their receivers recognise rows that come again in other steps."""
    return waits_for_nothing(engine.plan, lambda unit: engine.not_again(unit) or engine.by_place(unit))


def _note(note: Callable[[int], bytes], keeps: KeepsNote) -> bytes:
    try:
        return note(keeps.note_bytes)
    except Exception as error:
        raise UnrecordedError(error) from error


class UnrecordedError(Exception):
    """The log could not be written, by which a step may be shown, or with the record of a delivered one."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class SinkCommits:
    """Hands steps to sinks, each under a lock of its own, since the engine takes one call for a sink at a time.

    An at-least-once sink keeps no ledger. The log is its ledger: such a sink holds the steps whose commits are durable
    records.

    Args:
        owner: The id of the store, and the token of this owner for sinks.
        graph: The numbers with which a unit's steps reach its sinks.
        history: The log: how sinks count the steps.
        unawaited: The sinks that wait for no log.

    Attributes:
        held: Sink to the last step that it is known to hold, -1 for none; the host's own thread sets it.
        overrides: Decides about a step that differs from the sink's, and about steps left out; set by `begin`.
        ledgers: Sink to the last step of its durable commits, for sinks without a ledger; set by `begin`.
    """

    overrides: Overrides

    def __init__(
        self,
        engine: Engine,
        owner: tuple[str, int],
        graph: RecoveryGraph,
        history: LogHistory,
        unawaited: AbstractSet[str] = frozenset(),
    ) -> None:
        self.unawaited = unawaited
        self._numbers, self._places = dict(history.numbers), dict(history.places)
        self._engine, self._graph = engine, graph
        self._store_id, self._token = owner
        self._sinks = {name: each.sink for name, each in engine.plan.sinks.items()}
        self.ledgers = {name: -1 for name, each in self._sinks.items() if each.delivery is Delivery.AT_LEAST_ONCE}
        self._locks: dict[str, threading.Lock] = defaultdict(threading.Lock)
        self.held: dict[str, int] = {}
        self._opening: dict[str, Future[int]] = {}

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Begin to take all sinks over, which fences older owners, and wait for that after an error."""
        names = list(self._engine.plan.sinks)
        pool = ThreadPoolExecutor(max(1, len(names)), thread_name_prefix="opening")
        self._opening = {name: pool.submit(self.position, name) for name in names}
        pool.shutdown(wait=False)
        try:
            yield
        except BaseException:
            wait(self._opening.values())
            raise

    def carried(self) -> Iterator[Tail]:
        """Wait until all sinks are taken over; yield what their acts carry of the streams of earlier owners.

        Raises:
            BoatliftError: as `opened`; `[CORRUPT]`.
        """
        for name, opened in self._opening.items():
            opened.result()
            if (keeps := self._sinks[name].capabilities.keeps_note) is not None:
                yield from (decode_tail(note, f"the note in sink {name}") for note in keeps.notes())

    def tell_rests(self) -> bool:
        """Return whether each sink can say beside its acts what they rest on, or rests on nothing."""
        able = [each.capabilities.keeps_note for name, each in self._sinks.items() if name not in self.unawaited]
        return self.ledgers.keys() <= self.unawaited and all(keeps is not None and keeps.note_bytes for keeps in able)

    def begin(self, overrides: Overrides, history: LogHistory) -> None:
        """Take what follows from the log, once it has all that sinks carry."""
        self.overrides = overrides
        self.begin_ledgers(history)

    def begin_ledgers(self, history: LogHistory) -> None:
        """Take from the log what sinks without an account of their own hold."""
        self.ledgers = {name: history.committed.get(name, -1) for name in self.ledgers}

    def opened(self) -> None:
        """Wait until all sinks are taken over.

        Raises:
            BoatliftError: of the first sink that could not be taken over, in the order of the program.
        """
        wait(self._opening.values())
        self.held.update((name, opened.result()) for name, opened in self._opening.items())
        self.held.update(self.ledgers)

    def news_for(self, recorded: Mapping[str, int]) -> list[SinkCommit]:
        """Return a record for each sink whose position is not the one in the log.

        Later records rest on these positions. Without the records, commands that do not open the sinks would find the
        log inconsistent.
        """
        return [SinkCommit(sink, step) for sink, step in self.held.items() if recorded.get(sink, -1) != step]

    def position(self, sink: str) -> int:
        """Return the last step that a sink holds, -1 for none, once no commit under way can reach it any more."""
        with self._locks[sink]:
            committed = self._engine.open_sink(sink, self._places.get(sink, sink), self._store_id, self._token)
            if sink in self.ledgers:
                return self.ledgers[sink]
        return (-1 if committed is None else committed.step) + self._ahead(sink)

    def _ahead(self, sink: str) -> int:
        """Return by how much the dataflow's numbers are ahead of a sink's own."""
        return self._numbers[sink].ahead if sink in self._numbers else 0

    def deliver_differences(self) -> list[SinkCommit]:
        """Hand each sink the step that a transition has computed for it, unless it holds it; return their records.

        Sinks that are shown together get theirs in one act.

        Raises:
            BoatliftError: a sink did not take it.
        """
        given = {sink: each for sink, each in self._numbers.items() if each.difference is not None}
        waiting = [sink for sink, each in given.items() if self.held[sink] < each.time]
        groups = [group for names in self._engine.plan.groups if (group := [n for n in names if n in waiting])]
        alone = [[sink] for sink in waiting if not any(sink in group for group in groups)]
        for sinks in (*groups, *alone):
            with self._locked(sinks):
                for sink in sinks:
                    if (back_to := given[sink].takes_back) is not None:
                        steps = self._sinks[sink].capabilities.takes_back
                        assert steps is not None, f"{sink} cannot take steps back"
                        steps.take_back(back_to)
                self._hand([(sink, given[sink].time, given[sink].difference) for sink in sinks])
            self.held.update((sink, given[sink].time) for sink in sinks)
        return [SinkCommit(sink, each.time) for sink, each in given.items()]

    def held_steps(self, order: Execute) -> list[HeldSteps]:
        """Return, for each step of an order, the sinks that hold the step already, and can compare it."""
        unit = self._engine.plan.units[order.processor]
        sinks = [sink.name for sink in unit.sinks if sink.name not in self.ledgers]
        edges = [(sink, self._graph.edges[edge_name(unit.name, sink)]) for sink in sinks]
        arrivals = [[(sink, edge.projection.arrives(step.time)) for sink, edge in edges] for step in order.takes]
        return [[(sink, at) for sink, at in each if at is not None and self._compares(sink, at)] for each in arrivals]

    def _compares(self, sink: str, at: int) -> bool:
        """Return whether a sink holds a step; what it held at a transition is no step of this program."""
        since = self._numbers[sink].time if sink in self._numbers else -1
        return since < at <= self.held[sink]

    def compare(self, unit: str, held: HeldSteps, result: StepResult) -> None:
        """Hand a step to the sinks that hold it already, to be compared.

        Raises:
            DivergedError: `[DIVERGED]` the step differs from the one that a sink holds.
        """
        for sink, at in held:
            payload = result.sent.get(edge_name(unit, sink), NOTHING)
            with self._locks[sink]:
                self.overrides.compare(sink, at, partial(self._engine.commit, sink, at - self._ahead(sink), payload))

    @contextmanager
    def _locked(self, sinks: Iterable[str]) -> Iterator[None]:
        """Wait until no call for any of some sinks is under way, and let none begin."""
        with ExitStack() as locks:
            for sink in sorted(sinks):
                locks.enter_context(self._locks[sink])
            yield

    def _hand(self, steps: Sequence[tuple[str, int, Any]]) -> None:
        """Hand sinks a step each, in the numbers of the dataflow, in one act if there are several."""
        own = [(sink, at - self._ahead(sink), payload) for sink, at, payload in steps]
        if len(own) > 1:
            self._engine.commit_together(own)
        else:
            self._engine.commit(*own[0])

    def place(
        self,
        orders: Sequence[CommitSink],
        last: int,
        record: Callable[[SinkCommit], bool],
        watched: Callable[[int], AbstractContextManager[None]],
        note: Callable[[int], bytes] | None = None,
    ) -> tuple[dict[str, int], bool]:
        """Make steps visible, with empty steps for the times without messages: a sink's steps have no gap.

        Args:
            orders: Of the sinks that are shown together, or of one sink.
            last: The last step that they hold.
            record: Writes a record, and returns once it counts, at once for a sink that waits for nothing; whether it
                is durable.
            watched: Watches the commit of a step in a block.
            note: Returns the note of an act, in no more than so many bytes; None if acts need none.

        Returns:
            Sink to the number of its steps that were left out; and whether all records are durable.

        Raises:
            BoatliftError: a sink did not take a step.
            UnrecordedError: the log could not be written.
        """
        payloads = {order.sink: {at: message.payload for at, (message,) in order.steps} for order in orders}
        left_out, end, stored = dict.fromkeys(payloads, 0), last_of(orders[0].frontier), True
        with self._locked(payloads):  # `position` is answered once all of this has reached the sinks
            for at in range(last + 1, end + 1):
                # The receiver of a step that is skipped would refuse it again.
                steps = [
                    (sink, at, own.get(at, NOTHING))
                    for sink, own in payloads.items()
                    if (sink, at) not in self.overrides.skipped
                ]
                for sink in payloads.keys() - {sink for sink, _, _ in steps}:
                    left_out[sink] += 1
                if steps:
                    keeps = self._sinks[steps[0][0]].capabilities.keeps_note  # the act carries it once
                    if keeps is not None:
                        keeps.note(_note(note, keeps) if note is not None and keeps.note_bytes else b"")
                    with watched(at):
                        self._hand(steps)
                for sink in payloads.keys() & self.ledgers.keys():
                    if at in payloads[sink] or at == end:
                        try:
                            stored = record(SinkCommit(sink, at))  # before the next step: only this one may come again
                        except Exception as error:
                            raise UnrecordedError(error) from error
                        self.ledgers[sink] = at
        return left_out, stored


class SinkCalls:
    """Carries out `CommitSink`, `CommitTogether` and `ReopenSink`.

    A commit without an answer counts as a failure once the machine asks for the sink's position because of it.

    Args:
        context: Of the host. A `commit` is reported for each step that became visible.
    """

    def __init__(
        self, context: HostContext, failures: Failures, log: LogCalls, commits: SinkCommits, deadlines: Deadlines
    ) -> None:
        self._engine, self._workers, self._watch = context.engine, context.workers, context.options.on_progress
        self._deadlines, self._gives_up = deadlines, context.options.step_timeout is not None
        self._failures, self._log, self._commits, self._counters = failures, log, commits, context.counters
        self._depths = context.plan.depths()
        self._errors: dict[str, tuple[int, UnavailableError]] = {}
        self._newest: dict[str, ReopenSink] = {}

    @handles(CommitSink)
    def commit(self, order: CommitSink) -> None:
        self._workers.submit(self._commit, (order,), self._commits.held[order.sink])

    @handles(CommitTogether)
    def commit_together(self, order: CommitTogether) -> None:
        self._workers.submit(self._commit, order.orders, self._commits.held[order.orders[0].sink])

    @handles(ReopenSink)
    def reopen(self, order: ReopenSink) -> None:
        """Ask a sink for its position, after a backoff if it has just failed."""
        self._newest[order.sink] = order
        failure = self._errors.pop(order.sink, None)
        backoff = 0.0 if failure is None else self._failures.backoff_after(order.sink, *failure)
        self._workers.submit_after(backoff, self._reopen, order)

    def _commit(self, orders: Sequence[CommitSink], last: int) -> Answer:
        give_up = partial(self._give_up, orders[0].sink) if self._gives_up else None
        try:
            took: dict[int, float] = {}
            watched = partial(self._watched, orders, give_up, took)
            record = self._log.submit
            if orders[0].sink not in self._commits.unawaited:
                record = partial(self._log.make_known, depth=self._depths.get(orders[0].sink, 0))
            left_out, stored = self._commits.place(orders, last, record, watched, self._log.note(orders[0]))
        except UnrecordedError as error:  # the store has failed, not the sink: the run ends
            raise error.cause from error.cause.__cause__
        except BoatliftError as error:
            if orders[0].sink in self._commits.unawaited:
                self._log.settle()  # a step that a user is told of has the same rows in the next run
            if not isinstance(error, UnavailableError):
                raise
            return partial(self._unknown, orders, error)
        return lambda: self._committed(orders, left_out, took, stored=stored)

    @contextmanager
    def _watched(
        self, orders: Sequence[CommitSink], give_up: GiveUp | None, took: dict[int, float], step: int
    ) -> Iterator[None]:
        """Watch a commit, and note how long it took; one that fails is not counted."""
        began = time.monotonic()
        with self._deadlines.watched(orders[0].sink, step, give_up=give_up):
            yield
        took[step] = time.monotonic() - began
        for order in orders:
            self._counters.sinks[order.sink].commits.add(took[step])

    def _give_up(self, sink: str, _error: UnavailableError) -> Iterable[events.Event]:
        """Cancel a commit that is stuck, which fails then; a guessed deadline would deliver rows twice for nothing."""
        self._engine.cancel_steps(sink)
        return ()

    def _unknown(self, orders: Sequence[CommitSink], error: UnavailableError) -> Iterable[events.Event]:
        for order in orders:
            self._errors[order.sink] = last_of(order.frontier), error
            yield events.CommitUnknown(order.sink, order.incarnation, order.frontier)
            # By now the machine has ordered a `ReopenSink`, or needs no answer.
            self._errors.pop(order.sink, None)

    def _committed(
        self, orders: Sequence[CommitSink], left_out: Mapping[str, int], took: Mapping[int, float], *, stored: bool
    ) -> Iterable[events.Event]:
        for order in orders:
            yield from self._held(order, left_out[order.sink], took, stored=stored)

    def _held(
        self, order: CommitSink, left_out: int, took: Mapping[int, float], *, stored: bool
    ) -> Iterator[events.Event]:
        self._counters.sinks[order.sink].left_out += left_out
        for step, messages in order.steps:
            payloads = [each for message in messages if isinstance(each := payload_of(message.payload), RunsPayload)]
            rows = sum(payload.rows or 0 for payload in payloads)
            if (order.sink, step) not in self._commits.overrides.skipped:
                self._counters.visible(order.sink, rows, next((each.clock for each in payloads), None))
            milliseconds = round(1000 * took.get(step, 0.0), 3)
            self._watch(Progress("commit", order.sink, step, numOutputRows=rows, durationMs=milliseconds))
        last = last_of(order.frontier)
        self._commits.held[order.sink] = last
        self._failures.succeeded(order.sink, last)
        self._remember(order.sink, last)
        yield events.SinkCommitted(order.sink, order.incarnation, order.frontier, stored)

    def _reopen(self, order: ReopenSink) -> Answer:
        try:
            last = self._commits.position(order.sink)
        except UnavailableError as error:
            return partial(self._reopen_again, order, error)
        return lambda: self._positioned(order, last)

    def _reopen_again(self, order: ReopenSink, error: UnavailableError) -> Iterable[events.Event]:
        if self._newest[order.sink] is order:
            backoff = self._failures.backoff_after(order.sink, self._commits.held[order.sink], error)
            self._workers.submit_after(backoff, self._reopen, order)
        return ()

    def _positioned(self, order: ReopenSink, last: int) -> Iterable[events.Event]:
        if last > self._commits.held[order.sink]:
            self._failures.succeeded(order.sink, last)
        self._commits.held[order.sink] = last
        self._remember(order.sink, last)
        ahead = order.sink in self._depths or order.sink in self._commits.unawaited
        stored = order.sink not in self._commits.ledgers or not ahead
        yield events.SinkPosition(order.sink, order.incarnation, Frontier.up_to(last), stored)

    def _remember(self, sink: str, last: int) -> None:
        """Let the position of a sink become durable before anything that rests on it.

        Where the log is the sink's ledger, it has the position already, or has it before anything that comes later.
        """
        if sink not in self._commits.ledgers:
            self._log.remembered.append(SinkCommit(sink, last))
