"""A PUT for the log whose answer is lost, or that lands late: one number means one thing, and the fence holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from boatlift.errors import FencedError, UnavailableError
from boatlift.storage.log import Log
from boatlift.storage.log_reader import name_of
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.verify import verify
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.object_server import ObjectServer
from support.worlds.facts import last_made, made
from support.worlds.logs import claimed

PATIENT, HASTY = 60.0, 1.0
"""Seconds for which an owner sends a request again."""

NEXT = name_of(3)
"""The number of the write: behind the claim of its owner, and one that has an answer."""


class Late:
    """Holds the first request of a method for the number, and does a fault to each PUT of it before.

    Attributes:
        arrived: Set once that request is on its way.
        passes: Set to let it through; what its client sends again comes behind it.
    """

    def __init__(self, method: str, fault: ProxyFault = ProxyFault.NONE) -> None:
        self._method, self._fault = method, fault
        self.arrived, self.passes = threading.Event(), threading.Event()

    def __call__(self, method: str, path: str) -> ProxyFault:
        if path.endswith(NEXT) and not self.arrived.is_set():
            if method == self._method:
                self.arrived.set()
                self.passes.wait()
            elif method == "PUT":
                return self._fault
        return ProxyFault.NONE


class Bucket:
    """One store, which processes reach on ways of their own."""

    def __init__(self, server: ObjectServer, folder: Path) -> None:
        self._server, self._folder, self._opened = server, folder, 0

    def open(self, port: int = 0, retry_for: float = PATIENT) -> ObjectStore:
        self._opened += 1
        options = BucketOptions(f"http://127.0.0.1:{port or self._server.port}", retry_for)
        scratch = self._folder / f"scratch-{self._opened}"
        return ObjectStore.open(self._server.url(self._folder.name), scratch, options, create=True)

    @contextmanager
    def owner(self, late: Late, retry_for: float = PATIENT) -> Iterator[tuple[Log, Callable[[], object]]]:
        """An owner whose next write is on its way; gives its log, and what lets the write through and waits for it."""
        with FaultProxy(self._server.port) as proxy, ThreadPoolExecutor(1) as thread:
            log = claimed(self.open(proxy.port, retry_for))
            log.append([made(0)])
            proxy.fault = late
            write = thread.submit(log.append, [made(1)])
            assert late.arrived.wait(60)

            def land() -> object:
                late.passes.set()
                return write.exception(60) or write.result()

            try:
                yield log, land
            finally:
                late.passes.set()

    def check(self, newer: Log, last: int, left: Sequence[str] = ()) -> None:
        """The log says what its newest owner knows, to a process that was not there."""
        assert last_made(newer.history) == last
        assert Log.open(self.open(), "flow").history == newer.history
        newer.append([made(last + 1)])
        assert Log.open(self.open(), "flow").history == newer.history
        assert list(map(str, verify(self.open()))) == [*left]


@pytest.fixture
def bucket(object_server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    monkeypatch.setattr("boatlift.storage.bucket_client.TIMEOUTS", ("500ms", "500ms"))
    return Bucket(object_server, tmp_path)


def test_a_write_that_lands_behind_a_claim_is_refused(bucket: Bucket) -> None:
    with bucket.owner(Late("PUT")) as (older, land):
        newer = claimed(bucket.open())
        assert newer.owner == 3, "the very number"
        content = bucket.open().read(NEXT)
        assert isinstance(land(), FencedError)
        assert bucket.open().read(NEXT) == content
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            older.append([made(1)])
    bucket.check(newer, 0)


def test_a_write_that_was_given_up_lands_behind_a_claim(bucket: Bucket) -> None:
    """Its owner writes nothing any more: a later number could be there before this one."""
    late = Late("PUT")
    with bucket.owner(late, HASTY) as (older, land):
        while older._failure is None:
            assert late.arrived.is_set()
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\]"):
            older.append([made(2)])
        newer = claimed(bucket.open())
        content = bucket.open().read(NEXT)
        assert isinstance(land(), UnavailableError)
        assert bucket.open().read(NEXT) == content
    bucket.check(newer, 0)


@pytest.mark.parametrize("fault", [ProxyFault.RESET_AFTER, ProxyFault.REFUSED_AFTER, ProxyFault.TWICE])
def test_a_write_without_an_answer_counts_before_the_claim(bucket: Bucket, fault: ProxyFault) -> None:
    with bucket.owner(Late("HEAD", fault)) as (older, land):
        newer = claimed(bucket.open())
        assert newer.owner == 4
        assert land() == 3, "it has succeeded"
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            older.append([made(2)])
    bucket.check(newer, 1)


def test_a_write_without_an_answer_that_was_collected_since(bucket: Bucket) -> None:
    """It is sent again, and has the same bytes; nobody reads them."""
    with bucket.owner(Late("HEAD", ProxyFault.RESET_AFTER)) as (older, land):
        newer = claimed(bucket.open())
        content = bucket.open().read(NEXT)
        newer.checkpoint()
        newer.truncate()
        assert bucket.open().size(NEXT) is None
        assert land() == 3
        assert bucket.open().read(NEXT) == content
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            older.append([made(2)])
    bucket.check(newer, 1, left=[f"{NEXT}: is left over: no live record names it"])
    after = claimed(bucket.open())
    after.checkpoint()
    after.truncate()
    bucket.check(after, 2)
