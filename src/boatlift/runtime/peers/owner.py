"""The owner's end: it listens for standbys and commands, and beats."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import Protocol

import msgspec

from boatlift.errors import UnavailableError, to_text
from boatlift.runtime.peers.certificate import OwnCertificate, require_cryptography
from boatlift.runtime.peers.channel import (
    Answered,
    Beat,
    HandoverAsked,
    Hello,
    PeerConnection,
    PointAsked,
    RowsAnswered,
    RowsAsked,
    StrangerError,
    admit,
    end,
    is_loopback,
    split,
)
from boatlift.runtime.peers.detector import BEAT_SECONDS
from boatlift.runtime.peers.holding import HeldUpTo, Hold, Promised, Refused

LOOPBACK = "127.0.0.1:0"

STRANGERS = 8  # so many connections may be in their handshake at once

SILENT_SECONDS = 2.0  # a standby that has said nothing for so long is none
LOST_SECONDS = 5.0  # and is no member after so long, until it is heard again

logger = logging.getLogger(__name__)

_BEGINNING = to_text(UnavailableError("NOT_RUNNING", "the owner is beginning: try again once it runs"))

NOTED_SECONDS = 0.5
"""How often the end of the log is remembered, for the lag of standbys."""


class StandbyReport(msgspec.Struct, frozen=True):
    """A standby, as the owner knows it.

    Attributes:
        ready: Whether it can take over at once.
        behind: The objects of the log that it had not read at its last message.
        lag_seconds: For how long the log has had the first of these, an hour at most; 0 if there is none.
        handover_only: Whether it takes over after a clean stop alone.
        holds: The bytes of the owner's entries that it holds, and the log lacks.
    """

    host: str
    pid: int
    ready: bool
    behind: int
    handover_only: bool = False
    holds: int = 0
    lag_seconds: float = 0.0


class Holding(Protocol):
    """What standbys hold for the owner (`runtime/peers/holding.py`); any thread may call it."""

    def connected(self, life: str, name: str, wake: Callable[[], None]) -> None:
        """A standby is there, perhaps as before; `wake` is called when there may be something to send to it."""

    def lost(self, life: str, wake: Callable[[], None]) -> None:
        """The standby that had this `wake` is gone, or is not heard."""

    def to_send(self, life: str, wake: Callable[[], None]) -> Hold | None:
        """Return what to send to the standby that has this `wake`; None for nothing, or if another one has its life."""

    def answered(self, answer: HeldUpTo | Refused | Promised) -> None:
        """A standby answers, for itself."""

    def bytes_held(self) -> Mapping[str, int]: ...


class OwnerLink:
    """Listens for the standbys of a dataflow and for commands, from `begin` to `close`.

    Attributes:
        heir: The life of the standby that was chosen for a handover; empty for none.
        fingerprint: Of the certificate; empty if it speaks in clear text.
        change_points: Keeps or drops a restore point; from any thread.
        take_rows: Takes the rows of a command, and returns once they are recorded; from any thread.
        holding: What standbys hold, or have promised.

    Laws:
        * A stranger gets no byte but a nonce and those of TLS, and is shown the door after a second.
        * What other hosts can read is encrypted, unless `plain`.
        * Each standby gets a beat every `BEAT_SECONDS`, from a thread of its own.
        * A standby that is silent is not chosen, and is no member for long.

    Args:
        stop: Requests a clean stop of the run.
        listen: The address to listen at; port 0 takes a free one.
        plain: An address that other hosts see speaks in clear text.

    Raises:
        InvalidError: `[MISSING_EXTRA]`.
        UnavailableError: `[LISTEN_FAILED]`.
    """

    def __init__(self, stop: Callable[[], None], listen: str = LOOPBACK, *, plain: bool = False) -> None:
        host, port = split(listen)
        self._certificate = None if plain or is_loopback(listen) else OwnCertificate()
        self.fingerprint = "" if self._certificate is None else self._certificate.fingerprint
        try:
            self._socket = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except (OSError, OverflowError) as error:
            raise UnavailableError(
                "LISTEN_FAILED", f"cannot listen at {listen} for standbys ({error}): free it, or give another --listen"
            ) from error
        self._stop = stop
        self._strangers: list[socket.socket] = []  # the oldest first
        self._known: dict[PeerConnection, tuple[Hello, float]] = {}
        self._ends: deque[tuple[int, float]] = deque(maxlen=round(3600 / NOTED_SECONDS))  # the log's, and when
        self.heir = ""
        self.change_points: Callable[[PointAsked], Answered] = lambda _asked: Answered(said="it is beginning")
        self.take_rows: Callable[[RowsAsked], RowsAnswered] = lambda _asked: RowsAnswered(error=_BEGINNING)
        self.holding: Holding | None = None
        self._changed = threading.Lock()
        self._over = threading.Event()

    @property
    def address(self) -> str:
        """The address that other processes connect to."""
        host, port = self._socket.getsockname()[:2]
        if ip_address(host).is_unspecified:
            host = socket.gethostname()
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def begin(self, secret: bytes, store: str, dataflow: str, beat: Callable[[], Beat]) -> None:
        """Begin to answer.

        Args:
            beat: Returns the next beat; it takes no lock.
        """
        self._secret, self._names, self._beat = secret, (store, dataflow), beat
        threading.Thread(target=self._accept, name="boatlift-owner", daemon=True).start()

    def standbys(self) -> list[StandbyReport]:
        last, held = self._noted_end(), {} if self.holding is None else self.holding.bytes_held()
        return [
            StandbyReport(
                each.host,
                each.pid,
                each.ready,
                max(0, last - each.number),
                each.handover_only,
                held.get(each.life, 0),
                self._lag_of(each.number),
            )
            for each in self._standbys()
        ]

    def _standbys(self) -> list[Hello]:
        """Return the standbys that are heard."""
        since = time.monotonic() - SILENT_SECONDS
        with self._changed:
            return [hello for hello, at in self._known.values() if hello.role == "standby" and at > since]

    def _noted_end(self) -> int:
        """Return the number of the log's last object, and remember since when it is there."""
        last, now = self._beat().number, time.monotonic()
        with self._changed:
            if not self._ends or (last > self._ends[-1][0] and now >= self._ends[-1][1] + NOTED_SECONDS):
                self._ends.append((last, now))
        return last

    def _lag_of(self, number: int) -> float:
        with self._changed:
            since = next((at for end, at in self._ends if end > number), None)
        return 0.0 if since is None else round(time.monotonic() - since, 3)

    def close(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        with self._changed:
            known, strangers = list(self._known), list(self._strangers)
        for channel in known:
            channel.shutdown()
        for stranger in strangers:
            end(stranger)

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                if self._over.is_set():
                    return
                self._over.wait(BEAT_SECONDS)  # such as: no free descriptor
                continue
            if self._certificate is not None:
                try:
                    connection = self._certificate.context.wrap_socket(
                        connection, server_side=True, do_handshake_on_connect=False
                    )
                except OSError:  # it has gone
                    continue
            with self._changed:
                self._strangers.append(connection)
                if len(self._strangers) > STRANGERS:
                    end(self._strangers.pop(0))  # its thread closes it
            try:
                threading.Thread(target=self._serve, args=[connection], name="boatlift-peer", daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._admitted(connection)
                connection.close()

    def _serve(self, connection: socket.socket) -> None:
        try:
            try:
                channel = admit(connection, self._secret, self.fingerprint)
                hello = channel.receive(1.0)
            finally:
                self._admitted(connection)
            if not isinstance(hello, Hello) or (hello.store, hello.dataflow) != self._names:
                raise StrangerError
            self._hear(channel, hello)
            woken, waker = socket.socketpair()
            wake = partial(_wake, waker)
            holding = self.holding if hello.role == "standby" and not hello.handover_only else None
            try:
                waker.setblocking(False)
                self._converse(channel, hello, holding, wake, woken)
            finally:
                if holding is not None:
                    holding.lost(hello.life, wake)
                woken.close()
                waker.close()
                with self._changed:
                    del self._known[channel]
        except (OSError, StrangerError, ValueError) as error:  # ValueError: closed by `close`
            logger.debug("a connection has ended: %r", error)
        finally:
            connection.close()

    def _admitted(self, connection: socket.socket) -> None:
        with self._changed, suppress(ValueError):
            self._strangers.remove(connection)

    def _hear(self, channel: PeerConnection, hello: Hello) -> None:
        self._noted_end()
        with self._changed:
            self._known[channel] = (hello, time.monotonic())

    def _converse(
        self,
        channel: PeerConnection,
        hello: Hello,
        holding: Holding | None,
        wake: Callable[[], None],
        woken: socket.socket,
    ) -> None:
        due = time.monotonic()
        if holding is not None:
            holding.connected(hello.life, _name(hello), wake)
        while not self._over.is_set():
            if (now := time.monotonic()) >= due:
                channel.send(self._beat())
                due = now + BEAT_SECONDS
                if holding is not None and now - self._known[channel][1] > LOST_SECONDS:
                    holding.lost(hello.life, wake)
            if holding is not None and (hold := holding.to_send(hello.life, wake)) is not None:
                channel.send(hold)
            match channel.receive(max(0.0, due - time.monotonic()), woken):
                case Hello() as hello:
                    self._hear(channel, hello)
                    if holding is not None:
                        holding.connected(hello.life, _name(hello), wake)
                case HandoverAsked(to=to):
                    answer = self._choose(to)
                    channel.send(answer)  # first: an owner that stops closes its connections
                    if answer.to:
                        self._stop()
                case HeldUpTo(life=life) | Promised(life=life) as answer if holding is not None:
                    if life == hello.life:
                        holding.answered(answer)
                case Refused() as answer if holding is not None:
                    holding.answered(answer)
                case PointAsked() as asked:
                    channel.send(self.change_points(asked))
                case RowsAsked() as asked_rows:
                    channel.send(self.take_rows(asked_rows))

    def _choose(self, to: str) -> Answered:
        standbys = self._standbys()
        ready = [hello for hello in standbys if hello.ready and to in ("", _name(hello))]
        if not ready:
            named = ", ".join(f"{_name(each)}{'' if each.ready else ' (not ready yet)'}" for each in standbys)
            return Answered(said=f"its standbys are {named}" if named else "it has no standby")
        heir = max(ready, key=lambda each: (each.handover_only, each.number))
        self.heir = heir.life
        return Answered(to=_name(heir))


def _wake(waker: socket.socket) -> None:
    with suppress(OSError):  # it is woken already, or has ended
        waker.send(b"1")


def _name(standby: Hello) -> str:
    return f"{standby.host}:{standby.pid}"


def refuse_unencrypted(listen: str, *, plain: bool) -> None:
    """Refuse an address beyond this host without TLS, unless what is said there may be read by others.

    Raises:
        InvalidError: `[BAD_OPTION]` it is no address; `[MISSING_EXTRA]` there is no TLS.
    """
    if not is_loopback(listen) and not plain:
        require_cryptography()
