"""`boatlift log`, printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from boatlift.console.tables import moment
from boatlift.runtime.inspect.log_records import log_records
from boatlift.runtime.inspect.opening import log_at

__all__ = ["show_log"]

LINE = 200
"""On a terminal a record is cut after so many characters; elsewhere, and with --json, it is whole."""


def show_log(path: Path, *, as_json: bool) -> None:
    """Print every record that the log still has, one a line."""
    for line in log_records(log_at(path)):
        if as_json:
            print(json.dumps(line.as_json()))
        else:
            print(f"{line.object:>6}  {moment(line.written_at):<23}  {line.record:<10} {_cut(line.fields)}")


def _cut(fields: Mapping[str, Any]) -> str:
    text = "  ".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in fields.items())
    return text if len(text) <= LINE or not sys.stdout.isatty() else f"{text[: LINE - 1]}…"
