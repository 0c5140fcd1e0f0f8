"""The store in an object store: the laws of all stores on a real server, then a server that fails."""

from __future__ import annotations

import errno
import functools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

from boatlift.errors import DataError, FencedError, InternalError, InvalidError, UnavailableError
from boatlift.storage.object_store import BucketOptions, ObjectStore
from boatlift.storage.remote_files import fetched
from boatlift.testing.fault_proxy import FaultProxy, ProxyFault
from boatlift.testing.loopback import ReservedPort
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

    def __init__(self, fault: ProxyFault, method: str, times: int = 1) -> None:
        self._fault, self._method, self.left, self.seen = fault, method, times, Counter[str]()

    def __call__(self, method: str, path: str) -> ProxyFault:
        self.seen[method] += 1
        if self._method == method and self.left and "/tmp/" not in path:
            self.left -= 1
            return self._fault
        return ProxyFault.NONE


@pytest.fixture
def through(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Callable[[Callable[[str, str], ProxyFault]], ObjectStore]]:
    """Opens a store through a proxy with faults, which begin once it is open."""
    # A request that hangs ends after this time; the client's own is for real networks.
    monkeypatch.setattr("boatlift.storage.bucket_client.TIMEOUTS", ("500ms", "500ms"))
    with ExitStack() as stack:

        def open_store(fault: Callable[[str, str], ProxyFault], retry_for: float = 30.0) -> ObjectStore:
            proxy = stack.enter_context(FaultProxy(object_server.port))
            endpoint = f"http://127.0.0.1:{proxy.port}"
            url = object_server.url(tmp_path.name)
            store = ObjectStore.open(url, tmp_path / "scratch", BucketOptions(endpoint, retry_for), create=True)
            proxy.fault = fault
            return store

        yield open_store


FAULTS = [each for each in ProxyFault if each is not ProxyFault.NONE]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("content", [b"rows", b"x" * 100_000])
def test_a_lost_answer_to_a_create_is_no_failure(through: Any, fault: ProxyFault, content: bytes) -> None:
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
    through: Any, fault: ProxyFault, object_server: ObjectServer, tmp_path: Path
) -> None:
    store = through(Once(fault, "PUT", times=3))
    other = ObjectStore.open(object_server.url(tmp_path.name), tmp_path / "other", create=True)
    other.create("log/1", b"other")
    with pytest.raises(FencedError, match=r"\[OBJECT_EXISTS\].*log/1"):
        store.create("log/1", b"own")
    assert store.read("log/1") == b"other"
    store.create("log/2", b"own")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_token_that_cannot_be_read_back_at_once_is_read_later(through: Any, fault: ProxyFault) -> None:
    lost, back = Once(ProxyFault.RESET_AFTER, "PUT"), Once(fault, "HEAD", times=2)
    store = through(lambda method, path: lost(method, path) if method == "PUT" else back(method, path))
    store.create("log/1", b"own")
    assert store.read("log/1") == b"own"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("act", ["read", "part", "size", "list", "file", "delete"])
def test_what_only_asks_is_asked_again(through: Any, fault: ProxyFault, act: str) -> None:
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
            store.forget("runs/1")
            assert fetched(store.local_path("runs/1")).read_bytes() == content
        case "delete":
            store.delete("runs/1", "runs/2")
            assert store.sizes("") == {}
    assert faults.left == 0


def test_a_server_that_stays_away_fails_a_create_and_every_later_one(through: Any) -> None:
    faults = Once(ProxyFault.REFUSED, "PUT", times=1000)
    store = through(faults, retry_for=PATIENCE)
    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*log/1"):
            store.create("log/1", b"own")
    faults.left = 0
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*run again"):
        store.create("log/2", b"own")
    assert list(store.list("")) == []
    store.reopened().create("log/1", b"own")


def test_a_put_without_an_answer_is_found_by_its_token(through: Any) -> None:
    store = through(Once(ProxyFault.HANGS_AFTER, "PUT", times=1000), retry_for=PATIENCE)
    store.create("log/1", b"own")  # the token tells, though no answer came
    assert store.read("log/1") == b"own"


@pytest.mark.parametrize("fault", FAULTS)
def test_a_log_through_faults_has_each_record_once(through: Any, fault: ProxyFault) -> None:
    """Every fifth request of whatever kind fails."""
    requests = count(1)
    store = through(lambda _method, _path: fault if next(requests) % 5 == 0 else ProxyFault.NONE)
    log = claimed(store)
    for number in range(12):
        log.append([made(number)])
    assert claimed(store).last == log.last + 1


# --- opening ---


def test_wrong_credentials_are_refused_at_once_and_reported_without_the_secret(
    object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"):
        with monkeypatch.context() as wrong:
            wrong.setenv(name, "mistyped")
            for create in (True, False):
                with pytest.raises(
                    InvalidError, match=r"\[NOT_ADMITTED\].*(SignatureDoesNotMatch|InvalidAccessKeyId)"
                ) as e:
                    ObjectStore.open(object_server.url("x"), tmp_path, create=create)
                assert object_server.environment["AWS_SECRET_ACCESS_KEY"] not in str(e.value)


def test_a_bucket_that_is_not_there_is_reported(object_server: ObjectServer, tmp_path: Path) -> None:
    assert object_server.running
    for create in (True, False):
        with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\] there is no bucket elsewhere"):
            ObjectStore.open("s3://elsewhere/x", tmp_path, create=create)


