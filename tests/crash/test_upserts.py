"""Clients push rows with a key over HTTP, and the process is killed around integrals: the newest rows hold."""

from __future__ import annotations

import http.client
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from boatlift.testing.loopback import ReservedPort
from support.crash.tests import EVERY_POINT
from support.push.lives import PATIENCE, PushLives
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

CLIENTS, SLOTS = 3, 4

POINTS = [
    "store.create(integrals):after:1",  # durable, and no memo names it
    "store.delete(input):after:2",  # a memo names it, and some of the rows are there still
]
if EVERY_POINT:
    POINTS += [
        "store.create(integrals):before:1",
        "store.delete(input):before:1",
        "store.delete(integrals):before:1",
        "store.delete(integrals):after:1",
    ]


class Client(threading.Thread):
    """Pushes a row after the other, each until it is acknowledged, into a few slots; every fifth is a deletion."""

    def __init__(self, port: int, number: int) -> None:
        super().__init__(daemon=True)
        self.held: dict[int, int] = {}
        self._port, self._number = port, number
        self.ends = threading.Event()
        self.pushed = 0

    def run(self) -> None:
        number = 0
        while not self.ends.is_set():
            slot = number % SLOTS
            deletes = number % 5 == 4
            self._push_once(number, slot, deletes=deletes)
            self.held.pop(slot, None)
            if not deletes:
                self.held[slot] = number
            number = self.pushed = number + 1
            self.ends.wait(0.05)

    def _push_once(self, number: int, slot: int, *, deletes: bool) -> None:
        """Push again until an answer comes: in the end a process lives that gives one."""
        what = b'"_deleted": true' if deletes else b'"id": %d' % number
        body = b'{"client": %d, "slot": %d, %b}' % (self._number, slot, what)
        while True:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
            with suppress(OSError, http.client.HTTPException):
                connection.request("POST", "/rows", body, {"Idempotency-Key": f"{self._number}/{number}"})
                answer = connection.getresponse()
                assert answer.status in (200, 503), answer.read()
                if answer.status == 200:
                    return
            connection.close()
            self.ends.wait(0.02)


def test_the_newest_rows_hold_wherever_the_process_is_killed(tmp_path: Path, warm_jvm: WarmJvm) -> None:
    lives = PushLives(tmp_path, warm_jvm.environment(), "support.crash.upserts:flow")
    with ReservedPort() as port:
        clients = [Client(port.number, number) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for point in POINTS:
            with lives.incarnation(port.number, "--at", point) as process:
                assert process.wait(PATIENCE) == -signal.SIGKILL, f"{point}: {lives.told()}"
        with lives.incarnation(port.number) as process:
            before = [client.pushed for client in clients]
            # A signal would kill a process that has not begun to run.
            until(lambda: all(client.pushed > pushed for client, pushed in zip(clients, before, strict=True)))
            for client in clients:
                client.ends.set()
                client.join(PATIENCE)
                assert not client.is_alive(), lives.told()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, lives.told()
        with lives.incarnation(port.number, "--available-now") as process:
            assert process.wait(PATIENCE) == 0, lives.told()
    held = {(number, slot, row) for number, client in enumerate(clients) for slot, row in client.held.items()}
    (*_, last) = sorted((tmp_path / "all").glob("*.parquet"))
    assert {tuple(row.values()) for row in pq.read_table(last).to_pylist()} == held
    assert list(map(str, verify(LocalStore.open(tmp_path / "store", create=False)))) == []
