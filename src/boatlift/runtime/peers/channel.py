"""A connection between two processes of one dataflow: both prove that they know the secret, then exchange messages.

**TLS.** With an address that other hosts reach, the claim of the owner has the fingerprint of a certificate. A client
that reads one there speaks TLS 1.3, goes on with that certificate alone, and never falls back to clear text. Without a
fingerprint nothing is encrypted, and after the handshake nothing is signed.

**Handshake.** The client sends a nonce; the server answers with one of its own; the client proves the secret over both,
then the server does (HMAC-SHA256, each with its role). A stranger gets a nonce and no other byte but those of TLS, one
of few places, and a second at most. A proof is worth nothing on another connection, nor with another certificate.

**Frames.** Four bytes, big-endian, with the length of what follows: a message in msgpack.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import ssl
import time
from contextlib import suppress
from ipaddress import ip_address
from multiprocessing.connection import wait
from typing import Self

import msgspec

from boatlift.errors import InvalidError
from boatlift.runtime.peers.certificate import client_context, shows
from boatlift.runtime.peers.holding import MOST_HELD_BYTES, HeldUpTo, Hold, Promised, Refused

NONCE_BYTES = PROOF_BYTES = 32
MOST_ROWS_BYTES = 64 << 20  # of the rows that a command inserts
MOST_BYTES = MOST_ROWS_BYTES + 2 * MOST_HELD_BYTES  # of a message, which may have all that a member holds
AT_ONCE = 1 << 16  # bytes; a record of TLS is smaller, so that none is left over where the system does not see it

HANDSHAKE_SECONDS = 1.0
SEND_SECONDS = 5.0

_CLIENT, _SERVER = b"client", b"server"


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A process says which it is, first of all and again and again.

    Attributes:
        role: `standby`, or `command`.
        life: Distinguishes a standby from all others, also of the same process.
        number: The last object of the log that the process has read.
        ready: Whether a standby can take over at once.
        handover_only: Whether a standby takes over after a clean stop alone.
    """

    role: str
    store: str
    dataflow: str
    host: str
    pid: int
    life: str = ""
    number: int = 0
    ready: bool = False
    handover_only: bool = False


class Beat(msgspec.Struct, frozen=True, tag="beat"):
    """The owner lives.

    Attributes:
        token: Of the owner.
        number: The last object of the log that it has written.
        still: Seconds since its event loop turned last.
    """

    token: int
    number: int
    still: float = 0.0


class HandoverAsked(msgspec.Struct, frozen=True, tag="handover asked"):
    """A command asks the owner to stop cleanly, and to hand the dataflow over.

    Attributes:
        to: The standby, as `host:pid`; empty leaves the choice to the owner.
    """

    to: str = ""


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """The owner's answer to a command.

    Attributes:
        to: The chosen standby, as `host:pid`, or the name of the restore point; empty if it refuses.
        said: The reason of a refusal.
    """

    to: str = ""
    said: str = ""


class PointAsked(msgspec.Struct, frozen=True, tag="point asked"):
    """A command asks the owner to keep a restore point, or to drop one."""

    name: str
    drop: bool = False


class RowsAsked(msgspec.Struct, frozen=True, tag="rows asked"):
    """A command asks the owner to take rows, as those of a push.

    Attributes:
        source: Its name in the program.
        key: Of the push.
        digest: What the key stands for.
        rows: An Arrow stream.
    """

    source: str
    key: str
    digest: bytes
    rows: bytes


class RowsAnswered(msgspec.Struct, frozen=True, tag="rows answered"):
    """The owner's receipt for rows, or its refusal.

    Attributes:
        error: As from `boatlift.errors.to_text`; empty if the rows are recorded.
    """

    rows: int = 0
    repeated: bool = False
    stable: bool = False
    error: str = ""


PeerMessage = (
    Hello
    | Beat
    | HandoverAsked
    | PointAsked
    | Answered
    | RowsAsked
    | RowsAnswered
    | Hold
    | HeldUpTo
    | Refused
    | Promised
)

_DECODER = msgspec.msgpack.Decoder(PeerMessage)


class StrangerError(Exception):
    """The other side does not know the secret, or speaks another protocol."""


