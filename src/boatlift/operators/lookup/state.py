"""The state of a lookup: the messages of each table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from boatlift.operators.lookup.operator import Table
from boatlift.storage.records.payloads import RunsPayload, payload_of, runs_of, to_json
from boatlift.storage.records.records import RunRef

PutTogether = Callable[[Sequence[Sequence[RunRef]], bool], RunRef]
"""Writes several messages as one run; the flag says that they are the whole table."""


def runs_of_table(state: Any, table: str) -> list[list[RunRef]]:
    """Return the messages of a table, in order of arrival, each as its runs."""
    if state is None:
        return []
    payload = payload_of(state)
    assert isinstance(payload, RunsPayload)
    runs = {run.name: run for run in payload.runs}
    return [[runs[name] for name in message] for message in (payload.tables or {}).get(table, ())]


def with_message(
    state: Any, tables: Sequence[Table], changed: Table, message: Any, *, whole: bool, put_together: PutTogether
) -> dict[str, Any]:
    """Return the state after a message of a table.

    Messages are merged like binary digits: a message is never merged into one of more than twice its size. So a row is
    copied as often as the logarithm of the table's size, and a table has few messages.

    Args:
        state: The state before; None at the start.
        tables: All tables of the lookup.
        changed: The table that the message is for.
        message: The payload of the message.
        whole: Whether the message replaces all before it; else it is changes.
        put_together: Writes several messages as one run.
    """
    kept = {table.name: runs_of_table(state, table.name) for table in tables}
    came = list(runs_of(message))
    if whole or came:
        messages = [came] if whole else [*kept[changed.name], came]
        first, rows = len(messages) - 1, _rows(messages[-1])
        while first and _rows(messages[first - 1]) <= 2 * rows:
            first -= 1
            rows += _rows(messages[first])
        if first < len(messages) - 1:
            messages[first:] = [[put_together(messages[first:], first == 0)]]
        kept[changed.name] = messages
    every = {run.name: run for messages in kept.values() for message in messages for run in message}
    tables_of_runs = {
        name: tuple(tuple(run.name for run in message) for message in messages) for name, messages in kept.items()
    }
    return to_json(RunsPayload(tuple(every.values()), tables=tables_of_runs))


def _rows(message: Sequence[RunRef]) -> int:
    return sum(run.rows for run in message)
