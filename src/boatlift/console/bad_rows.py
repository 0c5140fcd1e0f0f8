"""`boatlift bad-rows`, printed."""

from __future__ import annotations

import json
from pathlib import Path

from boatlift.console.tables import show, table
from boatlift.runtime.inspect.bad_rows import rows_set_aside

__all__ = ["show_bad_rows"]


def show_bad_rows(path: Path, source: str, *, as_json: bool) -> None:
    """Print the bad rows that are set aside."""
    found = rows_set_aside(path, source)
    if as_json:
        for bad in found:
            row = {
                "source": bad.source,
                "step": bad.step,
                "place": bad.place,
                "letter": json.loads(bad.dead_letter),
            }
            print(json.dumps(row, ensure_ascii=False))
        return
    rows = table("source", "step", "place", "row", "reason")
    for bad in found:
        dead_letter = json.loads(bad.dead_letter)
        text = dead_letter.get("text", dead_letter.get("value"))
        rows.add_row(bad.source, f"{bad.step:,}", bad.place, "" if text is None else text, dead_letter["reason"])
    show(rows)
