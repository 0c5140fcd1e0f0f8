"""The dataflow from Kafka to Kafka that crash tests kill, what it reads, and what must come out.

It runs in the current folder; the topics that are this folder's have its name in theirs. Nothing here shares code with
the library's reading.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import boatlift as bl
from support.kafka import PATIENCE, make_topic, messages_of, transactional

__all__ = ["SERVERS", "Servers", "make_topics", "rows_in_both", "sees_each_once"]

SERVERS = "BOATLIFT_CRASH_SERVERS"
"""The environment's name for where the broker is."""

ROWS, KEYS = 160, 7


class Servers:
    """The broker, as the environment names it."""

    @property
    def bootstrap(self) -> str:
        """Where it is."""
        return os.environ[SERVERS]


def topic_of(folder: Path, name: str) -> str:
    """Return the name of a folder's topic."""
    return f"{name}-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}"


def rows() -> list[dict[str, Any]]:
    """Return all rows, in order."""
    draw = random.Random(13)
    return [{"n": n, "k": f"key{draw.randrange(KEYS)}", "v": draw.randrange(100)} for n in range(ROWS)]


def make_topics(folder: Path) -> None:
    """Make a folder's topics, and produce rows in transactions; an aborted one comes before each."""
    broker = Servers()
    topics = [make_topic(broker, topic_of(folder, name), 3) for name in ("given", "cleaned", "sums")]
    producer = transactional(broker, topic_of(folder, "producer"))
    given = rows()
    for begin in range(0, ROWS, 40):
        for kept in (False, True):
            producer.begin_transaction()
            for row in given[begin : begin + 40]:
                producer.produce(topics[0], json.dumps(row), row["k"])
            producer.flush(PATIENCE)
            producer.commit_transaction(PATIENCE) if kept else producer.abort_transaction(PATIENCE)


def sees_each_once(folder: Path, undisturbed: Path) -> None:
    """Assert that each row is in `cleaned` once, in order of its key, and that `sums` has the sums of all prefixes."""
    given: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows():
        given[row["k"]].append(row)
    cleaned: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for message in messages_of(Servers(), topic_of(folder, "cleaned")):
        cleaned[(message.key() or b"").decode()].append(json.loads(message.value() or b""))
    assert cleaned == given
    sums: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for message in messages_of(Servers(), topic_of(folder, "sums")):
        change = json.loads(message.value() or b"")
        sums[(message.key() or b"").decode()].append((change["n"], change["v"]))
    assert sums.keys() == given.keys()
    for key, changes in sums.items():
        counts = [n for n, _ in changes]
        assert counts == sorted(set(counts)), f"of {key} something came twice, or out of order"
        assert counts[-1] == len(given[key])
        assert changes == [(n, sum(row["v"] for row in given[key][:n])) for n in counts]


def rows_in_both(folder: Path) -> tuple[int, int]:
    """Return the number of rows in `cleaned`, and of those that `sums` counts, once no open transaction is left."""
    broker = Servers()
    for name in ("cleaned", "sums"):
        transactional(broker, f"{topic_of(folder, name)}.ledger.0")
    counts: dict[bytes | None, int] = {}
    for message in messages_of(broker, topic_of(folder, "sums")):
        counts[message.key()] = json.loads(message.value() or b"")["n"]
    return len(messages_of(broker, topic_of(folder, "cleaned"))), sum(counts.values())


def make_flow(*, together: bool = False) -> bl.Dataflow:
    """Return the dataflow over the topics of the current folder."""
    from pyspark.sql import functions as F

    here = Path()
    made = bl.Dataflow("kafka")
    given = made.source(
        "given",
        bl.kafka.source(
            os.environ[SERVERS],
            topic=topic_of(here, "given"),
            format="json",
            schema="n LONG, k STRING, v LONG",
            max_offsets_per_step=40,
            group=topic_of(here, "group"),
        ),
    )
    cleaned = given.transform("clean", lambda df: df.where("n IS NOT NULL"))
    cleaned.sink(
        "cleaned", bl.kafka.sink(os.environ[SERVERS], topic_of(here, "cleaned"), key="k", writers=1 if together else 2)
    )
    sums = cleaned.group_by("k").agg("total", F.count("*").alias("n"), F.sum("v").alias("v"), policy=bl.Lazy(every=2))
    sums.sink("sums", bl.kafka.sink(os.environ[SERVERS], topic_of(here, "sums"), key="k", rows="upsert"))
    if together:
        made.together("cleaned", "sums")
    return made


def __getattr__(name: str) -> Any:
    if name in ("flow", "joint"):  # made where it is run, not where it is only named
        return make_flow(together=name == "joint")
    raise AttributeError(name)
