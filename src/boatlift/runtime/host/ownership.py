"""The ownership of a dataflow: one process owns it from its claim on, until another process claims it."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from boatlift.dataflow.contracts import Json
from boatlift.errors import BoatliftError, FencedError, InvalidError
from boatlift.runtime.evolution import recorded_as_claimed, refuse_other_division
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.peers.channel import Beat
from boatlift.storage.filesystem import boot_of_computer
from boatlift.storage.log import Log
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Claim

_RUNS_HERE: Counter[tuple[str, int]] = Counter()
"""The runs of this process that have not ended, by the id of the store and the token: a copy of a store has its id."""

_CLAIMS = ("", 0)
"""Counts the claims of this process that are under way: others may see such a claim before its token is known here."""

_COUNTING = threading.Lock()

_START = 19  # the field of `/proc/PID/stat` with the start time of the process, counted from the command's name


class Life(Enum):
    """What this computer knows about a process."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


def this_process() -> str:
    """Return a text that identifies this process among all with its number; empty where the system has none."""
    began, where = _began(os.getpid()), _where()
    return f"{where}/{began}" if began and where else ""


def life_of(claim: Claim, store: str, token: int) -> Life:
    """Return whether the process of a claim is running; for this process, whether its run has not ended.

    For people: no result rests on it. The answer is unknown for a process on another host, in another container, or
    from before this computer was started, and for one without a recorded start time: its number may belong to another
    process by now.
    """
    where, _, began = claim.process.rpartition("/")
    if not where or claim.host != socket.gethostname() or where != _where():
        return Life.UNKNOWN
    if (claim.pid, claim.process) == (os.getpid(), this_process()):
        return Life.RUNNING if _RUNS_HERE[store, token] > 0 or _RUNS_HERE[_CLAIMS] > 0 else Life.ENDED
    return Life.RUNNING if _began(claim.pid) == began else Life.ENDED


def refuse_running_owner(log: Log) -> None:
    """Raise if the owner of a log runs on this host.

    Raises:
        InvalidError: `[STORE_IN_USE]`.
    """
    owner = log.claim_of(log.owner)
    if owner is None or log.history.stopped or life_of(owner, log.store_id, log.owner) is not Life.RUNNING:
        return
    since = datetime.fromtimestamp(owner.at / 1000, UTC)
    here = owner.pid == os.getpid()
    whom, how = (
        ("this process", "stop that run (Running.stop() of the object that bl.start returned)")
        if here
        else (f"process {owner.pid} of this host", f"stop it (kill -TERM {owner.pid})")
    )
    raise InvalidError(
        "STORE_IN_USE",
        f"{whom} has run {log.dataflow} on this store since {since:%Y-%m-%d %H:%M:%S} UTC: {how}, or take the store "
        f"over from it with {'' if here else '--take-over, in Python '}take_over=True",
    )


def refuse_unless_newest(log: Log, after: int, heir: str) -> None:
    """Raise if the owner that a standby is to take over from is not the newest one, or has stopped cleanly.

    Args:
        after: The owner's token.
        heir: The life of the only standby to which the owner may have handed the dataflow over.

    Raises:
        FencedError: `[FENCED]`.
    """
    if log.owner != after or (log.history.stopped and log.history.heir != heir):
        raise FencedError("FENCED", f"another process has taken {log.dataflow} over, or it has stopped")


@contextmanager
def _claiming() -> Iterator[None]:
    _count(_CLAIMS, 1)
    try:
        yield
    finally:
        _count(_CLAIMS, -1)


def _count(run: tuple[str, int], more: int) -> None:
    with _COUNTING:
        _RUNS_HERE[run] += more


def _where() -> str:
    """Return the boot id of this computer, and the namespace of process numbers; empty if unknown."""
    boot = boot_of_computer()
    try:
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}" if boot else ""
    except OSError:
        return ""


def _began(pid: int) -> str:
    """Return when a process began, in ticks since boot; empty if no such process is running."""
    state, *fields = _stat(pid)
    return "" if state in "ZX" else fields[_START - 1]


def is_stopped(pid: int) -> bool:
    """Return whether a process of this host was stopped by a signal, such as SIGSTOP."""
    return _stat(pid)[0] == "T"


