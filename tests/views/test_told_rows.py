"""Small steps of a view are run by one plan: the parameters of a job name the rows of sources and of units."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.spark.incremental.template import Template
from boatlift.spark.jobs.told_rows import ToldInputs, ToldRows
from support.event_time import BEGIN
from support.stepped_rows import Fields, rows_of, run, steps_of, write_steps

pytestmark = pytest.mark.spark

STEPS = 8

QUERIES = {
    "one source": "SELECT k, count(*) AS n, max(v) AS most FROM one GROUP BY k",
    "a source twice": "SELECT l.v, r.k FROM one l JOIN one r ON l.v = r.v + 1",
    "two sources": "SELECT l.k, l.v, r.at FROM one l JOIN two r ON l.k = r.k AND l.v = r.v",
    "a unit": "SELECT k, window.start AS begins, sum(v) AS v FROM timely GROUP BY k, window(at, '1 minute')",
    "a unit and a source": "SELECT DISTINCT l.k, r.v FROM timely l JOIN two r ON l.v = r.v",
    "rows alone": "SELECT k, v * 2 AS twice FROM one WHERE v > 3",
    "two jobs": "SELECT k, n, rank() OVER (PARTITION BY n ORDER BY k) AS place FROM "
    "(SELECT k, count(*) AS n FROM one GROUP BY k)",
}


def _drawn(seed: int) -> list[list[Fields]]:
    chance = random.Random(seed)
    return [
        [
            {"k": chance.choice("abc"), "v": chance.randrange(12), "at": BEGIN + timedelta(seconds=20 * step + number)}
            for number in range(0 if step == 3 else 6)
        ]
        for step in range(STEPS)
    ]


def _run(spark: SparkSession, place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[dict[str, Any]]]]:
    """Run all queries over two folders of rows, and return the rows of each step, in their order."""
    place.mkdir()
    monkeypatch.chdir(place)
    for number, name in enumerate(("one", "two")):
        write_steps(_drawn(number), name)
    flow = bl.Dataflow("told")
    one, _ = rows_of(flow, "one"), rows_of(flow, "two")
    one.lateness("timely", "at", "1 minute")
    for name, query in QUERIES.items():
        own = name.replace(" ", "_")
        flow.sql(own, query).sink(f"{own}_out", bl.parquet(f"out/{own}"))
    run(flow, spark)
    return {name: steps_of(f"out/{name.replace(' ', '_')}") for name in QUERIES}


def test_the_plan_of_a_small_step_stands_and_gives_what_a_plan_of_its_own_gives(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Law: the same rows, in the same order, step by step."""
    filled, told = list[object](), list[ToldInputs]()
    fill, of = Template.filled, ToldRows.of

    def noted(self: Template, frames: Any) -> Any:
        filled.append(frames)
        return fill(self, frames)

    def noted_told(self: ToldRows, sent: Any) -> ToldInputs | None:
        made = of(self, sent)
        if made is not None:
            told.append(made)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(Template, "filled", noted)
        patched.setattr(ToldRows, "of", noted_told)
        standing = _run(spark, tmp_path / "standing", patched)
    assert not filled, "no step was planned again"
    assert len(told) >= len(QUERIES) * (STEPS - 2)
    assert any(each.channels for each in told)
    with monkeypatch.context() as patched:
        patched.setattr(ToldRows, "of", lambda _self, _sent: None)
        patched.setattr(Template, "filled", noted)
        apart = _run(spark, tmp_path / "apart", patched)
    assert filled, "each step was planned again"
    assert standing == apart
    assert all(any(steps) for steps in standing.values())
