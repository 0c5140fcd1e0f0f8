"""From rows to a view's result: two Kafka topics, a join and a ranking to Kafka; a push and an aggregate to SQLite."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness.measuring import Effort, Figure, Result, percentile
from benchmarks.peers.kafka_peer import Kafka, kafka

__all__ = ["measure"]

RATE, SECONDS, WARM_UP_SECONDS = 50, 60, 20
"""Messages a second, and for how long."""

MOST_MS = {("Kafka", 0.5): 35.0, ("Kafka", 0.99): 100.0, ("SQLite", 0.5): 40.0}

JOINED = """
SELECT k, place, v FROM (
    SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS place
    FROM (SELECT CAST(split(left.v, ' ')[1] AS BIGINT) % 100 AS k, left.v FROM left JOIN right ON left.v = right.v)
) WHERE place <= 3
"""
"""The three newest messages of each of a hundred keys, of those that both topics have."""


def measure(effort: Effort) -> Result:
    """Measure each path alone, after a warm-up that does not count."""
    with kafka() as there:
        turns = [{"Kafka": _to_kafka(there), "SQLite": _to_sqlite(there)} for _ in range(effort.rounds)]
    found = {
        (name, share): [percentile(turn[name], share) for turn in turns]
        for name in turns[0]
        for share in (0.5, 0.99, 0.999)
    }
    return Result(
        name="view_paths",
        target=f"at {RATE} messages a second: Kafka, a join of two topics, the top 3 of each key, Kafka: p50 at most "
        f"{MOST_MS['Kafka', 0.5]:g} ms, p99 {MOST_MS['Kafka', 0.99]:g}; a push over HTTP, an aggregate in SQL, SQLite: "
        f"p50 at most {MOST_MS['SQLite', 0.5]:g} ms",
        met=all(statistics.median(found[which]) <= most for which, most in MOST_MS.items()),
        ratios={},
        figures={
            f"{'push' if name == 'SQLite' else 'Kafka'} to {name}, p{100 * share:g}": Figure.of("ms", values)
            for (name, share), values in found.items()
        },
    )


def _to_kafka(there: Kafka) -> list[float]:
    import boatlift as bl

    left, right, after = there.new_topic(), there.new_topic(), there.new_topic()
    flow = bl.Dataflow("ranked")
    for name, topic in (("left", left), ("right", right)):
        rows = flow.source(f"{name}_rows", bl.kafka.source(there.broker.bootstrap, topic=topic))
        rows.transform(name, lambda df: df.selectExpr("CAST(value AS STRING) AS v"))
    newest = flow.sql("newest", JOINED)
    newest.sink("out", bl.kafka.sink(there.broker.bootstrap, after, key=["k", "place"], rows="upsert"))
    with tempfile.TemporaryDirectory() as folder:
        running = bl.start(flow, Path(folder) / "store", spark=there.spark)
        try:
            return _probed("kafka_probe", there.broker.bootstrap, f"{left},{right}", after, keys=[0])
        finally:
            running.stop()


def _to_sqlite(there: Kafka) -> list[float]:
    import boatlift as bl

    flow = bl.Dataflow("pushed")
    source = bl.push("number BIGINT", listen="127.0.0.1:0")
    flow.source("pushes", source)
    view = flow.sql("newest", "SELECT number % 100 AS k, count(*) AS n, max(number) AS number FROM pushes GROUP BY 1")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.db"
        view.sink("out", bl.sqlite(file, table="newest", key=["k"]))
        running = bl.start(flow, Path(folder) / "store", spark=there.spark)
        try:
            assert source.listens_at is not None
            host, port = source.listens_at
            return _probed("push_probe", host, str(port), str(file))
        finally:
            running.stop()


def _probed(module: str, *arguments: str, keys: list[int] | None = None) -> list[float]:
    command = [sys.executable, "-m", f"benchmarks.sides.{module}", *arguments]
    counts = [WARM_UP_SECONDS * RATE, SECONDS * RATE, RATE, *(keys or [])]
    done = subprocess.run([*command, *map(str, counts)], stdout=subprocess.PIPE, check=True, text=True)
    took: list[float] = json.loads(done.stdout)
    return took
