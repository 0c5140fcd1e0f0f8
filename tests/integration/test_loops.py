"""Loops on Spark: after every step the rows are those of a loop that is computed anew, in plain Python."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.spark.jobs import planner
from support.pages import ROOT

Edge = tuple[int, int]
Edges = set[Edge]

EDGES = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("_weight", pa.int64())])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(params=[True, False], ids=["small steps", "large steps"])
def _tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)


def drawn_steps(seed: int, steps: int = 6, vertices: int = 9) -> list[Edges]:
    """Return the edges after each step: some come, some go."""
    chance = random.Random(seed)
    held: Edges = set()
    found = []
    for _ in range(steps):
        come = {(chance.randrange(vertices), chance.randrange(vertices)) for _ in range(5)}
        gone = {edge for edge in held if chance.random() < 0.3}
        held = (held | come) - gone
        found.append(held)
    return found


def write_steps(steps: list[Edges]) -> None:
    Path("edges").mkdir()
    before: Edges = set()
    for number, held in enumerate(steps):
        rows = [{"a": a, "b": b, "_weight": 1} for a, b in sorted(held - before)]
        rows += [{"a": a, "b": b, "_weight": -1} for a, b in sorted(before - held)]
        pq.write_table(pa.Table.from_pylist(rows, EDGES), f"edges/{number:03}.parquet")
        before = held


def edges_of(flow: bl.Dataflow) -> bl.Stream:
    schema = "a LONG, b LONG, _weight LONG"
    rows = flow.source("rows", bl.files("edges", format="parquet", schema=schema, max_files_per_step=1))
    return rows.changes("edges", weight="_weight")


def run(flow: bl.Dataflow, spark: SparkSession) -> None:
    bl.run(flow, "store", available_now=True, spark=spark)


def tables_of(path: str, steps: int) -> list[Counter[tuple[Any, ...]]]:
    """Return the sum of the changes of a Parquet sink after each step."""
    held: Counter[tuple[Any, ...]] = Counter()
    found = []
    for number in range(steps):
        for file in Path(path).glob(f"step-{number:012}*"):
            for row in pq.read_table(file).to_pylist():
                weight = row.pop("_weight")
                held[tuple(row.values())] += weight
        found.append(Counter({row: count for row, count in held.items() if count}))
    return found


def fixed_point(body: Callable[[set[Any]], set[Any]]) -> Counter[Any]:
    rows: set[Any] = set()
    while (made := body(rows)) != rows:
        rows = made
    return Counter(rows)


def paths(edges: Edges) -> Counter[Edge]:
    return fixed_point(lambda have: edges | {(a, d) for a, b in have for c, d in edges if b == c})


@pytest.mark.usefixtures("_tasks")
def test_loops_are_those_that_plain_python_computes_anew(spark: SparkSession) -> None:
    steps = drawn_steps(3)
    write_steps(steps)
    flow = bl.Dataflow("loops")
    edges = edges_of(flow)

    def reach(reach: DataFrame, edges: DataFrame) -> DataFrame:
        longer = reach.alias("r").join(edges.alias("e"), F.col("r.b") == F.col("e.a")).select("r.a", "e.b")
        return edges.select("a", "b").union(longer).distinct()

    def hops(hops: DataFrame, edges: DataFrame) -> DataFrame:
        start = edges.where("a < 2").selectExpr("a AS v", "CAST(0 AS LONG) AS far")
        further = hops.join(edges, hops.v == edges.a).selectExpr("b AS v", "far + 1 AS far").where("far <= 20")
        return start.union(further).groupBy("v").agg(F.min("far").alias("far"))

    edges.iterate("reach", reach, output="a LONG, b LONG").sink("reach-out", bl.parquet("out/reach"))
    flow.iterate("hops", hops, output="v LONG, far LONG").sink("hops-out", bl.parquet("out/hops"))
    run(flow, spark)

    found = tables_of("out/reach", len(steps))
    assert found == [paths(held) for held in steps]
    assert any(found[at + 1].keys() - found[at].keys() for at in range(5))
    assert any(found[at].keys() - found[at + 1].keys() for at in range(5))

    def shortest(held: Edges) -> Counter[Any]:
        def body(have: set[Any]) -> set[Any]:
            offers = {(a, 0) for a, _ in held if a < 2} | {(b, far + 1) for v, far in have for a, b in held if a == v}
            return {(v, min(far for w, far in offers if w == v)) for v, _ in offers}

        return fixed_point(body)

    assert tables_of("out/hops", len(steps)) == [shortest(held) for held in steps]


def test_streams_that_depend_on_each_other(spark: SparkSession) -> None:
    """Walks from vertex 0 of an even and of an odd number of edges."""
    steps = drawn_steps(5)
    write_steps(steps)
    flow = bl.Dataflow("parity")
    edges_of(flow)

    def even(odd: DataFrame, edges: DataFrame) -> DataFrame:
        start = edges.where("a = 0").select(F.col("a").alias("v"))
        return start.union(odd.join(edges, odd.w == edges.a).select("b")).distinct()

    def odd(edges: DataFrame, even: DataFrame) -> DataFrame:
        return even.join(edges, even.v == edges.a).select(F.col("b").alias("w"), F.lit("odd").alias("kind")).distinct()

    both = flow.iterate("parity", {"even": even, "odd": odd}, output={"even": "v LONG", "odd": "w LONG, kind STRING"})
    both["even"].sink("even-out", bl.parquet("out/even"))
    both["odd"].sink("odd-out", bl.parquet("out/odd"))
    run(flow, spark)

    def walks(held: Edges) -> Counter[Any]:
        def body(have: set[Any]) -> set[Any]:
            begins = {(0, 0) for a, _ in held if a == 0}
            return begins | {(1 - parity, b) for parity, v in have for a, b in held if a == v}

        return fixed_point(body)

    for name, parity in (("even", 0), ("odd", 1)):
        found = [{row[0] for row in table} for table in tables_of(f"out/{name}", len(steps))]
        assert found == [{v for number, v in walks(held) if number == parity} for held in steps]


def test_a_loop_goes_on_where_an_earlier_run_ended(spark: SparkSession) -> None:
    steps = drawn_steps(11)
    write_steps(steps)

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("loops")

        def reach(have: DataFrame, edges: DataFrame) -> DataFrame:
            longer = have.alias("r").join(edges.alias("e"), F.col("r.b") == F.col("e.a")).select("r.a", "e.b")
            return edges.select("a", "b").union(longer).distinct()

        edges_of(made).iterate("reach", reach, output="a LONG, b LONG").sink("reach-out", bl.parquet("out/reach"))
        return made

    moved = sorted(Path("edges").glob("*"))[3:]
    Path("later").mkdir()
    for file in moved:
        file.rename(Path("later") / file.name)
    run(flow(), spark)
    for file in moved:
        (Path("later") / file.name).rename(file)
    run(flow(), spark)
    assert tables_of("out/reach", len(steps)) == [paths(held) for held in steps]


def test_refusals_of_loops(spark: SparkSession) -> None:
    write_steps(drawn_steps(1, steps=1))

    def refused(condition: str, says: str, body: Any, output: str = "a LONG, b LONG") -> None:
        flow = bl.Dataflow("refused")
        edges_of(flow)
        flow.iterate("l", body, output=output).sink("out", bl.parquet("out"))
        with pytest.raises(bl.BoatliftError, match=says) as raised:
            bl.run(flow, "refused-store", available_now=True, spark=spark)
        assert raised.value.condition == condition

    def other_columns(have: DataFrame, edges: DataFrame) -> DataFrame:
        return have.select("a").union(edges.select("a"))

    def a_limit(have: DataFrame, edges: DataFrame) -> DataFrame:
        return edges.select("a", "b").union(have.orderBy("a", "b").limit(3))

    def an_expression(have: DataFrame, edges: DataFrame) -> DataFrame:
        return edges.select("a", "b").union(have.selectExpr("a", "CAST(sqrt(b) AS LONG)"))

    def no_key(have: DataFrame, edges: DataFrame) -> DataFrame:
        return have.alias("h").join(edges.alias("e"), F.col("h.a") < F.col("e.a")).select("h.a", "e.b")

    def without_end(have: DataFrame, edges: DataFrame) -> DataFrame:
        return edges.select("a", "b").union(have.selectExpr("a", "b + 1"))

    refused("SCHEMA_MISMATCH", "l iterates over a bigint, b bigint, and gives a bigint:", other_columns)
    refused("NOT_INCREMENTAL", "LIMIT over the rows of its loop", a_limit)
    refused("NOT_INCREMENTAL", "the expression .*SQRT.*compute it before the loop", an_expression)
    refused("NOT_INCREMENTAL", "INNER JOIN on nothing", no_key)
    refused("LOOP_TOO_LONG", "still changes rows after 1000 iterations, such as {'a': ", without_end)
    refused("BAD_PROCESSOR", "no list of columns", without_end, output="a, b")

    def narrow(edges: DataFrame, x: DataFrame) -> DataFrame:
        return edges.select(F.col("a").cast("INT")).union(x.select("a")).select(F.col("a").alias("v"))

    flow = bl.Dataflow("refused")
    edges_of(flow)
    flow.iterate("l", {"x": narrow}, output={"x": "a LONG"})["x"].sink("out", bl.parquet("out"))
    with pytest.raises(
        bl.BoatliftError, match=r"\[SCHEMA_MISMATCH\] the body of x iterates over a bigint, and gives v"
    ):
        bl.run(flow, "refused-store", available_now=True, spark=spark)
    with pytest.raises(bl.BoatliftError, match=r"\[BAD_VIEW\] l has one body"):
        bl.Dataflow("refused").iterate("l", without_end, output={"y": "a LONG"})  # type: ignore[call-overload]
    with pytest.raises(bl.BoatliftError, match=r"\[BAD_VIEW\] l has several bodies: write flow.iterate"):
        edges_of(bl.Dataflow("refused")).iterate("l", {"y": narrow}, output="a LONG")  # type: ignore[arg-type]
    with pytest.raises(bl.BoatliftError, match=r"\[BAD_OPTION\] l has max_iterations=0"):
        bl.Dataflow("refused").iterate("l", without_end, output="a LONG", max_iterations=0)
    with pytest.raises(bl.BoatliftError, match=r"\[BAD_VIEW\] l reads edges, which refused does not have"):
        bl.Dataflow("refused").iterate("l", without_end, output="a LONG, b LONG")
    with pytest.raises(bl.BoatliftError, match=r"\[BAD_VIEW\] l has bodies of x: declare an output"):
        bl.Dataflow("refused").iterate("l", {"x": without_end}, output={"y": "a LONG"})


PAGE = (ROOT / "docs" / "loops.md").read_text(encoding="utf-8")


def test_the_pages_programs_run_as_printed(spark: SparkSession) -> None:
    Path("links").mkdir()
    come = [("HOME", "x", 3), ("x", "y", 4), ("HOME", "y", 9), ("y", "z", 1)]
    steps = [[(*link, 1) for link in come], [("x", "y", 4, -1)]]
    for number, rows in enumerate(steps):
        lines = [",".join(map(str, row)) for row in (("a", "b", "km", "_weight"), *rows)]
        Path(f"links/{number}.csv").write_text("".join(f"{line}\n" for line in lines))
    names: dict[str, Any] = {"__name__": "network"}
    exec(compile("".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)), "network.py", "exec"), names)
    run(names["flow"], spark)

    first, second = tables_of("nearest", 2)
    assert first["HOME", "z", 8] == second["HOME", "z", 10] == 1
    assert ("x", "y", 4) in first
    assert not any(row[:2] == ("x", "y") for row in second)
    assert tables_of("even", 2) == [Counter([("HOME",), ("y",), ("z",)]), Counter([("HOME",), ("z",)])]
    assert tables_of("odd", 2) == [Counter([("x",), ("y",), ("z",)]), Counter([("x",), ("y",)])]
    assert {row[1] for row in tables_of("ways", 2)[1]} == {"HOME-x", "HOME-y", "HOME-y-z"}
