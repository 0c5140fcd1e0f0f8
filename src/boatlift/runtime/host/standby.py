"""A standby: a process that follows the log of a running dataflow, and claims it when its owner is taken for dead.

A suspicion need not be right (`boatlift.runtime.peers.detector`). The claim fences an owner that is still alive, whose
next write fails; so a wrong suspicion costs a takeover, and nothing else.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Protocol

from boatlift.errors import DataError, FencedError, UnavailableError
from boatlift.runtime.evolution import recorded_as_claimed, refuse_other_division
from boatlift.runtime.host.ownership import Life, is_stopped, life_of
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.peers.channel import Beat, Hello, is_loopback
from boatlift.runtime.peers.detector import Detector, ProcessState
from boatlift.runtime.peers.follower import FollowerLink, Lost
from boatlift.runtime.peers.holding import HeldTail
from boatlift.storage.identities import secret_of
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim
from boatlift.storage.store import Store

if TYPE_CHECKING:
    from boatlift.runtime.host.host import Host

LOOK_SECONDS = 0.02  # from one look at the owner to the next
READ_SECONDS = 0.5  # from one look at the log to the next, without a beat that tells of a new object

HEIR_SECONDS = 10.0  # a clean stop's heir that has not claimed for so long is gone

FOLLOW_AGAIN_SECONDS = 0.2  # a standby that could not take over looks again after so long
LONGEST_PAUSE = 5.0  # if it fails again and again

KILLED_SECONDS = 1.0  # a killed process ends within so many seconds


class Standby:
    """Follows the owners of a dataflow.

    Laws:
        * It writes nothing, and takes no lock, port or id of the owner's, nor of another standby that may become it.
        * It never takes over from an owner that has stopped cleanly, unless the log names it as the heir, or names
          another one that has not claimed the dataflow for `HEIR_SECONDS`. A replica also does if it names none.
        * With `handover_only` it takes over as the heir alone.
        * It kills no process but one of this host, of the claim, that a signal has stopped: that process could hold
          locks and ports for ever.
        * A store that cannot be read for a while does not end it.

    Args:
        log: Unclaimed; it is read to its end again and again.
        program, environment: Of this process; an owner of another program or environment is refused.
        tail: What this standby holds of owners' entries; its life distinguishes it from all others, and a clean stop
            names its heir by it.
        handover_only: The environment may differ.
        replica: A dataflow without an owner is claimed: before its first run, and after a clean stop that names no
            heir. While the environment differs from the owner's, it takes over after a clean stop alone.
        available_now: The waiting ends with the clean stop of an owner.
        report: Receives progress.
        stopping: Ends the waiting.
        turned: Is called at each look at the owner.
        redirect: As of the engine.
        ready: Returns whether the first step after a takeover would be quick.
        has_followed: Whether this process has followed or been an owner before: then one out of its reach does not end
            it.

    Attributes:
        heir: The life that a clean stop names if this standby takes over from it: its own, or that of a lost heir.
        waits_in_vain: Whether a replica of another environment waits for the clean stop of an owner that seems dead.
    """

    def __init__(
        self,
        store: Store,
        log: Log,
        program: Mapping[str, Any],
        environment: Mapping[str, Any],
        *,
        tail: HeldTail,
        handover_only: bool,
        replica: bool,
        available_now: bool,
        report: Callable[[Progress], None],
        stopping: threading.Event,
        ready: Callable[[], bool],
        turned: Callable[[], None],
        redirect: Callable[[Mapping[str, str] | None], None],
        has_followed: bool = False,
    ) -> None:
        self._store, self._log, self._stopping, self._report, self._ready = store, log, stopping, report, ready
        self._mine = Claim("", 0, 0, dict(program), dict(environment))
        self._handover_only, self._available_now = handover_only, available_now
        self._replica, self._turned, self._redirect = replica, turned, redirect
        self._last_told = ""
        self._followed = has_followed
        self._tail = tail
        self._life = self.heir = tail.life
        self.waits_in_vain = False

    def wait(self) -> int | None:
        """Wait until the dataflow has to be claimed; return the token of the owner to take over from.

        Returns:
            None once the waiting has ended without that.

        Raises:
            DataError: `[PROGRAM_CHANGED]`, `[ENVIRONMENT_CHANGED]` the owner is another one; `[CORRUPT]`.
            UnavailableError: `[OWNER_UNREACHABLE]` the owner listens on its own host alone, which is another one.
        """
        stopped_at: float | None = None
        while not self._stopping.is_set():
            self._turned()
            try:
                if self._log.catch_up():
                    stopped_at = None
                owner = self._log.claim_of(self._log.owner)
                if owner is not None and not self._log.history.stopped:
                    self._refuse_another(owner)
                    self._redirect_to(owner)
                    if self._is_out_of_reach(owner):
                        self._tell(f"cannot reach process {owner.pid} on {owner.host}, and waits for another owner")
                    elif self._follow(owner, self._log.owner):
                        return self._log.owner
                    else:
                        continue
                elif owner is not None and (heir := self._log.history.heir):
                    stopped_at = time.monotonic() if stopped_at is None else stopped_at
                    lost = time.monotonic() - stopped_at > HEIR_SECONDS
                    lost = lost and (self._replica or not self._handover_only)
                    if heir == self._life or lost:
                        self._refuse_another(owner)
                        self._redirect({})
                        self.heir = heir
                        return self._log.owner
                    self._redirect(None)  # the heir may be on this host
                    self._tell("waits for the standby that the dataflow was handed over to")
                elif self._replica:
                    self._redirect({})
                    self.heir = ""
                    return self._log.owner
                elif owner is not None and self._available_now:
                    return None
                else:
                    self._redirect(None)
                    self._tell("waits for a run that begins")
            except UnavailableError as error:
                if error.condition != "STORE_FAILED":
                    raise
                self._tell(f"cannot read the store, and tries again: {error.message}")
            self._stopping.wait(READ_SECONDS)
        return None

    def _follow(self, owner: Claim, token: int) -> bool:
        """Follow one owner; return whether the dataflow has to be claimed, False if the owner runs no longer."""
        self._followed = True
        self._tell(f"follows process {owner.pid} on {owner.host}")
        detector = Detector(time.monotonic())
        is_ready, read_at = False, 0.0
        known_as = token + self._log.history.ahead
        following = FollowerLink(
            owner.address, lambda: secret_of(self._store), self._hello, owner.fingerprint, self._tail, known_as
        )
        with closing(following) as link:
            while not self._stopping.is_set():
                self._turned()
                news = self._hear(link, detector, token, LOOK_SECONDS)
                now = time.monotonic()
                if news or now >= read_at:
                    read_at = now + READ_SECONDS
                    self._redirect_to(owner)
                    detector.woke(now)
                    if (grew := self._catch_up()) is None:
                        continue
                    if grew:
                        detector.grew(time.monotonic())
                    self._hear(link, detector, token, 0.0)  # reading may have taken long
                    detector.looked(time.monotonic())
                    if self._log.owner != token or self._log.history.stopped:
                        return False
                state = self._state_of(owner, token)
                why = detector.suspicion(time.monotonic(), state)
                self.waits_in_vain = bool(why) and self._replica and self._handover_only
                if self.waits_in_vain:
                    self._tell(
                        f"waits for process {owner.pid} on {owner.host} to stop cleanly, which seems dead ({why}): run "
                        "a replica with the versions and settings of that process"
                    )
                if why and not self._handover_only:
                    grew = self._catch_up()
                    if grew is None or (grew and state is not ProcessState.ENDED):
                        detector.grew(time.monotonic())
                        continue
                    if self._log.owner != token or self._log.history.stopped:
                        return False
                    self._take_for_dead(owner, token, why, state)
                    return True
                if not is_ready and self._ready():
                    is_ready = True
                    self._tell("is ready")
        return False

    def _catch_up(self) -> bool | None:
        """Read the log on; return whether there was anything, None if it cannot be read.

        The connection stays, by which the standby may hold what the log lacks.
        """
        try:
            return self._log.catch_up()
        except UnavailableError as error:
            if error.condition != "STORE_FAILED":
                raise
            self._tell(f"cannot read the store, and tries again: {error.message}")
            return None

    def _hear(self, link: FollowerLink, detector: Detector, token: int, wait: float) -> bool:
        """Hear all that has come, and return whether the log has to be read; wait so many seconds if nothing has."""
        news = False
        with suppress(queue.Empty):
            while True:
                at, heard = link.heard.get(timeout=wait) if wait else link.heard.get_nowait()
                wait = 0.0
                match heard:
                    case Beat(number=number) as beat if beat.token == token:
                        detector.heard_beat(at, beat.still)
                        news = news or number > self._log.last
                    case Lost.CLOSED:
                        news = True  # the owner may have stopped
                    case Lost():
                        detector.unreached(refused=heard is Lost.REFUSED)
        return news

    def _redirect_to(self, owner: Claim) -> None:
        """Tell clients where the owner is; a standby that may not become it leaves its port to one that may."""
        self._redirect(None if self._handover_only else owner.pushes or None)

    def _take_for_dead(self, owner: Claim, token: int, why: str, state: ProcessState) -> None:
        self._redirect({})
        said = f"process {owner.pid} on {owner.host} is taken for dead: {why}"
        self._report(Progress("suspect", self._log.dataflow, -1, said=said))
        if state is ProcessState.STOPPED:
            _kill(owner, self._log.store_id, token)

    def _state_of(self, owner: Claim, token: int) -> ProcessState:
        match life_of(owner, self._log.store_id, token):
            case Life.ENDED:
                return ProcessState.ENDED
            case Life.RUNNING:
                return ProcessState.STOPPED if is_stopped(owner.pid) else ProcessState.RUNNING
            case Life.UNKNOWN:
                return ProcessState.UNKNOWN

    def _hello(self) -> Hello:
        names = (self._log.store_id, self._log.dataflow, socket.gethostname(), os.getpid())
        return Hello(
            "standby", *names, self._life, self._log.last, ready=self._ready(), handover_only=self._handover_only
        )

    def _refuse_another(self, owner: Claim) -> None:
        self._log.refuse_other_program(self._mine, recorded_as_claimed)
        mine, theirs = self._mine.environment, owner.environment
        changed = [name for name in sorted({*theirs, *mine}) if theirs.get(name) != mine.get(name)]
        if self._replica:
            self._handover_only = bool(changed)
        if not self._handover_only:
            refuse_other_division(self._log.history, self._mine.program)
        if changed and not self._handover_only:
            differs = ", ".join(f"{name} is {theirs.get(name)} there and {mine.get(name)} here" for name in changed)
            raise DataError(
                "ENVIRONMENT_CHANGED",
                f"the owner and this standby differ ({differs}), so it cannot execute the owner's steps again: "
                "start it under the same versions and settings, or with --for-handover, which waits for boatlift "
                "handover",
            )

    def _is_out_of_reach(self, owner: Claim) -> bool:
        """Return whether an owner listens on its own host alone; raise if there was no other owner before it."""
        if owner.host == socket.gethostname() or not is_loopback(owner.address):
            return False
        if self._followed:
            return True
        raise UnavailableError(
            "OWNER_UNREACHABLE",
            f"process {owner.pid} owns {self._log.dataflow} on {owner.host}, and listens at {owner.address}, which "
            "this host cannot reach: run it with --listen 0.0.0.0:0",
        )

    def _tell(self, said: str) -> None:
        if said != self._last_told:
            self._last_told = said
            self._report(Progress("standby", self._log.dataflow, self._log.last, said=said))


def _kill(owner: Claim, store: str, token: int) -> None:
    """End a process of this host that was stopped, and no other one that has got its number since."""
    with suppress(OSError):
        handle = os.pidfd_open(owner.pid)
        try:
            if life_of(owner, store, token) is Life.RUNNING:  # the handle is of this process, then
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], KILLED_SECONDS)
        finally:
            os.close(handle)


class Warms(Protocol):
    """Keeps a standby warm while it waits."""

    def are_done(self) -> bool:
        """Return whether the first step after a takeover would be quick."""

    def end(self, *, wait: bool) -> None:
        """End; wait for what is under way only if `wait`."""


def run_as_standby(
    new_host: Callable[[], Host], warms: Callable[[], Warms], report: Callable[[str], None], is_over: Callable[[], bool]
) -> None:
    """Follow the owners of a dataflow, and own it in between, until a clean stop.

    A standby that another one outruns, or that is fenced, follows on at once: the newest owner may need what it holds.
    One that cannot claim yet (a port is taken, the store is away) does so after a pause, as does one that has claimed
    and cannot begin (a sink is away), while it holds what the log may lack.

    Args:
        new_host: Makes a host over a store that was opened anew; each has the same life.
        report: Receives in words why the standby follows on.
        is_over: Returns whether the standby was asked to stop.
    """
    has_followed, failures = False, -1
    while not is_over():
        host: Host | None = None
        try:
            host, warm, predecessor = new_host(), warms(), None
            try:
                predecessor = host.stand_by(warm.are_done, has_followed=has_followed)
                has_followed = True
            finally:
                warm.end(wait=predecessor is None)
            if predecessor is not None:
                host.claim(after=predecessor)
                host.run()
        except (FencedError, UnavailableError) as error:
            if error.condition == "MEMBERS_MISSING" and is_over():
                return
            passes = isinstance(error, FencedError) or host is None or host.may_follow_on
            if error.condition == "OWNER_UNREACHABLE" or not passes:
                raise
            report(f"goes on as a standby: {error}")
            if isinstance(error, FencedError):
                failures = -1
                continue
            failures += 1
            time.sleep(min(LONGEST_PAUSE, FOLLOW_AGAIN_SECONDS * 2**failures))
        else:
            return
