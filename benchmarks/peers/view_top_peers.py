"""The top 3 of each group in Flink SQL and in DBSP, over the same changes: reported, no target is tied to them.

Flink's Top-N over changes reads and writes, for each change, a sorted map of all scores of the group: a row takes
the longer the more rows its group has, and of 10M rows the third million took more than three times as long as the
first. So it has a tenth of the rows in as many groups, which favours it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.data import ARTIFACTS
from benchmarks.harness.side import Side, SideError
from benchmarks.peers import dbsp_side, flink_side
from benchmarks.peers.flink_queries import TOP, TOP_TABLE
from benchmarks.peers.peer_files import arrow_file, difference, read_changes, text_file

__all__ = ["TENTH", "dbsp_steps", "flink_steps", "top_of"]

Run = Callable[[Sequence[Path], Sequence[Path], Path], list[float]]
"""Takes the files that are there, those of the steps, and a folder of changes; returns the milliseconds of each."""

TENTH = 10
PLACES = 3


def flink_steps(there: Sequence[Path], steps: Sequence[Path]) -> list[float]:
    """Return the milliseconds of each step in Flink SQL, state in RocksDB; none, and the reason is printed, without it.

    Args:
        there: The files of rows that are there before.
        steps: The files of changes, one a step.
    """
    return _measured("Flink SQL", flink_side.why_not(), _flink, there, steps)


def dbsp_steps(there: Sequence[Path], steps: Sequence[Path]) -> list[float]:
    """Return the milliseconds of each step in DBSP; none, and the reason is printed, without it.

    Args:
        there: The files of rows that are there before.
        steps: The files of changes, one a step.
    """
    return _measured("DBSP", dbsp_side.why_not(), _dbsp, there, steps)


def top_of(files: Sequence[Path]) -> pa.Table:
    """Return the rows that a batch query would give over all changes."""
    changes = pa.concat_tables([pq.read_table(file) for file in files])
    sums = changes.group_by(["k", "v"]).aggregate([("_weight", "sum")])
    left = sums.filter(pa.compute.greater(sums["_weight_sum"], 0))
    group, score = left["k"].to_numpy(), left["v"].to_numpy()
    order = np.lexsort((-score, group))
    group, score = group[order], score[order]
    first = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
    place = np.arange(len(group)) - np.repeat(first, np.diff(np.r_[first, len(group)])) + 1
    kept = place <= PLACES
    return pa.table({"k": group[kept], "v": score[kept], "place": place[kept]})


def _measured(name: str, missing: str, run: Run, there: Sequence[Path], steps: Sequence[Path]) -> list[float]:
    if missing:
        print(f"{name} is left out: {missing}", file=sys.stderr, flush=True)
        return []
    answer = top_of([*there, *steps])
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARTIFACTS, prefix="changes-") as folder:
        try:
            times = run(there, steps, Path(folder))
        except (SideError, subprocess.CalledProcessError) as error:
            print(f"{name}: no figure: {error}", file=sys.stderr, flush=True)
            return []
        wrong = difference(read_changes(sorted(Path(folder).glob("*.tsv")), answer.schema), answer)
    if wrong:
        print(f"{name}: no figure: {wrong} rows differ from the batch answer", file=sys.stderr, flush=True)
    return [] if wrong else times


def _flink(there: Sequence[Path], steps: Sequence[Path], output: Path) -> list[float]:
    with Side("benchmarks.peers.flink_side", state="rocksdb") as side:
        side.ask("start", tables=[TOP_TABLE], query=TOP, output=str(output))
        side.ask("run", steps=[{"now": str(arrow_file(file))} for file in there])
        taken = [side.ask("run", steps=[{"now": str(arrow_file(file))}])["visible"][-1] for file in steps]
        side.ask("finish")
    return [1000 * seconds for seconds in taken]


def _dbsp(there: Sequence[Path], steps: Sequence[Path], output: Path) -> list[float]:
    return list(dbsp_side.top([text_file(file) for file in (*there, *steps)], output))[len(there) :]
