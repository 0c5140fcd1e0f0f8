"""The laws that every operator keeps on Spark; each case is in `tests/operators/KIND/case.py`.

All operators are in one dataflow, which runs undisturbed, with its rows divided otherwise, and killed on the way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import Operator, plan
from boatlift.operators.watermark.operator import LateRows
from boatlift.spark.compile.program import compile_program
from boatlift.spark.jobs import planner
from operators.laws import SCHEMA, OperatorCase, all_cases, dataflow_of, run, steps_of, write_rows
from support.any_connector import ANY

CASES = all_cases()
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

World = dict[str, tuple[list[dict[str, Any]], dict[str, list[list[dict[str, Any]]]]]]


class KilledError(Exception):
    """Ends a run before it has taken all."""


@contextmanager
def inside(folder: Path) -> Iterator[list[dict[str, Any]]]:
    before = Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    try:
        yield write_rows(seed=1)
    finally:
        os.chdir(before)


def held() -> dict[str, list[list[dict[str, Any]]]]:
    return {case.name: steps_of(case) for case in CASES}


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """What the sinks of all cases hold after a run of each kind, with the rows of the sources."""
    root = tmp_path_factory.mktemp("laws")
    found: World = {}
    with inside(root / "undisturbed") as rows:
        run(spark, dataflow_of(CASES))
        found["undisturbed"] = rows, held()
    with inside(root / "divided") as rows, pytest.MonkeyPatch.context() as patched:
        patched.setattr(planner, "ONE_TASK_BYTES", 0)  # every step over keyed state is divided among several tasks
        run(spark, dataflow_of(CASES, files=2))
        found["divided"] = rows, held()
    with inside(root / "killed") as rows:
        # A chosen step's number depends on when its epoch ended, so the first of any number will do.
        awaited = {f"{case.name}-out": 0 if case.chosen else 1 for case in CASES}

        def kill(progress: bl.Progress) -> None:
            if progress.what == "commit":
                if progress.time >= awaited.get(progress.processor, progress.time + 1):
                    del awaited[progress.processor]
                if not awaited:
                    raise KilledError

        with pytest.raises(KilledError):
            run(spark, dataflow_of(CASES), kill)
        found["before the kill"] = rows, held()
        run(spark, dataflow_of(CASES))
        found["killed"] = rows, held()
    return found


@pytest.mark.usefixtures("spark")  # a column of Spark's needs a session
def test_every_operator_has_a_case() -> None:
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/case.py")}
    assert folders == {each.__module__.split(".")[2] for each in ON_SPARK.operators}
    used = {type(each) for each in plan(dataflow_of(CASES)).processors.values()}
    assert set(ON_SPARK.operators) - used == {LateRows}  # what a watermark drops: `watermark/test_task.py`


@each_case
@pytest.mark.parametrize("kind", ["undisturbed", "divided", "killed"])
def test_the_result_is_that_of_all_rows_however_they_are_divided(world: World, case: OperatorCase, kind: str) -> None:
    rows, steps = world[kind]
    assert case.result(steps[case.name]) == case.expected(rows, rows)


@each_case
def test_replay_gives_the_same_bits(world: World, case: OperatorCase) -> None:
    (_, undisturbed), (_, before), (_, after) = (world[kind] for kind in ("undisturbed", "before the kill", "killed"))
    assert before[case.name], "the sink had a step when the run was killed"
    assert after[case.name][: len(before[case.name])] == before[case.name], "a sink's steps changed"
    if not case.chosen:
        assert after[case.name] == undisturbed[case.name]


@pytest.mark.parametrize("case", [case for case in CASES if not case.chosen], ids=lambda case: case.name)
def test_a_step_of_no_rows_gives_no_rows(world: World, case: OperatorCase) -> None:
    """The third file has none; where steps depend on a choice, a step may have other rows beside."""
    _, steps = world["undisturbed"]
    assert [number for number, step in enumerate(steps[case.name]) if not step] == [2]


def test_a_program_is_the_same_compiled_again_and_however_it_is_fused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_rows(seed=1)
    flow = dataflow_of(CASES)
    programs = [compile_program(spark, plan(each), ON_SPARK) for each in (flow, dataflow_of(CASES))]
    for program in programs:
        program.close()
    assert programs[0].identity == programs[1].identity
    eager = dataflow_of(CASES)
    for name, processor in eager.processors.items():
        if getattr(processor, "kind", None) == "transform":
            object.__setattr__(eager.processors[name], "policy", bl.Eager())
    fused, divided = plan(flow), plan(eager)
    assert fused.units.keys() < divided.units.keys()
    program = compile_program(spark, divided, ON_SPARK)
    program.close()
    assert program.identity == programs[0].identity


@each_case
@pytest.mark.usefixtures("spark")  # a column of Spark's needs a session
def test_an_operator_says_the_same_of_itself_each_time(case: OperatorCase) -> None:
    source: Any = SimpleNamespace(**vars(ANY), schema=lambda spark: spark.createDataFrame([], SCHEMA).schema)
    flows = []
    for _ in range(2):
        flow = bl.Dataflow("flow")
        case.build(flow.source("rows", source), flow.source("more", source)).sink("out", ANY)
        flows.append(flow)
    for name, one in flows[0].processors.items():
        other = flows[1].processors[name]
        if isinstance(one, Operator):
            assert isinstance(other, Operator)
            for said in ("kind", "reads", "timing", "keeps_state", "deterministic", "ends_job", "rereads_source"):
                assert getattr(one, said) == getattr(other, said), said
            assert len(set(one.reads)) == len(one.reads)
            assert one.describe() == other.describe()
            assert all(isinstance(each, str) for each in one.describe())
