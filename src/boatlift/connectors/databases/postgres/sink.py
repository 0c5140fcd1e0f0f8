"""The sink of a table in a PostgreSQL database, as users call it."""

from __future__ import annotations

from collections.abc import Sequence

from boatlift.connectors.databases.postgres.address import address_of
from boatlift.connectors.databases.postgres.dialect import PostgresDialect
from boatlift.connectors.databases.sink import TableSink, table_sink
from boatlift.connectors.kit import checked_options
from boatlift.errors import InvalidError


@checked_options("bl.postgres")
def postgres(
    conninfo: str,
    *,
    table: str,
    key: Sequence[str] | None = None,
    unique: bool = False,
    lock_timeout: float = 60.0,
    statement_timeout: float = 600.0,
) -> TableSink:
    """Return a sink that keeps the newest row of every key in a table of a PostgreSQL database, exactly once.

    Args:
        conninfo: A connection string, as `dbname=shop` or `postgresql://db/shop`. Other values are those of
            `PGHOST`, `PGUSER`, `PGPASSWORD` and their like, or of a password file. The password is in no record and no
            message.
        table: The table, with its schema or without: `routes`, `sales.routes`. The sink makes it, and no other program
            writes to it. Case matters.
        key: The columns that tell rows apart; NULL is a key like any other. None: rows are appended, with their
            `_weight` (+1 or −1) if they are changes.
        unique: True asserts that no two current rows have the same key, if the program does not prove it. The table
            then never replaces a row: a step with a second row of a key stops the dataflow (`[DUPLICATE_KEY]`), and
            nothing of the step is in the table.
        lock_timeout: How long to wait, in seconds, for a lock that another session holds.
        statement_timeout: How long a statement may run, in seconds.

    Raises:
        InvalidError: `[BAD_OPTION]`; `[MISSING_EXTRA]`.

    Examples:
        >>> worst = flights.group_by("origin").agg("worst", F.max("arr_delay").alias("delay"))
        >>> worst.sink("shop", bl.postgres("host=localhost dbname=shop", table="worst", key=["origin"]))
    """
    schema, dot, name = table.rpartition(".")
    if not _is_name(name) or name.startswith("_boatlift") or (dot and (not _is_name(schema) or schema[0] == "_")):
        example = "give a name of up to 63 bytes that does not begin with _boatlift, as 'routes' or 'sales.routes'"
        raise InvalidError("BAD_OPTION", f"table is {table!r}: {example}")
    return table_sink(PostgresDialect(address_of(conninfo)), table, key, unique, lock_timeout, statement_timeout)


def _is_name(name: str) -> bool:
    return bool(name) and "\0" not in name and len(name.encode()) <= 63
