"""The server of a standby: it sends clients to the owner, or tells them to wait, and then takes rows itself."""

from __future__ import annotations

import socket
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import urllib3

import boatlift as bl
from boatlift.connectors.push.source import PushSource
from boatlift.http.admission import BearerToken
from boatlift.storage.input_log import InputLog
from boatlift.storage.local import LocalStore
from boatlift.testing.loopback import ReservedPort
from support.push.source import SCHEMA, Source

BODY, KEY = b'{"id": 1}', {"Idempotency-Key": "k"}


@pytest.fixture
def port() -> Iterator[int]:
    with ReservedPort() as reserved:
        yield reserved.number


def standby_at(port: int, **options: Any) -> PushSource:
    """A source that was not reserved yet."""
    address = ("127.0.0.1", port)
    return PushSource(SCHEMA, address, False, timedelta(days=1), 100, 10**6, **options)


def asked(port: int, method: str = "POST", path: str = "/orders", **headers: str) -> urllib3.BaseHTTPResponse:
    body = BODY if method == "POST" else None
    return urllib3.request(
        method, f"http://127.0.0.1:{port}{path}", body=body, headers={**KEY, **headers}, redirect=False, timeout=30
    )


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_a_client_is_sent_to_the_owner_or_told_to_wait(port: int) -> None:
    with closing(standby_at(port)) as source:
        source.redirect("orders", "http://10.0.0.7:8080")
        for method, path in (("POST", "/orders"), ("GET", "/orders/keys/a%2Fb%20c"), ("POST", "/orders?x=%20y")):
            answer = asked(port, method, path)
            assert (answer.status, answer.headers["Location"]) == (307, f"http://10.0.0.7:8080{path}")
            assert answer.json() == {"owner": "http://10.0.0.7:8080"}
        source.redirect("orders", "http://10.0.0.8:8080")
        assert asked(port).headers["Location"] == "http://10.0.0.8:8080/orders"
        source.redirect("orders", "")
        answer = asked(port)
        assert (answer.status, answer.json()["condition"]) == (503, "NOT_RUNNING")
        assert int(answer.headers["Retry-After"]) > 0
        source.redirect("orders", None)
        assert is_free(port)
        source.redirect("orders", "")
        assert is_free(port), "nobody owns the dataflow: the next owner may be on this host"


def test_a_redirect_is_for_those_who_may_push(port: int) -> None:
    with closing(standby_at(port, bearer=BearerToken("a.token.of.sixteen"))) as source:
        source.redirect("orders", "http://10.0.0.7:8080")
        assert asked(port).status == 401
        assert asked(port, Authorization="Bearer a.token.of.sixteen").status == 307
        assert asked(port, Authorization="Bearer a.token.of.sixteen", Origin="http://evil").status == 403


def test_the_body_is_read_before_the_answer(port: int) -> None:
    """A client that writes all before it reads anything would else be reset."""
    with closing(standby_at(port)) as source:
        source.redirect("orders", "http://10.0.0.7:8080")
        large = b" " * (8 << 20) + BODY
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(
                b"POST /orders HTTP/1.1\r\nHost: localhost:%d\r\nContent-Length: %d\r\n\r\n" % (port, len(large))
            )
            client.sendall(large)
            assert client.recv(12) == b"HTTP/1.1 307"


def test_nothing_listens_where_the_owner_would(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(standby_at(port)) as source:
        assert source.advertised == f"http://127.0.0.1:{port}"
        source.redirect("orders", source.advertised)
        assert is_free(port)
        source.redirect("orders", "http://10.0.0.7:8080")
        assert not is_free(port)
        source.redirect("orders", source.advertised)
        assert is_free(port), "the owner of this host needs it"
    everywhere = PushSource(SCHEMA, ("0.0.0.0", port), False, timedelta(days=1), 100, 10**6)
    monkeypatch.setattr(socket, "gethostname", lambda: "vm-1")
    assert everywhere.advertised == f"http://vm-1:{port}"


def test_a_port_that_is_taken_is_left_alone_and_had_later(port: int) -> None:
    with closing(standby_at(port)) as first, closing(standby_at(port)) as second:
        for each in (first, second):
            each.redirect("orders", "http://10.0.0.7:8080")
        second.redirect("orders", "http://10.0.0.8:8080")
        assert asked(port).headers["Location"] == "http://10.0.0.7:8080/orders"
        first.close()
        second.redirect("orders", "http://10.0.0.8:8080")
        assert asked(port).headers["Location"] == "http://10.0.0.8:8080/orders"


def test_the_server_of_a_standby_takes_rows_once_it_owns_the_dataflow(port: int, tmp_path: Path) -> None:
    """It listens all the time: a client is redirected, waits, and is answered."""
    made = standby_at(port)
    store = LocalStore.open(tmp_path, create=True)
    refused, over = [], threading.Event()

    def knock() -> None:
        while not over.is_set():
            if is_free(port):
                refused.append(1)

    with closing(made) as source:
        source.redirect("orders", "http://10.0.0.7:8080")
        knocking = threading.Thread(target=knock)
        knocking.start()
        assert asked(port).status == 307
        source.redirect("orders", "")
        source.reserve("orders")
        assert asked(port).status == 503
        source.attach(InputLog(store, "0" * 32, "orders"))
        source.open(1, source.start(), source.start())
        answer = asked(port)
        over.set()
        knocking.join()
        assert (answer.status, answer.json()["rows"]) == (200, 1)
        assert not refused
        source.redirect("orders", "http://10.0.0.7:8080")
        assert asked(port).json()["repeated"] is True, "an owner redirects nobody"
    assert is_free(port)


def test_a_port_that_nobody_knows_is_not_opened(tmp_path: Path) -> None:
    with closing(standby_at(0)) as source:
        assert source.advertised == ""
        source.redirect("orders", "http://10.0.0.7:8080")
        assert source._server is None
    owner = Source(tmp_path, address=("127.0.0.1", 0))
    assert owner.advertised == "http://127.0.0.1:{}".format((owner.listens_at or ("", 0))[1])
    owner.close()


def test_the_advertised_url_is_the_users(port: int) -> None:
    given = standby_at(port, advertise="https://pushes.example/one")
    assert given.advertised == "https://pushes.example/one"
    source = bl.push("id LONG", listen="0.0.0.0:8080", advertise="http://10.0.0.7:80/")
    assert source.advertised == "http://10.0.0.7:80"
    for wrong in ("10.0.0.7:80", "http://", "ftp://x", "http://a b", "http://x\r\nSet-Cookie: y", "", 7):
        with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] advertise is .*: give the URL of this process"):
            bl.push("id LONG", listen="0.0.0.0:8080", advertise=wrong)  # type: ignore[arg-type]
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] advertise is for requests over HTTP"):
        bl.push("id LONG", advertise="http://10.0.0.7:80")


def test_a_client_that_follows_redirects_pushes_once(port: int, tmp_path: Path) -> None:
    owner = Source(tmp_path, address=("127.0.0.1", 0))
    with closing(standby_at(port)) as source:
        source.redirect("orders", owner.advertised)
        for repeated in (False, True):
            answer = urllib3.request("POST", f"http://127.0.0.1:{port}/orders", body=BODY, headers=KEY, timeout=30)
            assert (answer.status, answer.json()) == (200, {"rows": 1, "repeated": repeated, "stable": False})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/orders/keys/k", timeout=30) as found:
            assert b'"rows":1' in found.read()
    owner.close()
