"""Clients push to a host where a standby is: they follow its redirects, and a takeover loses and doubles nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import urllib3

from boatlift.testing.loopback import ReservedPort
from support.flow_processes import FlowProcesses
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

FLOW = """
import os
import boatlift as bl

flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.push("client INT NOT NULL, number INT NOT NULL", listen=os.environ["PUSH_AT"]))
rows.transform("kept", lambda df: df.where("number >= 0")).sink("history", bl.parquet("history"))
"""

HOSTS = ("127.0.0.1", "127.0.0.2")


class Client(threading.Thread):
    """Pushes a row after the other to one host, each until it is acknowledged, and follows redirects by itself."""

    def __init__(self, number: int, host: str, port: int) -> None:
        super().__init__(daemon=True)
        self._number, self._url = number, f"http://{host}:{port}/rows"
        self._pool = urllib3.PoolManager(timeout=5, retries=urllib3.Retry(None, connect=0, read=0, redirect=3))
        self.answers = Counter[int]()
        self.ends = threading.Event()
        self.pushed = 0

    def run(self) -> None:
        while not self.ends.is_set():
            self._push(self.pushed)
            self.pushed += 1
            self.ends.wait(0.02)

    def _push(self, number: int) -> None:
        body = json.dumps({"client": self._number, "number": number}).encode()
        key = {"Idempotency-Key": f"{self._number}/{number}"}
        while True:
            with suppress(urllib3.exceptions.HTTPError):
                answer = self._pool.request("POST", self._url, body=body, headers=key)
                self.answers[answer.status] += 1
                assert answer.status in (200, 503), answer.data
                if answer.status == 200:
                    return
                assert answer.headers["Retry-After"]
            self.ends.wait(0.05)


def test_clients_of_both_hosts_lose_nothing_over_takeovers(tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(ReservedPort()).number
        flow = FlowProcesses(tmp_path, stack, FLOW)
        here, there = ({"PUSH_AT": f"{host}:{port}"} for host in HOSTS)
        owner = flow.run(environment=here)
        clients = [Client(number, host, port) for number, host in enumerate(HOSTS)]
        for client in clients:
            client.start()
        until(lambda: clients[0].pushed > 5)
        standby = flow.standby(environment=there)
        until(lambda: clients[1].pushed > 5)  # by redirects
        os.kill(owner.pid, signal.SIGKILL)
        taken = clients[1].pushed
        until(lambda: clients[1].pushed > taken + 5)

        back = flow.standby(environment=here)
        taken = clients[0].pushed
        until(lambda: clients[0].pushed > taken + 5)  # by redirects, the other way
        flow.command("handover")
        assert standby.wait(120) == 0
        for client in clients[:1]:
            taken = client.pushed
            until(lambda client=client, taken=taken: client.pushed > taken + 5)
        third = flow.standby(environment=there)
        taken = clients[1].pushed
        until(lambda: clients[1].pushed > taken + 5)
        for client in clients:
            client.ends.set()
            client.join(60)
            assert not client.is_alive()
        third.send_signal(signal.SIGTERM)
        assert third.wait(60) == 0
        back.send_signal(signal.SIGTERM)
        assert back.wait(60) == 0, flow.said()
    found = Counter((row["client"], row["number"]) for row in flow.rows())
    assert found == {(number, row): 1 for number, client in enumerate(clients) for row in range(client.pushed)}
