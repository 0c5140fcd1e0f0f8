"""The first flow with its store in an object store: its process dies at its acts, and before and after requests."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, field

import pytest

from boatlift.spark.session.warm_jvm import WarmJvm
from boatlift.storage.opening import open_store
from boatlift.storage.verify import verify
from boatlift.testing.crash import CrashPoint
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.crash.judges import is_bit_for_bit
from support.crash.tests import (
    EVERY_POINT,
    KILLED,
    Victim,
    die_at_every_point,
    place_of,
    run_undisturbed,
    show,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

REQUESTS = 1 if EVERY_POINT else 9
"""The driver is killed at every so many requests."""


@pytest.fixture
def victim(object_server: ObjectServer) -> Victim:
    return Victim(
        flow="support.crash.flow:flow",
        judge=is_bit_for_bit,
        middle=CrashPoint("sink.commit(history)", "after", 4),
        acts=("store.create", "store.delete", "store.scratch", "store.sizes"),
        points=5,
        again=("store.create", "restore"),
        outcome="bit for bit equal",
        store=lambda folder: object_server.url(folder.name),
    )


def test_every_crash_point_is_survived(
    victim: Victim, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    undisturbed = run_undisturbed(victim, tmp_path_factory.mktemp("undisturbed"), warm_jvm)
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)


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


def test_its_process_dies_before_and_after_requests(
    victim: Victim,
    object_server: ObjectServer,
    tmp_path_factory: pytest.TempPathFactory,
    warm_jvm: WarmJvm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undisturbed = run_undisturbed(victim, tmp_path_factory.mktemp("undisturbed"), warm_jvm)
    died = list[CrashPoint]()
    request = 1
    for _ in range(2):  # the second one has requests left, which the first one spent on its many starts
        place = place_of(tmp_path_factory.mktemp("dying"), warm_jvm, victim)
        ended = KILLED
        while ended == KILLED:
            killer = Killer(request, after=bool(len(died) % 2))
            with FaultProxy(object_server.port, killer.fault, acted=killer.acted) as proxy:
                monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
                process = place.start(warm_jvm)
                killer.process = process.pid
                ended = process.wait(300)
            if ended == KILLED:
                method = killer.seen[request - 1].partition(" ")[0]
                died.append(CrashPoint(f"request({method})", "after" if killer.after else "before", request))
                request += REQUESTS
                if len(died) % 2:
                    place.lose_power()
        assert ended == 0, place.log.read_text()[-3000:]
        undisturbed.judge(place)
    monkeypatch.setenv("AWS_ENDPOINT_URL", object_server.environment["AWS_ENDPOINT_URL"])
    assert list(verify(open_store(victim.store(place.folder), create=False))) == []
    assert len(died) >= 5
    show(f"{victim.flow} on an object store, at requests", died, victim.outcome)
