"""Processors on Spark: the page's programs, timers that ticks bring, errors that say what to do."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor

import boatlift as bl
from boatlift.errors import BoatliftError
from support.pages import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (ROOT / "docs" / "processors.md").read_text(encoding="utf-8")
CLICKS = [
    "a,home,2026-01-01 00:00:00\na,cart,2026-01-01 00:01:00\nb,home,2026-01-01 00:00:30\n",
    "a,pay,2026-01-01 00:02:00\n",
    "c,home,2026-01-01 00:03:00\nb,cart,2026-01-01 00:03:30\nb,home,2026-01-01 00:03:10\n",
]
"""The rows of three files."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """Go to a folder with three files of clicks."""
    before = Path.cwd()
    os.chdir(tmp_path)
    Path("clicks").mkdir()
    for number, rows in enumerate(CLICKS):
        Path("clicks", f"{number}.csv").write_text("user,page,at\n" + rows)
    yield tmp_path
    os.chdir(before)


def clicks_of(flow: bl.Dataflow) -> bl.Stream:
    schema = "user STRING, page STRING, at TIMESTAMP"
    return flow.source("clicks", bl.files("clicks/*.csv", schema=schema, max_files_per_step=1))


def held(path: str) -> list[dict[str, Any]]:
    """Return the rows of a Parquet sink, in order; none if it has no file yet."""
    if not list(Path(path).glob("*.parquet")):
        return []
    rows: list[dict[str, Any]] = ds.dataset(path, format="parquet").to_table().to_pylist()
    return sorted(rows, key=repr)


def until(there: Callable[[], bool], running: bl.Running) -> None:
    """Wait until something is there, and stop the run."""
    end = time.monotonic() + 120
    while not there() and time.monotonic() < end and running.is_active:
        time.sleep(0.1)
    running.stop()


def test_the_pages_programs_run_as_printed(spark: SparkSession) -> None:
    """With some seconds of silence in place of half an hour: a step of a slow machine takes no longer."""
    text = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    assert text.count("30") == 2
    names: dict[str, Any] = {"__name__": "visits"}
    quick = text.replace("minutes=30", "seconds=5").replace("30 * 60 * 1000", "5000")
    exec(compile(quick, "visits.py", "exec"), names)
    running = bl.start(names["flow"], store="store", spark=spark)
    pages = {"a": 3, "b": 3, "c": 1}
    until(lambda: len(held("visits")) == 3 and len(held("moved")) == 3, running)
    assert {row["user"]: row["pages"] for row in held("visits")} == pages
    assert {row["user"]: row["pages"] for row in held("moved")} == pages
    assert {user: max(r["pages"] for r in held("counts") if r["user"] == user) for user in pages} == pages
    seen = {"a": 3, "b": 2, "c": 1}
    assert {user: max(r["pages"] for r in held("pages") if r["user"] == user) for user in seen} == seen


def test_a_replay_fires_the_same_timers(spark: SparkSession) -> None:
    """State and timers go back to a checkpoint, and the steps after it give the bits that the sink has."""

    def alarm(key: Any, rows: Any, state: Any, context: Any) -> Iterator[Any]:
        del state
        if context.timer is not None:
            yield key.user, f"{context.timer} at {context.now}", context.random.random()
        for row in rows:
            context.set_timer(context.now + timedelta(milliseconds=5))
            yield key.user, row.page, context.random.random()

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("alarms", tick="1 second")
        rows = (
            clicks_of(made)
            .group_by("user")
            .process(
                "alarms",
                alarm,
                output="user STRING, what STRING, chance DOUBLE",
                timers=True,
                policy=bl.Lazy(every=100),
            )
        )
        rows.sink("out", bl.parquet("out"))
        return made

    until(lambda: len(held("out")) >= 12, bl.start(flow(), store="store", spark=spark))
    before = held("out")
    assert len(before) >= 12
    (Path("clicks") / "9.csv").write_text("user,page,at\nd,home,2026-01-01 01:00:00\n")
    until(lambda: any(row["user"] == "d" for row in held("out")), bl.start(flow(), store="store", spark=spark))
    after = held("out")
    assert [row for row in after if row["user"] != "d"] == before


class Counts(StatefulProcessor):
    def init(self, handle: Any) -> None:
        self.n = handle.getValueState("n", "n LONG")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        import sys

        frames = list(rows)
        pandas = sys.modules["pandas"]
        assert all(isinstance(frame, pandas.DataFrame) and "user" in frame.columns for frame in frames)
        assert timerValues.getCurrentProcessingTimeInMs() == -1
        self.n.update(((self.n.get() or (0,))[0] + sum(map(len, frames)),))
        yield pandas.DataFrame({"user": [key[0]], "n": [self.n.get()[0]]})


def test_a_stateful_processor_takes_pandas_frames(spark: SparkSession) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    flow = bl.Dataflow("f")
    made = clicks_of(flow).group_by("user").transform_with_state_in_pandas("counts", Counts(), "user STRING, n LONG")
    made.sink("out", bl.parquet("out"))
    bl.run(flow, "store", available_now=True, spark=spark)
    assert [(row["user"], row["n"]) for row in held("out")] == [("a", 2), ("a", 3), ("b", 1), ("b", 3), ("c", 1)]


def plain(key: Any, rows: Any, state: Any, context: Any) -> None:
    del key, rows, state, context


class NoOutput(StatefulProcessor):
    def __init__(self, declare: Callable[[Any], Any]) -> None:
        self.declare = declare

    def init(self, handle: Any) -> None:
        self.declare(handle)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        return iter([])


REFUSED: dict[str, tuple[Callable[[bl.Stream], bl.Stream], str, str]] = {
    "no function": (lambda s: s.group_by("user").process("p", 3, output="n LONG"), "BAD_OPTION", "3 is no function"),  # type: ignore[arg-type]
    "no columns": (
        lambda s: s.group_by("user").process("p", plain, output="n LONGG"),
        "BAD_PROCESSOR",
        r"output 'n LONGG' is no list of columns",
    ),
    "bad attribute": (
        lambda s: s.group_by("user").process("p", plain, output="n LONG", state="clear LONG"),
        "BAD_PROCESSOR",
        "a state cannot have a column 'clear'",
    ),
    "unknown key": (
        lambda s: s.group_by("who").process("p", plain, output="n LONG"),
        "SCHEMA_MISMATCH",
        "asks for who, which clicks does not have: it has user, page, at",
    ),
    "unknown order": (
        lambda s: s.group_by("user").process("p", plain, output="n LONG", order_by=["time"]),
        "SCHEMA_MISMATCH",
        "asks for time",
    ),
    "changes": (
        lambda s: (
            s.group_by("user")
            .agg("n", __import__("pyspark.sql.functions").sql.functions.count("*").alias("n"))
            .group_by("n")
            .process("p", plain, output="n LONG")
        ),
        "BAD_PROCESSOR",
        "which emits changes",
    ),
    "event time": (
        lambda s: s.group_by("user").transform_with_state("p", NoOutput(print), "n LONG", "EventTime"),
        "NO_LATENESS",
        "clicks does not say how late its rows can be",
    ),
    "no such time": (
        lambda s: s.group_by("user").transform_with_state("p", NoOutput(print), "n LONG", "Never"),
        "BAD_OPTION",
        "choose 'None', 'ProcessingTime' or 'EventTime'",
    ),
    "timers of another time": (
        lambda s: s.group_by("user").process("p", plain, output="n LONG", timers="bound"),  # type: ignore[arg-type]
        "BAD_OPTION",
        "choose False, True or 'event'",
    ),
    "no processor": (
        lambda s: s.group_by("user").transform_with_state("p", plain, "n LONG"),  # type: ignore[arg-type]
        "BAD_PROCESSOR",
        "derives from StatefulProcessor",
    ),
    "time to live": (
        lambda s: s.group_by("user").transform_with_state(
            "p", NoOutput(lambda handle: handle.getValueState("n", "n LONG", 10)), "n LONG"
        ),
        "BAD_PROCESSOR",
        "needs time_mode='ProcessingTime'",
    ),
    "map of maps": (
        lambda s: s.group_by("user").transform_with_state(
            "p", NoOutput(lambda handle: handle.getMapState("m", "k ARRAY<INT>", "n LONG")), "n LONG"
        ),
        "BAD_PROCESSOR",
        "use numbers, text or times as keys",
    ),
    "init raises": (
        lambda s: s.group_by("user").transform_with_state("p", NoOutput(lambda handle: handle.nothing()), "n LONG"),
        "USER_CODE",
        "init of the processor of p raised AttributeError",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_before_it_runs(name: str, spark: SparkSession) -> None:
    build, condition, words = REFUSED[name]
    flow = bl.Dataflow("f")

    def run() -> None:
        build(clicks_of(flow)).sink("out", bl.parquet("out"))
        bl.run(flow, "store", available_now=True, spark=spark)

    with pytest.raises(BoatliftError, match=words) as refused:
        run()
    assert refused.value.condition == condition
    assert not Path("out").exists()


def fails(key: Any, rows: Any, state: Any, context: Any) -> None:
    raise KeyError("no such page")


def gives_text(key: Any, rows: Any, state: Any, context: Any) -> Any:
    yield ("many",)


def gives_two(key: Any, rows: Any, state: Any, context: Any) -> Any:
    yield (1, 2)


def sets_unknown(key: Any, rows: Any, state: Any, context: Any) -> None:
    state.m = 3


FAILS: dict[str, tuple[Any, str]] = {
    "raises": (fails, "a function of p raised at step 0 of p: KeyError: 'no such page'"),
    "another type": (gives_text, "gave a row that does not fit struct<n:bigint>: column n has 'many', a str"),
    "too many": (gives_two, "gave a row that does not fit struct<n:bigint>"),
    "unknown attribute": (sets_unknown, "'State' object has no attribute 'm'"),
}


@pytest.mark.parametrize("name", FAILS)
def test_what_a_function_does_wrong_is_reported_with_the_step(name: str, spark: SparkSession) -> None:
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    function, words = FAILS[name]
    flow = bl.Dataflow("f")
    made = clicks_of(flow).group_by("user").process("p", function, output="n LONG", state="n LONG")
    made.sink("out", bl.parquet("out"))
    with pytest.raises(BoatliftError, match=re.escape(words)) as failed:
        bl.run(flow, "store", available_now=True, spark=spark)
    assert failed.value.condition == "USER_CODE"
    assert "step 0 of p" in str(failed.value)
    assert held("out") == []
