"""A store goes on under another version of Spark, Python or Boatlift: nothing of its program has changed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.errors import DataError
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import UNITS, Admitted, Claim, Stopped
from support.changes import Case, MortalSink, evolve, run, write
from support.crash.mortality import Fate, MortalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

OTHER = {"plan": "as another version analyses it", "code": "as another Python compiles it"}


def flow_of(through: Any = lambda sink: sink, *, more: int = 0) -> bl.Dataflow:
    from pyspark.sql import functions as F

    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    scaled = rows.transform("scaled", lambda df: df.withColumn("v", F.col("v") * 2 + more))
    totals = scaled.group_by("k").agg("totals", F.sum("v").alias("total"))
    totals.sink("answers", through(bl.sqlite("answers.db", table="totals", key=["k"])))
    flow.sql("top", "SELECT k, max(total) AS best FROM totals GROUP BY k").sink("history", bl.parquet("history"))
    return flow


def recorded_by_another_version(*, stopped: bool = True, **other: dict[str, str]) -> None:
    """Write the store's program as another version of Spark would have: with other hashes of the same text.

    Args:
        stopped: Whether it has stopped cleanly.
        other: Processor to further hashes of its own.
    """
    log = Log.open(LocalStore.open(Path("store"), create=False), "flow")
    program: dict[str, Any] = dict(log.history.program)
    for entry, about in program.items():
        if entry != UNITS and entry.startswith("processor "):
            hashes = {key: each for key, each in OTHER.items() if key in about}
            program[entry] = {**about, **hashes, **other.get(entry.removeprefix("processor "), {})}
    environment = {**log.history.environment, "spark": "4.2.0"}
    log.claim(Claim("host", 1, 0, program, environment), accepts=lambda *_: program)
    log.append([Stopped() if stopped else Admitted()])


def test_an_upgrade_needs_no_change(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    before = sorted(Path("history").glob("*.parquet"))
    recorded_by_another_version()
    assert not bl.evolution(flow_of(), "store", spark=spark).is_changed
    write(case.here, 7)
    run(flow_of(), spark)
    assert sorted(Path("history").glob("*.parquet"))[: len(before)] == before
    case.check(flow_of, "answers.db", "history")
    assert not bl.evolution(flow_of(), "store", spark=spark).is_changed  # it is recorded as this version has it


def test_with_an_upgrade_a_change_is_a_change(case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    recorded_by_another_version()
    plan = bl.evolution(flow_of(more=1), "store", spark=spark)
    assert {name: each.change for name, each in plan.processors.items() if each.change != "unchanged"} == {
        "scaled": "changed",
        **dict.fromkeys(("totals", "answers", "top", "history"), "downstream of a change"),
    }
    evolve(flow_of(more=1), spark)
    case.check(lambda: flow_of(more=1), "answers.db", "history")


@pytest.mark.parametrize("name", ["totals", "top"])
def test_a_state_of_another_form_is_made_anew(name: str, case: Case, spark: SparkSession) -> None:
    run(flow_of(), spark)
    before = {path: path.read_bytes() for path in Path("history").glob("*.parquet")}
    recorded_by_another_version(**{name: {"layout": "of another version"}})
    plan = bl.evolution(flow_of(), "store", spark=spark)
    assert {each: about.mode for each, about in plan.processors.items() if about.mode} == {name: "relayout"}
    with pytest.raises(DataError, match="unchanged, with a state of another form") as refused:
        run(flow_of(), spark)
    assert refused.value.condition == "PROGRAM_CHANGED"
    evolve(flow_of(), spark)
    assert {path: path.read_bytes() for path in Path("history").glob("*.parquet")} == before  # sinks got nothing
    write(case.here, 7)
    run(flow_of(), spark)
    case.check(flow_of, "answers.db", "history")


def test_after_a_crash_under_versions_that_are_gone_all_is_computed_anew(case: Case, spark: SparkSession) -> None:
    """Steps are executed again under the versions of before, or not at all."""
    fate = Fate(6, after=True)
    with pytest.raises(BaseException) as death:
        run(flow_of(partial(MortalSink, fate=fate)), spark, MortalStore.of(Path("store"), fate))
    assert fate.over, death.value
    recorded_by_another_version(stopped=False)
    with pytest.raises(DataError) as refused:
        run(flow_of(), spark)
    assert refused.value.condition == "ENVIRONMENT_CHANGED"
    evolve(flow_of(), spark, all="fill")
    case.check(flow_of, "answers.db", "history")
