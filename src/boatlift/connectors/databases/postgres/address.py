"""Where a database is, from a connection string and the environment, without its secrets."""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.errors import InvalidError


@dataclass(frozen=True, slots=True)
class Address:
    """A database, as messages and plans name it.

    Attributes:
        conninfo: The connection string, which may have a password in it: in no message and no record.
    """

    conninfo: str
    host: str
    port: str
    database: str

    def __repr__(self) -> str:
        return f"Address({self})"

    def __str__(self) -> str:
        return f"{self.database} at {self.host}:{self.port}"


def address_of(conninfo: str) -> Address:
    """Read a connection string as libpq does, with `PG*` variables and service files for what it leaves out.

    Raises:
        InvalidError: `[MISSING_EXTRA]`; `[BAD_OPTION]` the string cannot be read. Its text is in no message.
    """
    try:
        import psycopg
        from psycopg import conninfo as parsing
        from psycopg.pq import Conninfo
    except ImportError as error:
        missing = "psycopg is not installed: pip install 'boatlift[postgres]'"
        raise InvalidError("MISSING_EXTRA", missing) from error
    try:
        if not isinstance(conninfo, str):
            raise TypeError
        given = parsing.conninfo_to_dict(conninfo)
    except (psycopg.Error, TypeError):
        raise InvalidError(
            "BAD_OPTION",
            "conninfo is no connection string of PostgreSQL: write 'host=db dbname=shop' or 'postgresql://db/shop', "
            "with quotes around values that have spaces",
        ) from None
    usual = {each.keyword.decode(): each.val.decode() for each in Conninfo.get_defaults() if each.val is not None}
    host, port, user, database = (
        str(given.get(name) or usual.get(name) or "") for name in ("host", "port", "user", "dbname")
    )
    if "@" in host + database or not (port or "5432").replace(",", "").isdecimal():
        raise InvalidError(
            "BAD_OPTION",
            "conninfo has an @ or a / that is part of a password: write it as %40 or %2F, or set PGPASSWORD",
        )
    return Address(conninfo, host or str(given.get("hostaddr") or "localhost"), port or "5432", database or user)
