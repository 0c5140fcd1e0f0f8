"""The join of changes: after every step the sum of all changes is the join of the sums."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.state.arrangement import join
from boatlift.state.arrangement.arranged import Arranged, arranged, key_hashes
from boatlift.state.arrangement.codec import ArrangementCodec
from boatlift.state.arrangement.join import Side, join_change, without_null_keys
from boatlift.state.key_groups import ALL_KEY_GROUPS
from boatlift.state.merge import merge_runs
from boatlift.state.opened import open_run
from boatlift.state.run_file import write_run

LEFT = Side(ArrangementCodec(pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64())])), (0, 1), (2, 0))
RIGHT = Side(ArrangementCodec(pa.schema([("y", pa.string()), ("k", pa.int64()), ("s", pa.string())])), (1, 2), (0,))

Row = tuple[Any, ...]

some_key = st.one_of(st.none(), st.integers(0, 2)), st.one_of(st.none(), st.sampled_from(["", "a"]))
some_left = st.tuples(*some_key, st.sampled_from([0.0, -0.0, 1.5, float("nan"), None]))
some_right = st.tuples(st.sampled_from(["p", "q", None]), *some_key)


@st.composite
def some_steps(draw: st.DrawFn) -> list[tuple[Counter[Row], Counter[Row]]]:
    """Changes of both sides: rows that come, several times, and rows that go."""
    held: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    steps = []
    for _ in range(draw(st.integers(1, 5))):
        step = []
        for side, some in zip(held, (some_left, some_right), strict=True):
            change: Counter[Row] = Counter()
            for row in draw(st.lists(some, max_size=5)):
                change[row] += draw(st.integers(1, 3))
            for row in sorted(side, key=repr):
                if draw(st.booleans()):
                    change[row] -= draw(st.integers(1, side[row]))
            side.update(change)
            for row in [row for row, count in side.items() if not count]:
                del side[row]
            step.append(change)
        steps.append((step[0], step[1]))
    return steps


def change_of(side: Side, rows: Counter[Row]) -> Arranged | None:
    pairs = [(row, count) for row, count in rows.items() if count]
    schema = side.codec.schema
    columns = [pa.array([row[place] for row, _ in pairs], field.type) for place, field in enumerate(schema)]
    weights = np.array([count for _, count in pairs], np.int64)
    known = without_null_keys(side, columns)
    if known is not None:
        at = pa.array(np.flatnonzero(known))
        columns, weights = [column.take(at) for column in columns], weights[known]
    if not len(weights):
        return None
    return arranged(side.codec, columns, weights, key_hashes([columns[place] for place in side.keys], len(weights)))


def canonical(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and value != value else value


def joined(left: Counter[Row], right: Counter[Row]) -> Counter[Row]:
    result: Counter[Row] = Counter()
    for (k, s, x), count in left.items():
        for (y, other_k, other_s), other in right.items():
            if None not in (k, s) and (k, s) == (other_k, other_s):
                result[canonical(x), k, y] += count * other
    return Counter({row: count for row, count in result.items() if count})


@settings(max_examples=60)
@given(some_steps(), st.integers(0, 2), st.sampled_from([2, 1 << 20]))
def test_the_changes_add_up_to_the_join(
    steps: list[tuple[Counter[Row], Counter[Row]]], merge_every: int, pairs_at_once: int
) -> None:
    held: tuple[Counter[Row], Counter[Row]] = (Counter(), Counter())
    total: Counter[Row] = Counter()
    runs: tuple[list[Any], list[Any]] = ([], [])
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(join, "PAIRS_AT_ONCE", pairs_at_once)
        for time, step in enumerate(steps):
            changes = change_of(LEFT, step[0]), change_of(RIGHT, step[1])
            opened = [
                [open_run(run.name, run, codec=side.codec) for run in own]
                for side, own in zip((LEFT, RIGHT), runs, strict=True)
            ]
            for columns, weights in join_change(LEFT, RIGHT, changes, (opened[0], opened[1])):
                for row in zip(*(column.to_pylist() for column in columns), weights.tolist(), strict=True):
                    total[tuple(map(canonical, row[:-1]))] += row[-1]
            for side, own, change, rows in zip((LEFT, RIGHT), runs, changes, step, strict=True):
                if change is not None:
                    path = Path(folder) / f"{time}-{id(own)}"
                    times = (time, time)
                    own.append(write_run(path, side.codec, [change], processor="p", times=times, share=ALL_KEY_GROUPS))
                if merge_every and len(own) > merge_every:
                    _merge(side, own, Path(folder) / f"merged-{time}-{id(own)}")
                held[own is runs[1]].update(rows)
            assert {row: count for row, count in total.items() if count} == joined(*held)


def _merge(side: Side, runs: list[Any], path: Path) -> None:
    opened = [open_run(run.name, run, codec=side.codec) for run in runs]
    merged = merge_runs(side.codec, opened, path, processor="p", share=ALL_KEY_GROUPS)
    runs[:] = [] if merged is None else [merged]


def test_equal_hashes_of_different_keys_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Counter({(1, "a", 1.0): 1, (2, "a", 2.0): 1})
    right = Counter({("p", 1, "a"): 1})

    def arranged_at_one_hash(side: Side, rows: Counter[Row]) -> Arranged:
        columns = [pa.array([row[n] for row in rows], f.type) for n, f in enumerate(side.codec.schema)]
        return arranged(side.codec, columns, np.ones(len(rows), np.int64), np.full(len(rows), 7, np.uint64))

    changes = arranged_at_one_hash(LEFT, left), arranged_at_one_hash(RIGHT, right)
    ((columns, weights),) = join_change(LEFT, RIGHT, changes, ([], []))
    assert [column.to_pylist() for column in columns] == [[1.0], [1], ["p"]]
    assert weights.tolist() == [1]
