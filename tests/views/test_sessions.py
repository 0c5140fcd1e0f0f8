"""Session windows of views over changes with a lateness: each step is Spark's, and rows of ended sessions go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.console.plan import show_plan
from boatlift.spark.jobs import planner
from boatlift.spark.jobs.state_parts import HeldRuns, StateParts
from boatlift.state import table
from support.crash.dying import DiesError, dying_at
from support.rows.event_time import BEGIN, SECOND, Bounds
from support.rows.stepped_rows import Fields, rows_of, run, steps_of, write_steps

MINUTE = 60 * SECOND
STEPS = 24

QUERIES = {
    "by_key": "SELECT {step} k, session_window.start AS begins, session_window.end AS ends, count(*) AS n FROM timely "
    "GROUP BY {step} k, session_window(at, '20 seconds')",
    "of_all": "SELECT {step} session_window.end AS ends, collect_list(k) AS ks FROM timely "
    "GROUP BY {step} session_window(at, '5 seconds')",
    "own_gap": "SELECT {step} k, session_window.start AS begins, session_window.end AS ends, count(*) AS n FROM timely "
    "GROUP BY {step} k, session_window(at, CASE WHEN second(at) % 20 = 0 THEN '40 seconds' ELSE '12 seconds' END)",
    "of_distinct": "SELECT {step} k = 'a' AS a, dayofmonth(at) AS d, session_window.end AS ends, min(at) AS first "
    "FROM (SELECT DISTINCT {step} k, at + INTERVAL 10 SECONDS AS at FROM timely WHERE k <> 'b') "
    "GROUP BY {step} k = 'a', dayofmonth(at), session_window(at, '20 seconds')",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _drawn(seed: int) -> tuple[list[list[Fields]], list[Counter[tuple[str, object]]]]:
    """Return the changes of steps, `v` is their weight; and the rows that are there after each step."""
    chance, bounds = random.Random(seed), Bounds(MINUTE)
    held: Counter[tuple[str, object]] = Counter()
    steps, there = [], []
    for step in range(STEPS):
        changes: list[Fields] = []
        for _ in range(chance.randrange(2, 9)):
            at = BEGIN + step * MINUTE + chance.randrange(-16, 12) * 5 * SECOND
            changes.append({"k": chance.choice("abc"), "v": 1, "at": None if chance.random() < 0.03 else at})
        newest = [row for row in held if row[1] is not None and row[1] >= BEGIN + (step - 3) * MINUTE]  # type: ignore[operator]
        gone = chance.sample(newest, min(4, len(newest)))
        changes += [{"k": key, "v": -1, "at": at} for key, at in gone]
        steps.append(changes)
        for each in bounds.judge(changes)[0]:
            held[each["k"], each["at"]] += each["v"]
        held = +held
        there.append(held.copy())
    return steps, there


def _flow(queries: Sequence[str]) -> bl.Dataflow:
    flow = bl.Dataflow("sessions")
    flow_rows = rows_of(flow).changes("changes", weight="v")
    flow_rows.with_watermark("timely", "at", "1 minute", policy=bl.Lazy(every=3))
    for number, name in enumerate(queries):
        flow.sql(name, QUERIES[name].format(step=""), policy=bl.Lazy(every=3 + number)).sink(
            f"{name}_out", bl.parquet(f"out/{name}")
        )
    return flow


@pytest.mark.parametrize("divided", [False, True], ids=["one task", "divided"])
def test_each_step_is_that_of_spark_and_rows_of_ended_sessions_go(
    interpreting: SparkSession, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, divided: bool
) -> None:
    """Law: also where rows are taken back within the bound, and the program dies in the middle."""
    if divided:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)
    monkeypatch.setattr(table, "SINGLE", 1)  # merges as often as may be
    queries = ["by_key", "of_all"] if divided else list(QUERIES)
    steps, there = _drawn(11)
    write_steps(steps)
    sizes: dict[str, list[int]] = {}
    grown = StateParts.grown

    def watch(self: StateParts, held: HeldRuns, step: int, passed: Mapping[str, int]) -> None:
        rows = [run.rows for part, runs in held.items() for run in runs]
        sizes.setdefault(self._name, []).append(sum(rows))
        grown(self, held, step, passed)

    monkeypatch.setattr(StateParts, "grown", watch)
    with pytest.raises(DiesError):
        bl.run(
            _flow(queries),
            "store",
            available_now=True,
            spark=interpreting,
            on_progress=dying_at("step", "by_key", STEPS // 2),
        )
    run(_flow(queries), interpreting)
    rows = [Row(s=s, k=k, at=at) for s, held in enumerate(there) for k, at in held.elements()]
    interpreting.createDataFrame(rows, "s INT, k STRING, at TIMESTAMP").createOrReplaceTempView("timely")
    request.addfinalizer(partial(interpreting.catalog.dropTempView, "timely"))
    for name in queries:
        expected: list[Counter[str]] = [Counter() for _ in range(STEPS)]
        answer = (
            interpreting.sql(QUERIES[name].format(step="s,"))
            .select("*", F.lit(1).alias("_weight"))
            .toArrow()
            .to_pylist()
        )
        for row in answer:
            expected[row.pop("s")][_as_text(row)] += row["_weight"]
        held: Counter[str] = Counter()
        for step, changes in enumerate(steps_of(f"out/{name}")):
            for row in changes:
                held[_as_text(row)] += row["_weight"]
            assert {row: count for row, count in held.items() if count} == expected[step], (name, step)
        assert max(sizes[name][-8:]) <= 2 * max(sizes[name][5:15]), (name, sizes[name])
        assert max(sizes[name][-8:]) < there[-1].total() / 2, (name, sizes[name])


def _as_text(row: Fields) -> str:
    return repr(
        {name: sorted(value) if isinstance(value, list) else value for name, value in row.items() if name != "_weight"}
    )


def test_plan_says_that_rows_go_with_their_session(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.version
    write_steps([])
    show_plan(_flow(["by_key", "own_gap"]), as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    keeps = "(recomputes changed keys: keeps its inputs by key, until the watermark passes the end of their session)"
    assert said.count(keeps) == 2
