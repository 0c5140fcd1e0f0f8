"""A real PostgreSQL server on loopback, which can be killed: the system's own programs (Debian's `postgresql`)."""

from __future__ import annotations

import atexit
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from boatlift.errors import InvalidError, UnavailableError
from boatlift.testing.loopback import ReservedPort, wait_for

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresServer"]

_INSTALLED = Path("/usr/lib/postgresql")
"""Where Debian installs servers, a folder for each version."""


class PostgresServer:
    """PostgreSQL as a process of its own, with one superuser `boatlift` (a context manager; Linux).

        with PostgresServer() as server:
            bl.run(flow, …)  # with server.environment, a sink reaches it by bl.postgres("dbname=postgres", …)
            server.kill()
            server.restart()

    The port and the data survive kills and restarts. As root, the server runs as the user `postgres`.

    Args:
        settings: Settings of the server, by their names in `postgresql.conf`.

    Attributes:
        environment: The variables that clients read: address, user and password.

    Raises:
        InvalidError: On entry: `[MISSING_EXTRA]` the programs or the client are not installed.
        UnavailableError: On entry: `[BROKER_FAILED]` the server does not start.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {"listen_addresses": "127.0.0.1", "max_connections": "60", **(settings or {})}
        self._folder = Path()
        self._port: ReservedPort | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._password = secrets.token_hex(16)
        self._changing = threading.RLock()  # one thread may kill it while another starts it again

    @property
    def port(self) -> int:
        assert self._port is not None, "the server was not entered"
        return self._port.number

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def environment(self) -> Mapping[str, str]:
        return self.environment_at(self.port)

    def environment_at(self, port: int) -> Mapping[str, str]:
        """Return `environment` for clients that reach the server by another port, as that of a proxy."""
        return {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "boatlift", "PGPASSWORD": self._password}

    def connect(self, database: str = "postgres", **parameters: Any) -> psycopg.Connection[Any]:
        """Return a connection of the superuser, or of another `user`, in which each statement is a transaction."""
        import psycopg

        own: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "user": "boatlift", "password": self._password}
        return psycopg.connect(autocommit=True, **(own | {"dbname": database, "connect_timeout": 5} | parameters))

    def __enter__(self) -> Self:
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            missing = "psycopg is not installed: pip install 'boatlift[postgres]'"
            raise InvalidError("MISSING_EXTRA", missing) from error
        programs = _programs()
        self._folder = Path(tempfile.mkdtemp(prefix="boatlift-postgres-"))
        atexit.register(self._close)
        try:
            as_user: list[str] = []
            if os.geteuid() == 0:
                shutil.chown(self._folder, "postgres", pwd.getpwnam("postgres").pw_gid)
                as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            self._port = ReservedPort()
            words = self._folder / "password"
            words.write_text(self._password)
            words.chmod(0o644)  # its folder is the user's own
            initdb = [
                *as_user, str(programs / "initdb"), "-D", "data", "--no-sync", "-E", "UTF8", "--locale=C",
                "--auth=scram-sha-256", "--username=boatlift", "--pwfile=password",
            ]  # fmt: skip
            made = subprocess.run(initdb, cwd=self._folder, capture_output=True, text=True, check=False)
            if made.returncode:
                raise UnavailableError("BROKER_FAILED", f"initdb failed: {made.stderr[-2000:]}")
            options = [f"-c{name}={value}" for name, value in self._settings.items()]
            self._command = [
                *as_user, str(programs / "postgres"), "-D", "data", "-k", str(self._folder), "-p", str(self.port),
                *options,
            ]  # fmt: skip
            self.restart()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def kill(self) -> None:
        """Kill the server and all its processes by SIGKILL; do nothing if it does not run."""
        with self._changing:
            process, self._process = self._process, None
            if process is None:
                return
            children: list[int] = []
            if process.poll() is None:
                process.send_signal(signal.SIGSTOP)  # so that it starts no other process meanwhile
                children = [*map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]
            process.kill()
            for child in children:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            process.wait()
            # A process that is not gone yet has the shared memory, and the server would refuse to start.
            wait_for(lambda: all(map(_is_gone, children)) or None, "the end of the server's processes", of_broker=True)

    def restart(self) -> None:
        """Start the server on the same port with the same data, after a kill if it runs; wait until it answers."""
        with self._changing:
            self.kill()
            # The number in it may be another process's now.
            (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)
            with (self._folder / "server.log").open("ab") as log:
                null, out = subprocess.DEVNULL, subprocess.STDOUT
                self._process = subprocess.Popen(
                    self._command, cwd=self._folder, stdin=null, stdout=log, stderr=out, start_new_session=True
                )
            wait_for(self._answers, f"the PostgreSQL server on port {self.port}", of_broker=True)

    def _answers(self) -> bool | None:
        import psycopg

        if not self.running:
            ended = (self._folder / "server.log").read_text(errors="replace")[-2000:]
            raise UnavailableError("BROKER_FAILED", f"the PostgreSQL server has ended: {ended}")
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return None
        return True

    def _close(self) -> None:
        atexit.unregister(self._close)
        self.kill()
        if self._port is not None:
            self._port.release()
        if self._folder != Path():
            shutil.rmtree(self._folder, ignore_errors=True)


def _programs() -> Path:
    """Return the folder of the newest server programs that are installed."""
    found = sorted(_INSTALLED.glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    if found:
        return found[-1].parent
    config = shutil.which("pg_config")
    if config is not None:
        asked = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        folder = Path(asked.stdout.strip())
        if (folder / "initdb").exists():
            return folder
    raise InvalidError("MISSING_EXTRA", "there is no PostgreSQL server: sudo apt-get install -y postgresql")


def _is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True
