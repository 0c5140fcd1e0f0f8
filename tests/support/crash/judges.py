"""What must be true of the sinks of a dataflow that was killed, however often."""

from __future__ import annotations

import csv
import json
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from support.crash.data import ASKED, FILES, QUERIES

__all__ = ["is_bit_for_bit", "is_one_execution"]


def is_bit_for_bit(folder: Path, undisturbed: Path) -> None:
    """Everything that a reader sees is what an undisturbed run gave, floats as bits.

    A sink that keeps no account may have delivered steps again, with the same rows.
    """
    _was_delivered(folder, undisturbed)
    expected = _bits_of(undisturbed)
    assert len(expected) == 2 + 2 * FILES
    assert _bits_of(folder) == expected


def _was_delivered(folder: Path, undisturbed: Path) -> None:
    first = [json.loads(line) for line in (undisturbed / "delivered.txt").read_text().splitlines()]
    assert [step for step, _ in first] == list(range(FILES))
    delivered = [json.loads(line) for line in (folder / "delivered.txt").read_text().splitlines()]
    assert dict(delivered) == dict(first)
    assert all(each in first for each in delivered)
    newest = -1
    for step, _ in delivered:
        # A task of a process that was killed may come to its end after the next process has gone on by a step.
        assert newest - 1 <= step <= newest + 1, f"step {step} was delivered after step {newest}"
        newest = max(newest, step)


def _bits_of(folder: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for table in ("sums", "extremes"):
        seen[table] = sorted(map(_bits, _rows(folder, f"SELECT * FROM {table}")), key=repr)
    for sink in ("history", "cleaned"):
        for path in sorted((folder / sink).glob("*.parquet")):
            seen[f"{sink}/{path.name}"] = [_bits(row.values()) for row in pq.read_table(path).to_pylist()]
    return seen


def is_one_execution(folder: Path, undisturbed: Path) -> None:
    """Assert that each query has one answer, of later and later moments, as in an execution without failures."""
    states = list(_states(folder))
    told = [pq.read_table(path).to_pylist() for path in sorted((folder / "told").glob("*.parquet"))]
    of_live = of_fit = 0
    for rows in told:
        while not all(states[of_live].get(row["k"], (None, None)) == (row["live_n"], row["live_high"]) for row in rows):
            of_live += 1  # an IndexError is no moment that there was
        while not all(states[of_fit].get(row["k"], (None, None))[0] == row["fit_m"] for row in rows):
            of_fit += 1
    answers = [row for rows in told for row in rows]
    assert sorted(row["id"] for row in answers) == list(range(ASKED * QUERIES))
    lucky = {
        row["id"]: row["luck"]
        for path in (folder / "asked").glob("*.parquet")
        for row in pq.read_table(path).to_pylist()
    }
    assert lucky == {row["id"]: row["luck"] for row in answers}, "what was answered is what was looked up for"
    asked, luck = Counter(row["k"] for row in answers), Counter[str]()
    for row in answers:
        luck[row["k"]] += row["luck"]
    for table in ("stats", "heard"):
        sums = {k: (n, total) for k, n, total in _rows(folder, f"SELECT k, n, luck FROM {table}")}
        assert sums == {k: (asked[k], luck[k]) for k in asked}, table
    assert {k: (n, high) for k, n, high in _rows(folder, "SELECT k, n, high FROM live")} == states[-1]
    kinds = Counter(row["g"] for row in _cleaned(folder))
    assert {str(g): n for g, n in _rows(folder, "SELECT g, n FROM groups")} == kinds
    fitted = {k: n for k, (n, _) in states[-1].items() if k is not None}
    assert dict(_rows(folder, "SELECT k, m FROM fits")) == fitted


def _states(folder: Path) -> Iterator[dict[str | None, tuple[int, float]]]:
    """Gives, after no file and after each, how many rows a key has and the largest of them."""
    state: dict[str | None, tuple[int, float]] = {}
    yield dict(state)
    for _, rows in groupby(_cleaned(folder), lambda row: row["file"]):
        for row in rows:
            key = None if row["k"] == "NA" else row["k"]
            n, high = state.get(key, (0, float("-inf")))
            state[key] = (n + 1, max(high, float(row["v"])))
        yield dict(state)


def _cleaned(folder: Path) -> Iterator[dict[str, str]]:
    """Return the rows that count, file by file."""
    for path in sorted((folder / "data").glob("*.csv")):
        with path.open() as file:
            yield from ({**row, "file": path.name} for row in csv.DictReader(file) if row["v"] != "NA")


def _rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "answers.db")) as database:
        return database.execute(query).fetchall()


def _bits(row: Any) -> tuple[Any, ...]:
    return tuple(struct.pack("<d", v) if isinstance(v, float) else v for v in row)
