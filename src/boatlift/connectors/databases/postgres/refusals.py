"""What a server's refusals mean: SQLSTATEs, and the texts of refused connections, as Boatlift's errors."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from boatlift.connectors.databases.postgres.address import Address
from boatlift.errors import BoatliftError, DataError, InvalidError, UnavailableError

if TYPE_CHECKING:
    import psycopg

_PASSING_CLASSES = ("08", "40", "53", "57P", "58", "XX")
"""Connections, serialization and deadlocks, resources, shutdowns, the system, faults of the server."""

LOCKED = "55P03"
_ENDED = ("25P03", "25P02", "25P01")
"""The server has ended a transaction whose client did nothing."""

_NOT_ADMITTED = re.compile(
    r"password authentication failed|no password supplied|authentication failed|role \"[^\"]*\" does not exist"
    r"|no pg_hba\.conf entry|is not permitted to log in|permission denied for database|certificate"
)
_NO_DATABASE = re.compile(r"database \"[^\"]*\" does not exist")
_BAD_PARAMETER = re.compile(r"invalid (connection option|sslmode value|port number|integer value)|unsupported")


def is_passing(error: psycopg.Error) -> bool:
    """Return whether the same transaction may succeed later."""
    import psycopg

    state = error.sqlstate
    if state is None:  # of the client: no connection, or one that was lost
        text = str(error)
        refused = (_NOT_ADMITTED, _NO_DATABASE, _BAD_PARAMETER)
        return isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not any(
            each.search(text) for each in refused
        )
    return state.startswith(_PASSING_CLASSES) or state in _ENDED


def error_of(error: psycopg.Error, place: str, address: Address) -> BoatliftError:
    """Return Boatlift's error for one that does not pass."""
    state, text = error.sqlstate or "", " ".join(str(error).split())[:400]
    if not state or state.startswith("28") or state == "3D000":
        if _NO_DATABASE.search(text) or state == "3D000":
            create = f'CREATE DATABASE "{address.database}"'
            return InvalidError("SINK_UNSUITABLE", f"there is no database {address}: make it ({create}), or correct it")
        if _NOT_ADMITTED.search(text) or state.startswith("28"):
            return InvalidError(
                "NOT_ADMITTED",
                f"{address} refuses this client ({_without_address(text)}): give user and password in PGUSER and "
                "PGPASSWORD, a password file or conninfo",
            )
        return InvalidError("BAD_OPTION", f"conninfo cannot be used for {address}: {text}")
    if state == "25006" or (state == "0A000" and "read-write" in text):  # a replica refuses BEGIN READ WRITE so
        return InvalidError(
            "SINK_UNSUITABLE",
            f"{address} takes no writes ({text}): give the primary's address, or all addresses and "
            "target_session_attrs=read-write",
        )
    if state == LOCKED:
        return UnavailableError("SINK_LOCKED", f"{place}: {text}")
    if state == "42501":
        return not_permitted(text, address)
    if state == "57014":
        return UnavailableError("SINK_FAILED", f"{place}: {text}: choose a longer statement_timeout, then run again")
    if state == "3F000":
        return InvalidError("SINK_UNSUITABLE", f"{place} has no schema ({text}): make it by CREATE SCHEMA")
    if state in ("42701", "54011", "42P16"):
        return InvalidError("SCHEMA_MISMATCH", f"{place} cannot have these columns ({text}): rename or drop one")
    if state.startswith(("22", "54")):
        context = (error.diag.context or "").partition("\n")[0]
        where = f", {context}" if context else ""
        return DataError(
            "VALUE_REFUSED", f"{place} cannot hold a value ({text}{where}): change or filter it before the sink"
        )
    if state.startswith("23"):
        return DataError(
            "VALUE_REFUSED",
            f"a row violates {error.diag.constraint_name or 'a constraint'} of {place} ({text}): drop the constraint, "
            "or filter the row before the sink",
        )
    if state.startswith("42"):
        return DataError("SINK_DAMAGED", f"{place} was altered ({text}): restore it")
    return UnavailableError("SINK_FAILED", f"{place}: {text}; mend that, then run again")


def not_permitted(text: str, address: Address) -> InvalidError:
    """Return the error for a role that lacks rights, with the statements that grant them."""
    return InvalidError(
        "NOT_PERMITTED",
        f"{address} does not permit it ({text}): have granted to the role: CREATE, TEMPORARY on the database; USAGE, "
        "CREATE on the table's schema; and on what other roles have made, USAGE on schema _boatlift, and SELECT, "
        "INSERT, UPDATE, DELETE on its tables and on the sink's",
    )


def _without_address(text: str) -> str:
    """Drop what libpq writes before the server's own words."""
    return text.rpartition("FATAL: ")[2].strip()
