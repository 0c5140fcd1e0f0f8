"""The handshake between processes of one dataflow, and the owner's end: strangers learn nothing and hold nobody up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing

import msgspec
import pytest

import boatlift as bl
from boatlift.runtime.peers import channel, owner
from boatlift.runtime.peers.channel import (
    Answered,
    Beat,
    HandoverAsked,
    Hello,
    PeerConnection,
    StrangerError,
    connect,
    is_loopback,
    split,
)
from boatlift.runtime.peers.owner import STRANGERS, OwnerLink, StandbyReport
from support.waiting import until

SECRET, STORE, FLOW = b"s" * 32, "5" * 32, "flow"
BEATS = Beat(7, 42)


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def link(asked: list[str]) -> Iterator[OwnerLink]:
    with closing(OwnerLink(lambda: asked.append("stop"))) as made:
        made.begin(SECRET, STORE, FLOW, lambda: BEATS)
        yield made


def hello(role: str = "standby", pid: int = 1, **more: object) -> Hello:
    return Hello(role, STORE, FLOW, "here", pid, f"life {pid}", **{"number": 40, "ready": True, **more})  # type: ignore[arg-type]


def met(link: OwnerLink, said: Hello) -> PeerConnection:
    """Connect as a process that says which it is."""
    made = connect(link.address, SECRET)
    made.send(said)
    return made


def heard(from_owner: PeerConnection, kind: type, seconds: float = 30.0) -> object:
    """Return the next message of a kind."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if isinstance(message := from_owner.receive(left), kind):
            return message
    return None


def ends(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes the connection."""
    connection.settimeout(30)
    content = b""
    while part := connection.recv(1000):
        content += part
    return content


def test_a_standby_hears_beats_and_the_owner_knows_it(link: OwnerLink) -> None:
    with met(link, hello()) as standby:
        assert [heard(standby, Beat), heard(standby, Beat)] == [BEATS, BEATS]
        assert known(link) == [StandbyReport("here", 1, ready=True, behind=2)]
        standby.send(hello(ready=False, handover_only=True))
        until(lambda: known(link) == [StandbyReport("here", 1, ready=False, behind=2, handover_only=True)])
    until(lambda: not link.standbys())


def known(link: OwnerLink) -> list[StandbyReport]:
    """The standbys, without the seconds for which they lag."""
    return [msgspec.structs.replace(each, lag_seconds=0.0) for each in link.standbys()]


def test_the_lag_of_a_standby_grows_until_it_is_at_the_end_of_the_log(link: OwnerLink) -> None:
    def lag() -> float:
        (standby,) = link.standbys()
        return standby.lag_seconds

    with met(link, hello()) as standby:
        until(link.standbys)
        first = lag()
        standby.send(hello())  # as far behind as before
        until(lambda: lag() > first + 0.2)
        standby.send(hello(number=BEATS.number))
        until(lambda: lag() == 0.0)


def test_the_lag_of_a_standby_that_is_always_a_little_behind_stays_small(link: OwnerLink) -> None:
    now = time.monotonic()
    link._ends.clear()
    link._ends.extend((number, now - 100 + number) for number in range(100))
    assert 0 < link._lag_of(97) < 10
    assert 90 < link._lag_of(0) < 110
    assert link._lag_of(99) == 0.0


def test_a_stranger_gets_a_nonce_and_no_other_byte(link: OwnerLink) -> None:
    with socket.create_connection(split(link.address)) as stranger:
        stranger.sendall(b"x" * (channel.NONCE_BYTES + channel.PROOF_BYTES))
        assert len(ends(stranger)) == channel.NONCE_BYTES
    with pytest.raises(ConnectionResetError):
        connect(link.address, b"t" * 32)


def test_a_proof_is_worth_nothing_twice(link: OwnerLink) -> None:
    """Neither on another connection, nor from the server's mouth."""
    where = split(link.address)
    with socket.create_connection(where) as first, socket.create_connection(where) as second:
        for each in (first, second):
            each.sendall(b"n" * channel.NONCE_BYTES)
        nonces = [each.recv(channel.NONCE_BYTES, socket.MSG_WAITALL) for each in (first, second)]
        proof = channel._proof(SECRET, b"client", b"n" * channel.NONCE_BYTES + nonces[0])
        first.sendall(proof)
        servers = first.recv(channel.PROOF_BYTES, socket.MSG_WAITALL)
        assert len(servers) == channel.PROOF_BYTES
        second.sendall(proof)
        assert not ends(second)
    with socket.create_connection(where) as third:
        third.sendall(b"n" * channel.NONCE_BYTES)
        third.recv(channel.NONCE_BYTES, socket.MSG_WAITALL)
        third.sendall(servers)
        assert not ends(third)


def test_a_client_refuses_a_server_that_does_not_know_the_secret() -> None:
    def pretend(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(connection.recv(channel.NONCE_BYTES, socket.MSG_WAITALL))
            connection.sendall(connection.recv(channel.PROOF_BYTES, socket.MSG_WAITALL))

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=pretend, args=[server])
        thread.start()
        with pytest.raises(StrangerError):
            connect(f"127.0.0.1:{server.getsockname()[1]}", SECRET)
        thread.join()


def test_silent_strangers_delay_no_peer(link: OwnerLink) -> None:
    """The oldest of them makes room."""
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(split(link.address))) for _ in range(2 * STRANGERS)]
        assert not ends(silent[0])
        with met(link, hello()) as standby:
            assert heard(standby, Beat) == BEATS
            assert [ends(each) for each in silent] == [b""] * len(silent), "a second is all that they get"
            assert heard(standby, Beat) == BEATS