def _stat(pid: int) -> list[str]:
    """Return the fields of `/proc/PID/stat` from the state on; of a process that is gone, only the state `X`."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ["X"]


LOOK_SECONDS = 2.0  # after so many seconds without a write, an owner looks for a newer owner


class Ownership:
    """The claim of this process on a dataflow's log.

    Args:
        heir: As for `refuse_unless_newest`.

    Attributes:
        token: Of the claim; 0 before it.
        turned: When the event loop turned last, by the steady clock; None before its first turn.
    """

    def __init__(self, log: Log, clock: Callable[[], int], heir: str = "") -> None:
        self.log, self._clock, self._heir = log, clock, heir
        self._seen = self.token = 0
        self.turned: float | None = None
        self._over = False

    def claim(
        self,
        program: Mapping[str, Any],
        environment: Mapping[str, Any],
        bytes_in_flight: int,
        address: str = "",
        after: int | None = None,
        evolves: str = "",
        refuse_plan: Callable[[LogHistory], None] = lambda _history: None,
        fingerprint: str = "",
        pushes: Mapping[str, str] | None = None,
        *,
        rides: bool = False,
        sinks: Mapping[str, Json] = MappingProxyType({}),
    ) -> int:
        """Claim the dataflow; from now on no earlier owner can write.

        Args:
            address: Where this process listens for standbys.
            after: The token of the owner to take over from; None: of any.
            evolves: The id of the transition to the program that this claim begins; empty for none.
            refuse_plan: Raises if the log does not fit that transition.
            fingerprint: Of the certificate shown there; empty for none.
            pushes: Source to the URL at which clients push its rows.
            rides, sinks: As in the record.

        Raises:
            DataError: `[PROGRAM_CHANGED]`, `[CORRUPT]`.
            FencedError: `[FENCED]`, also if another process has taken over from that owner.
        """

        def refuse(history: LogHistory) -> None:
            if after is not None:
                refuse_unless_newest(self.log, after, self._heir)
            if evolves:
                refuse_plan(history)
            else:
                refuse_other_division(history, program)

        mine = (socket.gethostname(), os.getpid(), self._clock(), dict(program), dict(environment), this_process())
        claim = Claim(*mine, bytes_in_flight, address, evolves, fingerprint, dict(pushes or {}), rides, dict(sinks))
        with _claiming():
            self.token = self.log.claim(claim, refuse, recorded_as_claimed)
            _count((self.log.store_id, self.token), 1)
        return self.token

    def end(self) -> None:
        if self.token and not self._over:
            _count((self.log.store_id, self.token), -1)
            self._over = True

    def make_beat(self) -> Beat:
        return Beat(self.token, self.log.last, 0.0 if self.turned is None else time.monotonic() - self.turned)

    def taken_over(self) -> Iterator[Progress]:
        """Return the previous owner, if it has not stopped cleanly."""
        before = self.log.claim_of(self.log.predecessor)
        if before is None or self.log.history.resumed or self.log.history.stopped:
            return
        whom = f"process {before.pid} on {before.host}"
        since = datetime.fromtimestamp(before.at / 1000, UTC)
        match life_of(before, self.log.store_id, self.log.predecessor):
            case Life.ENDED:
                how = "which has ended without a clean stop"
            case Life.RUNNING:
                how = "which is still alive: if it runs the dataflow, it ends by itself within seconds, with [FENCED]"
            case Life.UNKNOWN:
                how = "which has not stopped cleanly: if it still runs, it ends by itself within seconds, with [FENCED]"
        said = f"taken over from {whom}, owner since {since:%Y-%m-%d %H:%M:%S} UTC, {how}"
        yield Progress("takeover", self.log.dataflow, -1, said=said)

    def look(self) -> None:
        """Raise if another process has taken over.

        The log is not read if this process has written since the last call: a newer owner would have fenced the write.

        Raises:
            FencedError: `[FENCED]`.
            DataError: `[CORRUPT]` the next object of the log is damaged.
            UnavailableError: `[STORE_FAILED]` the store cannot be read.
        """
        before, self._seen = self._seen, self.log.last
        if before == self._seen and (newer := self.log.newer_owner()):
            raise newer

    def newer_after_an_error(self) -> FencedError | None:
        """Return the error that names a newer owner; None if there is none, or the log cannot be read."""
        with suppress(BoatliftError):
            return self.log.newer_owner()
        return None
