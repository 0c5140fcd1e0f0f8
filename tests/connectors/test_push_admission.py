"""Which requests a push server lets in: no web page's, none for another host, none without the token."""

from __future__ import annotations

import copy
import logging
import pickle
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.connectors.push.source import TOKEN_VARIABLE
from boatlift.http.admission import Admission, BearerToken, is_loopback
from support.push.server import Served, request, serving
from support.push.source import Source

SECRET = "s3cret-of.the~source"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


def refused(answer: Any, status: int, condition: str) -> bool:
    assert answer.headers["content-type"] == "application/json"
    assert answer.told["message"]
    return (answer.status, answer.told["condition"]) == (status, condition)


@pytest.mark.parametrize(
    "headers",
    [
        ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "Content-Type: text/plain"],
        ["Origin: http://evil.example"],
        ["Origin: null"],
        ["ORIGIN: http://LOCALHOST:1"],
        ["Origin: http://localhost:{port}", "Origin: http://evil.example"],
        ["Origin: http://localhost.evil.example:{port}"],
        ["Origin:"],
        ["Sec-Fetch-Site: cross-site"],
        ["sec-fetch-site: Same-Site"],
    ],
    ids=str,
)
def test_a_web_page_of_another_site_is_refused(served: Served, headers: list[str]) -> None:
    given = [header.format(port=served.server.address[1]) for header in headers]
    assert refused(served.push(b'{"id": 1}', *given), 403, "CROSS_SITE")
    get = request(served.server, b"", *given).replace(b"POST /orders", b"GET /orders/keys/a")
    assert refused(served.ask(get), 403, "CROSS_SITE")
    preflight = request(served.server, b"", *given).replace(b"POST", b"OPTIONS")
    assert refused(served.ask(preflight), 403, "CROSS_SITE")
    assert served.recorded == 0


@pytest.mark.parametrize(
    "headers", [["Sec-Fetch-Site: none"], ["Sec-Fetch-Site: same-origin", "Origin: http://localhost:{port}"]], ids=str
)
def test_a_request_of_no_other_site_is_let_in(served: Served, headers: list[str]) -> None:
    given = [header.format(port=served.server.address[1]) for header in headers]
    assert served.push(b'{"id": 1}', *given).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:{port}", "evil.example", "localhost", "localhost:1", "localhost.evil.example:{port}",
        "10.0.0.1:{port}",
        "127.0.0.1.evil.example:{port}", "0.0.0.0:{port}", "[::2]:{port}", "localhost:99999",
    ],
)  # fmt: skip
def test_a_request_for_another_host_is_refused_on_a_loopback_address(served: Served, host: str) -> None:
    given = host.format(port=served.server.address[1])
    assert refused(served.ask(request(served.server, host=given)), 403, "CROSS_SITE")
    assert served.recorded == 0


@pytest.mark.parametrize(
    "host", ["localhost:{port}", "LOCALHOST:{port}", "127.0.0.1:{port}", "127.8.8.8:{port}", "[::1]:{port}"]
)
def test_a_request_for_a_loopback_host_is_let_in(served: Served, host: str) -> None:
    assert served.ask(request(served.server, host=host.format(port=served.server.address[1]))).status == 200


@pytest.mark.parametrize("host", ["a b", "a:b", "[::1", "user@localhost:{port}", "localhost:{port}, evil", "::1", " "])
def test_a_host_that_is_none_is_refused(served: Served, host: str) -> None:
    given = host.format(port=served.server.address[1])
    assert refused(served.ask(request(served.server, host=given)), 400, "BAD_REQUEST")


def test_http_1_1_needs_one_host_and_http_1_0_none(served: Served) -> None:
    assert refused(served.ask(request(served.server, host="")), 400, "BAD_REQUEST")
    twice = request(served.server, b"{}", f"Host: localhost:{served.server.address[1]}")
    assert refused(served.ask(twice), 400, "BAD_REQUEST")
    old = request(served.server, host="").replace(b"HTTP/1.1", b"HTTP/1.0")
    assert served.ask(old).status == 200
    assert refused(served.ask(old.replace(b"Content", b"Origin: http://localhost\r\nContent")), 403, "CROSS_SITE")


def test_an_address_of_ipv6_is_served(tmp_path: Path) -> None:
    with serving(tmp_path, "::1") as served:
        port = served.server.address[1]
        assert served.server.url == f"http://[::1]:{port}/orders"
        assert served.ask(request(served.server, host=f"[::1]:{port}")).status == 200
        assert refused(served.ask(request(served.server, host=f"evil:{port}")), 403, "CROSS_SITE")


def test_beyond_loopback_a_name_may_be_a_page_of_anyone() -> None:
    """A page whose name resolves to this machine has the same origin for its browser, but no address or token."""

    def lets_in(host: bytes, token: BearerToken | None = None, **told: bytes) -> bool:
        headers = [(b"host", host), *((name.replace("_", "-").encode(), value) for name, value in told.items())]
        if token is not None:
            headers.append((b"authorization", b"Bearer " + SECRET.encode()))
        admission = Admission(("0.0.0.0", 80), token, instead="push from a program", with_token="send it")
        if told.keys() & {"origin", "sec_fetch_site"}:
            admission.check([each for each in headers if each[0] in (b"host", b"authorization")])
        try:
            admission.check(headers)
        except bl.InvalidError as error:
            return error.condition != "CROSS_SITE"
        return True

    assert lets_in(b"any.example")
    assert not lets_in(b"any.example", origin=b"http://any.example")
    assert not lets_in(b"any.example", sec_fetch_site=b"same-origin")
    assert lets_in(b"any.example", BearerToken(SECRET), origin=b"https://any.example", sec_fetch_site=b"same-origin")
    assert lets_in(b"10.0.0.1", origin=b"http://10.0.0.1")
    assert not lets_in(b"10.0.0.1", BearerToken(SECRET), origin=b"http://evil.example")


