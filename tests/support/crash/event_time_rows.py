"""The input of the dataflow of event time that crash tests kill, and the judge of what its sinks hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from support.rows.event_time import drawn_steps

__all__ = ["STEPS", "make_events", "sees_the_same_steps", "steps_of_files"]

SINKS = ("late", "windows", "first", "silent", "counts", "walks", "kept", "sessions")
STEPS = 10


def make_events(folder: Path) -> None:
    (folder / "data").mkdir(parents=True)
    for number, rows in enumerate(drawn_steps(5, steps=STEPS)):
        lines = [f"{row['k']}{number // 4},{row['v']},{row['at'].isoformat()}\n" for row in rows]
        (folder / "data" / f"{number:02}.csv").write_text("k,v,at\n" + "".join(lines))


def sees_the_same_steps(folder: Path, undisturbed: Path) -> None:
    """Every step of every sink has the rows that it has in an undisturbed run, in the same order."""
    for sink in SINKS:
        expected = steps_of_files(undisturbed / sink)
        assert len(expected) == STEPS
        assert sum(map(len, expected.values())) >= 4, f"{sink} has rows"
        assert steps_of_files(folder / sink) == expected


def steps_of_files(folder: Path) -> dict[str, list[dict[str, Any]]]:
    return {path.name: pq.read_table(path).to_pylist() for path in sorted(folder.glob("*.parquet"))}