def test_a_prefix_without_a_store_is_reported_and_left_as_it_is(object_server: ObjectServer, tmp_path: Path) -> None:
    url = object_server.url(tmp_path.name)
    with pytest.raises(InvalidError, match=r"\[STORE_NOT_FOUND\] there is no store in " + url):
        ObjectStore.open(url, tmp_path / "scratch", create=False)
    assert not (tmp_path / "scratch").exists()
    ObjectStore.open(f"{url}/", tmp_path / "scratch", create=True).create("x", b"1")
    assert ObjectStore.open(url, tmp_path / "elsewhere", create=False).read("x") == b"1"


def test_a_server_that_does_not_answer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with ReservedPort() as port, pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*run again once it answers"):
        ObjectStore.open("s3://b/x", tmp_path, BucketOptions(f"http://127.0.0.1:{port.number}", 0.3), create=True)


class Careless(BaseHTTPRequestHandler):
    """A server of objects that overwrites whatever is there, or forgets attributes, or is of another region."""

    flaw = "overwrites"
    objects: ClassVar[dict[str, str]] = {}

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), "etag": '"e"', **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("last-modified", "Sun, 29 Nov 2026 12:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        if self.flaw != "overwrites" and self.path in self.objects:
            return self._answer(412)
        self.objects[self.path] = self.headers["x-amz-meta-boatlift-writer"]
        return self._answer(200)

    def do_GET(self) -> None:
        if "list-type" in self.path and self.flaw == "region":
            return self._answer(400, b"<Error><Code>AuthorizationHeaderMalformed</Code></Error>")
        if "list-type" in self.path:
            return self._answer(200, b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
        known = {} if self.flaw == "forgets" else {"x_amz_meta_boatlift_writer": self.objects[self.path]}
        return self._answer(200, **known)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class calls

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.objects.clear()
        self._answer(200, b"<DeleteResult><Deleted><Key>x</Key></Deleted></DeleteResult>")

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("flaw", "said"),
    [
        ("overwrites", r"\[STORE_UNSUITABLE\].*overwrites an object"),
        ("forgets", r"\[STORE_UNSUITABLE\].*keeps no attributes"),
        ("region", r"\[NOT_ADMITTED\].*AuthorizationHeaderMalformed.*AWS_REGION"),
    ],
)
def test_a_server_that_cannot_fence_is_refused(
    flaw: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(Careless, "flaw", flaw)
    Careless.objects.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        endpoint = f"http://127.0.0.1:{server.server_port}"
        with pytest.raises(InvalidError, match=said):
            ObjectStore.open("s3://b/x", tmp_path, BucketOptions(endpoint, 2.0), create=True)
        assert Careless.objects == {}, "the probe is removed"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# --- the cache and the process ---


@pytest.fixture
def opened(object_server: ObjectServer, tmp_path: Path) -> Callable[[str], ObjectStore]:
    """Opens one store on machines with a scratch of their own."""
    return lambda machine: ObjectStore.open(object_server.url(tmp_path.name), tmp_path / machine, create=True)


def test_the_cache_has_what_the_store_has(opened: Callable[[str], ObjectStore], tmp_path: Path) -> None:
    here, there = opened("here"), opened("there")
    file = here.scratch(1) / "run"
    file.write_bytes(b"rows")
    here.create("runs/1", file)
    assert here.local_path("runs/1").stat().st_ino == file.stat().st_ino, "nothing is fetched"
    copy = fetched(there.local_path("runs/1"))
    assert copy.read_bytes() == b"rows"
    here.delete("runs/1")
    assert list((tmp_path / "here").glob("*/*/cache/runs/*")) == []
    assert copy.exists()
    there.discard_scratch(before=1)
    assert not copy.exists()
    with pytest.raises(DataError, match=r"\[MISSING_OBJECT\]"):
        fetched(there.local_path("runs/1"))


def test_a_file_of_the_cache_that_was_cut_is_fetched_again_at_the_next_start(
    opened: Callable[[str], ObjectStore],
) -> None:
    store = opened("here")
    store.create("runs/1", bytes(100_000))
    cached = store.local_path("runs/1")
    os.truncate(cached, 1000)
    store.discard_scratch(before=1)
    assert fetched(store.local_path("runs/1")).stat().st_size == 100_000


def test_a_full_disk_under_the_cache_is_reported(
    opened: Callable[[str], ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened("here")
    store.create("runs/1", b"rows")
    store.forget("runs/1")

    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(Path, "hardlink_to", full)
        with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\] fetching runs/1.*No space left.*--scratch"):
            fetched(store.local_path("runs/1"))
    assert fetched(store.local_path("runs/1")).read_bytes() == b"rows"
    store.create("runs/2", b"the store goes on")


def test_a_forked_process_is_refused(opened: Callable[[str], ObjectStore]) -> None:
    store = opened("here")
    child = os.fork()
    if not child:
        try:
            store.read("x")
        except InternalError:
            os._exit(7)
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_more_names_than_a_page_has(opened: Callable[[str], ObjectStore]) -> None:
    store = opened("here")
    names = [f"log/{number:012}" for number in range(1100)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: store.create(name, b"x"), names))
    assert list(store.list("log/")) == names
    assert list(store.read_all(names[:50])) == [b"x"] * 50
    store.delete(*names)
    assert list(store.list("")) == []


def test_another_store_at_the_same_url_has_another_scratch(opened: Callable[[str], ObjectStore]) -> None:
    """A store is removed from the bucket and another one begins there, which this machine's files say nothing about."""
    folders = []
    for identity in (b"one", b"another"):
        store = opened("here")
        store.create("dataflow", identity)
        folders.append(store.scratch(1))
        assert list(folders[-1].iterdir()) == []
        (folders[-1] / "soft-checkpoints").write_bytes(identity)
        store.delete("dataflow")
    assert folders[0] != folders[1]


def test_a_cache_from_before_the_computer_started_is_not_believed(
    opened: Callable[[str], ObjectStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened("here")
    store.discard_scratch(before=1)
    store.create("runs/1", b"rows")
    store.local_path("runs/1").write_bytes(bytes(4))  # of the same size
    store.discard_scratch(before=1)
    assert fetched(store.local_path("runs/1")).read_bytes() == bytes(4)
    monkeypatch.setattr("boatlift.storage.object_cache.boot_of_computer", lambda: "another")
    os.utime(store.local_path("runs/1"), (1, 1))
    store.discard_scratch(before=1)
    assert fetched(store.local_path("runs/1")).read_bytes() == b"rows"


def test_names_that_are_given_again_are_read_again(opened: Callable[[str], ObjectStore]) -> None:
    """A bucket is restored from a copy: pushed rows get the names of others, which a machine of a task still has."""
    store = opened("here")
    store.create("dataflow", b"one")
    store.create("runs/1", b"state")
    for rows in (b"lost", b"kept"):
        again = store.reopened()
        again.create("input/orders/1", rows)
        assert fetched(again.local_path("input/orders/1")).read_bytes() == rows
        assert again.local_path("runs/1") == store.local_path("runs/1")
        store._client.delete(["input/orders/1"])  # the bucket is restored: no file of this machine goes


def test_a_request_without_an_answer_is_reported(through: Any, caplog: pytest.LogCaptureFixture) -> None:
    store = through(Once(ProxyFault.REFUSED, "PUT", times=7))
    store.create("log/1", b"own")
    assert "creating log/1 in s3://" in caplog.text
    assert "has no clear answer yet: trying for 30 s" in caplog.text


def test_a_failure_stays_whatever_another_thread_gets(through: Any) -> None:
    faults = Once(ProxyFault.REFUSED, "PUT", times=1000)
    store = through(faults, retry_for=1.0)
    with ThreadPoolExecutor(2) as threads:
        both = [threads.submit(store.create, f"log/{number}", b"own") for number in (1, 2)]
        assert all(isinstance(each.exception(), UnavailableError) for each in both)
    faults.left = 0
    with pytest.raises(UnavailableError, match=r"\[STORE_FAILED\].*takes no more writes"):
        store.create("log/3", b"own")


def test_pushed_rows_of_another_history_are_not_taken_from_the_cache(opened: Callable[[str], ObjectStore]) -> None:
    """A bucket is restored from a copy: another machine gives the numbers of input objects again."""
    here, there = opened("here"), opened("there")
    here.create("dataflow", b"one")
    here.create("input/orders/000000000002", b"first")
    assert fetched(here.local_path("input/orders/000000000002")).read_bytes() == b"first"
    there.delete("input/orders/000000000002")
    there.create("input/orders/000000000002", b"other")
    here.discard_scratch(before=1)
    assert fetched(here.local_path("input/orders/000000000002")).read_bytes() == b"other"


def test_names_that_no_object_can_have_are_left_out(
    object_server: ObjectServer, opened: Callable[[str], ObjectStore], tmp_path: Path
) -> None:
    import obstore
    from obstore.store import S3Store

    store = opened("here")
    store.create("log/1", b"")
    other = S3Store(object_server.bucket, endpoint=object_server.environment["AWS_ENDPOINT_URL"], allow_http=True)
    for name in ("log/.DS Store", "a b"):
        obstore.put(other, f"{tmp_path.name}/{name}", b"")
    assert list(store.list("")) == ["log/1"]


def test_a_file_that_a_newer_owner_has_discarded_is_reported(
    opened: Callable[[str], ObjectStore], tmp_path: Path
) -> None:
    with pytest.raises(FencedError, match=r"\[FENCED\].*discarded this one's file of runs/1"):
        opened("here").create("runs/1", tmp_path / "gone")