def test_loopback_addresses_are_known() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "::", "10.0.0.1", "fe80::1", "localhost", "127.0.0.1.evil", ""]))


# -- the token --------------------------------------------------------------------------------------------------------


def test_a_request_has_the_token_or_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path, token=BearerToken(SECRET)) as served:
        for given in (
            [], ["Authorization: Bearer wrong"], ["Authorization: Bearer"], [f"Authorization: Basic {SECRET}"],
            [f"Authorization: {SECRET}"], [f"Authorization: Bearer {SECRET}x"],
            [f"Authorization: Bearer {SECRET[:-1]}"],
            [f"Authorization: Bearer {SECRET.upper()}"], [f"Authorization: Bearer {SECRET} {SECRET}"],
            [f"Authorization: Bearer {SECRET}", "Authorization: Bearer wrong"], ["Authorization: Bearer s\xe9cret"],
        ):  # fmt: skip
            answer = served.push(b'{"id": 1}', *given)
            assert refused(answer, 401, "BAD_TOKEN")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert SECRET not in str(answer)
            get = request(served.server, b"", *given).replace(b"POST /orders", b"GET /orders/keys/a")
            assert refused(served.ask(get), 401, "BAD_TOKEN")
        assert served.recorded == 0
        assert served.push(b'{"id": 1}', f"Authorization: Bearer {SECRET}").status == 200
        assert served.push(b'{"id": 2}', f"authorization: bearer  {SECRET}").status == 200
        served.source.put(3)
        assert served.recorded == 3, "a push from Python needs none"


def test_a_token_is_of_the_option_or_else_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def fits(source: Any, text: str) -> bool | None:
        return None if source._bearer is None else source._bearer.fits(b"Bearer " + text.encode())

    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert fits(bl.push("id LONG", listen="127.0.0.1:0"), SECRET) is None
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-environment")
    assert fits(bl.push("id LONG", listen="127.0.0.1:0"), "of-the-environment")
    assert fits(bl.push("id LONG", listen="127.0.0.1:0", token=SECRET), SECRET)
    assert not fits(bl.push("id LONG", listen="127.0.0.1:0", token=SECRET), "of-the-environment")
    assert fits(bl.push("id LONG"), SECRET) is None


@pytest.mark.parametrize("token", ["", " ", "two words", "new\nline", "é", "a\x7f", 5, b"bytes", "fifteen-letters"])
def test_a_token_that_is_short_or_that_no_header_can_carry_is_refused_unseen(
    token: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] token ") as caught:
        bl.push("id LONG", listen="127.0.0.1:0", token=token)
    assert str(token) not in caught.value.message.replace(" ", "") or not str(token).strip()
    if isinstance(token, str):
        monkeypatch.setenv(TOKEN_VARIABLE, token)
        with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] {TOKEN_VARIABLE} "):
            bl.push("id LONG", listen="127.0.0.1:0")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]"):
        bl.push("id LONG", token="a-token-for-nothing")


def test_a_short_token_is_refused_with_the_way_to_make_one() -> None:
    with pytest.raises(bl.InvalidError, match=r"15 characters") as caught:
        bl.push("id LONG", listen="127.0.0.1:0", token="fifteen-letters")
    command = shlex.split(caught.value.message.split("`")[1])
    made = subprocess.run([sys.executable, *command[1:]], capture_output=True, text=True, check=True).stdout.strip()
    bl.push("id LONG", listen="127.0.0.1:0", token=made)


def test_a_token_is_shown_nowhere(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    source = Source(tmp_path, address=("127.0.0.1", 0), bearer=BearerToken(SECRET))
    described = str([source.describe(), repr(source), vars(source), vars(source._server), source._bearer])
    source.put(1)
    source.close()
    bare = bl.push("id LONG", listen="127.0.0.1:0")
    assert bl.push("id LONG", listen="127.0.0.1:0", token=SECRET).describe() == bare.describe()
    assert SECRET not in described + caplog.text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    for copied in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError):
            copied(BearerToken(SECRET))


# -- what is said at the start ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listen", "token", "warned"),
    [("0.0.0.0", None, True), ("::", None, True), ("0.0.0.0", SECRET, False), ("127.0.0.1", None, False),
     ("::1", None, False)],
)  # fmt: skip
def test_a_server_that_every_program_reaches_warns_if_it_has_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, listen: str, token: str | None, warned: bool
) -> None:
    caplog.set_level(logging.INFO)
    with serving(tmp_path, listen, token=token and BearerToken(token)) as served:
        assert f"orders: listening on {served.server.url}" in caplog.text
        assert str(served.server.address[1]) in served.server.url
    said = "orders takes rows from every program that reaches "
    assert [record.levelname for record in caplog.records if record.getMessage().startswith(said)] == (
        ["WARNING"] if warned else []
    )
