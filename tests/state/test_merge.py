"""Merging changes no result, whatever is merged when; and sizes stay bounded."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from boatlift.kernels.aggregate import AggregateColumn, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.kernels.step_state import STATE
from boatlift.state.key_groups import ALL_KEY_GROUPS, Share
from boatlift.state.merge import merge_runs
from boatlift.state.opened import forget_runs, open_run
from boatlift.storage.records.records import RunRef
from support.rows.keyed_state import Driver, Hash, Oracle, crowded_hash, same_hash, spread_hash

F64, I64, TEXT = pa.float64(), pa.int64(), pa.string()
LAYOUT = Layout(
    (("k", I64),),
    (
        AggregateColumn("count_all", None, "n", None, I64),
        AggregateColumn("sum", "x", "s", F64, F64),
        AggregateColumn("sum", "i", "t", I64, I64),
        AggregateColumn("min", "x", "low", F64, F64),
        AggregateColumn("max", "i", "high", I64, I64),
        AggregateColumn("max", "t", "last", TEXT, TEXT),
    ),
)


def rows_of(step: int, keys: int = 200) -> list[dict[str, Any]]:
    """Sums that carry into new limbs when they are merged, counts that outgrow a byte."""
    many = [{"k": 0, "x": None, "i": 1, "t": None} for _ in range(100)]
    return many + [
        {
            "k": None if i == 7 else i,
            "x": None if i % 5 == step % 5 else (2.0**31 - 1) * (-1) ** (i + step // 3) + 0.1 * (i % 3),
            "i": (2**59 - 1) * (-1) ** (i + step // 2),
            "t": None if i % 3 == 0 else f"{i * 31 % 17}-{step}",
        }
        for i in range(step % 4, keys, 2)
    ]


def rows(run: RunRef) -> list[dict[str, Any]]:
    """All rows of a run in order, parts that are not there as zeros."""
    with pa.ipc.open_file(run.name) as file:
        found = file.read_all().to_pylist()
    return [{name: value for name, value in row.items() if value != 0 or name.startswith("key")} for row in found]


def merge(
    layout: Layout, folder: Path, runs: list[RunRef], name: str, share: Share = ALL_KEY_GROUPS, **options: Any
) -> RunRef:
    opened = [open_run(ref.name, ref, codec=PartialsCodec(layout)) for ref in runs]
    merged = merge_runs(PartialsCodec(layout), opened, folder / name, processor="p", share=share, **options)
    assert merged is not None
    return merged


@pytest.mark.parametrize("hash_of", [spread_hash, crowded_hash, same_hash])
def test_history_of_merges_cannot_be_seen(tmp_path: Path, hash_of: Hash) -> None:
    """The file itself is the same, byte for byte, whatever was merged first."""
    driver = Driver(LAYOUT, tmp_path, hash_of)
    for step in range(5):
        driver.step(rows_of(step))
    runs = driver.runs[0][STATE]
    at_once = merge(LAYOUT, tmp_path, runs, "at-once")
    for number, order in enumerate(itertools.permutations(range(5), 3)):
        first = merge(LAYOUT, tmp_path, [runs[i] for i in order], f"first-{number}")
        rest = [run for i, run in enumerate(runs) if i not in order]
        assert merge(LAYOUT, tmp_path, [*rest, first], f"then-{number}").digest == at_once.digest
    assert (at_once.first, at_once.last) == (0, 4)


@pytest.mark.parametrize("hash_of", [spread_hash, crowded_hash])
def test_slices_are_merged_as_the_whole(tmp_path: Path, hash_of: Hash) -> None:
    driver = Driver(LAYOUT, tmp_path, hash_of)
    for step in range(9):
        driver.step(rows_of(step))
    whole = merge(LAYOUT, tmp_path, driver.runs[0][STATE], "whole")
    sliced = merge(LAYOUT, tmp_path, driver.runs[0][STATE], "sliced", slice_rows=50)
    assert rows(sliced) == rows(whole)
    assert whole.rows == sliced.rows == 200
    with pa.ipc.open_file(sliced.name) as file:
        assert file.num_record_batches > (10 if hash_of is spread_hash else 1)
    # a run of many batches is read, and merged again, like any other
    again = merge(LAYOUT, tmp_path, [sliced, driver.runs[0][STATE][0]], "again", slice_rows=30)
    twice = merge(LAYOUT, tmp_path, [whole, driver.runs[0][STATE][0]], "twice")
    assert rows(again) == rows(twice)
    oracle = Oracle(LAYOUT)
    for step in range(9):
        oracle.step(rows_of(step))
    driver.runs[0][STATE] = [sliced]
    assert driver.step(rows_of(1))[0] == oracle.step(rows_of(1))


def test_bounds_do_not_creep_up(tmp_path: Path) -> None:
    """A run merged from slices over and over has columns as its rows need them, give or take one merge."""
    driver = Driver(LAYOUT, tmp_path, spread_hash)
    driver.step([{**row, "k": i} for i, row in enumerate(rows_of(0))])
    run = driver.runs[0][STATE][0]
    for number in range(6):
        run = merge(LAYOUT, tmp_path, [run], f"merged-{number}", slice_rows=40)
    plain = merge(LAYOUT, tmp_path, driver.runs[0][STATE], "plain")
    with pa.ipc.open_file(run.name) as many, pa.ipc.open_file(plain.name) as one:
        assert many.schema.names == one.schema.names


@pytest.mark.parametrize("slice_rows", [1 << 20, 40])
def test_a_run_is_cut_by_key_group(tmp_path: Path, slice_rows: int) -> None:
    driver = Driver(LAYOUT, tmp_path, spread_hash)
    for step in range(3):
        driver.step(rows_of(step))
    whole = merge(LAYOUT, tmp_path, driver.runs[0][STATE], "whole")
    parts = [
        merge(LAYOUT, tmp_path, driver.runs[0][STATE], f"part-{n}", share=Share(4, n), slice_rows=slice_rows)
        for n in range(4)
    ]
    assert sorted(row["hash"] for part in parts for row in rows(part)) == [row["hash"] for row in rows(whole)]
    for residue, part in enumerate(parts):
        assert (part.modulus, part.residue) == (4, residue)
        assert {(row["hash"] >> 52) % 4 for row in rows(part)} == {residue}


def test_nothing_left_no_run(tmp_path: Path) -> None:
    driver = Driver(LAYOUT, tmp_path, same_hash)
    driver.step(rows_of(0))
    opened = [open_run(ref.name, ref, codec=PartialsCodec(LAYOUT)) for ref in driver.runs[0][STATE]]
    assert merge_runs(PartialsCodec(LAYOUT), opened, tmp_path / "none", processor="p", share=Share(2, 0)) is None
    assert not (tmp_path / "none").exists()
    assert merge_runs(PartialsCodec(LAYOUT), [], tmp_path / "none", processor="p", share=ALL_KEY_GROUPS) is None
    forget_runs()
