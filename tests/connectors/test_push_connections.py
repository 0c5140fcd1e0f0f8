"""What clients of a push server take: connections, time, memory. None of them keeps the others out."""

from __future__ import annotations

import contextlib
import resource
import time
from pathlib import Path
from typing import Any

import pytest

from boatlift.http.connections import Limits, most_connections
from support.push.server import Client, Served, request, serving
from support.waiting import until

HALF = b"POST /orders HTTP/1.1\r\nHost: localho"


def busy(answer: Any) -> bool:
    return answer.status == 503 and answer.headers["retry-after"] == "1" and answer.told["condition"] == "SERVER_BUSY"


def too_slow(answer: Any) -> bool:
    assert answer.headers["retry-after"] == "1"
    return (answer.status, answer.told["condition"], answer.headers["connection"]) == (408, "TOO_SLOW", "close")


def phase(served: Served) -> str:
    """What the only client sends next."""
    return served.connection()._phase.name


def half_body(served: Served, size: int = 100_000, sent: int = 70_000) -> Client:
    client = served.client()
    whole = request(served.server, b" " * size)
    client.send(whole[: len(whole) - size + sent])
    return client


def test_a_client_is_served_while_a_thousand_others_are_half_open(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    with serving(tmp_path, connections=1000, leaving=1000) as served:
        others = [served.client() for _ in range(1010)]
        for each in others[:-10]:
            each.send(HALF)
        for number in range(20):
            answer = served.push(b'{"id": %d}' % number)
            assert answer is not None
            assert answer.status == 200, "it was kept out"
        assert busy(others[0].answer()), "the client that was silent longest reads why it has to go"
        assert others[0].ended()
        for each in others:
            each.close()
        assert served.recorded == 20


@pytest.mark.parametrize("sent", [HALF, b"POST /orders HT", b"GET /orders/keys/a HTTP/1.1\r\nX: y\r\n"])
def test_headers_that_do_not_come_end_the_connection(tmp_path: Path, sent: bytes) -> None:
    with serving(tmp_path, head_seconds=10) as served:
        client = served.client()
        client.send(sent)
        until(lambda: phase(served) == "HEAD")
        served.let_pass(9)
        assert phase(served) == "HEAD", "there is time left"
        served.let_pass(2)
        assert too_slow(client.answer())
        assert client.ended()


@pytest.mark.parametrize("drop", [b"a", b"X-A: b\r\n"])
def test_headers_that_come_bit_by_bit_end_the_connection(tmp_path: Path, drop: bytes) -> None:
    with serving(tmp_path, head_seconds=10) as served:
        client = served.client()
        client.send(HALF + b"\r\n")
        until(lambda: phase(served) == "HEAD")
        connection = served.connection()
        for number in range(1, 12):
            client.send(drop)
            until(lambda number=number: connection._unparsed == number * len(drop))
            served.let_pass(1)
        assert too_slow(client.answer())


@pytest.mark.parametrize("sent", [b"", b"\r\n\r\n"])
def test_a_connection_that_begins_no_request_ends(tmp_path: Path, sent: bytes) -> None:
    with serving(tmp_path, head_seconds=10) as served:
        client = served.client()
        client.send(sent)
        until(lambda: served.connection()._unparsed == len(sent))
        served.let_pass(11)
        assert client.ended()


@pytest.mark.parametrize("after", [b"", b"\r\n"])
def test_a_connection_that_is_idle_after_an_answer_ends(tmp_path: Path, after: bytes) -> None:
    with serving(tmp_path, idle_seconds=10, head_seconds=10) as served:
        served.server._server.config.timeout_keep_alive = 600  # which uvicorn forgets after some answers
        client = served.client()
        client.send(request(served.server))
        assert client.answer().status == 200
        client.send(after)
        until(lambda: phase(served) == ("NOTHING" if after else "ANSWERED"))
        served.let_pass(9)
        assert phase(served) != "LEAVING", "there is time left"
        served.let_pass(2)
        assert client.ended()


def test_time_passes_by_itself(tmp_path: Path) -> None:
    with serving(tmp_path, clock=time.monotonic, head_seconds=0.2) as served:
        assert served.client().ended()


def test_a_body_that_stops_coming_ends_the_connection(tmp_path: Path) -> None:
    with serving(tmp_path, body_seconds=10, body_rate=10_000) as served:
        client = half_body(served)
        until(lambda: served.server._bodies._under_way == 70_000)
        served.let_pass(9)
        assert phase(served) == "BODY", "there is time left"
        served.let_pass(2)
        assert too_slow(client.answer())
        assert client.ended()
        until(lambda: served.server._bodies._under_way == 0)
        assert served.recorded == 0


def test_bodies_that_lack_a_few_bytes_keep_no_other_out_for_long(tmp_path: Path) -> None:
    """Eight of them have all bytes of bodies."""
    size, rest = 1 << 20, 6
    with serving(tmp_path, body_bytes=size, bodies_bytes=8 * size, body_rate=4096) as served:
        large = b'{"id": 1}' + b" " * 100_000
        clients = [half_body(served, size, size - rest) for _ in range(8)]
        until(lambda: served.server._bodies._under_way == 8 * (size - rest))
        assert busy(served.push(large))
        served.let_pass(9)
        for client in clients[:rest]:
            client.send(b" ")
        until(lambda: served.server._bodies._under_way == 8 * (size - rest) + rest)
        served.let_pass(9)
        assert [too_slow(client.answer()) for client in clients[rest:]] == [True, True]
        served.let_pass(2)
        assert all(too_slow(client.answer()) for client in clients[:rest])
        until(lambda: served.server._bodies._under_way == 0)
        assert served.push(large).status == 200


def test_a_body_that_comes_slowly_but_steadily_is_taken(tmp_path: Path) -> None:
    with serving(tmp_path, body_seconds=1, body_rate=1000) as served:
        client = served.client()
        body = b'{"id": 1}' + b" " * 9_000
        client.send(request(served.server, body)[: -len(body)])
        for at in range(0, len(body), 500):
            client.send(body[at : at + 500])
            come = min(at + 500, len(body))
            until(lambda come=come: served.connection()._body == come)
            served.let_pass(0.4)  # more than body_seconds in all, and faster than the rate
        assert client.answer().status == 200


def test_an_answer_that_takes_long_ends_no_connection(tmp_path: Path) -> None:
    with serving(tmp_path, connections=2, source={"until_stable": True}) as served:
        clients = [served.client() for _ in range(2)]
        for number, client in enumerate(clients):
            client.send(request(served.server, b'{"id": %d}' % number))
        position = until(lambda: (made := served.source.next(served.source.start())) and made["rows"] == 2 and made)
        for client in clients:
            client.send(b"\r\n")
        until(lambda: [each._phase.name for each in served.connections] == ["NOTHING"] * 2)
        assert busy(served.push()), "both places are of clients that wait for answers, and stay theirs"
        for _ in range(3):
            served.let_pass(60)  # several times all bounds
        served.source.acknowledge(position)
        assert [client.answer().told["stable"] for client in clients] == [True, True]


def test_bodies_under_way_are_bounded_in_sum(tmp_path: Path) -> None:
    with serving(tmp_path, bodies_bytes=400_000) as served:
        others = [half_body(served) for _ in range(4)]
        until(lambda: served.server._bodies._under_way >= 280_000)
        large = b'{"id": 1}' + b" " * 150_000
        assert busy(served.push(large))
        assert busy(served.push(large, "Expect: 100-continue")), "it need not send its body to hear of it"
        chunked = served.client()
        chunked.send(request(served.server).partition(b"Content")[0] + b"Transfer-Encoding: chunked\r\n\r\n")
        chunked.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(large), large))
        assert busy(chunked.answer())
        assert served.push().status == 200, "a small one finds room"
        for each in others:
            each.close()
        until(lambda: served.server._bodies._under_way == 0)
        assert served.push(large).status == 200


