"""Nexmark in Flink SQL and in DBSP: reported beside the two sides, no target is tied to them.

What a peer has written is compared with the answer of the batch query, row by row, after every turn; a query whose
answer differs has no figure.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from benchmarks.cases.nexmark_queries import COLUMNS, QUERIES
from benchmarks.harness.data import ARTIFACTS
from benchmarks.harness.side import Side, SideError
from benchmarks.peers import dbsp_side, flink_queries, flink_side
from benchmarks.peers.peer_files import arrow_file, difference, read_changes, text_file

__all__ = ["Run", "peers", "rates"]

Run = Callable[[str, Path], Sequence[float]]
"""Runs a query, writes changes to a folder, and returns the seconds after which each step was visible."""


@contextmanager
def peers(data: Path, steps: int) -> Iterator[dict[str, Run]]:
    """Yield the peers that can run here; say why another cannot."""
    missing = {"Flink SQL": flink_side.why_not(), "DBSP": dbsp_side.why_not()}
    for name, reason in missing.items():
        if reason:
            print(f"{name} is left out: {reason}", file=sys.stderr, flush=True)
    there: dict[str, Run] = {}
    files = sorted(data.glob("*/*.parquet"))
    if not missing["DBSP"]:
        for file in files:
            text_file(file)
        there["DBSP"] = lambda query, output: dbsp_side.nexmark(query, data, output)
    if missing["Flink SQL"]:
        yield there
        return
    for file in files:
        arrow_file(file)
    with Side("benchmarks.peers.flink_side", state="hashmap") as side:
        yield {"Flink SQL": lambda query, output: _flink(side, query, data, steps, output)} | there


def rates(name: str, run: Run, answer: Callable[[str], pa.Table], events: int, turns: int) -> dict[str, list[float]]:
    """Run each query so many times, after one that warms up.

    Args:
        name: The peer.
        run: How it runs a query.
        answer: Gives the batch answer of a query.
        events: The events of a step.
        turns: How often a query runs.

    Returns:
        The events a second of each query whose answers were right. Why another has no figure is printed.
    """
    found: dict[str, list[float]] = {}
    for query in QUERIES:
        expected = answer(query)
        try:
            taken = [_checked(run, query, expected) for _ in range(1 + turns)][1:]
        except (SideError, dbsp_side.NoCircuitError, subprocess.CalledProcessError, ValueError) as error:
            print(f"{query}, {name}: no figure: {str(error).partition(chr(10))[0]}", file=sys.stderr, flush=True)
            continue
        found[query] = [events * (len(times) - 1) / (times[-1] - times[0]) for times in taken]
    return found


def _checked(run: Run, query: str, expected: pa.Table) -> Sequence[float]:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARTIFACTS, prefix="changes-") as folder:
        times = run(query, Path(folder))
        wrong = difference(read_changes(sorted(Path(folder).glob("*.tsv")), expected.schema), expected)
    if wrong:
        raise ValueError(f"{wrong} rows differ from the answer of the batch query")
    return times


def _flink(side: Side, query: str, data: Path, steps: int, output: Path) -> Sequence[float]:
    if query not in flink_queries.QUERIES:
        raise SideError(flink_queries.LEFT_OUT[query])
    shutil.rmtree(side.folder / "checkpoints", ignore_errors=True)
    given = [
        {table: str(arrow_file(data / table / f"{step:03}.parquet")) for table in COLUMNS} for step in range(steps)
    ]
    side.ask("start", tables=flink_queries.TABLES, query=flink_queries.QUERIES[query], output=str(output))
    times: list[float] = side.ask("run", steps=given)["visible"]
    side.ask("finish")  # the windows that are still open give their rows: not timed
    return times
