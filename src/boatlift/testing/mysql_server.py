"""A real MariaDB server on loopback, which can be killed: the system's own programs (Debian's `mariadb-server`)."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from boatlift.errors import InvalidError
from boatlift.testing.loopback import LoopbackServer, ReservedPort

if TYPE_CHECKING:
    import pymysql

__all__ = ["MysqlServer"]

_FOLDERS = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"


class MysqlServer(LoopbackServer):
    """MariaDB as a process of its own, with one administrator `boatlift` (a context manager; Linux).

        with MysqlServer() as server:
            bl.run(flow, …)  # with server.environment, a sink reaches it by bl.mysql("mysql://boatlift@/test", …)
            server.kill()
            server.restart()

    The port and the data survive kills and restarts; `test` is an empty database. As root, the server runs as the user
    `mysql`.

    Args:
        settings: Settings of the server, by their names in an option file.

    Attributes:
        environment: The variables that clients read: address and password.

    Raises:
        InvalidError: On entry: `[MISSING_EXTRA]` the programs or the client are not installed.
        UnavailableError: On entry: `[BROKER_FAILED]` the server does not start.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__("the MariaDB server")
        self._settings = {"bind-address": "127.0.0.1", "innodb-log-file-size": "48M", **(settings or {})}
        self._password = secrets.token_hex(16)

    def environment_at(self, port: int) -> Mapping[str, str]:
        return {"MYSQL_HOST": "127.0.0.1", "MYSQL_TCP_PORT": str(port), "MYSQL_PWD": self._password}

    def connect(self, database: str | None = None, **parameters: Any) -> pymysql.Connection[Any]:
        """Return a connection of the administrator, or of another `user`, in which each statement is a transaction."""
        import pymysql

        own: dict[str, Any] = {"host": "127.0.0.1", "port": self.port, "user": "boatlift", "password": self._password}
        given = own | {"database": database, "connect_timeout": 5, "autocommit": True} | parameters
        return pymysql.connect(**given)

    def _make(self) -> None:
        try:
            import pymysql  # noqa: F401
        except ImportError as error:
            raise InvalidError("MISSING_EXTRA", "PyMySQL is not installed: pip install 'boatlift[mysql]'") from error
        server, install = (shutil.which(name, path=_FOLDERS) for name in ("mariadbd", "mariadb-install-db"))
        if server is None or install is None:
            raise InvalidError("MISSING_EXTRA", "there is no MariaDB server: sudo apt-get install -y mariadb-server")
        self._make_folder("mysql")
        as_user = self._user("mysql")
        self._ports["server"] = ReservedPort()
        made = [
            *as_user, install, "--no-defaults", f"--datadir={self._folder}/data", "--skip-test-db",
            f"--tmpdir={self._folder}", "--auth-root-authentication-method=normal",
        ]  # fmt: skip
        self._run(made)
        first = self._folder / "first.sql"
        first.write_text(
            f"CREATE USER IF NOT EXISTS boatlift@'%' IDENTIFIED BY '{self._password}';\n"
            "GRANT ALL ON *.* TO boatlift@'%' WITH GRANT OPTION;\n"
            "DROP USER IF EXISTS root@localhost;\nCREATE DATABASE IF NOT EXISTS test;\n"
        )
        first.chmod(0o644)  # its folder is the user's own
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        self._command = [
            *as_user, server, "--no-defaults", f"--datadir={self._folder}/data", f"--port={self.port}",
            f"--socket={self._folder}/socket", f"--pid-file={self._folder}/pid", f"--init-file={first}",
            f"--tmpdir={self._folder}", "--skip-name-resolve", *options,
        ]  # fmt: skip

    def _answers(self) -> bool:
        import pymysql

        try:
            self.connect().close()
        except pymysql.OperationalError:
            return False
        return True