def test_a_body_that_is_declared_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    with serving(tmp_path, body_bytes=1000) as served:
        client = served.client()
        client.send(request(served.server, b" " * 1001, "Expect: 100-continue")[:-1001])
        answer = client.answer()
        assert (answer.status, answer.told["condition"]) == (413, "PUSH_TOO_LARGE")
        endless = served.client()
        endless.send(request(served.server).partition(b"Content")[0] + b"Transfer-Encoding: chunked\r\n\r\n")
        endless.send(b"7ff\r\n%s\r\n" % (b" " * 0x7FF))
        answer = endless.answer()
        assert (answer.status, answer.told["condition"]) == (413, "PUSH_TOO_LARGE"), "it never ends"
        assert endless.ended()


@pytest.mark.parametrize(
    "headers",
    [
        [f"X-{number}: 1" for number in range(20_000)],
        ["X: 1"] * 101,
        ["X: " + "y" * (1 << 20)],
        ["X" * (1 << 20) + ": y"],
        ["Cookie: " + "y" * 20_000] * 2,
    ],
    ids=["many", "many short", "long", "long name", "in sum"],
)
def test_headers_are_bounded(tmp_path: Path, headers: list[str]) -> None:
    with serving(tmp_path) as served:
        answer = served.push(b"{}", *headers)
        assert (answer.status, answer.told["condition"]) == (431, "HEADERS_TOO_LARGE")
        assert served.push().status == 200
        assert served.recorded == 1


