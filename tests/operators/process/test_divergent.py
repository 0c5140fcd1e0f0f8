"""A processor that is not deterministic: its rows and its state are those of one execution, whatever fails."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from boatlift.errors import DivergedError, InvalidError
from support.crash.ended_runs import killed

FILES = 7


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()
    for number in range(FILES):
        Path(f"rows/{number}.csv").write_text(f"k,v\na,{number}\nb,{number}\na,{number + 10}\n")


def flow_of(policy: bl.Lazy | bl.Eager, *, deterministic: bool) -> bl.Dataflow:
    """Return a dataflow in which each row of a key has a new token, and that of the row before."""

    def link(key: Any, rows: Any, state: Any, context: Any) -> Iterator[tuple[Any, ...]]:
        del context
        for _ in rows:
            before, state.token = state.token, os.urandom(8).hex()
            state.n = (state.n or 0) + 1
            yield key.k, state.n, before, state.token

    flow = bl.Dataflow("chain")
    rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v LONG", max_files_per_step=1))
    linked = rows.group_by("k").process(
        "linked",
        link,
        state="n LONG, token STRING",
        output="k STRING, n LONG, before STRING, token STRING",
        deterministic=deterministic,
        policy=policy,
    )
    for name in ("one", "two"):
        linked.sink(name, bl.parquet(name))
    return flow


@pytest.mark.parametrize("policy", [bl.Lazy(every=2), bl.Eager()], ids=repr)
def test_the_rows_of_all_sinks_are_those_of_one_execution(spark: SparkSession, policy: bl.Lazy | bl.Eager) -> None:
    points = (("step", "linked", 1), ("commit", "one", 1), ("commit", "two", 3), ("step", "linked", 5), None)
    kills = [killed(flow_of(policy, deterministic=False), spark, at) for at in points]
    assert kills[:2] == [True, True]
    assert not kills[-1]
    found = []
    for sink in ("one", "two"):
        files = sorted(Path(sink).glob("*.parquet"))
        assert len(files) == FILES
        found.append([row for file in files for row in pq.read_table(file).to_pylist()])
    assert sorted(found[0], key=repr) == sorted(found[1], key=repr)
    for key, count in (("a", 2 * FILES), ("b", FILES)):
        chain = sorted((row for row in found[0] if row["k"] == key), key=lambda row: row["n"])
        assert [row["n"] for row in chain] == list(range(1, count + 1))
        assert [row["before"] for row in chain] == [None, *(row["token"] for row in chain[:-1])]


def test_without_saying_so_it_diverges(spark: SparkSession) -> None:
    assert killed(flow_of(bl.Lazy(every=100), deterministic=True), spark, ("commit", "two", 3))
    with pytest.raises(DivergedError):
        killed(flow_of(bl.Lazy(every=100), deterministic=True), spark, None)


def test_inputs_do_not_replace_its_state() -> None:
    with pytest.raises(InvalidError, match="not deterministic, so that its inputs would not lead") as refused:
        flow_of(bl.History(), deterministic=False)  # type: ignore[arg-type]
    assert refused.value.condition == "BAD_POLICY"
