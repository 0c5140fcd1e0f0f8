"""Servers on loopback that are killed and started again: ports that they keep, and the wait for them (Linux)."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar

from boatlift.errors import UnavailableError

_T = TypeVar("_T")

TIMEOUT = 120.0
"""Seconds after which a missing event is an error; a busy machine starts a JVM in ten, a broker in twenty."""

_LOWEST = 10_000
_HIGHEST = 65_535
_TRIES = 1_000


class ReservedPort:
    """A free port that stays free until it is released, also while no server listens on it (a context manager).

    The port lies outside the range that the system gives to outgoing connections: one of them could take it while the
    server is down. An abstract socket name keeps other processes that reserve ports from choosing it; the kernel
    removes the name when this process ends, however it ends.
    """

    def __init__(self) -> None:
        for number in random.SystemRandom().choices(_candidates(), k=_TRIES):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0boatlift-port-{number}")
                with closing(socket.socket()) as probe:
                    # Servers set this option too: ports with remains of closed connections are free to them.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", number))
            except OSError:
                claim.close()
                continue
            self.number = number
            self._claim = claim
            return
        raise UnavailableError(
            "BROKER_FAILED", f"no port of 127.0.0.1 is free ({_TRIES} were tried): end other servers, then run again"
        )

    def release(self) -> None:
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def wait_for(condition: Callable[[], _T | None], what: str, *, of_broker: bool = False) -> _T:
    """Return the first value of a condition that is not None; raise if none comes in time."""
    deadline = time.monotonic() + TIMEOUT
    while (found := condition()) is None:
        if time.monotonic() > deadline:
            late = f"{what} did not come within {TIMEOUT:.0f} s: run again on a machine that is less busy"
            raise UnavailableError("BROKER_FAILED" if of_broker else "STEP_FAILED", late)
        time.sleep(0.02)
    return found


def _candidates() -> range:
    """Return the ports that no outgoing connection gets; all ports if the system leaves none."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return range(_LOWEST, _HIGHEST + 1)
    below, above = range(_LOWEST, low), range(high + 1, _HIGHEST + 1)
    return max(below, above, range(0), key=len) or range(_LOWEST, _HIGHEST + 1)
