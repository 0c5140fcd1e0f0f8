"""`boatlift log`, printed."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from boatlift.console.tables import moment
from boatlift.errors import InvalidError
from boatlift.runtime.inspect.log_records import log_records
from boatlift.runtime.inspect.opening import log_at
from boatlift.runtime.inspect.outlook import monitor_from_log

__all__ = ["show_log"]

LINE = 200
"""On a terminal a record is cut after so many characters; elsewhere, and with --json, it is whole."""


def show_log(
    path: Path, *, tail: int | None = None, since: str | None = None, processor: str | None = None, as_json: bool
) -> None:
    """Print records that the log still has, one a line.

    Args:
        path: The store's folder.
        tail: Only so many of the last; None: all.
        since: Only those written since then, an ISO 8601 time, in UTC unless it has an offset; None: all.
        processor: Only those that name this processor; None: all.
        as_json: Print JSON.

    Raises:
        InvalidError: `[BAD_OPTION]` the store's program has no such processor, or `since` is no time.
    """
    if tail is not None and tail < 1:
        raise InvalidError("BAD_OPTION", f"--tail {tail}: give the number of records to show, at least 1")
    log = log_at(path)
    if processor is not None:
        known = monitor_from_log(log.history)[0].graph.vertices
        if processor not in known:
            raise InvalidError(
                "BAD_OPTION", f"{log.dataflow} has no processor {processor}: choose from {', '.join(known)}"
            )
    records = log_records(log, 0 if since is None else _milliseconds(since), processor)
    for line in records if tail is None else deque(records, tail):
        if as_json:
            print(json.dumps(line.as_json()))
        else:
            print(f"{line.object:>6}  {moment(line.written_at):<23}  {line.record:<10} {_cut(line.fields)}")


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidError("BAD_OPTION", f"--since {text}: write a time such as 2026-11-26T10:04 (UTC)") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _cut(fields: Mapping[str, Any]) -> str:
    text = "  ".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in fields.items())
    return text if len(text) <= LINE or not sys.stdout.isatty() else f"{text[: LINE - 1]}…"
