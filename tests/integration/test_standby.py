"""`boatlift run --standby`, `boatlift handover`: owners are killed, stopped and replaced; each step is there once."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.flow_processes import SumProcesses
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ELSEWHERE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""A process in a namespace of its own: others cannot see whether it runs."""


@pytest.fixture
def flow(tmp_path: Path) -> Iterator[SumProcesses]:
    with ExitStack() as stack:
        yield SumProcesses(tmp_path, stack)


def test_owners_die_hang_and_hand_over(flow: SumProcesses) -> None:
    owner = flow.run()
    flow.feed(4)
    first = flow.standby()
    owner.kill()
    flow.feed(4)
    assert f"process {owner.pid} on" in flow.said()
    assert "is taken for dead" in flow.said()

    second = flow.standby()
    first.send_signal(signal.SIGSTOP)
    flow.feed(4)
    assert "is taken for dead: its process is stopped" in flow.said()
    assert first.wait(30) == -signal.SIGKILL, "it could hold locks and ports"

    third = flow.standby("--for-handover")
    assert f"standby: process {third.pid} on" in flow.command("status")
    said = flow.command("handover")
    assert f":{third.pid} to go on" in said
    assert f"process {third.pid} on" in said
    assert second.wait(60) == 0
    flow.feed(4)
    third.send_signal(signal.SIGTERM)
    assert third.wait(60) == 0
    flow.check()


def test_the_owner_and_one_of_two_standbys_die_at_once(flow: SumProcesses) -> None:
    """One of them was there before the store."""
    second = flow.run("--standby")
    until(lambda: "mine: this standby waits for a store: there is no store in" in flow.said())
    owner = flow.run()
    flow.feed(3)
    flow.wait_for_standby(second)
    first = flow.standby()
    os.kill(owner.pid, signal.SIGKILL)
    os.kill(first.pid, signal.SIGKILL)
    flow.feed(3)
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 0
    flow.check()


def test_an_owner_that_is_known_by_its_link_alone(flow: SumProcesses) -> None:
    """It is stopped, and goes on when another process has taken over: it ends, and nothing is there twice."""
    owner = flow.run(via=ELSEWHERE)
    flow.feed(3)
    flow.standby()
    inside = int(Path(f"/proc/{owner.pid}/task/{owner.pid}/children").read_text().split()[0])
    os.kill(inside, signal.SIGSTOP)
    flow.feed(3)
    assert "is taken for dead: it has been silent for" in flow.said()
    os.kill(inside, signal.SIGCONT)
    assert owner.wait(60) == 4
    assert "[FENCED]" in flow.said()
    flow.feed(3)
    flow.check()
