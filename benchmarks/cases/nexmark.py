"""Events a second of each Nexmark query, as a view, next to Structured Streaming where it can run the query.

Flink SQL and DBSP run the queries too, and are reported.

A query runs over files that are there, one of each table a step; a rate is that between the first output and the last.
"""

from __future__ import annotations

import math
import statistics
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cases.nexmark_queries import QUERIES, events
from benchmarks.harness.data import ARTIFACTS
from benchmarks.harness.measuring import Effort, Figure, Result
from benchmarks.harness.side import Side, SideError
from benchmarks.peers.nexmark_peers import peers
from benchmarks.peers.nexmark_peers import rates as peer_rates

__all__ = ["measure"]

EVENTS, STEPS = 100_000, 5


def measure(effort: Effort) -> Result:
    """Measure each query on both sides and on the peers, once to warm up and then in rounds."""
    count = effort.keys(EVENTS)
    data = _files(count)
    rates: dict[str, dict[str, list[float]]] = {"boatlift": {}, "streaming": {}}
    with ExitStack() as stack:
        for system, found in rates.items():
            side = stack.enter_context(Side("benchmarks.sides.nexmark_side", system=system, data=str(data)))
            for query in QUERIES:
                try:
                    answers = [side.ask("query", name=query) for _ in range(1 + effort.rounds)]
                except SideError:
                    continue  # Structured Streaming refuses the query in append mode
                found[query] = [count * (each["steps"] - 1) / each["seconds"] for each in answers[1:]]
        spark = side

        @cache
        def answer(query: str) -> pa.Table:
            return pq.read_table(spark.ask("answer", name=query)["file"])

        for name, run in stack.enter_context(peers(data, STEPS)).items():
            rates[name] = peer_rates(name, run, answer, count, effort.rounds)
    ratios = {
        name: _mean_ratio(rates["boatlift"], found) for name, found in rates.items() if name != "boatlift" and found
    }
    counts = {name: len(rates[name]) for name in ratios}
    mean = ratios.pop("streaming")
    figures = {
        f"{query}, {system}": Figure.of("events/s", rates[system][query])
        for query in QUERIES
        for system in rates
        if query in rates[system]
    }
    return Result(
        name="nexmark",
        target="events/s: geometric mean over the queries that both can run at least 2 times Structured Streaming; "
        "Flink SQL and DBSP, which is in memory and recovers nothing, are reported",
        met=mean >= 2,
        ratios={f"geometric mean of {counts['streaming']} queries": mean}
        | {f"{name}, of {counts[name]} queries": ratio for name, ratio in ratios.items()},
        figures=figures,
    )


def _mean_ratio(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> float:
    """Return the geometric mean over their queries of the ratio of medians."""
    each = [statistics.median(ours[query]) / statistics.median(rates) for query, rates in theirs.items()]
    return round(math.exp(statistics.fmean(map(math.log, each))), 4)


def _files(count: int) -> Path:
    folder = ARTIFACTS / "data" / f"nexmark-{count}-{STEPS}"
    if not folder.exists():
        unfinished = folder.with_suffix(".tmp")
        for table, steps in events(count, STEPS).items():
            (unfinished / table).mkdir(parents=True, exist_ok=True)
            for number, rows in enumerate(steps):
                pq.write_table(pa.Table.from_pylist(rows), unfinished / table / f"{number:03}.parquet")
        unfinished.rename(folder)
    return folder