class PeerConnection:
    """A connection whose sides have proved themselves (a context manager).

    One thread receives and sends.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: PeerMessage, seconds: float = SEND_SECONDS) -> None:
        """Send a message.

        Args:
            seconds: The longest time until the other side has read enough of it.

        Raises:
            OSError: the connection is closed, or the other side does not read.
        """
        content = msgspec.msgpack.encode(message)
        self._connection.settimeout(seconds)
        self._connection.sendall(len(content).to_bytes(4, "big") + content)

    def receive(self, seconds: float, wake: socket.socket | None = None) -> PeerMessage | None:
        """Wait for a message; return None if none comes in time.

        Args:
            wake: The waiting ends, too, once there is something to read, which is read.

        Raises:
            ConnectionError: the connection is closed.
            StrangerError: the other side sent no message.
        """
        until = time.monotonic() + seconds
        while (message := self._next()) is None:
            left = until - time.monotonic()
            ready = wait([self._connection, *([] if wake is None else [wake])], max(0.0, left))
            if self._connection not in ready:
                if wake in ready:
                    wake.recv(AT_ONCE)
                return None
            self._connection.settimeout(0)
            try:
                content = self._connection.recv(AT_ONCE)
            except (BlockingIOError, ssl.SSLWantReadError):  # a part of a record
                continue
            if not content:
                raise ConnectionResetError
            self._received += content
        return message

    def _next(self) -> PeerMessage | None:
        size = int.from_bytes(self._received[:4], "big")
        if size > MOST_BYTES:
            raise StrangerError
        if len(self._received) < 4 + size or not size:
            return None
        content = bytes(self._received[4 : 4 + size])
        del self._received[: 4 + size]
        try:
            message: PeerMessage = _DECODER.decode(content)
        except msgspec.DecodeError as error:
            raise StrangerError from error
        return message

    def shutdown(self) -> None:
        """End the connection, so that the thread that receives gets a `ConnectionError`; any thread may call this."""
        end(self._connection)

    def close(self) -> None:
        with suppress(OSError):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(address: str, secret: bytes, fingerprint: str = "", seconds: float = HANDSHAKE_SECONDS) -> PeerConnection:
    """Connect to a process.

    Args:
        fingerprint: Of the only certificate to accept; empty for a connection in clear text.

    Raises:
        OSError: nobody listens there, or the process does not answer in time, or speaks no TLS.
        StrangerError: the process does not know the secret, or has another certificate.
    """
    connection = socket.create_connection(split(address), timeout=seconds)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        until = time.monotonic() + seconds
        if fingerprint:
            connection = encrypted = client_context().wrap_socket(connection)
            if not shows(encrypted, fingerprint):
                raise StrangerError("another certificate than that of the claim")
        mine = secrets.token_bytes(NONCE_BYTES)
        connection.sendall(mine)
        both = fingerprint.encode() + mine + _exactly(connection, NONCE_BYTES, until)
        connection.sendall(_proof(secret, _CLIENT, both))
        _check(_exactly(connection, PROOF_BYTES, until), secret, _SERVER, both)
    except BaseException:
        connection.close()
        raise
    return PeerConnection(connection)


def admit(connection: socket.socket, secret: bytes, fingerprint: str = "") -> PeerConnection:
    """Let a client in that knows the secret.

    Args:
        connection: Of TLS before its handshake, if there is a fingerprint.
        fingerprint: Of the own certificate; empty for a connection in clear text.

    Raises:
        OSError: the client has gone, does not answer in time, or speaks no TLS.
        StrangerError: the client does not know the secret, or was shown another certificate.
    """
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    until = time.monotonic() + HANDSHAKE_SECONDS
    if isinstance(connection, ssl.SSLSocket):
        connection.settimeout(HANDSHAKE_SECONDS)
        connection.do_handshake()
    theirs = _exactly(connection, NONCE_BYTES, until)
    mine = secrets.token_bytes(NONCE_BYTES)
    connection.sendall(mine)
    both = fingerprint.encode() + theirs + mine
    _check(_exactly(connection, PROOF_BYTES, until), secret, _CLIENT, both)
    connection.sendall(_proof(secret, _SERVER, both))
    return PeerConnection(connection)


def _exactly(connection: socket.socket, size: int, until: float) -> bytes:
    content = b""
    while len(content) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        part = connection.recv(size - len(content))
        if not part:
            raise ConnectionResetError
        content += part
    return content


def _check(proof: bytes, secret: bytes, role: bytes, both: bytes) -> None:
    if not hmac.compare_digest(proof, _proof(secret, role, both)):
        raise StrangerError


def _proof(secret: bytes, role: bytes, both: bytes) -> bytes:
    return hmac.digest(secret, role + both, "sha256")


def end(connection: socket.socket) -> None:
    """End a connection of any thread's: `ssl.SSLSocket.shutdown` would make the bytes that follow clear text."""
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


def split(address: str) -> tuple[str, int]:
    """Return the host and the port of an address.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise InvalidError("BAD_OPTION", f"{address!r} is no address: write host:port, such as 127.0.0.1:0")
    return host.strip("[]"), int(port)


def is_loopback(address: str) -> bool:
    """Return whether only processes of the same host reach an address."""
    if not address:
        return False
    host, _ = split(address)
    try:
        return ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"
