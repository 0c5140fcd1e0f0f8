"""A processor fails alone, on Spark: it is tried again, and the others go on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.host import failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

STEPS, BAD = 6, 34
TASK_ATTEMPTS = 2
"""So often Spark tries a task before the step is a failure."""


def flow_of(marks: Path) -> bl.Dataflow:
    """Two aggregates of one source, of which one asks the outside, which fails at a number until it is mended."""
    from pyspark.sql import functions as F

    mended, once = str(marks / "mended"), str(marks / "once")  # a path changes when it is looked at, a text does not

    def fails(value: int) -> int:
        if value == BAD and not Path(mended).exists():
            if Path(once).exists():
                with Path(once).open("a") as tries:
                    tries.write("x")
                if Path(once).stat().st_size >= TASK_ATTEMPTS:
                    Path(mended).touch()
            raise ConnectionError("nobody answers")
        return value

    def asked(df: DataFrame) -> DataFrame:
        return df.withColumn("value", F.udf(fails, "long")("value"))

    flow = bl.Dataflow("failures")
    numbers = flow.source("numbers", bl.generator({"value": "id"}, rows_per_step=10, steps=STEPS))
    keyed = numbers.transform("keyed", lambda df: df.withColumn("k", F.col("value") % 3))
    answered = keyed.transform("asked", asked, deterministic=False)
    left = answered.group_by("k").agg("left", F.sum("value").alias("total"))
    left.sink("lefts", bl.parquet("lefts"))
    keyed.group_by("k").agg("right", F.sum("value").alias("total")).sink("rights", bl.parquet("rights"))
    return flow


def sums(folder: str) -> dict[int, int]:
    held: dict[int, int] = {}
    for path in sorted(Path(folder).glob("*.parquet")):
        held |= {row["k"]: row["total"] for row in pq.read_table(path).to_pylist() if row["_weight"] > 0}
    return held


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(failures, "BACKOFF_SECONDS", 0.01)
    monkeypatch.chdir(tmp_path)
    return tmp_path


EXPECTED = {k: sum(range(k, 10 * STEPS, 3)) for k in range(3)}


def test_a_function_that_fails_once_costs_a_step_of_its_own_processor(here: Path, spark: SparkSession) -> None:
    seen: list[bl.Progress] = []
    (here / "once").touch()
    bl.run(flow_of(here), "store", available_now=True, spark=spark, on_progress=seen.append)
    assert sums("lefts") == sums("rights") == EXPECTED
    assert [(p.processor, p.time) for p in seen if p.what == "failure"] == [("asked", BAD // 10)]
    for unit in ("keyed", "right"):
        assert [p.time for p in seen if (p.what, p.processor) == ("step", unit)] == list(range(STEPS))


def test_a_batch_that_fails_for_ever_stops_the_dataflow_which_goes_on_once_mended(
    here: Path, spark: SparkSession
) -> None:
    with pytest.raises(bl.UserCodeError, match=r"(?s)\[USER_CODE\].*nobody answers"):
        bl.run(flow_of(here), "store", available_now=True, spark=spark)
    (here / "mended").touch()
    bl.run(flow_of(here), "store", available_now=True, spark=spark)
    assert sums("lefts") == sums("rights") == EXPECTED
