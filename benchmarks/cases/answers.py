"""Answers to 500 clients at once, exactly once, beside the same server with the view in memory and no durability.

A client pushes a question over HTTP; a lookup in a view of 100 rows makes its answer, which a table of SQLite keeps.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.cases.push import SCHEMA, pushed, server_without_store
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio

__all__ = ["measure"]

CLIENTS, WARM_UPS, ITEMS = 500, 3, 100  # steps go round in one Spark job from the second or third turn on

MOST_MS, LEAST = 60, 0.3


def measure(effort: Effort) -> Result:
    """Let clients ask a dataflow, and a server that looks up in memory, in turns."""
    view = {f"item-{number}": number for number in range(ITEMS)}
    clients = max(10, CLIENTS // effort.scale)
    with (
        _dataflow() as durable,
        server_without_store(lambda rows: view[rows[0]["item"]]) as memory,
    ):
        turns = [(pushed(durable, clients), pushed(memory, clients)) for _ in range(WARM_UPS + effort.rounds)][
            WARM_UPS:
        ]
    ours, theirs = ([turn[side] for turn in turns] for side in (0, 1))
    ratio = median_ratio([each["acks"] for each in ours], [each["acks"] for each in theirs])
    p50 = Figure.of("ms", [each["p50"] for each in ours])
    return Result(
        name="answers",
        target=f"p50 of an answer at most {MOST_MS} ms; answers a second over those without durability: at least "
        f"{LEAST:g}",
        met=p50.median <= MOST_MS and ratio >= LEAST,
        ratios={"in memory, nothing durable": ratio},
        figures={
            "answers": Figure.of("/s", [each["acks"] for each in ours]),
            "p50": p50,
            "p99": Figure.of("ms", [each["p99"] for each in ours]),
            "in memory": Figure.of("/s", [each["acks"] for each in theirs]),
            "in memory, p50": Figure.of("ms", [each["p50"] for each in theirs]),
            "in memory, p99": Figure.of("ms", [each["p99"] for each in theirs]),
        },
    )


@contextmanager
def _dataflow() -> Iterator[tuple[str, int]]:
    from pyspark.sql import functions as F

    import boatlift as bl

    spark = bl.session(app_name="answers")
    flow = bl.Dataflow("answers")
    items = flow.source(
        "items", bl.generator({"item": "concat('item-', id)", "place": "id"}, rows_per_step=ITEMS, steps=1)
    )
    view = items.group_by("item").agg("view", F.max("place").alias("place"))
    source = bl.push(f"key STRING, {SCHEMA}", listen="127.0.0.1:0", ack="answer", key="key")
    asked = flow.source("orders", source).lookup("asked", view=view.by("item"))
    answered = asked.transform("answered", lambda df: df.select("key", "view_place"))
    with tempfile.TemporaryDirectory() as folder:
        answered.sink("replies", bl.reply(source, Path(folder) / "answers.db"))
        running = bl.start(flow, Path(folder) / "store", spark=spark)
        assert source.listens_at is not None
        yield source.listens_at
        running.stop()
