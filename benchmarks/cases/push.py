"""Durable acknowledgements a second over HTTP, to 64 clients, beside the same server without a durable store."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio

__all__ = ["SCHEMA", "measure", "pushed", "server_without_store"]

CLIENTS, SECONDS, WARM_UPS = 64, 10, 1
SCHEMA = "id LONG NOT NULL, item STRING, amount DOUBLE"


def measure(effort: Effort) -> Result:
    """Let clients push to a dataflow that aggregates the rows, and to a server that only reads them, in turns."""
    with _dataflow() as durable, server_without_store(len) as nothing:
        turns = [(pushed(durable), pushed(nothing)) for _ in range(WARM_UPS + effort.rounds)][WARM_UPS:]
    ours, theirs = ([turn[side] for turn in turns] for side in (0, 1))
    ratio = median_ratio([each["acks"] for each in ours], [each["acks"] for each in theirs])
    return Result(
        name="push",
        target="reported: acknowledgements a second over those of the same server without durability",
        met=True,
        ratios={"nothing durable": ratio},
        figures={
            "acknowledgements": Figure.of("/s", [each["acks"] for each in ours]),
            "p50": Figure.of("ms", [each["p50"] for each in ours]),
            "p99": Figure.of("ms", [each["p99"] for each in ours]),
            "nothing durable": Figure.of("/s", [each["acks"] for each in theirs]),
            "nothing durable, p99": Figure.of("ms", [each["p99"] for each in theirs]),
        },
    )


def pushed(address: tuple[str, int], clients: int = CLIENTS) -> dict[str, float]:
    """Let clients push to a server; return acknowledgements a second, and the milliseconds that they took."""
    command = [sys.executable, "-m", "benchmarks.harness.push_clients", address[0], str(address[1]), "/orders"]
    done = subprocess.run([*command, str(clients), str(SECONDS)], capture_output=True, check=True, text=True)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


@contextmanager
def _dataflow() -> Iterator[tuple[str, int]]:
    from pyspark.sql import functions as F

    import boatlift as bl

    spark = bl.session(app_name="push")
    flow = bl.Dataflow("pushed")
    source = bl.push(SCHEMA, listen="127.0.0.1:0")
    counted = flow.source("orders", source).group_by("item").agg("counted", F.count("*").alias("n"))
    with tempfile.TemporaryDirectory() as folder:
        counted.sink("out", bl.parquet(Path(folder) / "out"))
        running = bl.start(flow, Path(folder) / "store", spark=spark)
        flow.push("orders", {"id": 0})
        assert source.listens_at is not None
        yield source.listens_at
        running.stop()


@contextmanager
def server_without_store(take: Callable[[list[dict[str, Any]]], int]) -> Iterator[tuple[str, int]]:
    """Serve pushes whose rows a function in memory takes, and answer with the number that it returns."""
    from boatlift.connectors.kit.declared_columns import struct_of
    from boatlift.connectors.push.rows import PushedRows
    from boatlift.connectors.push.server import Server
    from boatlift.dataflow import Receipt

    rows = PushedRows(struct_of(SCHEMA))

    class Door:
        """Reads rows, and keeps nothing."""

        def put_json(self, body: bytes, key: str | None) -> Future[Receipt]:  # noqa: ARG002
            """Answer at once."""
            answer: Future[Receipt] = Future()
            answer.set_result(Receipt(take(rows.parsed(body).rows), repeated=False, stable=False))
            return answer

        def pushed(self, key: str) -> Receipt | None:
            """Knows of none."""

    server = Server("orders", ("127.0.0.1", 0), Door())
    server.serve()
    try:
        yield server.address
    finally:
        server.close()
