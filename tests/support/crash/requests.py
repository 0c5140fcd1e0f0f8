"""A process is killed at requests to an object store: before the server acts, or after it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.crash.tests import KILLED, Place, Victim, place_of


@dataclass
class Killer:
    """Kills the process that sends requests at one of them: before the server acts, or after it.

    Attributes:
        at: The number of the request; 0 for none.
        seen: Method and path of each request.
    """

    at: int = 0
    after: bool = False
    seen: list[str] = field(default_factory=list)
    process: int = 0

    def fault(self, method: str, path: str) -> ProxyFault:
        self.seen.append(f"{method} {path}")
        if len(self.seen) == self.at and not self.after:
            os.kill(self.process, signal.SIGKILL)
            return ProxyFault.RESET
        return ProxyFault.NONE

    def acted(self) -> None:
        if len(self.seen) >= self.at > 0 and self.after:
            os.kill(self.process, signal.SIGKILL)


def die_at_requests(
    victim: Victim,
    server: ObjectServer,
    folder: Callable[[str], Path],
    jvm: WarmJvm,
    monkeypatch: pytest.MonkeyPatch,
    every: int,
    judge: Callable[[Place], None],
) -> list[CrashPoint]:
    """Run a dataflow twice to its end, killed at every so many requests; return where it died."""
    died = list[CrashPoint]()
    request = 1
    for _ in range(2):  # the second one has requests left, which the first one spent on its many starts
        place = place_of(folder("dying"), jvm, victim)
        ended = KILLED
        with FaultProxy(server.port) as proxy:  # one address, so that a start finds the files of the one before
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
            while ended == KILLED:
                killer = Killer(request, after=bool(len(died) % 2))
                proxy.fault, proxy.acted = killer.fault, killer.acted
                process = place.start(jvm)
                killer.process = process.pid
                ended = process.wait(300)
                if ended == KILLED:
                    method = killer.seen[request - 1].partition(" ")[0]
                    died.append(CrashPoint(f"request({method})", "after" if killer.after else "before", request))
                    request += every
                    if len(died) % 2:
                        place.lose_power()
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.environment["AWS_ENDPOINT_URL"])
        assert ended == 0, place.log.read_text()[-3000:]
        judge(place)
    return died
