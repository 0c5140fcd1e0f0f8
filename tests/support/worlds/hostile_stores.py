"""Stores to whose log something hostile was added: whole objects, each in its place, that no Boatlift wrote."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import xxhash

from boatlift.dataflow import Outcome
from boatlift.storage.log_reader import name_of
from boatlift.storage.records import facts, records
from boatlift.storage.records.codec import Header, checksum_of, decode_group, encode_group
from boatlift.times import Maximal, Time
from support.engine.hosts import open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.facts import payload_with, run_of

__all__ = ["add_object", "crashed_store", "in_format", "odd_record"]

NAMES = ["rows", "clean", "sums", "all", "totals", "other"]
EDGES = ["rows->clean", "clean->sums", "clean->all", "sums->totals", "other->x"]
NUMBERS = [*range(9), 50, 10**7, 10**12, 2**62, 2**63 - 2]


class _DiesError(Exception):
    """The process is dead from here on."""


class _Dying(MemoryEngine):
    """An engine whose process dies when a sink is handed its sixth step."""

    def commit(self, sink: str, time: int, payload: Any) -> Outcome:
        if (sink, time) == ("totals", 5):
            raise _DiesError
        return super().commit(sink, time, payload)


def crashed_store(root: Path) -> World:
    """Make the store of a process that died, and return what is outside."""
    world = World(rows=20)
    try:
        run(_Dying(world), open_store(root))
    except _DiesError:
        return world
    raise AssertionError("it did not die")


def add_object(root: Path, added: bytes | list[records.Record]) -> str:
    """Add an object to the log, whole and in its place, and return its name.

    Args:
        root: The store.
        added: Its records, or one in msgpack.
    """
    store = open_store(root)
    last = [*store.list("log/")][-1]
    content = store.read(last)
    before, _ = decode_group(content, last)
    header = Header(
        before.dataflow, before.number + 1, before.token, before.predecessor, checksum_of(content), before.manifest
    )
    made = encode_group(header, added if isinstance(added, list) else [])
    if isinstance(added, bytes):
        payload = b"\x92" + msgspec.msgpack.encode(header) + b"\x91" + added
        body = made[:8] + len(payload).to_bytes(8, "little") + payload
        made = body + xxhash.xxh3_128_digest(body)
    store.create(name_of(header.number), made)
    return name_of(header.number)


def in_format(version: int, content: bytes) -> bytes:
    """Return an object with the same payload that says that it is of another format version."""
    body = content[:4] + version.to_bytes(2, "little") + content[6:-16]
    return body + xxhash.xxh3_128_digest(body)


def odd_record(draw: random.Random) -> records.Record:
    """Return a record of the right types that hardly any execution gives."""

    def number() -> int:
        return draw.choice(NUMBERS)

    def time() -> Time:
        return draw.choice([number(), number(), number(), (draw.choice(EDGES), number()), (number(), -1), (1, 2, 3)])

    def frontier() -> Maximal:
        several = tuple((edge, number()) for edge in draw.sample(EDGES, 2))
        return draw.choice([(), (number(),), (number(),), (number(),), several, ((number(), number()),)])

    def payload() -> Any:
        positions = [{"start": 0, "end": 3}, 5, {"first": "a", "last": "b", "base": 0, "rows": 1}]
        run = run_of(b"x", "runs/" + draw.choice(["x", "000000000001-x", "../x"]))
        outcomes = [{"position": position, "clock": 1, "seed": 2} for position in positions]
        return draw.choice([None, 5, "x", [1], {}, *outcomes, {"runs": []}, payload_with([run]), {"clock": "x"}])

    name, edge = draw.choice(NAMES), draw.choice(EDGES)
    made: list[Callable[[], records.Record]] = [
        lambda: facts.Determinant(name, time(), draw.choice([None, edge, number()]), payload()),
        lambda: facts.StepDigest(
            name, time(), "d", draw.choice([0, -1, 2**63]), draw.choice([1.0, float("nan"), -1.0])
        ),
        lambda: facts.Checkpoint(name, frontier(), payload()),
        lambda: facts.LoggedInput(name, time(), frontier(), ((edge, time(), payload()),), payload()),
        lambda: facts.Truncation({name: frontier()}, {edge: frontier()}),
        lambda: facts.GarbageCollection({name: frontier()}, {draw.choice(NAMES): frontier()}, {edge: frontier()}),
        lambda: facts.LoopEnd(name, (number(), number()), draw.choice([None, (1, 2)])),
        lambda: records.SinkCommit(name, number()),
        lambda: records.Cursor(name, number(), draw.choice([{}, {"taken": 3}, {"taken": "x"}])),
        lambda: records.Override(
            draw.choice(["accepted", "skipped", "failed"]), name, number(), "so", ((edge, time()),)
        ),
    ]
    return draw.choice(made)()
