"""Rows that are pushed with a key to a dataflow on Spark: the newest of each key holds, in views and in batches."""

from __future__ import annotations

import json
import random
import sqlite3
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from boatlift.runtime.host.progress import Progress
from boatlift.storage import input_log
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from support.crash.dying import DiesError, dying_at
from support.running import running
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

SCHEMA = "item STRING, price DOUBLE NOT NULL, shop STRING"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(input_log, "KEY_CHECKPOINT_AFTER", 4)


def prices(**options: Any) -> bl.Dataflow:
    def totals(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("item", "price", "shop")

    flow = bl.Dataflow("shop")
    held = flow.source("prices", bl.push(SCHEMA, upsert=["item"], **options))
    flow.sql("shops", "SELECT shop, count(*) AS n, sum(price) AS total FROM prices GROUP BY shop") \
        .sink("shops_out", bl.sqlite("out.db", table="shops", key=["shop"]))  # fmt: skip
    held.sink("prices_out", bl.sqlite("out.db", table="prices", key=["item"]))
    held.recompute("all", totals).sink("all_out", bl.parquet("all"))
    return flow


def rows_of(database: str, query: str) -> set[tuple[Any, ...]]:
    with sqlite3.connect(database) as opened:
        return set(opened.execute(query))


def last_table(folder: str) -> set[tuple[Any, ...]]:
    """The table of the last epoch of a batch."""
    return {tuple(row.values()) for row in pq.read_table(max(Path(folder).glob("*.parquet"))).to_pylist()}


class Shop:
    """Random pushes, beside a dictionary of what holds."""

    def __init__(self, seed: int) -> None:
        self.held: dict[str, tuple[float, str | None]] = {}
        self._chance = random.Random(seed)

    def push(self, flow: bl.Dataflow) -> None:
        item = f"item {self._chance.randrange(6)}"
        if self._chance.random() < 0.3:
            flow.push("prices", {"item": item, "_deleted": True})
            self.held.pop(item, None)
        else:
            price, shop = self._chance.randrange(100) / 4, self._chance.choice(["a", "b", None])
            flow.push("prices", {"item": item, "price": price, "shop": shop})
            self.held[item] = price, shop

    def check(self) -> None:
        assert rows_of("out.db", "SELECT item, price, shop FROM prices") == {(k, *v) for k, v in self.held.items()}
        shops = {shop for _, shop in self.held.values()}
        totals = {
            (s, [v for _, v in self.held.values()].count(s), sum(p for p, v in self.held.values() if v == s))
            for s in shops
        }
        assert rows_of("out.db", "SELECT shop, n, total FROM shops") == totals


def test_what_holds_is_what_a_dictionary_holds_over_deaths(spark: SparkSession) -> None:
    """A batch reads the whole log each time; in the last life its rows before that are an integral."""
    shop = Shop(1)
    for what, processor, nth in [("step", "prices", 2), ("commit", "prices_out", 2)]:
        flow = prices()
        started = bl.start(flow, "store", spark=spark, on_progress=dying_at(what, processor, nth))
        while started.is_active:
            before = dict(shop.held)
            try:
                shop.push(flow)
            except bl.UnavailableError:
                shop.held = before
            time.sleep(0.02)
        with pytest.raises(DiesError):
            started.wait()
    bl.run(prices(), "store", available_now=True, spark=spark)
    flow = prices()
    with running(flow, spark):
        for _ in range(10):
            shop.push(flow)
        assert until(lambda: [*Path("store/integrals/prices_source").glob("*")])
        shop.push(flow)
    bl.run(prices(), "store", available_now=True, spark=spark)
    shop.check()
    assert last_table("all") == {(k, *v) for k, v in shop.held.items()}
    store = LocalStore.open(Path("store"), create=False)
    assert len([*store.list("input/")]) < 20
    assert list(map(str, verify(store))) == []


def test_answers_may_wait_until_the_newest_rows_are_in_the_sink(spark: SparkSession) -> None:
    """Rows are not recorded then, so there is nothing to make an integral of."""
    flow = bl.Dataflow("shop")
    held = flow.source("prices", bl.push(SCHEMA, upsert=["item"], ack="stable"))
    held.sink("prices_out", bl.sqlite("out.db", table="prices", key=["item"]))
    with running(flow, spark):
        assert flow.push("prices", [{"item": "a", "price": 1}, {"item": "b", "price": 1}]).stable
        assert flow.push("prices", [{"item": "a", "_deleted": True}, {"item": "b", "price": 2, "shop": "x"}]).stable
        assert rows_of("out.db", "SELECT item, price, shop FROM prices") == {("b", 2.0, "x")}


def test_pushes_over_http_go_to_the_name_of_the_stream(spark: SparkSession) -> None:
    """A batch alone reads the source: the stream of changes is not computed."""
    flow = bl.Dataflow("shop")
    held = flow.source("prices", bl.push(SCHEMA, upsert=["item"], listen="127.0.0.1:0"))
    held.recompute("all", lambda rows: rows).sink("all_out", bl.parquet("all"))
    assert [*flow.processors] == ["prices_source", "all", "all_out"]
    told: list[Progress] = []
    with running(flow, spark, on_progress=told.append):
        until(lambda: any(each.what == "listening" for each in told))
        (listening,) = [each for each in told if each.what == "listening"]
        assert listening.where.endswith("/prices")
        for body in (b'{"item": "a", "price": 1}', b'[{"item": "b", "price": 2}, {"item": "a", "_deleted": true}]'):
            request = urllib.request.Request(listening.where, body, {"Idempotency-Key": str(len(body))})
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["rows"] == 1 + body.count(b"},")
        with pytest.raises(bl.DataError, match=r"\[BAD_ROW\] row 2: column price must not be NULL"):
            flow.push("prices", [{"item": "c", "price": 1}, {"item": "d"}])
        assert flow.pushed("prices", "25") is not None
    bl.run(flow, "store", available_now=True, spark=spark)
    assert last_table("all") == {("b", 2.0, None)}
