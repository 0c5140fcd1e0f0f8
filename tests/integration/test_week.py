"""A week of small steps from Kafka to SQLite and Kafka: a wrong expression is mended, and what it gave is replayed."""

from __future__ import annotations

import json
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.runtime.host.points import change_points
from support.changes import changes, evolve, run, table
from support.kafka import messages_of, new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

DAYS, ORDERS = 7, 240
STEPS_A_DAY = 40


def orders_of(day: int) -> list[bytes]:
    """Return the orders of a day; an order of `kind` R is a return, which counts against its product."""
    rows = [
        {"day": day, "product": f"p{(day + n * n) % 11}", "kind": "R" if n % 5 == 0 else "S", "price": n % 13 + day / 7}
        for n in range(ORDERS)
    ]
    return [json.dumps(row).encode() for row in rows]


def shop(broker: KafkaBroker, orders: str, out: str, *, mended: bool = False, worst: bool = False) -> bl.Dataflow:
    flow = bl.Dataflow("shop")
    source = bl.kafka.source(
        broker.bootstrap,
        topic=orders,
        format="json",
        schema="day INT, product STRING, kind STRING, price DOUBLE",
        max_offsets_per_step=ORDERS // STEPS_A_DAY,
    )
    flow.source("orders", source)
    price = "CASE WHEN kind = 'R' THEN -price ELSE price END" if mended else "price"
    flow.sql("signed", f"SELECT product, day, {price} AS price FROM orders")
    revenue = flow.sql("revenue", "SELECT product, sum(price) AS revenue, count(*) AS n FROM signed GROUP BY product")
    revenue.sink("table", bl.sqlite("shop.db", table="totals", key=["product"]))
    revenue.sink("topic", bl.kafka.sink(broker.bootstrap, out, key="product", rows="upsert"))
    top = "SELECT day, product, price FROM (SELECT *, row_number() OVER (PARTITION BY day ORDER BY price DESC, product)"
    flow.sql("best", f"{top} AS place FROM signed) WHERE place <= 3").sink("best_out", bl.parquet("best"))
    if worst:
        flow.sql("worst", "SELECT product, revenue FROM revenue ORDER BY revenue, product LIMIT 3").sink(
            "worst_out", bl.parquet("worst")
        )
    return flow


def held(broker: KafkaBroker, topic: str) -> list[Any]:
    newest: dict[Any, Any] = {}
    for message in messages_of(broker, topic):
        newest.pop(message.key(), None)
        if (value := message.value()) is not None:
            newest[message.key()] = json.loads(value)
    return [table("shop.db", "totals"), newest, changes("best"), changes("worst")]


def test_a_week(
    kafka_broker: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    monkeypatch.chdir(tmp_path)
    orders, out, fresh = (new_topic(kafka_broker, partitions) for partitions in (2, 2, 2))
    taken = 0

    def count(progress: bl.Progress) -> None:
        nonlocal taken
        taken += progress.what == "take" and progress.processor == "orders"

    for day in range(DAYS):
        send(kafka_broker, orders, orders_of(day))
        bl.run(
            shop(kafka_broker, orders, out, worst=day > 1), "store", available_now=True, spark=spark, on_progress=count
        )
        if day == 1:
            evolve(shop(kafka_broker, orders, out, worst=True), spark)  # a further view on a Tuesday
        if day == 3:
            assert list(change_points(Path("store"), "thursday"))
            at_the_point = held(kafka_broker, out)
    assert taken >= 200
    wrong = held(kafka_broker, out)
    mended = shop(kafka_broker, orders, out, mended=True, worst=True)
    plan = bl.evolution(mended, "store", to="thursday", spark=spark)
    assert plan.obstacles == {}
    assert plan.undone["orders"] >= 3 * STEPS_A_DAY
    bl.rewind(mended, "store", to="thursday", evolve=plan.id, spark=spark)
    replaying = held(kafka_broker, out)
    run(shop(kafka_broker, orders, out, mended=True, worst=True), spark)
    after = held(kafka_broker, out)
    (tmp_path / "fresh").mkdir()
    with chdir("fresh"):
        run(shop(kafka_broker, orders, fresh, mended=True, worst=True), spark)
        assert after == held(kafka_broker, fresh)
    assert all(after)
    for one, other in ((wrong, after), (at_the_point, replaying), (replaying, after)):
        assert all(a != b for a, b in zip(one[:3], other[:3], strict=True))
