"""`boatlift gc`, printed."""

from __future__ import annotations

from pathlib import Path

from boatlift.console.tables import print_json, show, table
from boatlift.runtime.inspect.kept import kept_in
from boatlift.runtime.inspect.opening import log_at, store_at

__all__ = ["show_kept"]


def show_kept(path: Path, *, as_json: bool) -> None:
    """Print what a store keeps, and the processors that may ask for it."""
    kept = kept_in(store_at(path), log_at(path))
    if as_json:
        print_json({"kept": kept})
        return
    rows = table("kept", "of", "steps", "runs", "bytes", "for which processor")
    for each in kept:
        rows.add_row(each.what, each.whose, *(f"{n:,}" for n in (each.times, each.runs, each.size)), each.why)
    show(rows)
    size = sum(each.size for each in kept)
    print(f"{size:,} bytes in all; the log has the positions, choices and digests")
