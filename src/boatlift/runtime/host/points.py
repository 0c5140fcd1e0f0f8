"""Restore points: kept by the policy of a dataflow, and by `boatlift keep`, also in a store that no run owns."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime

from boatlift.dataflow.policies import seconds_in
from boatlift.errors import DataError, InvalidError, UnavailableError
from boatlift.runtime.host.context import HostContext, handles
from boatlift.runtime.host.log import LogCalls
from boatlift.runtime.host.ownership import Ownership
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine import events
from boatlift.runtime.machine.instructions import KeepPoint
from boatlift.runtime.peers.channel import Answered, Hello, PeerConnection, PointAsked, StrangerError, connect
from boatlift.storage.identities import secret_of
from boatlift.storage.log import Log
from boatlift.storage.opening import StorePlace, open_store
from boatlift.storage.records.history import LogHistory, runs_of_point, steps_of_point
from boatlift.storage.records.records import KeptPoint, PointsDropped, RestorePoint, Stopped
from boatlift.storage.store import Store

KEPT_SECONDS = 300.0
"""So long a command waits for a point: until the steps under way have ended."""

ANSWER_SECONDS = 5.0

BEGINNING = "beginning"
"""Stands for the dataflow before its first step."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


class RestorePoints:
    """Asks the machine for restore points, and records them.

    Laws:
        * A point follows all facts of the steps before it, and precedes those of later ones.
        * The runs of a point stay in the store until it is dropped.
        * The policy takes no point while no source closes a step.
    """

    def __init__(self, context: HostContext, log: LogCalls, clock: Callable[[], int]) -> None:
        self._context, self._log, self._clock = context, log, clock
        self._taken: dict[str, int] | None = None
        for name, point in context.log.history.points.items():
            log.pinned[name] = runs_of_point(point)

    def begin(self) -> None:
        """Take the first point of the policy when it is due, and the others after it."""
        keep = self._context.plan.keep
        if keep is None or self._context.options.goes_back:
            return
        every, period = seconds_in(keep.every, "every"), round(1000 * seconds_in(keep.period, "Keep"))
        kept = [point.at for point in self._context.log.history.points.values() if point.until is not None]
        since = (self._clock() - max(kept)) / 1000 if kept else every

        def due() -> Iterable[events.Event]:
            self._context.queue.after(every, due)
            now, closed = self._clock(), self._closed()
            if closed != self._taken and max(closed.values()) >= 0:
                yield events.PointRequested(name_at(now), now + period)

        self._context.queue.after(max(0.0, every - since), due)

    def ask(self, asked: PointAsked) -> Answered:
        """Keep or drop a point soon; any thread may call this."""

        def keep() -> Iterable[events.Event]:
            if self._log.finishing:
                return  # the command will do it itself
            if not asked.drop:
                yield events.PointRequested(asked.name)
            elif asked.name in self._context.log.history.points:
                self._log.write([PointsDropped((asked.name,))], lambda: self._unpin([asked.name]))

        self._context.queue.put(keep)
        return Answered(to=asked.name)

    @handles(KeepPoint)
    def keep(self, order: KeepPoint) -> None:
        now, points = self._clock(), self._context.log.history.points
        expired = [name for name, each in points.items() if each.until is not None and each.until <= now]
        dropped = [PointsDropped(tuple(expired))] if expired else []
        self._taken = self._closed()
        self._log.pinned[order.name] = self._log.live()

        def durable() -> Iterable[events.Event]:
            point = self._context.log.history.points.get(order.name)
            self._log.pinned[order.name] = set() if point is None else runs_of_point(point)
            said = f"the restore point {order.name} is kept"
            self._context.options.on_progress(Progress("kept", self._context.plan.dataflow, -1, said=said))
            return self._unpin(expired)

        self._log.write([*self._log.take_remembered(), *dropped, RestorePoint(order.name, now, order.until)], durable)

    def _unpin(self, names: Iterable[str]) -> Iterable[events.Event]:
        for name in set(names) - self._context.log.history.points.keys():
            self._log.pinned.pop(name, None)
        return ()

    def _closed(self) -> dict[str, int]:
        return {source: self._context.progress.done(source) for source in self._context.plan.sources}


