"""A link between two processes that can be cut, by direction: nothing more comes through, and nobody is told."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Relay:
    """Passes bytes between clients and the process that listens at a port.

    Attributes:
        to_client, to_server: Clear: that direction is cut, until it is set again; what is sent meanwhile is lost.
        passed: All bytes that came through.
    """

    def __init__(self) -> None:
        self.to_client, self.to_server = threading.Event(), threading.Event()
        self.passed = bytearray()
        self.to_client.set()
        self.to_server.set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.target = ("", 0)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                try:
                    server = socket.create_connection(self.target)
                except OSError:
                    client.close()
                    continue
                for origin, target, passes in ((client, server, self.to_server), (server, client, self.to_client)):
                    threading.Thread(target=self._pass_on, args=(origin, target, passes), daemon=True).start()

    def _pass_on(self, origin: socket.socket, target: socket.socket, passes: threading.Event) -> None:
        with suppress(OSError):
            while content := origin.recv(1 << 16):
                if passes.is_set():
                    self.passed += content
                    target.sendall(content)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
