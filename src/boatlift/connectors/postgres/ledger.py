"""The ledger of a database: one row a sink, which is the fence too, and one row a step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import Committed, SinkContext

if TYPE_CHECKING:
    import psycopg

FORMAT = 1

KEPT_STEPS = 65_536
"""The steps of a sink in the ledger: a replay of older steps is not compared."""

_ADVISORY = 0x626F61746C696674
"""The lock under which the ledger is made: `boatlift` in ASCII."""

_TABLES = (
    "CREATE SCHEMA IF NOT EXISTS _boatlift",
    """CREATE TABLE IF NOT EXISTS _boatlift.sinks (
        dataflow text NOT NULL, sink text NOT NULL, place text NOT NULL UNIQUE, key text[], store text NOT NULL,
        token bigint NOT NULL, step bigint NOT NULL, pid integer NOT NULL, format integer NOT NULL,
        PRIMARY KEY (dataflow, sink))""",
    """CREATE TABLE IF NOT EXISTS _boatlift.steps (
        dataflow text NOT NULL, sink text NOT NULL, step bigint NOT NULL, rows bigint NOT NULL, digest text NOT NULL,
        token bigint NOT NULL, transaction bigint NOT NULL, PRIMARY KEY (dataflow, sink, step))""",
)


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """The row of a sink."""

    dataflow: str
    sink: str
    place: str
    key: list[str] | None
    store: str
    token: int
    step: int
    format: int


@dataclass(frozen=True, slots=True)
class StepEntry:
    """The row of a step."""

    committed: Committed
    token: int
    transaction: int


_ENTRY = "SELECT dataflow, sink, place, key, store, token, step, format FROM _boatlift.sinks"


def exists(connection: psycopg.Connection[Any]) -> bool:
    """Return whether a database has a ledger."""
    row = connection.execute("SELECT to_regclass('_boatlift.steps') IS NOT NULL").fetchone()
    return row is not None and bool(row[0])


def make(connection: psycopg.Connection[Any]) -> None:
    """Make the ledger of a database; two processes may do it at once."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_ADVISORY,))
    for statement in _TABLES:
        connection.execute(statement)


def entry_of_place(connection: psycopg.Connection[Any], place: str) -> SinkEntry | None:
    """Return the row of the sink that has a table."""
    row = connection.execute(f"{_ENTRY} WHERE place = %s", (place,)).fetchone()
    return None if row is None else SinkEntry(*row)


def entry_of_sink(connection: psycopg.Connection[Any], context: SinkContext, *, lock: bool) -> SinkEntry | None:
    """Return a sink's own row, as its newest owner has committed it if it is locked."""
    row = connection.execute(
        f"{_ENTRY} WHERE dataflow = %s AND sink = %s{' FOR UPDATE' if lock else ''}", (context.dataflow, context.sink)
    ).fetchone()
    return None if row is None else SinkEntry(*row)


def add(connection: psycopg.Connection[Any], context: SinkContext, place: str, key: list[str] | None) -> None:
    """Add a sink's row, without steps."""
    connection.execute(
        "INSERT INTO _boatlift.sinks VALUES (%s, %s, %s, %s, %s, %s, -1, pg_backend_pid(), %s)",
        (context.dataflow, context.sink, place, key, context.store, context.token, FORMAT),
    )


def claim(connection: psycopg.Connection[Any], context: SinkContext) -> None:
    """Write the owner's token into its locked row."""
    connection.execute(
        "UPDATE _boatlift.sinks SET token = %s, pid = pg_backend_pid() WHERE dataflow = %s AND sink = %s",
        (context.token, context.dataflow, context.sink),
    )


def step(connection: psycopg.Connection[Any], context: SinkContext, number: int) -> StepEntry | None:
    """Return the row of a step, if it is kept."""
    row = connection.execute(
        "SELECT step, rows, digest, token, transaction FROM _boatlift.steps "
        "WHERE dataflow = %s AND sink = %s AND step = %s",
        (context.dataflow, context.sink, number),
    ).fetchone()
    return None if row is None else StepEntry(Committed(*row[:3]), *row[3:])


def record(connection: psycopg.Connection[Any], context: SinkContext, step: Committed) -> None:
    """Write a step's row, and forget one that is too old."""
    name = (context.dataflow, context.sink)
    connection.execute(
        "INSERT INTO _boatlift.steps VALUES (%s, %s, %s, %s, %s, %s, txid_current())",
        (*name, step.step, step.rows, step.digest, context.token),
    )
    connection.execute(
        "UPDATE _boatlift.sinks SET step = %s, pid = pg_backend_pid() WHERE dataflow = %s AND sink = %s",
        (step.step, *name),
    )
    if step.step >= KEPT_STEPS:
        connection.execute(
            "DELETE FROM _boatlift.steps WHERE dataflow = %s AND sink = %s AND step <= %s",
            (*name, step.step - KEPT_STEPS),
        )


def kept_steps(connection: psycopg.Connection[Any], entry: SinkEntry) -> tuple[int, int, int]:
    """Return the number of rows of steps, and the first and the last step; −1 for none."""
    row = connection.execute(
        "SELECT count(*), coalesce(min(step), -1), coalesce(max(step), -1) FROM _boatlift.steps "
        "WHERE dataflow = %s AND sink = %s",
        (entry.dataflow, entry.sink),
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]
