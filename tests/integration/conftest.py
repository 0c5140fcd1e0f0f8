"""Fixtures of tests of long-running jobs (they begin soon, and what they did is noted) and of changed programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.long_running import LongRunningJob
from boatlift.tasks.parameters import JobParameters
from boatlift.tasks.stage import TaskReceipt
from support.changes import Case, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long-running job begins after the second step, and again at once after a failure; quick steps are lent too."""
    settings = {"STEPS_BEFORE": 1, "QUICK_SECONDS": 60.0, "MOST_BACKOFF": 0.0, "LENT_SECONDS": 0.0}
    for name, value in settings.items():
        monkeypatch.setattr(f"boatlift.spark.jobs.long_running.{name}", value)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that a long-running job has executed."""
    found: list[int] = []
    step = LongRunningJob._step

    def noted(job: LongRunningJob, part: Any, parameters: JobParameters, given: bytes) -> bytes | None:
        report = step(job, part, parameters, given)
        if report is not None:
            found.append(parameters.first)
        return report

    monkeypatch.setattr(LongRunningJob, "_step", noted)
    return found


@pytest.fixture
def bits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What tasks have left of each step: rows, digest, and the bytes of each file."""
    found: list[Any] = []
    result = Jobs.result

    def noted(jobs: Jobs, unit: Any, take: Any, receipts: Sequence[TaskReceipt], *rest: Any, **options: Any) -> Any:
        for each in receipts:
            files = [
                (name, None if run is None else (run.rows, run.size, run.digest))
                for name, run in sorted({**each.staged, **each.runs}.items())
            ]
            found.append((unit.name, take.number, each.partition, each.rows_in, each.rows, each.digest, files))
        return result(jobs, unit, take, receipts, *rest, **options)

    monkeypatch.setattr(Jobs, "result", noted)
    return found


@pytest.fixture
def case(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Case:
    """A folder with some files of input, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    for number in range(6):
        write(tmp_path, number)
    return Case(tmp_path, spark)
