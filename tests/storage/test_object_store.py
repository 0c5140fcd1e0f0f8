"""The store in an object store: the laws of all stores on a real server, then a server that fails."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from boatlift.errors import FencedError, UnavailableError
from boatlift.storage.object_store import ObjectStore
from boatlift.testing.fault_proxy import Fault, FaultProxy
from boatlift.testing.object_server import ObjectServer
from storage.conformance import Opener, StoreLaws
from support.worlds.facts import made
from support.worlds.logs import claimed


class TestObjectStore(StoreLaws):
    @pytest.fixture
    def opener(self, object_server: ObjectServer, tmp_path: Path) -> Opener:
        return functools.partial(ObjectStore.open, object_server.url(tmp_path.name), tmp_path / "scratch", create=True)


# --- a server that fails ---

PATIENCE = 1.5


class Once:
    """Does a fault to the first request of a method for which there is one, and counts the requests.

    Args:
        times: How often it does so.
    """

    def __init__(self, fault: Fault, method: str, times: int = 1) -> None:
        self._fault, self._method, self.left, self.seen = fault, method, times, Counter[str]()

    def __call__(self, method: str, path: str) -> Fault:
        self.seen[method] += 1
        if self._method == method and self.left and "/tmp/" not in path:
            self.left -= 1
            return self._fault
        return Fault.NONE


@pytest.fixture
def through(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Callable[[str, str], Fault]], ObjectStore]]:
    """Opens a store through a proxy with faults, which begin once it is open."""
    # A request that hangs ends after this time; the client's own is for real networks.
    monkeypatch.setattr("boatlift.storage.object_store._TIMEOUTS", {"small": "500ms", "large": "500ms"})
    with ExitStack() as stack:

        def open_store(fault: Callable[[str, str], Fault], patience: float = 30.0) -> ObjectStore:
            proxy = stack.enter_context(FaultProxy(object_server.port))
            endpoint = f"http://127.0.0.1:{proxy.port}"
            url = object_server.url(tmp_path.name)
            store = ObjectStore.open(url, tmp_path / "scratch", create=True, endpoint=endpoint, patience=patience)
            proxy.fault = fault
            return store

        yield open_store


FAULTS = [each for each in Fault if each is not Fault.NONE]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("content", [b"rows", b"x" * 100_000])
def test_a_lost_answer_to_a_create_is_no_failure(through: Any, fault: Fault, content: bytes) -> None:
    faults = Once(fault, "PUT")
    store = through(faults)
    store.create("log/000000000001", content)
    assert faults.left == 0
    assert store.read("log/000000000001") == content
    assert list(store.list("")) == ["log/000000000001"]
    with pytest.raises(FencedError, match=r"\[OBJECT_EXISTS\]"):
        store.create("log/000000000001", content)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_name_of_another_process_is_refused_whatever_the_answer(
    through: Any, fault: Fault, object_server: ObjectServer, tmp_path: Path
) -> None:
    store = through(Once(fault, "PUT", times=3))
    other = ObjectStore.open(object_server.url(tmp_path.name), tmp_path / "other", create=True)
    other.create("log/1", b"other")
    with pytest.raises(FencedError, match=r"\[OBJECT_EXISTS\].*log/1"):
        store.create("log/1", b"own")
    assert store.read("log/1") == b"other"
    store.create("log/2", b"own")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_token_that_cannot_be_read_back_at_once_is_read_later(through: Any, fault: Fault) -> None:
    lost, back = Once(Fault.RESET_AFTER, "PUT"), Once(fault, "HEAD", times=2)
    store = through(lambda method, path: lost(method, path) if method == "PUT" else back(method, path))
    store.create("log/1", b"own")
    assert store.read("log/1") == b"own"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("act", ["read", "part", "size", "list", "file", "delete"])
def test_what_only_asks_is_asked_again(through: Any, fault: Fault, act: str) -> None:
    methods = {"size": "HEAD", "delete": "POST"}
    faults = Once(fault, methods.get(act, "GET"))
    store = through(faults)
    content = bytes(range(256)) * 400
    store.create("runs/1", content)
    match act:
        case "read":
            assert store.read("runs/1") == content
        case "part":
            assert store.read("runs/1", 5, 70_000) == content[5:70_005]
        case "size":
            assert store.size("runs/1") == len(content)
        case "list":
            assert store.sizes("") == {"runs/1": len(content)}
        case "file":
            assert store.local_path("runs/1").read_bytes() == content
        case "delete":
            store.delete("runs/1", "runs/2")
            assert store.sizes("") == {}
    assert faults.left == 0


def test_a_server_that_stays_away_fails_a_create_and_every_later_one(through: Any) -> None:
    faults = Once(Fault.REFUSED, "PUT", times=1000)
    store = through(faults, patience=PATIENCE)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*log/1"):
            store.create("log/1", b"own")
    faults.left = 0
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*run again"):
        store.create("log/2", b"own")
    assert list(store.list("")) == []
    store.reopened().create("log/1", b"own")


def test_a_put_that_lands_after_its_process_has_given_up_is_one_object_of_one_writer(through: Any) -> None:
    store = through(Once(Fault.HANGS_AFTER, "PUT", times=1000), patience=PATIENCE)
    store.create("log/1", b"own")  # the token tells, though no answer came
    assert store.read("log/1") == b"own"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_log_through_faults_has_each_record_once(through: Any, fault: Fault) -> None:
    """Every fifth request of whatever kind fails."""
    requests = count(1)
    store = through(lambda _method, _path: fault if next(requests) % 5 == 0 else Fault.NONE)
    log = claimed(store)
    for number in range(12):
        log.append([made(number)])
    assert claimed(store).last == log.last + 1
