"""Programs that change: their input, their sinks' content, and the comparison with a fresh store."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

import boatlift as bl
from boatlift.connectors.kit import SinkWrapper
from boatlift.storage.local import LocalStore
from support.crash.mortality import Fate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    lines = [f"{key},{number * 10 + key}" for key in range(7)]
    (folder / "in" / f"{number:03}.csv").write_text("\n".join(["k,v", *lines]) + "\n")


def table(path: str | Path, name: str) -> list[tuple[Any, ...]]:
    with sqlite3.connect(path) as database:
        rows: list[tuple[Any, ...]] = database.execute(f"SELECT * FROM {name}").fetchall()
        return sorted(rows, key=repr)


def changes(folder: str | Path) -> Counter[tuple[Any, ...]]:
    held: Counter[tuple[Any, ...]] = Counter()
    for path in sorted(Path(folder).glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            weight = row.pop("_weight", 1)
            values = ((name, value) for name, value in row.items() if value is not None)  # older files have fewer
            held[tuple(sorted(values))] += weight
    return Counter({row: weight for row, weight in held.items() if weight})


def run(flow: bl.Dataflow, spark: SparkSession, store: str | LocalStore = "store", **options: Any) -> None:
    bl.run(flow, store, available_now=True, spark=spark, **options)


def evolve(flow: bl.Dataflow, spark: SparkSession, **change: str) -> None:
    run(flow, spark, evolve=plan_id(flow, spark, change), change=change)


def plan_id(flow: bl.Dataflow, spark: SparkSession, change: dict[str, str]) -> str:
    return bl.evolution(flow, "store", change=change, spark=spark).id


class MortalSink(SinkWrapper):
    """A sink whose process dies at one of its calls on it."""

    def __init__(self, sink: Any, fate: Fate) -> None:
        super().__init__(sink)
        self.fate = fate

    def open(self, context: Any) -> Any:
        return self.fate.call(lambda: self.sink.open(context))

    def commit(self, *step: Any) -> Any:
        return self.fate.call(lambda: self.sink.commit(*step))


class Case:
    """A store with a program, and another one with the same input, which begins afresh."""

    def __init__(self, here: Path, spark: SparkSession) -> None:
        self.here, self.spark = here, spark

    def check(self, flow: Callable[[], bl.Dataflow], *sinks: str) -> None:
        """Hold sinks, after more input, against those of a fresh store."""
        write(self.here, 7)
        run(flow(), self.spark)
        fresh = self.here / "fresh"
        fresh.mkdir()
        (fresh / "in").symlink_to(self.here / "in")
        (fresh / "other").symlink_to(self.here / "other")
        held = {name: self._held(name) for name in sinks}
        with chdir(fresh):
            run(flow(), self.spark)
            assert held == {name: self._held(name) for name in sinks}
        assert all(held.values())

    def _held(self, name: str) -> Any:
        return table(name, "totals") if name.endswith(".db") else changes(name)
