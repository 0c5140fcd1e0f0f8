"""Clients push over HTTP, and repeat unanswered pushes: each row is there once, wherever processes die or pause."""

from __future__ import annotations

import http.client
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

import pyarrow.parquet as pq
import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.loopback import ReservedPort
from support.crash.tests import EVERY_POINT
from support.push.lives import PATIENCE, PushLives
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

CLIENTS = 3

POINTS = [
    "store.create(input):before:1",  # its claim
    "store.create(input):after:1",
    "store.create(input):before:2",
    "store.create(input):after:2",
    "store.create(input):after:4",
    "store.create(log):after:3",
    "step(kept):after:2",
    "sink.stage(out):before:4",  # of the job that lives, too
    "sink.stage(out):after:4",
    "sink.commit(out):before:2",
    "sink.commit(out):after:3",
    "store.delete(input):before:1",
    "store.delete(input):after:2",
]
SLEEPS = [("recorded", "store.create(input):before:3"), ("stable", "sink.commit(out):after:2")]
if EVERY_POINT:
    SLEEPS.append(("recorded", "store.create(input):after:3"))

ACKS = ["recorded", "stable"]
"""Each dies at every second point, and with `make crash` at all of them."""


class Clients:
    """Threads that push one row after the other, each again until it is acknowledged."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.told: list[tuple[int, int]] = []
        self.tried: set[tuple[int, int]] = set()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._push, args=(client,)) for client in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def _push(self, client: int) -> None:
        number = 0
        while not self._ends.is_set():
            self.tried.add((client, number))
            if self._pushed(client, number):
                self.told.append((client, number))
                number += 1

    def _pushed(self, client: int, number: int) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with suppress(OSError, http.client.HTTPException):
            body = b'{"id": %d, "client": %d}' % (number, client)
            connection.request("POST", "/rows", body, {"Idempotency-Key": f"{client}/{number}"})
            answer = connection.getresponse()
            assert answer.status in (200, 503), answer.read()
            return answer.status == 200
        connection.close()
        time.sleep(0.01)
        return False


class Lives(PushLives):
    """Processes that run the dataflow, one after the other."""

    def __init__(self, folder: Path, environment: Mapping[str, str], ack: str) -> None:
        super().__init__(folder, {**environment, "PUSH_ACK": ack}, "support.crash.pushes:flow")

    def judge(self, clients: Clients) -> None:
        with self.incarnation(clients.port, "--available-now") as last:
            assert last.wait(PATIENCE) == 0, self.told()
        there = [(row["client"], row["id"]) for row in pq.read_table(self.folder / "out").to_pylist()]
        assert len(there) == len(set(there)), "doubled"
        assert set(clients.told) <= set(there), "an acknowledged row is lost"
        assert set(there) <= clients.tried
        assert len(clients.told) == len(set(clients.told))


@pytest.mark.parametrize("ack", ACKS)
def test_every_row_is_there_once_wherever_the_process_is_killed(tmp_path: Path, warm_jvm: WarmJvm, ack: str) -> None:
    lives = Lives(tmp_path, warm_jvm.environment(), ack)
    with ReservedPort() as port:
        with Clients(port.number) as clients:
            points = POINTS if EVERY_POINT else POINTS[ACKS.index(ack) :: len(ACKS)]
            for point in points:
                with lives.incarnation(port.number, "--at", point) as process:
                    assert process.wait(PATIENCE) == -signal.SIGKILL, f"{point}: {lives.told()}"
        assert len(clients.told) > len(points)
        lives.judge(clients)


@pytest.mark.parametrize(("ack", "point"), SLEEPS)
def test_a_process_that_slept_over_a_takeover_acknowledges_nothing_that_is_not_there(
    tmp_path: Path, ack: str, point: str
) -> None:
    lives = Lives(tmp_path, {}, ack)  # two at once need two JVMs
    with ReservedPort() as port, ReservedPort() as other:
        with Clients(port.number) as clients, lives.incarnation(port.number, "--at", point, "--pause") as sleeper:
            until(lambda: Path(f"/proc/{sleeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "T")
            with lives.incarnation(other.number) as process:
                clients.port = other.number
                known = len(clients.told)
                until(lambda: len(clients.told) > known + 20, PATIENCE)
                clients.port = port.number
                sleeper.send_signal(signal.SIGCONT)
                assert sleeper.wait(PATIENCE) == 1, lives.told()
                assert "boatlift.errors.FencedError: [FENCED]" in lives.told()
                assert process.poll() is None
                process.send_signal(signal.SIGTERM)
                assert process.wait(PATIENCE) == 0, lives.told()
        lives.judge(clients)
