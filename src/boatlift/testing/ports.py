"""Ports of loopback for servers that are killed and started again on the same port (Linux)."""

from __future__ import annotations

import random
import socket
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from boatlift.errors import UnavailableError

__all__ = ["ReservedPort"]

_LOWEST = 10_000
_HIGHEST = 65_535
_TRIES = 1_000


class ReservedPort:
    """A free port that stays free until it is released, whether a server listens on it or not (a context manager).

    It lies outside of the range that the system gives to outgoing connections, one of which could otherwise take it while
    the server is down. A name in the kernel keeps every other process that reserves ports from choosing it, and vanishes
    with this process, however that ends.
    """

    def __init__(self) -> None:
        for number in random.SystemRandom().choices(_candidates(), k=_TRIES):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0boatlift-port-{number}")
                with closing(socket.socket()) as probe:
                    # As servers do: what is left of closed connections does not count.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", number))
            except OSError:
                claim.close()
                continue
            self.number = number
            self._claim = claim
            return
        raise UnavailableError("BROKER_FAILED", f"none of {_TRIES} ports of 127.0.0.1 that were tried is free")

    def release(self) -> None:
        """Gives the port back; does nothing the second time."""
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _candidates() -> range:
    """Gives the ports that no outgoing connection gets, if the system leaves any."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return range(_LOWEST, _HIGHEST + 1)
    below, above = range(_LOWEST, low), range(high + 1, _HIGHEST + 1)
    return max(below, above, range(0), key=len) or range(_LOWEST, _HIGHEST + 1)
