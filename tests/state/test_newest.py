"""Newest rows: the latest row of a key counts, tombstones end keys, and go when nothing older is left."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boatlift.state.column import Column
from boatlift.state.key_groups import ALL_KEY_GROUPS
from boatlift.state.merge import merge_runs
from boatlift.state.newest import Cells, NewestCodec, TouchedKeys, held_rows, written_rows
from boatlift.state.opened import open_run
from boatlift.state.run_file import write_run
from boatlift.storage.records.records import RunRef
from support.rows.keyed_state import Hash, crowded_hash, same_hash, spread_hash

I64, TEXT = pa.int64(), pa.string()
CODEC = NewestCodec((("k", I64), ("sub", TEXT)), pa.schema([("n", I64), ("text", TEXT)]))
KEYS = range(5)

Rows = Mapping[tuple[int, str], tuple[int, str] | None]
"""Of each key and further key the row; None: it ends."""


def touched_by(keys: list[int], hash_of: Hash) -> TouchedKeys:
    ordered = sorted(keys, key=lambda key: (hash_of((key,)), key))
    hashes = np.array([hash_of((key,)) for key in ordered], np.uint64)
    return TouchedKeys(hashes, [Column.from_arrow(pa.array(ordered, I64), I64)])


def write(path: Path, rows: Rows, time: int, hash_of: Hash) -> RunRef:
    """Write the run of a step."""
    touched = touched_by(sorted({key for key, _ in rows}), hash_of)
    numbers = touched.numbers(
        np.array([hash_of((key,)) for key, _ in rows], np.uint64),
        [Column.from_arrow(pa.array([key for key, _ in rows], I64), I64)],
    )
    further = (Column.from_arrow(pa.array([sub for _, sub in rows], TEXT), TEXT),)
    values = [row or (None, None) for row in rows.values()]
    cells = Cells(numbers, further, (pa.array([n for n, _ in values], I64), pa.array([t for _, t in values], TEXT)))
    present = np.array([row is not None for row in rows.values()], np.bool_)
    made = written_rows(touched, cells, present, time)
    return write_run(path, CODEC, [made], processor="p", times=(time, time), share=ALL_KEY_GROUPS)


def held(runs: list[RunRef], keys: list[int], hash_of: Hash) -> dict[tuple[int, str], tuple[Any, Any]]:
    touched = touched_by(keys, hash_of)
    cells = held_rows(CODEC, touched, [open_run(run.name, run, codec=CODEC) for run in runs])
    names = touched.columns[0].values[cells.key].tolist()
    subs = cells.further[0].to_arrow().to_pylist()
    rows = zip(*(column.to_pylist() for column in cells.columns), strict=True)
    found = list(zip(zip(names, subs, strict=True), rows, strict=True))
    assert names == sorted(names, key=lambda key: (hash_of((key,)), key)), "the rows stand in order of their keys"
    assert len(dict(found)) == len(found), "a key has one row"
    return dict(found)


some_rows = st.dictionaries(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(["", "a", "b"])),
    st.one_of(st.none(), st.tuples(st.integers(0, 9), st.sampled_from(["x", "y"]))),
    min_size=1,
    max_size=8,
)


@pytest.mark.parametrize("hash_of", [spread_hash, crowded_hash, same_hash])
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(some_rows, min_size=1, max_size=6), data=st.data())
def test_the_latest_row_of_a_key_holds_however_runs_are_merged(
    hash_of: Hash, steps: list[Rows], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    runs = [write(folder / f"{time}", rows, time, hash_of) for time, rows in enumerate(steps)]
    expected: dict[tuple[int, str], tuple[int, str]] = {}
    for rows in steps:
        expected |= {key: row for key, row in rows.items() if row is not None}
        expected = {key: row for key, row in expected.items() if rows.get(key, row) is not None}
    asked = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, unique=True))
    wanted = {key: row for key, row in expected.items() if key[0] in asked}
    assert held(runs, asked, hash_of) == wanted
    begin = data.draw(st.integers(0, len(runs) - 1))
    end = data.draw(st.integers(begin + 1, len(runs)))
    opened = [open_run(run.name, run, codec=CODEC) for run in runs[begin:end]]
    merged = merge_runs(
        CODEC, opened, folder / "merged", processor="p", share=ALL_KEY_GROUPS, oldest=begin == 0, slice_rows=3
    )
    assert held([*runs[:begin], *([merged] if merged else []), *runs[end:]], asked, hash_of) == wanted


def test_tombstones_go_with_the_oldest_merge_and_no_earlier(tmp_path: Path) -> None:
    ended: Rows = {(1, "a"): None, (2, "a"): None}
    runs = [
        write(tmp_path / "0", {(1, "a"): (1, "x"), (2, "a"): (2, "x")}, 0, spread_hash),
        write(tmp_path / "1", {(3, "a"): (3, "x")}, 1, spread_hash),
        write(tmp_path / "2", ended, 2, spread_hash),
    ]
    opened = [open_run(run.name, run, codec=CODEC) for run in runs]
    later = merge_runs(CODEC, opened[1:], tmp_path / "later", processor="p", share=ALL_KEY_GROUPS)
    assert later is not None
    assert later.rows == 3
    assert held([runs[0], later], [1, 2, 3], spread_hash) == {(3, "a"): (3, "x")}
    whole = merge_runs(CODEC, opened, tmp_path / "whole", processor="p", share=ALL_KEY_GROUPS, oldest=True)
    assert whole is not None
    assert whole.rows == 1