@pytest.mark.parametrize(
    "said", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\1\0"], ids=["too long", "no msgpack", "no message"]
)
def test_what_is_no_message_ends_the_connection(link: OwnerLink, said: bytes) -> None:
    with met(link, hello()) as standby:
        assert heard(standby, Beat) == BEATS
        standby._connection.sendall(said)
        with pytest.raises(ConnectionError):
            heard(standby, Answered)


@pytest.mark.parametrize("names", [("6" * 32, FLOW), (STORE, "other")])
def test_a_process_of_another_store_or_dataflow_is_shown_the_door(link: OwnerLink, names: tuple[str, str]) -> None:
    with met(link, Hello("standby", *names, "here", 1)) as other, pytest.raises(ConnectionError):
        heard(other, Beat)
    assert not link.standbys()


def test_the_heir_is_a_standby_that_waits_for_a_handover_or_the_named_one(link: OwnerLink, asked: list[str]) -> None:
    with met(link, hello(pid=1)), met(link, hello(pid=2, handover_only=True)), met(link, hello("command")) as command:
        until(lambda: len(link.standbys()) == 2)
        assert link.heir == ""
        command.send(HandoverAsked())
        assert heard(command, Answered) == Answered("here:2")
        command.send(HandoverAsked("here:1"))
        assert heard(command, Answered) == Answered("here:1")
        assert link.heir == "life 1"
        until(lambda: asked == ["stop", "stop"])


def test_a_standby_that_is_silent_is_not_chosen(link: OwnerLink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "SILENT_SECONDS", 0.3)
    with met(link, hello()), met(link, hello("command")) as command:
        until(link.standbys)
        until(lambda: not link.standbys())
        command.send(HandoverAsked())
        assert heard(command, Answered) == Answered(said="it has no standby")


def test_nothing_is_stopped_for_a_standby_that_is_not_there_or_not_ready(link: OwnerLink, asked: list[str]) -> None:
    with met(link, hello("command")) as command:
        command.send(HandoverAsked())
        assert heard(command, Answered) == Answered(said="it has no standby")
        with met(link, hello(pid=8, ready=False)):
            until(link.standbys)
            command.send(HandoverAsked("here:8"))
            assert heard(command, Answered) == Answered(said="its standbys are here:8 (not ready yet)")
    assert not asked
    assert not link.heir


def test_an_address_that_is_taken_or_wrong() -> None:
    with closing(OwnerLink(lambda: None)) as other:
        with pytest.raises(bl.UnavailableError, match=r"\[LISTEN_FAILED\] cannot listen at 127.0.0.1:\d+ for standbys"):
            OwnerLink(lambda: None, other.address)
        for wrong in ("here", ":1", "127.0.0.1:", "127.0.0.1:99999", ""):
            with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] .* is no address: write host:port"):
                OwnerLink(lambda: None, wrong)


def test_an_address_says_whether_other_hosts_reach_it() -> None:
    with closing(OwnerLink(lambda: None, "0.0.0.0:0", plain=True)) as link:
        assert link.address.startswith(f"{socket.gethostname()}:")
    with closing(OwnerLink(lambda: None, "127.0.1.1:0")) as link:  # as a host's own name may be bound
        assert link.address.startswith("127.0.1.1:")
        assert is_loopback(link.address)
    for here in ("127.0.0.1:0", "localhost:7", "[::1]:0"):
        assert is_loopback(here)
    for elsewhere in ("", "host:1", "0.0.0.0:0", "[::]:0", "10.0.0.1:7"):
        assert not is_loopback(elsewhere)