@pytest.mark.parametrize("where", [b"GET /", b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"1;", b"0\r\nX: "])
def test_what_never_ends_is_refused_however_long_it_may_take(tmp_path: Path, where: bytes) -> None:
    """One long field of a head, a chunk or a trailer: the parser would join its parts again and again."""
    with serving(tmp_path) as served:
        client = served.client()
        if not where.startswith(b"GET"):
            client.send(request(served.server).partition(b"Content")[0] + b"Transfer-Encoding: chunked\r\n\r\n")
        client.send(where)
        for _ in range(16):
            client.send(b"a" * (1 << 16))
        answer = client.answer()
        assert (answer.status, answer.told["condition"]) == (431, "HEADERS_TOO_LARGE")


def test_requests_that_come_ahead_are_bounded_and_answered_in_order(tmp_path: Path) -> None:
    with serving(tmp_path, pipelined=5) as served:
        client = served.client()
        client.send(b"".join(request(served.server, b"{}" if n == 3 else b'{"id": %d}' % n) for n in range(100)))
        found = []
        while (answer := client.answer()) is not None:
            found.append(answer)
        assert [each.status for each in found] == [200, 200, 200, 400, 200, 200]
        assert [each.headers.get("connection") for each in found] == [None] * 5 + ["close"]
        assert served.recorded == 5


def test_what_follows_a_whole_request_and_is_none_does_not_harm_it(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        for junk in (b"junk\r\n\r\n", request(served.server)[:-3], b"\x16\x03\x01"):
            client = served.client()
            client.send(request(served.server) + junk)
            assert client.answer().status == 200
            client.close()


def test_a_client_that_reads_no_answers_is_left(tmp_path: Path) -> None:
    endless: Any = dict.fromkeys(("head_seconds", "body_seconds", "idle_seconds"), 10**9)
    with serving(tmp_path, write_seconds=10, **endless) as served:
        served.server._server.config.timeout_keep_alive = 600
        client = served.client()
        served.connection()
        client.socket.setblocking(False)
        long_answer = request(served.server, b'{"%s": 1}' % (b"x" * 500_000))  # which names the field
        rest = b""

        def is_left() -> bool:
            nonlocal rest
            rest = rest or long_answer
            with contextlib.suppress(OSError):  # there is no room, or the connection is reset
                rest = rest[client.socket.send(rest) :]
            served.let_pass(1)
            return not served.connections

        until(is_left)
        client.close()


def test_bytes_that_are_no_http_are_answered_in_json(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        answer = served.ask(b"\x16\x03\x01 hello\r\n\r\n")
        assert (answer.status, answer.told["condition"]) == (400, "BAD_REQUEST")
        wrong = served.client()
        wrong.send(request(served.server).partition(b"Content")[0] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        answer = wrong.answer()
        assert (answer.status, answer.told["condition"]) == (400, "BAD_REQUEST")


def test_another_protocol_is_not_begun(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        for asked in ("websocket", "h2c"):
            answer = served.push(b'{"id": 1}', "Connection: Upgrade", f"Upgrade: {asked}", "Sec-WebSocket-Key: x")
            assert answer.status == 200
            assert answer.headers["connection"] == "close"


def test_close_waits_for_no_client_and_refuses_what_is_not_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path, bodies_bytes=10**9) as served:
        served.server._server.config.timeout_graceful_shutdown = 60
        bodies = [half_body(served, 16 << 20, 1 << 20) for _ in range(20)]
        halves = [served.client() for _ in range(20)]
        for each in halves:
            each.send(HALF)
        until(lambda: served.server._bodies._under_way == 20 << 20)
        until(lambda: len(served.server._server.server_state.connections) == 40)
        served.server.close()
        assert "graceful" not in caplog.text, "it had to give up waiting"
        for each in bodies:
            answer = each.answer()
            assert answer is None or (answer.status, answer.told["condition"]) == (503, "NOT_RUNNING")


def test_as_many_connections_as_half_the_files_that_may_be_open() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert Limits().connections <= 1000
    resource.setrlimit(resource.RLIMIT_NOFILE, (700, hard))
    try:
        assert most_connections() == 350
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
