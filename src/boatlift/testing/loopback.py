"""Servers on loopback that are killed and started again: ports and data that they keep, the wait for them (Linux)."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Self, TypeVar

from boatlift.errors import UnavailableError

_T = TypeVar("_T")

TIMEOUT = 120.0
"""Seconds after which a missing event is an error; a busy machine starts a JVM in ten, a broker in twenty."""

_LOWEST = 10_000
_HIGHEST = 65_535
_TRIES = 1_000


class ReservedPort:
    """A free port that stays free until it is released, also while no server listens on it (a context manager).

    The port lies outside the range that the system gives to outgoing connections: one of them could take it while the
    server is down. An abstract socket name keeps other processes that reserve ports from choosing it; the kernel
    removes the name when this process ends, however it ends.
    """

    def __init__(self) -> None:
        for number in random.SystemRandom().choices(_candidates(), k=_TRIES):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0boatlift-port-{number}")
                with closing(socket.socket()) as probe:
                    # Servers set this option too: ports with remains of closed connections are free to them.
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    probe.bind(("127.0.0.1", number))
            except OSError:
                claim.close()
                continue
            self.number = number
            self._claim = claim
            return
        raise UnavailableError(
            "BROKER_FAILED", f"no port of 127.0.0.1 is free ({_TRIES} were tried): end other servers, then run again"
        )

    def release(self) -> None:
        self._claim.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def wait_for(condition: Callable[[], _T | None], what: str, *, of_broker: bool = False) -> _T:
    """Return the first value of a condition that is not None; raise if none comes in time."""
    deadline = time.monotonic() + TIMEOUT
    while (found := condition()) is None:
        if time.monotonic() > deadline:
            late = f"{what} did not come within {TIMEOUT:.0f} s: run again on a machine that is less busy"
            raise UnavailableError("BROKER_FAILED" if of_broker else "STEP_FAILED", late)
        time.sleep(0.02)
    return found


def _candidates() -> range:
    """Return the ports that no outgoing connection gets; all ports if the system leaves none."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        return range(_LOWEST, _HIGHEST + 1)
    below, above = range(_LOWEST, low), range(high + 1, _HIGHEST + 1)
    return max(below, above, range(0), key=len) or range(_LOWEST, _HIGHEST + 1)


class LoopbackServer:
    """A server as a process of its own, in a folder that goes with it (a context manager).

    A subclass makes the folder's content and the command in `_make`, and tells in `_answers` whether the server is
    ready.

    Args:
        name: As messages have it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._folder = Path()
        self._ports: dict[str, ReservedPort] = {}
        self._command: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.RLock()  # one thread may kill it while another starts it again

    @property
    def port(self) -> int:
        assert self._ports, "the server was not entered"
        return next(iter(self._ports.values())).number

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def environment(self) -> Mapping[str, str]:
        return self.environment_at(self.port)

    def environment_at(self, port: int) -> Mapping[str, str]:
        """Return `environment` for clients that reach the server by another port, as that of a proxy."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        atexit.register(self._close)
        try:
            self._make()
            self.restart()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def kill(self) -> None:
        """Kill the server by SIGKILL; do nothing if it does not run."""
        with self._changing:
            process, self._process = self._process, None
            if process is not None:
                process.kill()
                process.wait()

    def restart(self) -> None:
        """Start the server on the same port with the same data, after a kill if it runs; wait until it answers."""
        with self._changing:
            self.kill()
            with (self._folder / "server.log").open("ab") as log:
                null, out = subprocess.DEVNULL, subprocess.STDOUT
                self._process = subprocess.Popen(
                    self._command, cwd=self._folder, stdin=null, stdout=log, stderr=out, start_new_session=True
                )
            wait_for(self._answers_or_ended, f"{self._name} on port {self.port}", of_broker=True)

    def _make(self) -> None:
        raise NotImplementedError

    def _answers(self) -> bool:
        raise NotImplementedError

    def _answers_or_ended(self) -> bool | None:
        if not self.running:
            ended = (self._folder / "server.log").read_text(errors="replace")[-2000:]
            raise UnavailableError("BROKER_FAILED", f"{self._name} has ended: {ended}")
        return self._answers() or None

    def _make_folder(self, prefix: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=f"boatlift-{prefix}-"))

    def _user(self, name: str) -> list[str]:
        """Return the prefix of a command: root gives the folder to a user, whose commands then run there."""
        if os.geteuid() != 0:
            return []
        shutil.chown(self._folder, name, name)
        return ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups"]

    def _run(self, command: list[str]) -> None:
        """Run a program that makes the server's data."""
        made = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, check=False)
        if made.returncode:
            told = made.stderr[-2000:] or made.stdout[-2000:]
            raise UnavailableError("BROKER_FAILED", f"{self._name} cannot be made: {told}")

    def _close(self) -> None:
        atexit.unregister(self._close)
        self.kill()
        for port in self._ports.values():
            port.release()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)
