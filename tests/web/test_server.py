"""What the console answers, whom it answers, and what a browser may do with it."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import boatlift as bl
from boatlift.metrics.prometheus import CONTENT_TYPE
from boatlift.web.server import HEADERS, POLICY, PORTS, TOKEN_VARIABLE, listener_at, refuse_open_console
from support.console import Asked, Reader, consoling
from support.engine.hosts import crashed
from support.metrics import scraped

ASSETS = ["/", "/style.css", "/picture.css", "/mark.svg", "/js/main.js"]


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    crashed(tmp_path)
    with consoling(tmp_path) as made:
        yield made


def refused(answer: Asked, status: int, condition: str) -> bool:
    assert answer.json["message"]
    return (answer.status, answer.json["condition"]) == (status, condition)


@pytest.mark.parametrize("path", ASSETS)
def test_the_page_needs_no_token_and_names_files_of_its_own_alone(reader: Reader, path: str) -> None:
    answer = reader.ask(path, token="")
    assert answer.status == 200
    assert re.findall(rb"""(?:src|href)="(?!#)([^"]*)"|from "([^"]*)"|url\(([^)]*)\)""", answer.body) is not None
    assert b"http://" not in answer.body.replace(b"http://www.w3.org/", b"")
    assert b"https://" not in answer.body


def test_every_file_that_the_page_names_is_served(reader: Reader) -> None:
    page = reader.ask("/", token="").body.decode()
    named = re.findall(r'(?:src|href)="([^"#]+)"', page)
    modules = {"js/main.js"}
    while True:
        found = {
            f"js/{name}"
            for each in modules
            for name in re.findall(r'from "\./([^"]+)"', reader.ask(f"/{each}").body.decode())
        }
        if found <= modules:
            break
        modules |= found
    assert len(modules) > 5
    for name in [*named, *modules]:
        assert reader.ask(f"/{name}", token="").status == 200, name


@pytest.mark.parametrize("path", ["/", "/api/v1/status", "/metrics", "/healthz", "/nothing", "/api/v1/nothing"])
def test_every_answer_forbids_what_no_page_needs(reader: Reader, path: str) -> None:
    answer = reader.ask(path)
    assert answer.headers["content-security-policy"] == POLICY
    for name, value in HEADERS:
        assert answer.headers[name.decode()] == value.decode()
    assert "set-cookie" not in answer.headers
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "path", ["/api/v1/status", "/api/v1/snapshot", "/api/v1/nothing", "/api/v1/events", "/metrics"]
)
def test_a_document_needs_the_token(reader: Reader, path: str) -> None:
    assert refused(reader.ask(path, token=""), 401, "BAD_TOKEN")
    assert refused(reader.ask(path, token="another-token-of-theirs"), 401, "BAD_TOKEN")
    assert refused(reader.ask(f"{path}?token={reader.token}", token=""), 401, "BAD_TOKEN")
    assert refused(reader.ask(path, token="", Cookie=f"token={reader.token}"), 401, "BAD_TOKEN")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example"},
        {"Host": "localhost:1"},
    ],
    ids=str,
)
@pytest.mark.parametrize("path", ["/", "/api/v1/status", "/healthz"])
def test_a_page_of_another_site_and_a_request_for_another_host_are_refused(
    reader: Reader, path: str, headers: dict[str, str]
) -> None:
    assert refused(
        reader.ask(path, **{name.replace("-", "_"): value for name, value in headers.items()}), 403, "CROSS_SITE"
    )


def test_its_own_page_is_let_in(reader: Reader) -> None:
    own = {"Origin": f"http://localhost:{reader.address[1]}", "Host": f"localhost:{reader.address[1]}"}
    assert reader.ask("/api/v1/status", Sec_Fetch_Site="same-origin", **own).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
@pytest.mark.parametrize("path", ["/", "/api/v1/status", "/api/v1/events", "/metrics"])
def test_nothing_can_be_changed(reader: Reader, method: str, path: str) -> None:
    answer = reader.ask(path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "path", ["/../server.py", "/js/../../server.py", "/js/%2e%2e/%2e%2e/server.py", "/js/", "//", "/page"]
)
def test_no_other_file_is_served(reader: Reader, path: str) -> None:
    assert refused(reader.ask(path), 404, "NOT_SERVED")


def test_metrics_are_text_for_prometheus(reader: Reader) -> None:
    answer = reader.ask("/metrics")
    assert (answer.status, answer.headers["content-type"]) == (200, CONTENT_TYPE)
    status = reader.document("status")
    steps = {each["sink"]: each.value for each in scraped(answer.body) if each.name == "boatlift_sink_visible_step"}
    assert steps == status["sinks"]
    assert reader.ask("/metrics/").status == reader.ask("/metricsx").status == 404


def test_an_equal_document_is_not_sent_again(reader: Reader) -> None:
    first = reader.ask("/api/v1/steps")
    again = reader.ask("/api/v1/steps", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_an_error_of_the_store_is_told_with_its_condition(tmp_path: Path, reader: Reader) -> None:
    newest = max((tmp_path / "log").iterdir())
    newest.chmod(0o644)
    newest.write_bytes(b"damaged")
    assert refused(reader.ask("/api/v1/snapshot"), 500, "CORRUPT")
    assert refused(reader.ask("/api/v1/explain?fail=nobody"), 500, "CORRUPT")
    assert reader.ask("/").status == 200


def test_a_token_of_the_environment_is_not_in_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed(tmp_path)
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token-of-my-own")
    with consoling(tmp_path) as reader:
        assert reader.console.url == f"http://127.0.0.1:{reader.address[1]}/"
        assert reader.ask("/api/v1/status", token="a-token-of-my-own").status == 200


def test_an_address_that_others_see_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    refuse_open_console(("127.0.0.1", 1))
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] the console at 0.0.0.0:1 .* into {TOKEN_VARIABLE}"):
        refuse_open_console(("0.0.0.0", 1))
    monkeypatch.setenv(TOKEN_VARIABLE, "a-token-of-my-own")
    refuse_open_console(("0.0.0.0", 1))


def test_a_port_that_is_taken_is_left_for_the_next_free_one() -> None:
    said: list[str] = []
    with listener_at(("127.0.0.1", 0), said.append) as taken:
        port = taken.getsockname()[1]
        with listener_at(("127.0.0.1", port), said.append) as other:
            assert port < other.getsockname()[1] < port + PORTS
            assert said == [f"port {port} of 127.0.0.1 is taken: the console takes {other.getsockname()[1]}"]


def test_ten_ports_that_are_taken_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[socket.socket] = []
    try:
        for port in range(65535 - PORTS, 65536):  # what is taken already is as good
            try:
                taken.append(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
        with pytest.raises(
            bl.BoatliftError, match=r"\[LISTEN_FAILED\] ports 65526 to 65535 of 127.0.0.1 are taken: give another"
        ):
            listener_at(("127.0.0.1", 65526), print)
    finally:
        for each in taken:
            each.close()


def test_an_address_of_another_machine_is_told_at_once() -> None:
    with pytest.raises(bl.BoatliftError, match=r"\[LISTEN_FAILED\] the console cannot listen at 192.0.2.1:80"):
        listener_at(("192.0.2.1", 80), print)
