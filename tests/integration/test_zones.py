"""Law: whatever the zone of the machine, each boundary to Python hands on the moment that it is given."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.rows import zones_flow
from support.rows.zones_flow import MOMENTS, PANDAS, numbers

pytestmark = pytest.mark.spark

ONCE = {"kept", "stateful", "timers"}
"""What gives a row a key, and the others one at each of two steps."""


def held(folder: Path) -> dict[str, Counter[tuple[int, int | None]]]:
    """For each column of times how often it has which moment, as microseconds, beside the number of the row."""
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("step-*.parquet"))])
    numbered, found = rows["m"].to_pylist(), {}
    for name in rows.column_names[1:]:
        moments = rows[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        found[folder.name if name == "b" else name] = Counter(zip(numbered, moments, strict=True))
    return found


def expected(name: str) -> Counter[tuple[int, int | None]]:
    moments = numbers(MOMENTS)
    if name == "timers":  # in milliseconds, rounded up; the last has not passed
        return Counter({(m, -(-m // 1000) * 1000): 1 for m in moments[:-1]})
    fits = set(numbers(PANDAS)) if name == "pandas" else set(moments)
    return Counter({(m, m if m in fits else None): 1 if name in ONCE else 2 for m in moments})


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/St_Johns", "Pacific/Apia"])
def test_each_boundary_hands_on_the_moment(zone: str, tmp_path: Path) -> None:
    program = [sys.executable, zones_flow.__file__]
    environment = os.environ | {"TZ": zone, "PYTHONPATH": str(Path(zones_flow.__file__).parents[1])}
    done = subprocess.run(
        program, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {name: rows for folder in (tmp_path / "out").iterdir() for name, rows in held(folder).items()}
    assert len(found) == 13
    wrong = {name: (rows - expected(name), expected(name) - rows) for name, rows in found.items()}
    assert not {name: each for name, each in wrong.items() if any(each)}
    calls = [line.split()[1:] for line in (tmp_path / "called.txt").read_text(encoding="utf-8").splitlines()]
    assert len(calls) == 2 * len(MOMENTS)
    assert all(given == got for given, got in calls)
    with closing(sqlite3.connect(tmp_path / "texts.db")) as database:
        texts = Counter(text for (text,) in database.execute("SELECT b FROM texts"))
    assert texts == {f"{text}Z": 1 for text in MOMENTS}