def name_at(milliseconds: int) -> str:
    """Return the name of a point of the policy: its time, in UTC."""
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def point_named(history: LogHistory, to: str) -> str:
    """Return the name of a restore point; empty for the beginning.

    Args:
        to: A name, or the last point before a time in UTC, or before a step as `SOURCE:STEP`; or `beginning`.

    Raises:
        InvalidError: `[NO_RESTORE_POINT]`.
    """
    points = history.points
    if to == BEGINNING:
        return ""
    if to in points:
        return to
    source, _, step = to.rpartition(":")
    found: list[KeptPoint] = []
    if f"source {source}" in history.program and step.isdecimal():
        found = [each for each in points.values() if steps_of_point(each).get(source, -1) <= int(step)]
    elif (at := _milliseconds(to)) is not None:
        found = [each for each in points.values() if each.at <= at]
    if not found:
        kept = ", ".join(points) or "none"
        raise InvalidError(
            "NO_RESTORE_POINT",
            f"there is no restore point {to}, nor one before it; there are: {kept}. Points are kept by "
            "bl.Dataflow(…, keep=bl.Keep('7 days', every='1 hour')), and by boatlift keep",
        )
    return found[-1].name


def _milliseconds(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round((at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp() * 1000)


def change_points(path: StorePlace, name: str, *, drop: bool = False) -> Iterator[str]:
    """Keep a restore point of a store, or drop one; yield in words what happens, as it does.

    Raises:
        InvalidError: `[NO_RESTORE_POINT]` there is none to drop; `[BAD_OPTION]` no run has begun on the store.
        DataError: `[NEEDS_CLEAN_STOP]` no run owns the store, and the last one did not stop cleanly.
        UnavailableError: `[OWNER_UNREACHABLE]` the owner does not answer, or not in time.
    """
    store = open_store(path, create=False)
    log = Log.open(store, None, clock=lambda: time.time_ns() // 1_000_000)
    if not _NAME.fullmatch(name) or name == BEGINNING:
        raise InvalidError(
            "BAD_OPTION", f"name={name!r}: write letters, digits, '-', '_', '.' and ':', not {BEGINNING}"
        )
    if drop and name not in log.history.points:
        kept = ", ".join(log.history.points) or "none"
        raise InvalidError("NO_RESTORE_POINT", f"there is no restore point {name}; there are: {kept}")
    if not log.history.program:
        raise InvalidError("BAD_OPTION", f"no run has begun on {path}: there is nothing to keep")
    done = f"{log.dataflow}: the restore point {name} is {'dropped' if drop else 'kept'}"
    while not log.history.stopped:
        if _owner_does(log, store, PointAsked(name, drop=drop)):
            yield done
            return
    owner = Ownership(log, lambda: time.time_ns() // 1_000_000)
    owner.claim(log.history.program, log.history.environment, 0, after=log.owner)
    try:
        now = time.time_ns() // 1_000_000
        log.append([PointsDropped((name,)) if drop else RestorePoint(name, now), Stopped()])
    finally:
        owner.end()
    yield done


def _owner_does(log: Log, store: Store, asked: PointAsked) -> bool:
    """Let the owner keep or drop a point; return False if the run ends before that."""
    token = log.owner
    owner, secret = log.claim_of(log.owner), secret_of(store)
    before = log.history.points.get(asked.name)
    assert owner is not None
    try:
        with connect(owner.address, secret or b"", owner.fingerprint) as channel:
            channel.send(Hello("command", log.store_id, log.dataflow, socket.gethostname(), os.getpid()))
            until = time.monotonic() + ANSWER_SECONDS
            while not _is_asked(channel, asked):
                if time.monotonic() > until:
                    raise TimeoutError("it is beginning: try again once it runs")
    except (OSError, StrangerError, InvalidError) as error:
        raise DataError(
            "NEEDS_CLEAN_STOP",
            f"process {owner.pid} on {owner.host} owns {log.dataflow} and does not answer ({error}), or has ended "
            "without a clean stop: run the dataflow again, and end it with Ctrl-C, or ask while it runs",
        ) from error
    until = time.monotonic() + KEPT_SECONDS
    while log.history.points.get(asked.name) == before if not asked.drop else asked.name in log.history.points:
        if log.history.stopped or log.owner != token:
            return False
        if time.monotonic() > until:
            raise UnavailableError(
                "OWNER_UNREACHABLE",
                f"process {owner.pid} on {owner.host} has not come to a moment without a step under way, or rows wait "
                "before a sink: see boatlift status, then try again",
            )
        time.sleep(0.1)
        log.catch_up()
    return True


def _is_asked(channel: PeerConnection, asked: PointAsked) -> bool:
    """Return whether the owner will see to a point; it does not while it begins."""
    channel.send(asked)
    until = time.monotonic() + 1.0
    while (left := until - time.monotonic()) > 0:
        if isinstance(answer := channel.receive(left), Answered):
            return bool(answer.to)
    return False
