"""The cases of sinks, and the steps that laws put into them (`sink_laws`).

A case is in `connectors.sink_cases`: functions of a folder, so that other processes can use them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from boatlift.dataflow.contracts import Outcome, Sink, SinkContext, Staged

Row = tuple[Any, ...]


SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("name", pa.string()),
        ("value", pa.float64()),
        pa.field("_weight", pa.int64(), nullable=False),
    ]
)


class SinkCase(Protocol):
    """A kind of sink, as the suite uses it: a class, or an object, that can be handed to other processes."""

    refuses_nan: ClassVar[bool]

    lacks_infinity: ClassVar[bool] = False
    """Whether infinite numbers are refused, as NaN is."""

    lags: ClassVar[bool] = False
    """Whether the last step of a killed process may become visible a moment later."""

    refuses_nul: ClassVar[bool] = False
    """Whether text with a NUL character is refused."""

    @staticmethod
    def make(folder: Path) -> Sink:
        """Make the sink in a folder; a keyed one by the column `k`; it waits for locks only a moment."""

    @staticmethod
    def make_with_another_key(folder: Path) -> Sink:
        """Make the sink with another key than `make`."""

    @staticmethod
    def read(folder: Path) -> list[Row]:
        """Return all visible rows: (k, name, value) of a keyed sink, else with `_weight`; [] if there are none."""

    @classmethod
    def read_at_once(cls, folder: Path) -> list[Row]:
        """Return all rows visible now, though a killed process may have left a transaction open."""
        return cls.read(folder)

    @classmethod
    def name(cls, folder: Path) -> str:
        """Return what messages name the place by."""
        return str(folder)

    @classmethod
    def remove(cls, folder: Path) -> None:
        """Remove the place."""
        shutil.rmtree(folder)

    @staticmethod
    def spoil(folder: Path) -> None:
        """Put rows into the sink's place that no Boatlift wrote."""

    @staticmethod
    def damages() -> dict[str, tuple[str, Callable[[Path], None]]]:
        """What can happen to a place with three steps: name to (the condition that `verify` tells, what does it)."""


AnyCase = SinkCase | type[SinkCase]

STORE = "5" * 32


def context(token: int = 1, *, dataflow: str = "flow", sink: str = "out", store: str = STORE) -> SinkContext:
    return SinkContext(dataflow, sink, store, token, SCHEMA, changes=True)


def rows_of(step: int) -> list[Row]:
    """A step's rows, at most one a key; NULL is a key, unless `as_taken` says otherwise; some are deletes."""
    keys: list[int | None] = [None, *((step * 7 + i) % 97 for i in range(40))]
    return [(key, f"step {step} row {i}", i / 4, -1 if step and i % 5 == 4 else 1) for i, key in enumerate(keys)]


def as_taken(sink: Sink, rows: Sequence[Row]) -> Sequence[Row]:
    """Return rows with another key in place of NULL, if the sink takes no NULL in a key."""
    if sink.key is None or sink.describe()["kind"] != "mysql":
        return rows
    return [(-1 if row[0] is None else row[0], *row[1:]) for row in rows]


def visible(sink: Sink, steps: int) -> list[Row]:
    """What must be seen once steps 0 … steps − 1 are committed."""
    if sink.key is None:
        return ordered([row for step in range(steps) for row in rows_of(step)])
    held: dict[Any, Row] = {}
    for step in range(steps):
        for row in as_taken(sink, rows_of(step)):
            held.pop(row[0], None)
            if row[3] > 0:
                held[row[0]] = row[:3]
    return ordered(held.values())


def ordered(rows: Any) -> list[Row]:
    return sorted(rows, key=repr)


def batch_of(rows: Sequence[Row], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def stage(
    sink: Sink, folder: Path, step: int, rows: Sequence[Row] | None = None, schema: pa.Schema = SCHEMA
) -> list[Staged]:
    """Stage a step's rows as three tasks would, one of which has no rows."""
    rows = as_taken(sink, rows_of(step) if rows is None else rows)
    scratch = folder.parent / f"{folder.name}-scratch"
    scratch.mkdir(exist_ok=True)
    half = len(rows) // 2
    receipts = []
    for partition, part in enumerate((rows[:half], [], rows[half:])):
        batches: Iterator[pa.RecordBatch] = iter(
            [batch_of(part[:3], schema), batch_of(part[3:], schema)] if part else []
        )
        name = f"piece-{step}-{partition}-{time.monotonic_ns()}"
        receipts.append(sink.stager().stage(str(scratch), name, partition, batches))
    return receipts


def put(sink: Sink, folder: Path, step: int, rows: Sequence[Row] | None = None) -> Outcome:
    """Stage and commit a step."""
    count = len(rows_of(step) if rows is None else rows)
    return sink.commit(step, count, f"digest {step}", stage(sink, folder, step, rows))
