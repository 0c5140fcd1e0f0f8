"""A standby's end: it keeps a connection to the owner, and hands on what it hears and when."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from enum import Enum

from boatlift.errors import BoatliftError
from boatlift.runtime.peers.channel import Beat, Hello, StrangerError, connect
from boatlift.runtime.peers.holding import HeldTail, Hold

AGAIN_SECONDS = 0.2  # from one attempt to connect to the next
TELL_SECONDS = 0.5  # from one message to the owner to the next

logger = logging.getLogger(__name__)


class Lost(Enum):
    """Why there is no connection."""

    CLOSED = "closed"
    REFUSED = "refused"
    UNREACHED = "unreached"


class FollowerLink:
    """Keeps a connection to an owner, on a thread, until `close`.

    `heard` has in order each beat, and each loss of a connection or failed attempt to make one, with its time by the
    steady clock.

    Args:
        secret: Returns the secret; None while the store has none.
        hello: Returns what to tell the owner.
        fingerprint: Of the owner's certificate; empty if it speaks in clear text.
        tail: What this standby holds of owners' entries.
        known_as: The token by which sinks know the owner.
    """

    def __init__(
        self,
        address: str,
        secret: Callable[[], bytes | None],
        hello: Callable[[], Hello],
        fingerprint: str = "",
        tail: HeldTail | None = None,
        known_as: int = 0,
    ) -> None:
        self._tail, self._known_as = tail, known_as
        self._address, self._secret, self._hello, self._fingerprint = address, secret, hello, fingerprint
        self.heard: queue.Queue[tuple[float, Beat | Lost]] = queue.Queue()
        self._over = threading.Event()
        threading.Thread(target=self._work, name="boatlift-follower", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _work(self) -> None:
        while not self._over.is_set():
            lost = self._converse()
            self.heard.put((time.monotonic(), lost))
            if lost is not Lost.CLOSED:  # else the link was cut, or the owner has ended: the next attempt tells
                self._over.wait(AGAIN_SECONDS)

    def _converse(self) -> Lost:
        connected = False
        try:
            secret = self._secret()
            if secret is None:  # the owner has just made the store
                return Lost.UNREACHED
            with connect(self._address, secret, self._fingerprint) as channel:
                channel.send(self._hello())
                told = time.monotonic()
                if self._tail is not None:
                    channel.send(self._tail.promise(self._known_as))
                while not self._over.is_set():
                    if (now := time.monotonic()) >= told:
                        channel.send(self._hello())
                        told = now + TELL_SECONDS
                    message = channel.receive(AGAIN_SECONDS)
                    match message:
                        case Beat():
                            connected = True
                            self.heard.put((time.monotonic(), message))
                        case Hold() if self._tail is not None and (answer := self._tail.hold(message)) is not None:
                            channel.send(answer)
        except ConnectionRefusedError:
            return Lost.REFUSED
        except (OSError, StrangerError, BoatliftError) as error:
            logger.debug("the connection to %s has ended: %r", self._address, error)
        return Lost.CLOSED if connected else Lost.UNREACHED
