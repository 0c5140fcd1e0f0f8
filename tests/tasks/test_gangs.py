"""The tasks of a gang and their hub, without Spark: each task is a thread."""

from __future__ import annotations

import queue
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from boatlift.errors import UnavailableError
from boatlift.kernels.network.node import ZSet
from boatlift.spark.jobs.barrier import Barrier, open_listener
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.key_groups import Share, residues
from boatlift.tasks.barrier import RelayAddress, connected, joined
from support.waiting import until

HOST = "127.0.0.1"
TASKS = 4


def rows(task: int, count: int) -> ZSet:
    numbers = np.arange(count) * TASKS + task
    return ZSet((pa.array(numbers), pa.array([str(number) for number in numbers])), np.full(count, task + 1))


@pytest.mark.parametrize("count", [0, 3, 200_000], ids=["none", "few", "in files"])
def test_rows_come_to_the_task_that_has_their_key(tmp_path: Path, count: int) -> None:
    def run(task: int) -> tuple[list[int], list[int], list[int]]:
        share = Share(TASKS, task)
        with joined(address, share, tmp_path, token=1, attempt=7 + task) as exchange:
            mine = exchange.divided(rows(task, count) if count else None, (0,))
            greatest = exchange.greatest([task, -task])
            assert exchange.divided(None, None) is None
        if mine is None:
            return [], [], greatest
        assert (residues(key_hashes([mine.columns[0]], len(mine)), TASKS) == np.uint64(task)).all()
        assert mine.columns[1].to_pylist() == [str(number) for number in mine.columns[0].to_pylist()]
        return mine.columns[0].to_pylist(), mine.weights.tolist(), greatest

    with Barrier(TASKS).answering(HOST) as address, ThreadPoolExecutor(TASKS) as pool:
        found = list(pool.map(run, range(TASKS)))
    pairs = sorted(pair for numbers, weights, _ in found for pair in zip(numbers, weights, strict=True))
    assert pairs == [(number, number % TASKS + 1) for number in range(count * TASKS)]
    assert all(greatest == [TASKS - 1, 0] for _, _, greatest in found)
    assert not list(tmp_path.iterdir())


def test_all_learn_that_one_has_left_and_a_new_attempt_meets(tmp_path: Path) -> None:
    lost = threading.Barrier(TASKS)

    def run(task: int, attempt: int, *, leaves: bool) -> list[int]:
        with joined(address, Share(TASKS, task), tmp_path, 1, attempt) as exchange:
            exchange.greatest([0])
            if leaves and task == 2:
                return []
            return exchange.greatest([task])

    def first(task: int) -> None:
        if task == 2:
            run(task, task, leaves=True)
        else:
            with pytest.raises(UnavailableError, match="TASK_LOST"):
                run(task, task, leaves=True)
        lost.wait(30)

    meeting = Barrier(TASKS)
    with meeting.answering(HOST) as address, ThreadPoolExecutor(TASKS) as pool:
        list(pool.map(first, range(TASKS)))
        assert meeting.waits_for() > 0
        again = pool.map(lambda task: run(task, 100 + task, leaves=False), range(TASKS))
        assert list(again) == [[TASKS - 1]] * TASKS


def test_tasks_of_an_attempt_that_was_given_up_join_no_other(tmp_path: Path) -> None:
    def late(address: RelayAddress, task: int, attempt: int) -> None:
        with (
            pytest.raises(UnavailableError, match="TASK_LOST"),
            joined(address, Share(TASKS, task), tmp_path, 1, attempt) as exchange,
        ):
            exchange.greatest([0])

    def run(address: RelayAddress, task: int) -> list[int]:
        with joined(address, Share(TASKS, task), tmp_path, 1, 100 + task) as exchange:
            return exchange.greatest([task])

    with Barrier(TASKS).answering(HOST) as address, ThreadPoolExecutor(2 * TASKS) as pool:
        old = pool.submit(late, address, 1, 5)  # of the first attempt; it is there before the second one
        new = [pool.submit(run, address, 0)]
        old.result(30)
        older = pool.submit(late, address, 2, 6)
        older.result(30)
        new += [pool.submit(run, address, task) for task in range(1, TASKS)]
        assert [each.result(30) for each in new] == [[TASKS - 1]] * TASKS


def ended(connection: socket.socket) -> bool:
    """Wait until the door ends a connection."""
    connection.settimeout(60)
    with suppress(ConnectionError):
        while connection.recv(1000):
            pass
    return True


def strangers(address: RelayAddress) -> list[socket.socket]:
    """Forty connections that say nothing, but for one whose message does not come to its end."""
    made = [socket.create_connection((address.host, address.port)) for _ in range(40)]
    made[-1].sendall(b"\x00\x00\x00\xff#")
    return made


def test_strangers_that_say_nothing_are_few_and_none_stays_for_long() -> None:
    came: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    before = threading.active_count()
    with open_listener(
        HOST, lambda number, attempt, _: came.put((number, attempt)), timeout=600, most_unproven=8
    ) as door:
        many = strangers(door)
        assert all(ended(each) for each in many[:-8])
        with connected(door, 3, 7):
            assert came.get(timeout=60) == (3, 7)
    assert all(ended(each) for each in many), "they go with the job"
    with open_listener(HOST, lambda *_: None, timeout=0.1) as door:
        assert all(ended(each) for each in strangers(door))
    until(lambda: threading.active_count() <= before)  # threads of other tests may end meanwhile


def test_a_stranger_delays_no_peer(tmp_path: Path) -> None:
    def run(task: int) -> list[int]:
        with joined(address, Share(2, task), tmp_path, 1, task) as exchange:
            return exchange.greatest([task])

    with Barrier(2).answering(HOST) as address:
        silent = socket.create_connection((address.host, address.port))
        stranger = joined(RelayAddress(HOST, address.port, b"another"), Share(2, 0), tmp_path, 1, 0)
        with pytest.raises(UnavailableError, match="TASK_LOST"), stranger:
            pass
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(run, range(2))) == [[1], [1]]
        silent.close()
