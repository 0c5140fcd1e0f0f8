"""The bytes of determinants that a standby holds, and that an owner sends to it, for each message and by kind.

Two sources of files, merged in order, with an answer of an external system for each row, summed by key, to a function
that can carry nothing. A message is what one processor sends to another in one step.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from benchmarks.harness import data
from benchmarks.harness.measuring import Effort, Figure, Result, cycled
from benchmarks.harness.side import feed
from benchmarks.harness.stores import CountingStore
from benchmarks.harness.watch import Watch
from benchmarks.sides.boatlift_side import pass_over
from benchmarks.sides.holder import hold_for
from boatlift.runtime.peers.holding import HeldTail, HeldUpTo, Hold, Refused
from boatlift.storage.local import LocalStore
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.facts import Determinant, LoggedMessage, StepDigest
from boatlift.storage.records.records import Record, SinkCommit

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

__all__ = ["measure"]

DELAY = 0.05
"""Seconds for each object of the log: a standby is sent what the log lacks."""

STEPS, ROWS, KEYS = 60, 1000, 10_000

INPUT, CLOCK, ORDER, ANSWERS = "division of input", "clock and seed", "order of arrival", "answers"
DIGESTS, ACCOUNTS, FRAMES = "digests of results", "accounts of sinks", "frames and other records"
KINDS = (INPUT, CLOCK, ORDER, ANSWERS, DIGESTS, ACCOUNTS, FRAMES)

CLONOS = {
    "order": 2,
    "timestamp": 9,
    "random number": 5,
    "buffer built": 5,
    "timer, at least": 14,
    "source checkpoint, at least": 23,
}
"""Bytes of one determinant of Clonos: `SimpleDeterminantEncoder` in github.com/delftdata/Clonos."""

CLONOS_MOST_MB = 2
"""Megabytes of a determinant log, of which each operator keeps one for each upstream: "probably each is < 2MB". Wiki of
Clonos, "Adding exactly once processing to Clonos", approach 4."""

MESSAGE_OF_CLONOS = ("order", "timestamp", "random number", "buffer built")
"""The determinants of a message there, which is a buffer, if its function asks for the time and a random number."""


class CountingTail(HeldTail):
    """A standby's tail, and what it was sent.

    Attributes:
        sent: The bytes on the wire.
        held: The bytes of entries.
        most: The most bytes that it held at once.
        kinds: The bytes of entries by kind.
        messages: The messages whose determinants these are.
    """

    def __init__(self) -> None:
        super().__init__("counting")
        self.sent = self.held = self.most = self.messages = 0
        self.kinds: Counter[str] = Counter()

    def hold(self, asked: Hold) -> HeldUpTo | Refused | None:
        """Hold entries, and count them."""
        answer = super().hold(asked)
        self.sent += 4 + len(msgspec.msgpack.encode(asked))
        self.most = max(self.most, sum(map(len, self._entries)))
        for each in asked.entries:
            self.held += len(each)
            sizes = Counter[str]()
            for entry in decode_tail(each, "a standby").entries:
                for record in entry:
                    sizes.update(dict(_sizes_of(record)))
                    self.messages += isinstance(record, StepDigest) or _is_of_source(record)
            sizes[FRAMES] += len(each) - sizes.total()
            self.kinds += sizes
        return answer


def _is_of_source(record: Record) -> bool:
    return isinstance(record, Determinant) and isinstance(record.outcome, dict) and "position" in record.outcome


def _sizes_of(record: Record) -> Iterator[tuple[str, int]]:
    """Return the bytes of a record by kind, but for what belongs to no kind."""
    size = len(msgspec.msgpack.encode(record))
    match record:
        case Determinant(outcome=outcome) if _is_of_source(record):
            clock = len(msgspec.msgpack.encode({name: outcome[name] for name in ("clock", "seed")})) - 1
            yield from ((CLOCK, clock), (INPUT, size - clock))
        case Determinant():
            yield ORDER, size
        case LoggedMessage():
            yield ANSWERS, size
        case StepDigest():
            yield DIGESTS, size
        case SinkCommit():
            yield ACCOUNTS, size


def measure(effort: Effort) -> Result:
    """Run the dataflow once a round."""
    import boatlift as bl

    with bl.session(master="local[2]") as spark:
        tails = [_run(spark, effort) for _ in range(effort.rounds)]
    theirs = sum(CLONOS[name] for name in MESSAGE_OF_CLONOS)

    def figure(unit: str, values: Iterator[float]) -> Figure:
        return Figure.of(unit, list(values))

    held = figure("bytes", (each.held / each.messages for each in tails))
    return Result(
        name="causal_bytes",
        target="reported: bytes of determinants a message, over those of Clonos for a message with a time and a random "
        "number",
        met=True,
        ratios={"Clonos": round(held.median / theirs, 3)},
        figures={
            "held a message": held,
            "sent a message": figure("bytes", (each.sent / each.messages for each in tails)),
            **{
                f"held a message, {kind}": figure("bytes", (t.kinds[kind] / t.messages for t in tails))
                for kind in KINDS
            },
            "held at once": figure("MB", (each.most / 1e6 for each in tails)),
            **{f"Clonos, {name}": Figure.of("bytes", [size]) for name, size in CLONOS.items()},
            "Clonos, held at once for each upstream, at most": Figure.of("MB", [CLONOS_MOST_MB]),
        },
    )


def _run(spark: SparkSession, effort: Effort) -> CountingTail:
    from pyspark.sql import functions as F

    import boatlift as bl

    files = data.drawn_keys(ROWS, effort.keys(KEYS), 10)
    watch, tail, fed = Watch(), CountingTail(), 0
    with tempfile.TemporaryDirectory() as folder:
        flow = bl.Dataflow("bytes", determinants="peers:1")
        one, other = (_source(flow, Path(folder), name) for name in ("one", "two"))
        asked = one.merge("both", other).transform(
            "asked", lambda df: df.withColumn("answer", _answered()), deterministic=False
        )
        sums = asked.group_by("k").agg("sums", F.sum("answer").alias("total"))
        sums.sink("out", bl.foreach(pass_over))
        store = CountingStore(LocalStore.open(Path(folder) / "store", create=True), DELAY, rides=False)
        watch.running = bl.start(flow, store, spark=spark, on_progress=watch)
        link = hold_for(Path(folder) / "store", tail)

        def step() -> None:
            nonlocal fed
            for name in ("one", "two"):
                feed(Path(folder) / name, fed, cycled(files, fed, 1)[0])
            fed += 1
            watch.wait(lambda: len(watch.of("commit", "out")) >= 2 * fed)

        while not tail.messages:
            step()
        for _ in range(STEPS):
            step()
        watch.running.stop()
        link.close()
    return tail


def _source(flow: Any, folder: Path, name: str) -> Any:
    import boatlift as bl

    (folder / name).mkdir()
    return flow.source(
        name, bl.files(folder / name, format="parquet", schema="k BIGINT, v DOUBLE", max_files_per_step=1)
    )


def _answered() -> Column:
    import boatlift as bl

    return bl.call(lambda key: key % 7, "k", returns="long")
