"""Runs narrowed to keys: what a kernel gives of them is what it gives of whole runs for these keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError
from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.state.arrangement.arranged import key_hashes
from boatlift.state.narrowed import narrowed
from boatlift.state.opened import LocatedRun, forget_runs, open_run
from boatlift.storage.blocks import BLOCK_BYTES
from boatlift.tasks.kept import KeptRowsTask
from support.rows.keyed_state import run_of, take_step

LAYOUT = Layout(
    (("k", pa.int64()),),
    (
        AggregateColumn("count_all", None, "n", None, pa.int64()),
        AggregateColumn("max", "t", "last", pa.string(), pa.string()),
    ),
)
KERNEL = AggregateKernel(LAYOUT, "counts")
(PART,) = KERNEL.parts


def located(folder: Path, keys: list[int], time: int) -> LocatedRun:
    """Return the run of a step with some keys; every third hash is that of two keys."""
    some = pa.array(keys, pa.int64())
    texts = pa.array([f"{key} at {time}" for key in keys])
    hashes = pa.array(hashes_of(keys).view(np.int64))
    rows = pa.record_batch({"k": some, "t": texts, "_hash": hashes})
    path = folder / f"{time}.arrow"
    return run_of(take_step(KERNEL, [rows], [], path, time=time)), str(path)


def hashes_of(keys: list[int]) -> np.ndarray:
    return key_hashes([pa.array([key - key % 3 // 2 for key in keys], pa.int64())], len(keys))


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=30), max_size=5),
    asked=st.lists(st.integers(0, 45), max_size=8),
    tasks=st.sampled_from([1, 2, 8]),
)
def test_rows_of_keys_are_those_of_the_whole_state(
    tmp_path_factory: pytest.TempPathFactory, steps: list[list[int]], asked: list[int], tasks: int
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    task = KeptRowsTask(KERNEL, {PART: [located(folder, keys, time) for time, keys in enumerate(steps)]}, tasks)
    wanted = set(hashes_of(asked).tolist())
    whole = [row for number in range(tasks) for batch in task.run(number) for row in batch.to_pylist()]
    found = [row for batch in task.of_keys(hashes_of(asked)) for row in batch.to_pylist()]
    assert found == [row for row in whole if hashes_of([row["k"]])[0] in wanted]
    forget_runs()


def test_only_the_blocks_of_the_keys_are_read(tmp_path: Path) -> None:
    """A block far from the rows of the keys is damaged: whole runs are refused, lookups are not."""
    run, path = located(tmp_path, [*range(0, 300_000, 3)], 0)
    codec = PartialsCodec(LAYOUT)
    ends = open_run(path, run, codec=codec).segments[0].hash[[0, 1, -1]]
    forget_runs()
    damaged, middle = bytearray(Path(path).read_bytes()), run.size // 2 // BLOCK_BYTES * BLOCK_BYTES
    damaged[middle : middle + BLOCK_BYTES] = bytes(BLOCK_BYTES)
    Path(path).write_bytes(damaged)
    assert narrowed(open_run(path, run, codec=codec), codec, ends).rows == 3
    with pytest.raises(DataError, match=r"\[CORRUPT\]"):
        KeptRowsTask(KERNEL, {PART: [(run, path)]}, 1).run(0)
    forget_runs()
