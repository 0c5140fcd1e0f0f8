"""A processor that asks the outside: each answer is recorded before a sink sees it, and a replay has it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.api.registry import ON_SPARK
from boatlift.dataflow import plan
from boatlift.errors import DivergedError
from boatlift.kernels.step_state import Answers
from boatlift.runtime.inspect.program import plan_of
from boatlift.spark.compile.program import compile_program
from boatlift.spark.jobs import planner
from support.crash.ended_runs import killed

FILES = 7


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    Path("asked").mkdir()
    for number in range(FILES):
        Path(f"rows/{number}.csv").write_text(f"k,v\na,{number}\nb,{number}\na,{number + 10}\n")


def flow_of(policy: Any, *, over_arrow: bool = False, calls: bool = True) -> bl.Dataflow:
    """Return a dataflow in which each row of a key has a new token, and that of the row before."""
    asked = Path("asked").absolute()

    def token(key: str, n: int) -> dict[str, Any]:
        made = os.urandom(8).hex()
        (asked / f"{key}-{n}-{made}").touch()
        return {"token": made, "n": n}

    def link(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        for _ in rows:
            state.n = (state.n or 0) + 1
            before, state.token = state.token, context.call(token, key.k, n=state.n)["token"]
            yield key.k, state.n, before, state.token

    def link_all(batch: bl.KeyedBatch) -> bl.Processed:
        assert batch.ask is not None
        rows, states = [], []
        sizes = batch.offsets[1:] - batch.offsets[:-1]
        for number, (key, old) in enumerate(zip(batch.keys["k"].to_pylist(), batch.state.to_pylist(), strict=True)):
            n, last = old["n"] or 0, old["token"]
            for _ in range(sizes[number]):
                n += 1
                before, last = last, batch.ask(number, lambda key=key, n=n: token(key, n))["token"]
                rows.append({"k": key, "n": n, "before": before, "token": last})
            states.append({"n": n, "token": last})
        return bl.Processed(pa.Table.from_pylist(rows), pa.Table.from_pylist(states))

    flow = bl.Dataflow("chain")
    rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v LONG", max_files_per_step=1)).group_by("k")
    declared: Any = {"state": "n LONG, token STRING", "output": "k STRING, n LONG, before STRING, token STRING"}
    declared |= {"calls": calls, "policy": policy}
    linked = (
        rows.process_arrow("linked", link_all, **declared) if over_arrow else rows.process("linked", link, **declared)
    )
    for name in ("one", "two"):
        linked.sink(name, bl.parquet(name))
    return flow


CASES: dict[str, tuple[Any, bool, bool]] = {
    "by key": (bl.Lazy(every=100), False, False),
    "divided": (bl.Lazy(every=100), False, True),
    "over arrow": (bl.Lazy(every=100), True, False),
    "history": (bl.History(), False, False),
}
"""The policy, whether the function is one over Arrow, and whether replays have another number of tasks."""


@pytest.mark.parametrize("case", CASES)
def test_a_replay_has_the_answers_that_sinks_have_seen(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """No checkpoint is made before the end, so that all steps are executed again."""
    policy, over_arrow, divided = CASES[case]
    points = (("step", "linked", 1), ("commit", "one", 1), ("commit", "two", 3), ("step", "linked", 5), None)
    seen: dict[Path, bytes] = {}
    for number, at in enumerate(points):
        with monkeypatch.context() as patched:
            if divided and number % 2:
                patched.setattr(planner, "ONE_TASK_BYTES", 0)
            assert killed(flow_of(policy, over_arrow=over_arrow), spark, at) == (at is not None)
        for path, content in seen.items():
            assert path.read_bytes() == content, "what a sink holds stays"
        seen |= {path: path.read_bytes() for sink in ("one", "two") for path in Path(sink).glob("*.parquet")}
    found = []
    for sink in ("one", "two"):
        files = sorted(Path(sink).glob("*.parquet"))
        assert len(files) == FILES
        found.append([row for file in files for row in pq.read_table(file).to_pylist()])
    assert sorted(found[0], key=repr) == sorted(found[1], key=repr)
    asked = [path.name.rpartition("-")[::2] for path in Path("asked").iterdir()]
    for key, count in (("a", 2 * FILES), ("b", FILES)):
        chain = sorted((row for row in found[0] if row["k"] == key), key=lambda row: row["n"])
        assert [row["n"] for row in chain] == list(range(1, count + 1))
        assert [row["before"] for row in chain] == [None, *(row["token"] for row in chain[:-1])]
        for row in chain:
            assert (f"{key}-{row['n']}", row["token"]) in asked
    assert len(asked) <= 3 * FILES + 3 * (len(points) - 1), "a step asks again only if nothing of it was recorded"


def test_sinks_see_a_step_before_its_state_is_saved(spark: SparkSession) -> None:
    seen: list[str] = []

    def watch(progress: bl.Progress) -> None:
        if progress.what in ("commit", "checkpoint"):
            seen.append(progress.what)

    bl.run(flow_of(bl.Lazy(every=100)), "store", available_now=True, spark=spark, on_progress=watch)
    assert seen.index("checkpoint") >= 2 * FILES
    flow = flow_of(bl.Lazy(every=100))
    planned = plan(flow)
    program = compile_program(spark, planned, ON_SPARK)
    report = plan_of(planned, program.identity)
    assert report.recorded["linked"] == ["answers"]
    assert (report.jobs["linked"].order, report.jobs["linked"].order_why) == (
        "divergent",
        "linked asks an external system",
    )


def test_a_call_that_is_not_declared_is_refused(spark: SparkSession) -> None:
    with pytest.raises(bl.UserCodeError, match=r"say process\(…, calls=True\)"):
        bl.run(flow_of(bl.Lazy(), calls=False), "store", available_now=True, spark=spark)


def test_a_call_that_raises_fails_the_step_whatever_the_function_does(spark: SparkSession) -> None:
    """Law: a replay has the answers of an execution in which no call raised."""
    tried = Path("asked").absolute()

    def sometimes() -> str:
        number = len(list(tried.iterdir()))
        (tried / str(number)).touch()
        if number < 2:
            raise ConnectionError("no")
        return f"answer {number}"

    def ask(key: Any, _rows: Any, _state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        try:
            first = context.call(sometimes)
        except ConnectionError:
            first = "none"
        yield key.k, first, context.call(lambda: "second")

    flow = bl.Dataflow("fails")
    rows = flow.source("rows", bl.files("rows/0.csv", schema="k STRING, v LONG"))
    asked = rows.group_by("k").process("asked", ask, output="k STRING, first STRING, second STRING", calls=True)
    asked.sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    (file,) = Path("out").glob("*.parquet")
    found = pq.read_table(file).to_pylist()
    assert [(row["k"], row["second"]) for row in found] == [("a", "second"), ("b", "second")]
    assert not any(row["first"] == "none" for row in found)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no bool": ({"calls": 1}, "calls is 1: choose True or False"),
    "both": ({"calls": True, "deterministic": False}, "leave one of them out"),
    "no defaults": ({"defaults": None}, "defaults is None: write columns and values"),
    "a list of defaults": ({"defaults": [("n", 0)]}, "write columns and values"),
}


@pytest.mark.parametrize("fault", BAD)
def test_options_that_do_not_go_are_refused(fault: str) -> None:
    options, words = BAD[fault]
    rows = bl.Dataflow("f").source("rows", bl.files("rows/*.csv", schema="k STRING")).group_by("k")
    with pytest.raises(bl.InvalidError, match=words) as refused:
        rows.process("p", print, state="n LONG", output="k STRING", **options)
    assert refused.value.condition == "BAD_OPTION"


def test_answers_are_given_again_in_the_order_of_their_key() -> None:
    first = Answers("p", None)
    assert [first.ask(1, lambda: [1, None]), first.ask(2, lambda: "x"), first.ask(1, lambda: {"a": 0.5})] == [
        [1, None],
        "x",
        {"a": 0.5},
    ]
    again = Answers("p", first.given)
    asked = [again.ask(2, pytest.fail), again.ask(1, pytest.fail), again.ask(1, pytest.fail)]
    assert asked == ["x", [1, None], {"a": 0.5}]
    assert again.given == first.given
    with pytest.raises(DivergedError, match=r"\[DIVERGED\] a key of p asks for more than the 1 answers"):
        again.ask(2, pytest.fail)
    with pytest.raises(bl.UserCodeError, match="answered with bytes, which JSON does not have"):
        first.ask(3, lambda: b"x")
