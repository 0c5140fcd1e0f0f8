"""Runs that stay open: the driver merges the states of several units at once, and all use the one cache."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from boatlift.kernels.aggregate.partials import PartialsCodec
from boatlift.state import opened
from boatlift.state.opened import open_run
from support.rows.keyed_state import run_of, take_step


def test_many_threads_open_and_remove_runs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "_LOOK_EVERY", 1)
    monkeypatch.setattr(opened, "_KEEP_OPEN", 8)
    layout = Layout((("k", pa.int64()),), (AggregateColumn("count_all", None, "n", None, pa.int64()),))
    rows = pa.record_batch({"k": pa.array([1, 2], pa.int64()), "_hash": pa.array([1, 2], pa.int64())})

    def open_and_remove(thread: int) -> int:
        found = 0
        for number in range(150):
            path = tmp_path / f"{thread}-{number}.arrow"
            made = take_step(AggregateKernel(layout, "counts"), [rows], [], path, time=number)
            found += open_run(path, run_of(made), codec=PartialsCodec(layout)).rows
            path.unlink()
        return found

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(open_and_remove, range(8))) == [300] * 8
    opened.forget_runs()
