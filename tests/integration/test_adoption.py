"""The driver alone dies: the next run goes on with what it had in memory, and executes no recorded step again."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

import boatlift as bl
from boatlift.runtime.host.soft_checkpoints import FILE
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from support.crash import regimes
from support.crash.data import make_files
from support.crash.dying import DiesError, dying_at
from support.crash.judges import is_one_execution

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.adopts, pytest.mark.timeout(600)]

cloudpickle.register_pickle_by_value(regimes)


def flow_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> bl.Dataflow:
    monkeypatch.chdir(folder)  # the paths of the flow are of the folder in which its module is loaded
    make_files(folder)
    return importlib.reload(regimes).flow


def recorded() -> set[tuple[str, int]]:
    """Return the units' steps whose results are on record."""
    results = Log.open(LocalStore.open(Path("store"), create=False), None).history.live_records.results
    return {
        (unit, int(time))  # type: ignore[arg-type]
        for unit, times in results.items()
        for time in times
        if unit not in ("rows", "queries")
    }


@pytest.mark.parametrize(
    ("what", "processor", "nth"),
    [("commit", "told", 2), ("step", "fits", 2), ("checkpoint", "live", 1), ("commit", "interest", 6)],
)
def test_no_recorded_step_of_any_policy_is_executed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession, what: str, processor: str, nth: int
) -> None:
    flow = flow_in(tmp_path, monkeypatch)
    executed = set[tuple[str, int]]()
    with pytest.raises(DiesError):
        bl.run(flow, "store", available_now=True, spark=spark, on_progress=dying_at(what, processor, nth))
    before = recorded()
    assert len(before) > 3

    def note(progress: bl.Progress) -> None:
        if progress.what == "step":
            executed.add((progress.processor, progress.time))
            assert not progress.replay

    bl.run(flow, "store", available_now=True, spark=spark, on_progress=note)
    assert not before & executed
    is_one_execution(tmp_path, tmp_path)


def test_without_scratch_the_same_death_costs_a_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    flow = flow_in(tmp_path, monkeypatch)
    with pytest.raises(DiesError):
        bl.run(flow, "store", available_now=True, spark=spark, on_progress=dying_at("commit", "told", 2))
    assert list(Path("store/scratch").glob(f"*/{FILE}"))
    shutil.rmtree("store/scratch")
    replayed: list[bl.Progress] = []
    bl.run(flow, "store", available_now=True, spark=spark, on_progress=replayed.append)
    assert [each for each in replayed if each.replay]
    is_one_execution(tmp_path, tmp_path)
