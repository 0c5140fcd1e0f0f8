"""A real PostgreSQL server on loopback, which can be killed: the system's own programs (Debian's `postgresql`)."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boatlift.errors import InvalidError
from boatlift.testing.loopback import LoopbackServer, ReservedPort, wait_for

if TYPE_CHECKING:
    import psycopg

__all__ = ["PostgresServer"]

_INSTALLED = Path("/usr/lib/postgresql")
"""Where Debian installs servers, a folder for each version."""


class PostgresServer(LoopbackServer):
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
        super().__init__("the PostgreSQL server")
        self._settings = {"listen_addresses": "127.0.0.1", "max_connections": "60", **(settings or {})}
        self._password = secrets.token_hex(16)

    def environment_at(self, port: int) -> Mapping[str, str]:
        return {"PGHOST": "127.0.0.1", "PGPORT": str(port), "PGUSER": "boatlift", "PGPASSWORD": self._password}

    def connect(self, database: str = "postgres", **parameters: Any) -> psycopg.Connection[Any]:
        """Return a connection of the superuser, or of another `user`, in which each statement is a transaction."""
        import psycopg

        own: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "user": "boatlift", "password": self._password}
        return psycopg.connect(autocommit=True, **(own | {"dbname": database, "connect_timeout": 5} | parameters))

    def _make(self) -> None:
        try:
            import psycopg  # noqa: F401
        except ImportError as error:
            missing = "psycopg is not installed: pip install 'boatlift[postgres]'"
            raise InvalidError("MISSING_EXTRA", missing) from error
        programs = _programs()
        self._make_folder("postgres")
        as_user = self._user("postgres")
        self._ports["server"] = ReservedPort()
        words = self._folder / "password"
        words.write_text(self._password)
        words.chmod(0o644)  # its folder is the user's own
        self._run([
            *as_user, str(programs / "initdb"), "-D", "data", "--no-sync", "-E", "UTF8", "--locale=C",
            "--auth=scram-sha-256", "--username=boatlift", "--pwfile=password",
        ])  # fmt: skip
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        self._command = [
            *as_user, str(programs / "postgres"), "-D", "data", "-k", str(self._folder), "-p", str(self.port),
            *options,
        ]  # fmt: skip

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
        with self._changing:
            self.kill()
            # The number in it may be another process's now.
            (self._folder / "data" / "postmaster.pid").unlink(missing_ok=True)
            super().restart()

    def _answers(self) -> bool:
        import psycopg

        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


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
