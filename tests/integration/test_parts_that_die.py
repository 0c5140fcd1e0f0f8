"""The tasks of a long-running job die, fail, are stopped or hang at each act of a step: no step is lost."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from support.rows import dying_parts
from support.rows.dying_parts import DyingSink, DyingSource, obey
from support.rows.long_running_jobs import has_long_running_job, holds_slot
from support.waiting import until, within

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("soon")]

STEPS, DIES_AT = 12, 5


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Tasks have another working folder, and cannot import these modules."""
    monkeypatch.chdir(tmp_path)
    modules = sys.modules[__name__], dying_parts
    for each in modules:
        cloudpickle.register_pickle_by_value(each)
    yield tmp_path
    for each in modules:
        cloudpickle.unregister_pickle_by_value(each)


POINTS = [
    "reads before",
    "reads after",
    "in a function",
    *(f"{sink} {act}" for sink in ("most", "pairs") for act in ("before", "after")),
]


@pytest.mark.parametrize(
    ("point", "what"),
    [
        *((point, what) for point in POINTS for what in ("die", "fail")),
        *((point, what) for point in ("reads before", "in a function", "most after") for what in ("stop", "hang")),
    ],
)
def test_every_step_is_done_once(spark: SparkSession, answered: list[int], here: Path, point: str, what: str) -> None:
    order = str(here / "order")

    @F.udf("long", useArrow=True)  # type: ignore[untyped-decorator]
    def doubled(number: int) -> int:
        obey(order, "in a function")
        return 2 * number

    flow = bl.Dataflow("dies")
    source = DyingSource(bl.push("id LONG NOT NULL", ack="stable"), order, "reads ")
    rows = flow.source("rows", source)
    rows.transform("twice", lambda df: df.withColumn("twice", doubled("id")), deterministic=True)
    most = flow.sql("most", "SELECT n, count(*) AS m FROM (SELECT twice % 3 AS k, count(*) AS n FROM twice GROUP BY 1) "
                    "GROUP BY n")  # fmt: skip
    pairs = flow.sql("pairs", "SELECT a.id, b.twice FROM twice AS a JOIN twice AS b ON a.twice = b.id")
    for name, view in (("most", most), ("pairs", pairs)):
        view.sink(f"{name}_out", DyingSink(bl.parquet(name), order, f"{name} "))
    running = bl.start(flow, "store", spark=spark, step_timeout=1.0 if what == "hang" else None)
    try:
        for step in range(STEPS):
            flow.push("rows", [{"id": step}])
            if step == DIES_AT and what == "hang":  # the job ends a second after its step was given up
                within(10, lambda: not holds_slot(spark))
            if step in (2, DIES_AT + 2):
                until(lambda: has_long_running_job(spark))
            if step == DIES_AT - 1:
                Path(order).write_text(f"{point} {what}")
    finally:
        running.stop()
    assert not Path(order).exists()
    assert {DIES_AT - 1, STEPS - 1} <= set(answered)
    per_key = Counter(Counter(2 * number % 3 for number in range(STEPS)).values())
    assert held("most") == Counter(dict.fromkeys(per_key.items(), 1))
    assert held("pairs") == Counter({(number, 4 * number): 1 for number in range(STEPS) if 2 * number < STEPS})


def held(folder: str) -> Counter[tuple[int, ...]]:
    """Return the rows that the changes of a sink add up to."""
    rows: Counter[tuple[int, ...]] = Counter()
    for row in pq.read_table(folder).to_pylist():
        weight = row.pop("_weight")
        rows[tuple(row.values())] += weight
    return Counter({row: weight for row, weight in rows.items() if weight})
