"""Group commit: order, batching, failure."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.errors import FencedError, InternalError, UnavailableError
from boatlift.storage.filesystem import FileSystem
from boatlift.storage.group_commit import GroupWriter
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Record
from support.waiting import until
from support.worlds.facts import CLAIM, gave, made, stable


class Gate(FileSystem):
    """A real file system on which the log's links wait until they are let through, and may fail."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.waiting = threading.Event()
        self.error: OSError | None = None

    def link(self, source: Path, target: Path) -> None:
        self.waiting.set()
        assert self.open.wait(timeout=60)
        if self.error is not None:
            raise self.error
        super().link(source, target)

    def shut(self) -> None:
        self.open.clear()
        self.waiting.clear()

    def wait_until_shut_out(self) -> None:
        assert self.waiting.wait(timeout=60)


class Answers:
    """What callbacks were told, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[object, BaseException | None]] = []
        self._changed = threading.Condition()

    def of(self, what: object) -> Callable[[BaseException | None], None]:
        def callback(error: BaseException | None) -> None:
            with self._changed:
                self.told.append((what, error))
                self._changed.notify_all()

        return callback

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.told) >= count, timeout=60)


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def log(tmp_path: Path, gate: Gate) -> Log:
    log = Log.open(LocalStore.open(tmp_path, create=True, filesystem=gate), "flow")
    log.claim(CLAIM)
    return log


def groups_of(root: Path) -> list[list[Record]]:
    return [list(group.records) for group in Log.open(LocalStore.open(root, create=False), "flow").groups()]


def test_what_was_submitted_is_durable_when_the_callback_comes(log: Log, tmp_path: Path) -> None:
    writer = GroupWriter(log)
    durable: list[set[int]] = []
    for time in range(20):
        writer.submit(
            [made(time)],
            lambda error: durable.append(
                set(
                    Log.open(LocalStore.open(tmp_path, create=False), "flow").history.live_records.determinants[
                        "numbers"
                    ]
                )
            ),
        )
    writer.close()
    assert len(durable) == 20
    for time, seen in enumerate(durable):
        assert set(range(time + 1)) <= seen


def test_what_waits_while_an_object_is_written_goes_into_the_next_together(
    log: Log, gate: Gate, tmp_path: Path
) -> None:
    writer, answers = GroupWriter(log), Answers()
    gate.shut()
    writer.submit([made(0)], answers.of(0))
    gate.wait_until_shut_out()
    for time in (1, 2, 3):
        writer.submit([made(time), gave(time)], answers.of(time))
    assert answers.told == []
    gate.open.set()
    writer.close()
    assert answers.told == [(time, None) for time in range(4)]
    assert groups_of(tmp_path) == [[CLAIM], [made(0)], [record for t in (1, 2, 3) for record in (made(t), gave(t))]]


def test_many_threads_lose_nothing_and_each_keeps_its_order(log: Log, tmp_path: Path) -> None:
    writer, answers = GroupWriter(log), Answers()

    def work(source: str) -> None:
        for time in range(50):
            writer.submit([made(time, source)], answers.of((source, time)))

    threads = [threading.Thread(target=work, args=(f"s{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert all(error is None for _, error in answers.told)
    written = [record for group in groups_of(tmp_path)[1:] for record in group]
    assert [(record.processor, record.time) for record in written] == [what for what, _ in answers.told]  # type: ignore[union-attr]
    for n in range(4):
        assert [record for record in written if record.processor == f"s{n}"] == [made(t, f"s{n}") for t in range(50)]  # type: ignore[union-attr]
    assert Log.open(LocalStore.open(tmp_path, create=False), "flow").history == log.history


def test_the_first_failure_fails_everything_not_yet_durable_and_everything_later(log: Log, gate: Gate) -> None:
    writer, answers = GroupWriter(log), Answers()
    writer.submit([made(0)], answers.of("durable"))
    answers.wait_for(1)
    gate.shut()
    writer.submit([made(1)], answers.of("in the failing object"))
    gate.wait_until_shut_out()
    writer.submit([made(2)], answers.of("in the object after it"))
    gate.error = OSError(28, "No space left on device")
    gate.open.set()
    answers.wait_for(3)
    gate.error = None  # the disk is well again: nothing is tried again
    writer.submit([made(3)], answers.of("later"))
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*No space left"):
        writer.manifest()
    writer.close()
    assert [what for what, _ in answers.told] == ["durable", "in the failing object", "in the object after it", "later"]
    assert answers.told[0][1] is None
    for _, error in answers.told[1:]:
        assert isinstance(error, UnavailableError)
        assert "No space left on device" in str(error)
    assert sorted(log.history.live_records.determinants["numbers"]) == [0]


def test_a_fenced_writer_says_so_to_every_caller(log: Log, tmp_path: Path) -> None:
    writer, answers = GroupWriter(log), Answers()
    Log.open(LocalStore.open(tmp_path, create=False), "flow").claim(CLAIM)
    for time in range(3):
        writer.submit([made(time)], answers.of(time))
    writer.close()
    assert [type(error) for _, error in answers.told] == [FencedError] * 3


def test_a_manifest_holds_all_that_was_submitted_before_it_and_nothing_after(
    log: Log, gate: Gate, tmp_path: Path
) -> None:
    writer, answers = GroupWriter(log), Answers()
    gate.shut()
    writer.submit([made(0)], answers.of(0))
    gate.wait_until_shut_out()
    writer.submit([made(1), stable({"numbers": 0})], answers.of(1))
    waiter = threading.Thread(target=writer.manifest)
    waiter.start()
    until(lambda: len(writer._commit.waiting) >= 2)
    writer.submit([made(2)], answers.of(2))
    gate.open.set()
    waiter.join(timeout=60)
    writer.close()
    snapshot = LogHistory.of([CLAIM, made(0), made(1), stable({"numbers": 0})], "flow").snapshot()
    assert groups_of(tmp_path) == [[snapshot], [made(2)]]
    assert answers.told == [(0, None), (1, None), (2, None)]
    objects = LocalStore.open(tmp_path, create=False).list("log/")
    assert list(objects) == [name_of(1), name_of(4), name_of(5)], "what the manifest made garbage is deleted"


def test_a_closed_writer_takes_nothing(log: Log) -> None:
    writer = GroupWriter(log)
    writer.close()
    writer.close()
    with pytest.raises(InternalError, match="closed"):
        writer.submit([made(0)], Answers().of(0))
    with pytest.raises(InternalError, match="closed"):
        writer.manifest()


def test_an_error_in_a_callback_fails_what_comes_after_it(log: Log) -> None:
    writer, answers = GroupWriter(log), Answers()

    def callback(error: BaseException | None) -> None:
        raise ValueError("the host is gone")

    writer.submit([made(0)], callback)
    until(lambda: writer._commit.failure is not None)
    writer.submit([made(1)], answers.of(1))
    writer.close()
    assert [(what, type(error)) for what, error in answers.told] == [(1, ValueError)]


def test_what_comes_while_a_group_lingers_goes_into_one_object(log: Log, tmp_path: Path) -> None:
    writer, answers = GroupWriter(log, linger=3600.0), Answers()
    for time in range(3):
        writer.submit([made(time)], answers.of(time))
    assert answers.told == []
    writer.close()  # ends the wait
    assert answers.told == [(time, None) for time in range(3)]
    assert groups_of(tmp_path) == [[CLAIM], [made(time) for time in range(3)]]
