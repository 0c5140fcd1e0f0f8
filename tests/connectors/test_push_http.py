"""Pushing over HTTP: what clients are told."""

from __future__ import annotations

import json
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import boatlift as bl
from boatlift.http.admission import BearerToken, address_of
from boatlift.http.connections import Limits
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import Push
from support.push.server import request, serving
from support.push.source import Source
from support.waiting import until
from support.worlds.facts import Unsynced


def test_six_hundred_thousand_keys_later_a_push_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boatlift.storage.input_log.KEY_CHECKPOINT_AFTER", 1000)
    store = LocalStore.open(tmp_path, create=True, filesystem=Unsynced())
    with serving(tmp_path, source={"store": store}) as served:
        assert served.push(b'{"id": 1}', "Idempotency-Key: first").told["repeated"] is False
    log = InputLog(store, "0" * 32, "orders")
    log.claim(2, 0)
    for batch in range(1200):
        log.append([Push(f"{500 * batch + number:036}", 1, b"", 0) for number in range(500)], b"")
        log.remember(0)
    log.free(log.last, 0)
    assert not log.parts(0), "the rows are gone"
    assert log.keys.unpacked < 250_000 < 500_000 < len(log.keys)
    with serving(tmp_path, source={"store": store, "token": 3}) as served:
        assert served.push(b'{"id": 1}', "Idempotency-Key: first").told["repeated"] is True
        assert served.push(b'{"id": 2}', "Idempotency-Key: first").told["condition"] == "KEY_REUSED"
        assert served.push(b'{"id": 1}', f"Idempotency-Key: {599_999:036}").told["condition"] == "KEY_REUSED"
        url = f"http://127.0.0.1:{served.server.address[1]}/orders/keys"
        assert ask(f"{url}/first") == (200, {"rows": 1, "repeated": True, "stable": False})
        assert ask(f"{url}/{250_000:036}")[0] == 200
        assert ask(f"{url}/{600_000:036}")[0] == 404


def ask(url: str, body: bytes | None = None, key: str | None = None) -> tuple[int, dict[str, Any]]:
    headers: Any = {} if key is None else {"Idempotency-Key": key.encode()}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        refused = error
    assert (refused.headers["retry-after"] is not None) == (refused.code == 503)
    return refused.code, json.load(refused)


def test_pushes_count_by_their_status_with_the_time_to_their_answer(tmp_path: Path) -> None:
    def count() -> dict[str, int]:
        return {status: sum(each.counts) for status, each in served.server.pushes.items()}

    with serving(tmp_path, token=BearerToken("a-token-for-this-test")) as served:
        good = "Authorization: Bearer a-token-for-this-test"
        assert served.push().status == 401
        for number in range(3):
            assert served.push(b'{"id": %d}' % number, good).status == 200
        assert served.push(b'{"id": "x"}', good).status == 400
        assert ask(f"http://127.0.0.1:{served.server.address[1]}/orders/keys/k")[0] == 401, "this is no push"
        assert count() == {"401": 1, "200": 3, "400": 1}


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Source, str]]:
    made = Source(tmp_path, address=("127.0.0.1", 0))
    assert made.listens_at is not None
    yield made, "http://{}:{}/orders".format(*made.listens_at)
    made.close()


