"""The port for probes: what it answers in each role, to strangers, and when the run hangs."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import InvalidError, UnavailableError
from boatlift.runtime.host import health as module
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.deadlines import StuckCall
from boatlift.runtime.host.health import CONNECTIONS, STANDBY_SECONDS, Health, HealthPort
from boatlift.runtime.host.host import Host
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.peers.detector import HUNG_SECONDS
from support.engine.hosts import Background, open_store
from support.engine.memory_engine import MemoryEngine, World
from support.waiting import until

STUCK = StuckCall("sums", 7, 0, "task 3 on vm-2")


class Time:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def health(time: Time) -> Health:
    return Health(time)


@pytest.fixture
def port(health: Health) -> Iterator[int]:
    with HealthPort("127.0.0.1:0", health) as opened:
        yield int(opened.url.rpartition(":")[2])


def asked(port: int, target: str, method: str = "GET") -> tuple[int, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request(method, target)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.getheader("Content-Type") == "application/json"
        return answer.status, json.loads(body) if body else None


def test_each_role_has_its_answers(health: Health, port: int) -> None:
    def answers() -> list[int]:
        return [asked(port, each)[0] for each in ("/livez", "/readyz", "/readyz?standbyok")]

    assert answers() == [200, 503, 503]
    assert asked(port, "/readyz") == (503, {"role": "starting", "ready": False})
    warm = [False]
    health.follows(lambda: warm[0])
    assert answers() == [200, 503, 503]
    assert asked(port, "/readyz") == (503, {"role": "standby", "ready": False})
    warm[0] = True
    assert answers() == [200, 503, 200]
    assert asked(port, "/readyz") == (503, {"role": "standby", "ready": True})
    health.begins()
    assert answers() == [200, 503, 503]
    health.owns(list)
    assert answers() == [200, 200, 200]
    assert asked(port, "/readyz") == (200, {"role": "owner", "ready": True})
    health.stops()
    health.owns(list)  # the recovery under way ends
    assert answers() == [200, 503, 503]
    assert asked(port, "/readyz") == (503, {"role": "stopping", "ready": False})


def test_an_event_loop_that_hangs_is_reported(health: Health, time: Time, port: int) -> None:
    health.owns(list)
    time.now += HUNG_SECONDS - 1
    assert asked(port, "/livez") == (200, {"role": "owner", "live": True})
    time.now += 1
    status, body = asked(port, "/livez")
    assert (status, body["live"], body["why"]) == (503, False, "the event loop has not turned for 15 s")
    health.turns()
    assert asked(port, "/livez")[0] == 200


def test_a_standby_that_looks_no_longer_is_reported(health: Health, time: Time) -> None:
    health.follows(lambda: True)
    time.now += STANDBY_SECONDS - 1
    assert health.livez()[0] == 200
    time.now += 1
    assert health.livez() == (
        503,
        {"role": "standby", "live": False, "why": "the standby has not looked at the owner for 300 s"},
    )


def test_a_start_may_take_any_time(health: Health, time: Time) -> None:
    time.now += 10_000
    assert health.livez()[0] == 200


def test_a_stuck_step_is_reported_without_its_tasks_and_machines(health: Health, port: int) -> None:
    stuck = [STUCK]
    health.owns(lambda: stuck)
    assert asked(port, "/livez") == (503, {"role": "owner", "live": False, "why": "no progress at step 7 of sums"})
    stuck.clear()
    assert asked(port, "/livez")[0] == 200


def test_other_paths_and_methods_are_refused(port: int) -> None:
    for target in ("/", "/livez/", "/readyzz", "/metrics", "/%6civez"):
        assert asked(port, target)[0] == 404
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
        assert asked(port, "/livez", method)[0] == 405


def _answering() -> int:
    return sum("process_request_thread" in each.name for each in threading.enumerate())


def test_strangers_that_say_nothing_do_not_keep_probes_out(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Answering, "timeout", 1000.0)  # their silence alone would end them, too
    with ExitStack() as stack:
        for _ in range(3 * CONNECTIONS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(b"GET /livez HT")
        assert asked(port, "/livez")[0] == 200
        until(lambda: _answering() <= CONNECTIONS, 20)
        wrong = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        wrong.sendall(b"\x16\x03\x01\x02\r\n\r\n")
        assert b"no request of HTTP" in wrong.recv(1000)
    assert asked(port, "/livez")[0] == 200


def test_a_port_that_is_taken_is_reported(port: int, health: Health) -> None:
    with pytest.raises(UnavailableError, match=rf"127.0.0.1:{port} for probes .*--health") as refused:
        HealthPort(f"127.0.0.1:{port}", health)
    assert refused.value.condition == "LISTEN_FAILED"


@pytest.mark.parametrize("address", ["8080", "localhost:", "host:http", ":8080", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidError, match="write host:port") as refused:
        RunOptions(health=address)
    assert refused.value.condition == "BAD_OPTION"


def test_the_port_answers_while_the_event_loop_does_not_turn(tmp_path: Path, time: Time) -> None:
    """The loop is kept in a report of progress, as a program's `on_progress` could keep it."""
    health, hung, freed = Health(time), threading.Event(), threading.Event()

    def keep(progress: Progress) -> None:
        if progress.what == "idle" and not hung.is_set():
            hung.set()
            freed.wait(60)

    host = Host(MemoryEngine(World(rows=10)), open_store(tmp_path), RunOptions(on_progress=keep), health=health)
    with HealthPort("127.0.0.1:0", health) as opened:
        port = int(opened.url.rpartition(":")[2])
        work = Background(host.run)
        assert hung.wait(60)
        assert asked(port, "/readyz")[0] == 200
        time.now += HUNG_SECONDS
        assert asked(port, "/livez")[0] == 503
        freed.set()
        until(lambda: asked(port, "/livez")[0] == 200)
        host.stop()
        assert work.result() is None
    with pytest.raises(ConnectionRefusedError):
        asked(port, "/livez")


def test_a_host_that_follows_a_fenced_one_says_what_it_does(health: Health) -> None:
    """`boatlift handover` asked the owner to stop, and a standby claimed the dataflow first."""
    health.owns(lambda: ())
    health.stops()
    health.owns(lambda: ())
    assert health.readyz() == (503, {"role": "stopping", "ready": False})
    health.begins(anew=True)
    health.follows(lambda: True)
    assert health.readyz(standby_ok=True) == (200, {"role": "standby", "ready": True})
    health.owns(lambda: ())
    assert health.readyz() == (200, {"role": "owner", "ready": True})
