"""Where a database is, from a URL and the environment, without its secrets."""

from __future__ import annotations

import configparser
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from boatlift.errors import InvalidError

_PATHS = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key")
_CHOICES = ("ssl_verify_cert", "ssl_verify_identity")
OPTION_FILE = "~/.my.cnf"
_OF_FILE = ("user", "password", "ssl_ca", "ssl_cert", "ssl_key")


@dataclass(frozen=True, slots=True)
class MysqlAddress:
    """A database, as messages and plans name it.

    Attributes:
        options: What the client is given besides, with user and password: in no message and no record.
    """

    host: str
    port: int
    database: str
    options: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.database} at {self.host}:{self.port}"

    def parameters(self) -> dict[str, Any]:
        """Return what the client connects by; the option file has user and password where nothing else has them."""
        # Not by the client's own reading, which would take another server's socket from it.
        file = configparser.RawConfigParser(allow_no_value=True, strict=False)
        file.read(Path(OPTION_FILE).expanduser())
        given = file.items("client") if file.has_section("client") else []
        named = {name.replace("-", "_"): value.strip("'\"") for name, value in given if value}
        usual: dict[str, Any] = {name: named[name] for name in _OF_FILE if name in named}
        if (password := os.environ.get("MYSQL_PWD", usual.get("password"))) is not None:
            usual["password"] = password.encode()
        here = {"host": self.host, "port": self.port, "database": self.database}
        return {**usual, **self.options, **here}


def address_of(url: str) -> MysqlAddress:
    """Read a URL, with `MYSQL_HOST` and `MYSQL_TCP_PORT` for what it leaves out.

    Raises:
        InvalidError: `[MISSING_EXTRA]`; `[BAD_OPTION]` the URL cannot be read. Its text is in no message.
    """
    try:
        import pymysql  # noqa: F401
    except ImportError as error:
        missing = "PyMySQL is not installed: pip install 'boatlift[mysql]'"
        raise InvalidError("MISSING_EXTRA", missing) from error
    example = "'mysql://user@host:3306/shop'"
    try:
        parts = urlsplit(str(url))
        host, port = parts.hostname, parts.port
        asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise InvalidError(
            "BAD_OPTION", f"url is no URL as {example}: write a / or an @ of a password as %2F or %40, or set MYSQL_PWD"
        ) from None
    database = unquote(parts.path[1:])
    if parts.scheme not in {"mysql", "mariadb"} or parts.fragment:
        raise InvalidError("BAD_OPTION", f"url is no URL as {example}: write # as %23")
    if not database or {"/", "@"} & {*database} or "@" in parts.netloc.rpartition("@")[0]:
        raise InvalidError(
            "BAD_OPTION",
            f"url names no database as {example} does: write a / or an @ of a password as %2F or %40, or set MYSQL_PWD",
        )
    options: dict[str, Any] = {}
    for name, value in asked:
        if name not in {*_PATHS, *_CHOICES} or (name in _CHOICES and value not in {"true", "false"}):
            known = f"{', '.join(_PATHS)}=PATH, {' and '.join(_CHOICES)}=true or false"
            raise InvalidError("BAD_OPTION", f"url has an option that it cannot have, {name}: it has {known}")
        options[name] = value == "true" if name in _CHOICES else value
    if parts.username:
        options["user"] = unquote(parts.username)
    if parts.password is not None:
        options["password"] = unquote(parts.password).encode()
    usual_port = os.environ.get("MYSQL_TCP_PORT", "")
    return MysqlAddress(
        host or os.environ.get("MYSQL_HOST") or "localhost",
        port or (int(usual_port) if usual_port.isdecimal() else 3306),
        database,
        options,
    )
