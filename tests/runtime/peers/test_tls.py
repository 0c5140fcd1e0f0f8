"""Processes of several hosts speak TLS: with the certificate of the owner's claim, and with no other one."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from boatlift.errors import InvalidError
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.host.points import change_points
from boatlift.runtime.peers import owner
from boatlift.runtime.peers.certificate import OwnCertificate, client_context
from boatlift.runtime.peers.channel import Beat, Hello, PeerConnection, StrangerError, connect, end, split
from boatlift.runtime.peers.follower import FollowerLink, Lost
from boatlift.runtime.peers.handover import hand_over
from boatlift.runtime.peers.owner import STRANGERS, OwnerLink
from boatlift.storage.log import Log
from support.crash.mortality import Fate, KilledError, MortalStore
from support.engine.hosts import check_store, open_store
from support.engine.memory_engine import World
from support.engine.relay import Relay
from support.engine.standbys import Process, idle_owner, standby
from support.waiting import until

SECRET, STORE, FLOW = b"s" * 32, "5" * 32, "a dataflow with a name"
HELLO = Hello("standby", STORE, FLOW, "here", 1, "a life", ready=True)
ALERT, HANDSHAKE = 0x15, 0x16  # the first byte of a record of TLS


@pytest.fixture
def link() -> Iterator[OwnerLink]:
    with closing(OwnerLink(lambda: None, "0.0.0.0:0")) as made:
        made.begin(SECRET, STORE, FLOW, lambda: Beat(7, 42))
        yield made


def where(link: OwnerLink) -> tuple[str, int]:
    return "127.0.0.1", split(link.address)[1]


def address(link: OwnerLink) -> str:
    return "{}:{}".format(*where(link))


def hears_beats(connection: PeerConnection) -> bool:
    connection.send(HELLO)
    return [connection.receive(30), connection.receive(30)] == [Beat(7, 42), Beat(7, 42)]


def ends(connection: socket.socket) -> bytes:
    """Return what comes until the other side closes the connection."""
    connection.settimeout(30)
    content = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(1000):
            content += part
    return content


class Middle:
    """A man in the middle, who has a certificate of his own and passes on what is inside."""

    def __init__(self, target: tuple[str, int]) -> None:
        self.own, self.read, self._target = OwnCertificate(), bytearray(), target
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            client = self.own.context.wrap_socket(self._socket.accept()[0], server_side=True)
            server = client_context().wrap_socket(socket.create_connection(self._target))
            both = ((client, server), (server, client))
            for each in both:
                threading.Thread(target=self._pass_on, args=each, daemon=True).start()

    def _pass_on(self, origin: ssl.SSLSocket, target: ssl.SSLSocket) -> None:
        with suppress(OSError):
            while content := origin.recv(1 << 16):
                self.read += content
                target.sendall(content)
        end(target)


def test_what_is_said_is_encrypted(link: OwnerLink) -> None:
    with closing(Relay()) as relay:
        relay.target = where(link)
        with connect(relay.address, SECRET, link.fingerprint) as follower:
            assert hears_beats(follower)
            assert [each.pid for each in link.standbys()] == [1]
        assert relay.passed[0] == HANDSHAKE
        assert FLOW.encode() not in relay.passed


def test_a_man_in_the_middle_reads_nothing(link: OwnerLink) -> None:
    with closing(Middle(where(link))) as middle:
        with pytest.raises(StrangerError):
            connect(middle.address, SECRET, link.fingerprint)
        assert not middle.read
    with connect(address(link), SECRET, link.fingerprint) as follower:
        assert hears_beats(follower)


def test_a_proof_is_of_one_certificate(link: OwnerLink) -> None:
    """A follower that takes the middle for the owner does not let it in."""
    with closing(Middle(where(link))) as middle:
        with pytest.raises((OSError, StrangerError)):
            connect(middle.address, SECRET, middle.own.fingerprint)
        assert middle.read, "the proof was passed on"
    assert not link.standbys()


@pytest.mark.parametrize("said", [b"x" * 64, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 3], ids=["nonce", "http"])
def test_a_stranger_in_clear_text_learns_nothing(link: OwnerLink, said: bytes) -> None:
    with socket.create_connection(where(link)) as stranger:
        stranger.sendall(said)
        answer = ends(stranger)
        assert len(answer) < 32, "no nonce"
        assert answer[:1] in (b"", bytes([ALERT]))
    with pytest.raises((OSError, StrangerError)):
        connect(address(link), SECRET)
    with connect(address(link), SECRET, link.fingerprint) as follower:
        assert hears_beats(follower)


def test_silent_strangers_hold_nobody_up(link: OwnerLink) -> None:
    """Neither those that say nothing, nor those that stop in the middle of a handshake, nor behind it."""
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(where(link))) for _ in range(2 * STRANGERS)]
        for each in silent[1::3]:
            with suppress(OSError):
                each.sendall(bytes([HANDSHAKE, 3, 1, 2]))
        with connect(address(link), SECRET, link.fingerprint) as follower:
            assert hears_beats(follower)
            behind = stack.enter_context(client_context().wrap_socket(socket.create_connection(where(link))))
            assert [len(ends(each)) < 32 for each in silent] == [True] * len(silent)
            assert ends(behind) == b""
            assert isinstance(follower.receive(30), Beat)


def test_a_wrong_secret_is_refused(link: OwnerLink) -> None:
    with pytest.raises(ConnectionResetError):
        connect(address(link), b"t" * 32, link.fingerprint)


def test_a_follower_never_falls_back_to_clear_text() -> None:
    with closing(OwnerLink(lambda: None)) as plain:
        plain.begin(SECRET, STORE, FLOW, lambda: Beat(7, 42))
        assert plain.fingerprint == ""
        with pytest.raises(OSError):
            connect(plain.address, SECRET, "ab" * 32)
        with closing(FollowerLink(plain.address, lambda: SECRET, lambda: HELLO, "ab" * 32)) as follower:
            assert {follower.heard.get(timeout=30)[1] for _ in range(3)} == {Lost.UNREACHED}
        assert not plain.standbys()
        with connect(plain.address, SECRET) as other:
            assert hears_beats(other)


def test_all_that_speak_to_an_owner_go_by_its_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby, a command for a restore point, and a handover."""
    monkeypatch.setattr(owner, "is_loopback", lambda _: False)
    world = World(rows=9)
    with idle_owner(world, tmp_path) as first, standby(world, tmp_path, available_now=False) as heir:
        until(lambda: first.host._link is not None and any(each.ready for each in first.host._link.standbys()))
        assert list(change_points(tmp_path, "noon"))
        assert "goes on" in list(hand_over(tmp_path))[-1]
        assert first.work.result() is None
        until(lambda: any(progress.what == "idle" for progress in heir.said))
    log = Log.open(open_store(tmp_path), "flow")
    claims = [log.claim_of(number) for number in log.claims()]
    assert len({claim.fingerprint for claim in claims if claim is not None and claim.fingerprint}) == 2
    world.check()


def test_a_standby_takes_over_from_an_owner_that_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "is_loopback", lambda _: False)
    world = World(rows=60)
    first = Process(world, MortalStore.of(tmp_path, Fate(12, after=True)))
    with standby(world, tmp_path) as heir:
        assert isinstance(first.work.result(), KilledError)
        assert heir.work.result() is None
        assert heir.told("is taken for dead")
    world.check()
    check_store(tmp_path)


def test_without_the_library_an_address_beyond_this_host_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.x509", None)
    for listen in ("0.0.0.0:0", "[::]:0", "10.0.0.1:7"):
        with pytest.raises(InvalidError, match=r"\[MISSING_EXTRA\] .*pip install 'boatlift\[tls\]', .* plain=True"):
            RunOptions(listen=listen)
        RunOptions(listen=listen, plain=True)
    with closing(OwnerLink(lambda: None, "0.0.0.0:0", plain=True)) as made:
        assert made.fingerprint == ""
    for here in ("127.0.0.1:0", "localhost:7", "[::1]:0"):
        RunOptions(listen=here)
