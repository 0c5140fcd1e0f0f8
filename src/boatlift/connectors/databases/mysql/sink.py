"""The sink of a table in a MariaDB or MySQL database, as users call it."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.connectors.databases.mysql.address import address_of
from boatlift.connectors.databases.mysql.dialect import MysqlDialect, can_be_a_name
from boatlift.connectors.databases.sink import TableSink, table_sink
from boatlift.connectors.kit import checked_options
from boatlift.errors import InvalidError


@checked_options("bl.mysql")
def mysql(
    url: str,
    *,
    table: str,
    key: Sequence[str] | None = None,
    unique: bool = False,
    lock_timeout: float = 60.0,
    statement_timeout: float = 600.0,
) -> TableSink:
    """Return a sink that keeps the newest row of every key in a table of a MariaDB or MySQL database, exactly once.

    Args:
        url: `mysql://user@host:3306/shop`, with %40 for an @. `MYSQL_HOST`, `MYSQL_TCP_PORT` and `MYSQL_PWD`
            replace parts that are missing, then `[client]` of `~/.my.cnf` user and password. The password is in no
            record and no message. Options of TLS and sockets follow a `?`: `ssl_ca=`, `ssl_cert=`, `ssl_key=`,
            `ssl_verify_cert=`, `ssl_verify_identity=`, `unix_socket=`.
        table: The table: `routes`. The sink makes it in that database, and no other program writes to it.
        key: The columns that tell rows apart, without NULL. None: rows are appended, with their `_weight` (+1 or −1)
            if they are changes.
        unique: True asserts that no two current rows have the same key, if the program does not prove it. The table
            then never replaces a row: a step with a second row of a key stops the dataflow (`[DUPLICATE_KEY]`), and
            nothing of the step is in the table.
        lock_timeout: How long to wait, in whole seconds, for a lock that another session holds.
        statement_timeout: How long a statement may run, in seconds.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[MISSING_EXTRA]`.

    Examples:
        >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("delay"))
        >>> worst.sink("shop", bl.mysql("mysql://boatlift@localhost/shop", table="worst", key=["origin"]))
    """
    if not can_be_a_name(table) or table.lower().startswith("_boatlift") or {*"./\\"} & {*table}:
        example = "give a name of up to 64 characters without a dot that does not begin with _boatlift, as 'routes'"
        raise InvalidError("BAD_OPTION", f"table is {table!r}: {example}; its database is in the URL")
    return table_sink(MysqlDialect(address_of(url)), table, key, unique, lock_timeout, statement_timeout)
