"""Rescaling with data in flight: other numbers of tasks after a kill or a stop, with messages waiting on every edge.

FLIP-76 asks for it on keyed edges. Here an edge of each kind is one of one dataflow: to a keyed aggregate, a transform,
a union, a merge, a lookup (of its rows and of its table), and a batch.
"""

from __future__ import annotations

import shutil
import threading
from collections import Counter, defaultdict
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext

import boatlift as bl
from boatlift.runtime.host import term
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.machine.instructions import Execute
from boatlift.spark.engine import SparkEngine
from boatlift.spark.jobs import planner
from support.crash.dying import DiesError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 12
WAITING = 5
HELD = {"sums": 6, "tripled": 1, "united": 1, "merged": 1, "told": 1, "fit": 0}
"""Each reader to the first of its steps that does not begin: at least so many steps wait for it then."""

EXACT = ("sums", "tripled", "united")
"""Sinks whose steps are the same in every run: nothing before them depends on an order of arrival."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of files, one a step."""
    folder = tmp_path_factory.mktemp("data")
    for name, factor in (("rows", 1), ("more", 7)):
        (folder / name).mkdir()
        for number in range(FILES):
            lines = [f"key{(n * factor) % 9},{number * 100 + n}.25" for n in range(40)]
            (folder / name / f"part-{number:02}.csv").write_text("\n".join(["k,v", *lines]) + "\n")
    return folder


def flow_of(data: Path, out: Path) -> bl.Dataflow:
    from pyspark.sql import functions as F

    def source(name: str) -> bl.Stream:
        return flow.source(name, bl.files(data / name / "*.csv", schema="k STRING, v DOUBLE", max_files_per_step=1))

    flow = bl.Dataflow("rescaled")
    rows, more = source("rows"), source("more")
    clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL"), policy=bl.Eager())
    other = more.transform("other", lambda df: df.where("v IS NOT NULL"), policy=bl.Eager())
    policy = bl.Lazy(every=4)
    sums = clean.group_by("k").agg("sums", F.count("*").alias("n"), F.sum("v").alias("total"), policy=policy)
    tripled = clean.transform("tripled", lambda df: df.withColumn("w", F.col("v") * 3), policy=bl.Eager())
    made = {
        "sums": sums,
        "tripled": tripled,
        "united": clean.union("united", other),
        "merged": clean.merge("merged", other),
        "told": other.lookup("told", live=sums.by("k")),
        "fit": clean.recompute("fit", lambda df: df.groupBy("k").count(), policy=bl.Batch(epochs=3), over="batch"),
    }
    for name, stream in made.items():
        stream.sink(f"{name}_out", bl.parquet(out / name))
    return flow


class Gate:
    """Lets readers execute some steps and no more, until it is opened; then it lets them go on, or die.

    Attributes:
        reached: Set once messages wait on every edge.
    """

    def __init__(self, *, kills: bool) -> None:
        self.kills, self.reached, self._open = kills, threading.Event(), threading.Event()
        self._executed: Counter[str] = Counter()
        self._closed: Counter[str] = Counter()

    def watch(self, progress: Progress) -> None:
        """Die, if it is to, once messages wait on every edge; open when the run is told to stop."""
        self._executed[progress.processor] += progress.what == "step"
        if progress.what == "stopping":
            self._open.set()
        senders = all(self._executed[name] == FILES for name in ("clean", "other"))
        if senders and all(self._executed[name] == first for name, first in HELD.items()):
            self.reached.set()
            if self.kills:
                self._open.set()
                raise DiesError

    def passes(self, order: Execute) -> None:
        """Hold a step up, if its processor has executed as many as it may."""
        first = HELD.get(order.processor)
        if first is not None and order.takes[0].number >= first:
            self._open.wait()
            if self.kills:
                raise DiesError


def steps_of(folder: Path) -> dict[str, list[Any]]:
    """Return file to its rows: a step is a file, and floats are compared as they are."""
    return {path.name: sorted(map(repr, pq.read_table(path).to_pylist())) for path in sorted(folder.glob("*.parquet"))}


def rows_of(folder: Path) -> Counter[str]:
    """Return all rows, whichever step they are of."""
    return Counter(row for rows in steps_of(folder).values() for row in rows)


def in_order(folder: Path) -> bool:
    """Return whether the rows of each step, which are those of one file, come as they stand in it."""
    return all(
        (values := pq.read_table(path, columns=["v"])["v"].to_pylist()) == sorted(values)
        for path in folder.glob("*.parquet")
    )


def counts_of(folder: Path) -> dict[str, int]:
    """Return key to the counts of all epochs in all."""
    counts: dict[str, int] = defaultdict(int)
    for path in folder.glob("*.parquet"):
        for row in pq.read_table(path).to_pylist():
            counts[row["k"]] += row["count"]
    return dict(counts)


@pytest.fixture(scope="module")
def whole(data: Path, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of an undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    bl.run(flow_of(data, folder), store=folder / "store", available_now=True, spark=spark)
    return folder


def test_each_step_has_as_many_tasks_as_there_are_slots_then(
    data: Path, whole: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors come and go while the dataflow runs."""
    slots = cycle((1, 4, 2, 8))
    monkeypatch.setattr(SparkContext, "defaultParallelism", property(lambda _self: next(slots)))
    monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)  # a small step has one task, and does not ask for slots
    divided, tasks_for = set(), planner.tasks_for

    def noted(weight: int, parallelism: int) -> int:
        divided.add(parallelism)
        return tasks_for(weight, parallelism)

    monkeypatch.setattr(planner, "tasks_for", noted)
    bl.run(flow_of(data, tmp_path), store=tmp_path / "store", available_now=True, spark=spark)
    assert divided == {1, 2, 4, 8}
    for name in EXACT:
        assert steps_of(tmp_path / name) == steps_of(whole / name), name


@pytest.mark.parametrize("end", ["killed", "stopped"])
@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 1)])
def test_other_tasks_take_what_waits_on_every_edge(
    before: int,
    after: int,
    end: str,
    data: Path,
    whole: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate, run = Gate(kills=end == "killed"), SparkEngine.run

    def gated(self: SparkEngine, order: Execute) -> Any:
        gate.passes(order)
        return run(self, order)

    with monkeypatch.context() as first:
        first.setattr(term, "MESSAGES_AHEAD", 1000)
        first.setattr(SparkContext, "defaultParallelism", property(lambda _self: before))
        first.setattr(SparkEngine, "run", gated)
        started = bl.start(flow_of(data, tmp_path), tmp_path / "store", spark=spark, on_progress=gate.watch)
        assert gate.reached.wait(120), "messages never waited on every edge"
        if end == "stopped":
            started.stop()
        else:
            with pytest.raises(DiesError):
                started.wait(120)
    monkeypatch.setattr(SparkContext, "defaultParallelism", property(lambda _self: after))
    bl.run(flow_of(data, tmp_path), store=tmp_path / "store", available_now=True, spark=spark)
    for name in EXACT:
        assert steps_of(tmp_path / name) == steps_of(whole / name), name
    assert in_order(tmp_path / "tripled"), "the rows of a file keep their order"
    assert rows_of(tmp_path / "merged") == rows_of(whole / "merged")
    assert counts_of(tmp_path / "fit") == counts_of(whole / "fit")
    told = [row for path in (tmp_path / "told").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert Counter((row["k"], row["v"]) for row in told) == Counter(
        (row["k"], row["v"]) for path in (whole / "told").glob("*.parquet") for row in pq.read_table(path).to_pylist()
    )
    shutil.rmtree(tmp_path / "store")
