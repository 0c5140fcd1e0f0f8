"""`boatlift checkpoints`, printed."""

from __future__ import annotations

from pathlib import Path

from boatlift.console.tables import print_json, show, table
from boatlift.runtime.inspect.checkpoints import checkpoints_of
from boatlift.runtime.inspect.opening import log_at

__all__ = ["show_checkpoints"]


def show_checkpoints(path: Path, *, as_json: bool) -> None:
    """Print the checkpoints that a rollback can choose from."""
    checkpoints = checkpoints_of(log_at(path))
    if as_json:
        print_json({"checkpoints": checkpoints})
        return
    rows = table("processor", "step", "runs", "rows", "bytes", "new bytes since the one before")
    for each in checkpoints:
        counts = (each.step, each.files, each.rows, each.bytes, each.new_bytes)
        rows.add_row(each.processor, *(f"{count:,}" for count in counts))
    show(rows)