def test_http_says_what_became_of_rows(served: tuple[Source, str], tmp_path: Path) -> None:
    source, url = served
    assert ask(url, b'[{"id": 1}, {"id": 2}]', "k/1 é") == (200, {"rows": 2, "repeated": False, "stable": False})
    assert ask(url, b'{"id": 1}\n{"id": 2}', "k/1 é") == (200, {"rows": 2, "repeated": True, "stable": False})
    assert ask(url, b'{"id": 3}') == (200, {"rows": 1, "repeated": False, "stable": False})
    assert ask(f"{url}/keys/k/1%20%C3%A9")[0] == 200
    assert ask(f"{url}/keys/other") == (404, {"recorded": False})
    for body, key, status, condition in (
        (b'{"id": "x"}', None, 400, "BAD_ROW"),
        (b'{"id": 9}', "k/1 é", 422, "KEY_REUSED"),
        (b'{"id": 9}', "k" * 201, 400, "BAD_OPTION"),
        (b" " * (Limits().body_bytes + 1), None, 413, "PUSH_TOO_LARGE"),
        (b"{}" * (Limits().objects + 1), None, 413, "PUSH_TOO_LARGE"),
    ):
        found, told = ask(url, body, key)
        assert (found, told["condition"]) == (status, condition)
        assert told["message"]
    assert source.next(source.start())["rows"] == 3
    newer = Source(tmp_path, 2)
    assert ask(url, b'{"id": 4}')[0] == 503
    assert newer.next(newer.start())["rows"] == 3
    newer.close()


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", "/other", 404, set()),
        ("GET", "/", 404, set()),
        ("GET", "/orders", 405, {"POST"}),
        ("PUT", "/orders", 405, {"POST"}),
        ("DELETE", "/orders/keys/a", 405, {"GET", "HEAD"}),
    ],
)
def test_a_request_that_a_source_does_not_serve_is_answered_in_json(
    tmp_path: Path, method: str, path: str, status: int, allowed: set[str]
) -> None:
    with serving(tmp_path) as served:
        answer = served.ask(request(served.server).replace(b"POST /orders", f"{method} {path}".encode()))
        assert answer is not None
        assert (answer.status, answer.told["condition"]) == (status, "NOT_SERVED")
        assert "POST /orders and GET /orders/keys/KEY" in answer.told["message"]
        assert answer.headers["content-type"] == "application/json"
        assert set(filter(None, answer.headers.get("allow", "").split(", "))) == allowed


@pytest.mark.parametrize("package", ["httptools", "starlette", "uvicorn"])
def test_a_package_that_http_lacks_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        bl.InvalidError, match=rf"\[MISSING_EXTRA\] HTTP needs {package}: pip install 'boatlift\[web\]'"
    ):
        address_of("127.0.0.1:8080")


def test_a_client_that_waits_for_stability_gets_an_answer_at_the_end(tmp_path: Path) -> None:
    source = Source(tmp_path, address=("127.0.0.1", 0), until_stable=True)
    url = "http://{}:{}/orders".format(*source.listens_at)
    told: list[tuple[int, dict[str, Any]]] = []
    client = threading.Thread(target=lambda: told.append(ask(url, b'{"id": 1}', "a")))
    client.start()
    until(lambda: source.next(source.start()))
    source.close()
    client.join(30)
    assert told == [(200, {"rows": 1, "repeated": False, "stable": False})]


def test_a_client_that_leaves_in_the_middle_disturbs_no_other(served: tuple[Source, str]) -> None:
    source, url = served
    with socket.create_connection(source.listens_at) as gone:
        gone.sendall(
            b'POST /orders HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: 100\r\n\r\n{"id":' % gone.getpeername()[1]
        )
    assert ask(url, b'{"id": 1}')[0] == 200
    assert ask(url, b'{"id": 1, "item": "%s"}' % (b"x" * 100_000))[0] == 200, "a large one is parsed elsewhere"


def test_an_unexpected_error_is_answered_in_json(
    served: tuple[Source, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    source, url = served
    monkeypatch.setattr(source, "put_json", lambda *_: 1 / 0)
    status, told = ask(url, b'{"id": 1}')
    assert (status, told["condition"]) == (500, "INTERNAL")
    assert "ZeroDivisionError" in caplog.text


def test_an_address_in_use_is_an_error(tmp_path: Path) -> None:
    told = r"\[LISTEN_FAILED\] orders cannot listen at 127.0.0.1:"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(bl.UnavailableError, match=told):
        Source(tmp_path, address=taken.getsockname()[:2])
    Source(tmp_path, 2).close()


def test_a_server_that_cannot_begin_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no loop")

    monkeypatch.setattr(uvicorn.Server, "startup", fails)
    with pytest.raises(bl.UnavailableError, match=r"\[LISTEN_FAILED\] orders cannot answer HTTP \(.*no loop"):
        Source(tmp_path, address=("127.0.0.1", 0))


def test_a_server_that_fails_later_is_an_error(served: tuple[Source, str], monkeypatch: pytest.MonkeyPatch) -> None:
    source, _ = served

    async def fails(*_: object) -> bool:
        raise RuntimeError("no loop")

    monkeypatch.setattr(uvicorn.Server, "on_tick", fails)
    assert source._server is not None
    source._server._thread.join(30)
    with pytest.raises(bl.UnavailableError, match=r"\[LISTEN_FAILED\] orders cannot answer HTTP \(.*no loop"):
        source.next(source.start())
