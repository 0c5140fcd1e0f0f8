"""State that a process has not the memory to hold: it is mapped, and a step looks into it where its keys are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from boatlift.kernels.aggregate import AggregateColumn, AggregateKernel, Layout
from support.rows.keyed_state import run_of, take_step

LAYOUT = Layout(
    (("k", pa.int64()),),
    (
        AggregateColumn("count_all", None, "n", None, pa.int64()),
        AggregateColumn("sum", "v", "total", pa.float64(), pa.float64()),
    ),
)
RUNS, KEYS = 8, 500_000
ROOM = 48 << 20
"""Bytes that the process may still take for itself: less than half of what the runs have."""

STEP = """
import json, resource, sys
from pathlib import Path

import msgspec
import pyarrow as pa

from boatlift.kernels.aggregate import AggregateKernel
from boatlift.storage.records.records import RunRef
from kernels.test_larger_than_memory import LAYOUT, ROOM, rows
from support.rows.keyed_state import take_step

folder = Path(sys.argv[1])
runs = [msgspec.json.decode(line, type=RunRef) for line in (folder / "runs").read_bytes().splitlines()]
take_step(AggregateKernel(LAYOUT, "p"), [rows(0, 10)], [], folder / "warm up", time=0)
taken = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (taken + ROOM, taken + ROOM))
try:
    bytearray(sum(run.size for run in runs))
    fits = True
except MemoryError:
    fits = False
made = take_step(AggregateKernel(LAYOUT, "p"), [rows(3, 1000)], runs, folder / "next", time=len(runs))
after = {row["k"]: row["n"] for batch in made.batches for row in batch.to_pylist() if row["_weight"] == 1}
print(json.dumps({"fits": fits, "keys": len(after), "counts": sorted(set(after.values()))}))
"""


def rows(first: int, count: int) -> pa.RecordBatch:
    """A row for each of some keys, with a hash that spreads them over all key groups."""
    keys = np.arange(first, first + count)
    hashes = (keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)).view(np.int64)
    return pa.record_batch({"k": pa.array(keys), "_hash": pa.array(hashes), "v": pa.array(keys * 0.1)})


def test_a_step_over_it_is_right(tmp_path: Path) -> None:
    kernel = AggregateKernel(LAYOUT, "p")
    made = []
    for time in range(RUNS):
        path = tmp_path / f"run-{time}"
        run = run_of(take_step(kernel, [rows(0, KEYS)], [], path, time=time))
        assert run is not None
        made.append(run)
    assert sum(run.size for run in made) > 2 * ROOM
    (tmp_path / "runs").write_bytes(b"\n".join(msgspec.json.encode(run) for run in made))
    paths = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", STEP, str(tmp_path)],
        env={"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"fits": False, "keys": 1000, "counts": [RUNS + 1]}
