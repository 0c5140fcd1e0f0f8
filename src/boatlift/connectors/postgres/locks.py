"""Who holds a lock that a sink waits for: older owners, which are ended, and others, which are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import xxhash

from boatlift.errors import UnavailableError

if TYPE_CHECKING:
    import psycopg

_LONGEST_NAME = 63
"""The server cuts a longer `application_name`."""


def label_of(dataflow: str, sink: str) -> str:
    """Return the part of a transaction's name that all owners of a sink share."""
    label = f"boatlift {dataflow}/{sink} "
    if label.isascii() and len(label) + 20 <= _LONGEST_NAME:
        return label
    return f"boatlift {xxhash.xxh3_128_hexdigest(label.encode())} "


def end_older_owners(connection: psycopg.Connection[Any], label: str, token: int) -> list[int]:
    """End the transactions of older owners of a sink, and of this one's earlier connections; return their processes.

    A transaction of another role stays, unless the role of the connection may end it.
    """
    import psycopg

    named = connection.execute(
        "SELECT pid, substr(application_name, %s) FROM pg_stat_activity WHERE datname = current_database() "
        "AND pid <> pg_backend_pid() AND starts_with(application_name, %s)",
        (len(label) + 1, label),
    ).fetchall()
    older = [pid for pid, theirs in named if theirs.isdecimal() and int(theirs) <= token]
    try:
        for pid in older:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
    except psycopg.errors.InsufficientPrivilege:
        return []
    return older


def locked(connection: psycopg.Connection[Any], place: str, table: str, waited: float) -> UnavailableError:
    """Return the error for a lock that somebody holds, with the statement that ends each holder."""
    holders = connection.execute(
        """SELECT DISTINCT pid, usename, application_name FROM pg_locks JOIN pg_stat_activity USING (pid)
        WHERE granted AND pid <> pg_backend_pid() AND (
            relation = to_regclass(%s) AND mode <> 'AccessShareLock'
            OR relation = to_regclass('_boatlift.sinks') AND mode NOT IN ('AccessShareLock', 'RowShareLock',
                'RowExclusiveLock')
            OR locktype = 'transactionid' AND transactionid IN (SELECT xmax FROM _boatlift.sinks))
        ORDER BY pid""",
        (table,),
    ).fetchall()
    if not holders:
        return UnavailableError(
            "SINK_LOCKED", f"{place} was locked for {waited:g} s, and nobody holds the lock any more: run again"
        )
    named = ", ".join(f"process {pid} of role {role} ({name or 'no name'})" for pid, role, name in holders)
    ends = "; ".join(f"SELECT pg_terminate_backend({pid})" for pid, *_ in holders)
    return UnavailableError(
        "SINK_LOCKED",
        f"{place} has been locked for {waited:g} s by {named}: let it end, or end it as that role or a superuser "
        f"({ends}), then run again",
    )
