"""Orders look up customers that move: rows that replace one another, and views of them, on Spark."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from support.crash.dying import DiesError, dying_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MOVES = [
    [("ann", "north", 1, ""), ("bo", "south", 1, ""), ("cy", "north", 1, "")],
    [("ann", "south", 5, ""), ("bo", "south", 6, "")],
    [("ann", "north", 3, ""), ("cy", "north", 4, "D")],  # ann's is older than what is known of her
    [("bo", "north", 7, ""), ("ann", "west", 7, ""), ("ann", "north", 6, "")],
    [("cy", "west", 8, ""), ("bo", "south", 8, "")],
    [("ann", "south", 9, ""), ("bo", "west", 9, ""), ("cy", "south", 9, "")],
]
"""The rows of each file of customers: who, where, since when, and `D` if there is no such customer any more."""

REGIONS = [
    {},
    {"ann": "north", "bo": "south", "cy": "north"},
    {"ann": "south", "bo": "south", "cy": "north"},
    {"ann": "south", "bo": "south"},
    {"ann": "west", "bo": "north"},
    {"ann": "west", "bo": "south", "cy": "west"},
    {"ann": "south", "bo": "west", "cy": "south"},
]
"""The customers after so many files, by hand."""

ASKED = ("ann", "bo", "cy", "dee")


def put(folder: str, number: int, header: str, rows: list[tuple[Any, ...]]) -> None:
    Path(folder).mkdir(exist_ok=True)
    lines = "".join(",".join(map(str, row)) + "\n" for row in rows)
    Path(f"{folder}/{number:03d}.csv").write_text(f"{header}\n{lines}")


def moves(files: range) -> None:
    for number in files:
        put("moves", number, "customer,region,at,op", MOVES[number])


def orders(files: range) -> None:
    for number in files:
        put("orders", number, "id,customer", [(number * 4 + i, each) for i, each in enumerate(ASKED)])


def flow_of() -> bl.Dataflow:
    flow = bl.Dataflow("shop")
    moved = flow.source(
        "moves",
        bl.files("moves/*.csv", schema="customer STRING, region STRING, at INT, op STRING", max_files_per_step=1),
    )
    customers = moved.upserts("customers", key=["customer"], order="at", deletes="op = 'D'", policy=bl.Lazy(every=2))
    flow.sql("shouted", "SELECT customer, upper(region) AS region, at FROM customers")
    shouted = bl.Stream(flow, "shouted").transform("told", lambda df: df.select("customer", "region"))
    asked = flow.source("orders", bl.files("orders/*.csv", schema="id INT, customer STRING", max_files_per_step=1))
    answers = asked.lookup("asked", c=customers.by("customer"), loud=shouted.by("customer"), policy=bl.Lazy(every=2))
    answers.sink("answers", bl.sqlite("out.db", table="answers", key=["id"], unique=True))
    return flow


def run(spark: SparkSession, flow: bl.Dataflow | None = None, **options: Any) -> None:
    bl.run(flow or flow_of(), "store", available_now=True, spark=spark, **options)


def check(files: int, first: int) -> None:
    """Each step of orders sees customers as they are after so many files, never fewer than the step before."""
    with closing(sqlite3.connect("out.db")) as db:
        found = db.execute("SELECT id, customer, c_region, loud_region FROM answers ORDER BY id").fetchall()
    assert [row[0] for row in found] == list(range(4 * files))
    plain = loud = first
    for number in range(files):
        step = found[number * 4 : number * 4 + 4]
        plain = after(plain, {name: region for _, name, region, _ in step if region is not None})
        loud = after(loud, {name: region.lower() for _, name, _, region in step if region is not None})


def after(least: int, found: dict[str, str]) -> int:
    for files in range(least, len(REGIONS)):
        if REGIONS[files] == found:
            return files
    raise AssertionError(f"at no time after {least} files were customers {found}")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("orders").mkdir()


@pytest.mark.parametrize(
    ("what", "processor", "nth"),
    [("step", "customers", 2), ("checkpoint", "customers", 1), ("step", "asked", 3), ("commit", "answers", 2)],
)
def test_a_customer_that_moves_has_one_region_whatever_dies(
    what: str, processor: str, nth: int, spark: SparkSession
) -> None:
    moves(range(3))
    run(spark)
    orders(range(1))
    run(spark)
    check(1, first=3)
    moves(range(3, 6))
    orders(range(1, 4))
    with pytest.raises(DiesError):
        run(spark, on_progress=dying_at(what, processor, nth))
    run(spark)
    check(4, first=3)
    orders(range(4, 5))
    run(spark)
    check(5, first=3)
    with closing(sqlite3.connect("out.db")) as db:
        last = db.execute("SELECT customer, c_region FROM answers WHERE id >= 16").fetchall()
    assert dict(last) == {**REGIONS[-1], "dee": None}, "all moves are known when the last orders come"


def by_region(flow: bl.Dataflow) -> bl.Stream:
    return flow.sql("v", "SELECT at AS customer, region, count(*) AS n FROM moves GROUP BY at, region")


def renamed(flow: bl.Dataflow) -> bl.Stream:
    grouped = bl.Stream(flow, "moves").group_by("customer").agg("counted", F.count("*").alias("n"))
    return grouped.transform("v", lambda df: df.selectExpr("concat(customer, '') AS customer", "n"))


def plain(flow: bl.Dataflow) -> bl.Stream:
    return flow.sql("v", "SELECT customer, region FROM moves")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (by_region, "its rows are told apart by (customer, region)"),
        (renamed, "nothing in its query tells its rows apart"),
        (plain, "nothing in its query tells its rows apart"),
    ],
)
def test_rows_that_a_key_does_not_distinguish_are_not_looked_up(
    table: Callable[[bl.Dataflow], bl.Stream], says: str, spark: SparkSession
) -> None:
    moves(range(1))
    orders(range(1))
    flow = bl.Dataflow("shop")
    flow.source("moves", bl.files("moves/*.csv", schema="customer STRING, region STRING, at STRING, op STRING"))
    asked = flow.source("orders", bl.files("orders/*.csv", schema="id INT, customer STRING"))
    asked.lookup("asked", t=table(flow).by("customer")).sink("out", bl.parquet("out"))
    with pytest.raises(
        bl.InvalidError, match=r"\[BAD_LOOKUP\] asked looks up v by customer, on which rows of it"
    ) as caught:
        run(spark, flow)
    assert says in str(caught.value)
