"""The 22 queries of TPC-H as views of one dataflow: a step of ten changed orders until all sinks have it.

The peer is DuckDB, which computes all 22 queries anew from the same rows. After the last step the rows of each view,
which are the sum of its changes, are compared with DuckDB's answer.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio, percentile, rounds
from benchmarks.harness.side import Side
from benchmarks.harness.tpch_data import changed_orders, tables
from benchmarks.peers.peer_files import difference

__all__ = ["measure"]

SCALE, SMALL = 0.3, 0.03
WARM_UP, STEPS = 20, 6

MOST_SECONDS, MOST_GROWTH = 1.0, 1.3


def measure(effort: Effort) -> Result:
    """Measure, in turns, steps one at a time."""
    scales = {"boatlift": SCALE / effort.scale, "boatlift, a tenth of the rows": SMALL / effort.scale}
    folders = {name: tables(scale) for name, scale in scales.items()}
    folders["duckdb"] = folders["boatlift"]
    count = WARM_UP + effort.rounds * STEPS
    steps = {name: changed_orders(folder, count) for name, folder in folders.items()}
    fed = dict.fromkeys(folders, 0)

    def turn(name: str, side: Side, count: int = STEPS) -> list[float]:
        files = steps[name][fed[name] : fed[name] + count]
        fed[name] += count
        return [float(side.ask("feed", files=each)["seconds"]) for each in files]

    with ExitStack() as stack:
        sides = {
            name: stack.enter_context(
                Side(f"benchmarks.{'peers.duckdb_peer' if name == 'duckdb' else 'sides.tpch_side'}", data=str(folder))
            )
            for name, folder in folders.items()
        }
        loads = {}
        for name, side in sides.items():
            if name != "duckdb":
                whole = {file.stem: str(file) for file in folders[name].glob("*.parquet")}
                loads[name] = _rows(folders[name]) / float(side.ask("feed", files=whole)["seconds"])
            turn(name, side, WARM_UP)
        turns = rounds(effort.rounds, sides, turn)
        out = Path(sides["boatlift"].ask("stop")["out"])
        wrong = _wrong(out, {name: Path(file) for name, file in sides["duckdb"].ask("answers").items()})
    if wrong:
        raise RuntimeError(f"views with other rows than DuckDB's answer: {wrong}")
    middle = {name: [statistics.median(times) for times in made] for name, made in turns.items()}
    every = {name: [each for times in made for each in times] for name, made in turns.items()}
    anew = median_ratio(middle["boatlift"], middle["duckdb"])
    growth = median_ratio(middle["boatlift"], middle["boatlift, a tenth of the rows"])
    seconds = statistics.median(middle["boatlift"])
    figures = {f"{name} p50": Figure.of("s", values) for name, values in middle.items()}
    figures |= {f"{name} p99": Figure.of("s", [percentile(times, 0.99)]) for name, times in every.items()}
    figures |= {f"{name}, initial load": Figure.of("rows/s", [rate]) for name, rate in loads.items()}
    return Result(
        name="tpch",
        target=f"a step of ten changed orders over DuckDB computing all 22 queries anew: at most 1; p50 at most "
        f"{MOST_SECONDS:g} s; with ten times the rows at most {MOST_GROWTH:g} times",
        met=anew <= 1 and seconds <= MOST_SECONDS and growth <= MOST_GROWTH,
        ratios={"DuckDB, anew": anew, "a tenth of the rows": growth},
        figures=figures,
    )


def _rows(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("*.parquet"))


def _wrong(out: Path, answers: dict[str, Path]) -> dict[str, int]:
    """Return for each view with other rows than the answer how many these are."""
    found = {name: difference(_changes(out / name), pq.read_table(file)) for name, file in answers.items()}
    return {name: rows for name, rows in found.items() if rows}


def _changes(folder: Path) -> pa.Table:
    """Return the changes that a sink has."""
    return pa.concat_tables([pq.read_table(file) for file in sorted(folder.rglob("*.parquet"))])
