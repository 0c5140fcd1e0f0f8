"""A real job in its natural form: orders with customers that move, revenue by region and hour, the best products."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import boatlift as bl
from support.rows.event_time import BEGIN, judged
from support.rows.stepped_rows import steps_of

HOUR = timedelta(hours=1)
FILES, CUSTOMERS, PRODUCTS = 12, 20, "abcdefgh"


class KilledError(Exception):
    pass


def shop() -> bl.Dataflow:
    flow = bl.Dataflow("shop")
    orders = flow.source(
        "orders",
        bl.files(
            "orders/*.csv",
            schema="id LONG, customer LONG, product STRING, amount DOUBLE, at TIMESTAMP",
            max_files_per_step=1,
        ),
        lateness={"at": "10 minutes"},
        bad_rows="dead_letters",
    )
    moves = flow.source("moves", bl.files("moves/*.csv", schema="customer LONG, region STRING, moved LONG"))
    customers = moves.upserts("customers", key=["customer"], order="moved")
    clicked = bl.files("clicks/*.csv", schema="product STRING, at TIMESTAMP")
    flow.source("clicks", clicked, lateness={"at": "10 minutes"})

    orders.bad_rows("letters").sink("letters_out", bl.parquet("letters"))
    orders.late_rows("late").sink("late_out", bl.parquet("late"))
    located = orders.lookup("located", of=customers.by("customer"))
    by_hour = located.group_by(bl.window("at", "1 hour"), "of_region")
    live = by_hour.agg("live", F.sum("amount").alias("revenue"))
    live.sink("live_out", bl.sqlite("shop.db", table="revenue", key=["window_start", "of_region"]))
    by_hour.agg("closed", F.sum("amount").alias("revenue"), emit="final").sink("closed_out", bl.parquet("closed"))
    flow.sql(
        "sold",
        "SELECT product, revenue, n FROM (SELECT product, sum(amount) AS revenue FROM located GROUP BY product) "
        "JOIN (SELECT product, count(*) AS n FROM clicks GROUP BY product) USING (product)",
    )
    best = flow.sql(
        "best",
        "SELECT * FROM (SELECT product, revenue, n, row_number() OVER (ORDER BY revenue DESC, product) AS place "
        "FROM sold) WHERE place <= 5",
    )
    best.sink("best_out", bl.sqlite("shop.db", table="best", key=["place"]))
    flow.sql(
        "clicked",
        "SELECT l.id, l.product, l.at, c.at AS clicked FROM located l JOIN clicks c ON l.product = c.product "
        "AND c.at BETWEEN l.at - INTERVAL 5 MINUTES AND l.at",
    ).final("clicked_once", "at").sink("clicked_out", bl.parquet("clicked"))
    return flow


def test_the_real_job_is_right_in_its_natural_form_also_after_a_kill(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(5)
    regions = {customer: chance.choice(["north", "south"]) for customer in range(CUSTOMERS)}
    moved = dict.fromkeys(range(0, CUSTOMERS, 4), "east")
    orders: list[list[dict[str, Any]]] = []
    clicks: list[tuple[str, datetime]] = []
    for number in range(FILES):
        minutes = [chance.randrange(30) for _ in range(20)] + ([-100] if number > 4 else [])
        rows = [
            {
                "id": 100 * number + place,
                "customer": chance.randrange(CUSTOMERS),
                "product": chance.choice(PRODUCTS),
                "amount": chance.randrange(1000) / 4,
                "at": BEGIN + timedelta(minutes=30 * number + minute),
            }
            for place, minute in enumerate(minutes)
        ]
        orders.append(rows)
        minutes = [chance.randrange(30) for _ in range(4)]
        clicks += [(chance.choice(PRODUCTS), BEGIN + timedelta(minutes=30 * number + each)) for each in minutes]
    for name in ("orders", "moves", "clicks"):
        Path(name).mkdir()
    for number, rows in enumerate(orders):
        lines = [",".join(map(str, [*list(row.values())[:4], f"{row['at']:%Y-%m-%dT%H:%M:%SZ}"])) for row in rows]
        bad = ["x,1,a,2.5,2026-03-01T12:00:00Z"] if number % 5 == 0 else []
        Path(f"orders/{number:02}.csv").write_text("\n".join(["id,customer,product,amount,at", *lines, *bad, ""]))
    places = [*((c, r, 0) for c, r in regions.items()), *((c, r, 1) for c, r in moved.items())]
    Path("moves/0.csv").write_text("customer,region,moved\n" + "".join(f"{c},{r},{n}\n" for c, r, n in places))
    Path("clicks/0.csv").write_text("product,at\n" + "".join(f"{p},{at:%Y-%m-%dT%H:%M:%SZ}\n" for p, at in clicks))

    def kill(progress: bl.Progress) -> None:
        if progress.what == "commit" and progress.processor == "closed_out" and progress.time >= 5:
            raise KilledError

    bl.run(shop(), "store", available_now=True, spark=spark, pause=["orders", "clicks"])
    with pytest.raises(KilledError):
        bl.run(shop(), "store", available_now=True, spark=spark, on_progress=kill)
    bl.run(shop(), "store", available_now=True, spark=spark)

    timely, late, bounds = judged(orders, timedelta(minutes=10))
    assert sum(map(len, late)) == FILES - 5
    assert [row["id"] for step in steps_of("late") for row in step] == [row["id"] for rows in late for row in rows]
    assert sum(map(len, steps_of("letters"))) == 3
    assert bounds.bound is not None
    sold = [row for rows in timely for row in rows]
    hours: dict[tuple[datetime, str], float] = defaultdict(float)
    products: dict[str, float] = defaultdict(float)
    for row in sold:
        begin = row["at"].replace(minute=0)
        hours[begin, {**regions, **moved}[row["customer"]]] += row["amount"]
        products[row["product"]] += row["amount"]
    with sqlite3.connect("shop.db") as database:
        live = database.execute("SELECT window_start, of_region, revenue FROM revenue").fetchall()
        best = database.execute("SELECT place, product, revenue FROM best ORDER BY place").fetchall()
    assert {(at, region): revenue for at, region, revenue in live} == {
        (f"{begin:%Y-%m-%dT%H:%M:%S}.000000Z", region): revenue for (begin, region), revenue in hours.items()
    }
    closed = {(row["window_start"], row["of_region"]): row["revenue"] for step in steps_of("closed") for row in step}
    assert closed == {key: revenue for key, revenue in hours.items() if key[0] + HOUR <= bounds.bound}
    assert sum(map(len, steps_of("closed"))) == len(closed) > 4
    named = {product for product, _ in clicks}
    ranked = sorted(((-revenue, product) for product, revenue in products.items() if product in named))[:5]
    assert best == [(place, product, -revenue) for place, (revenue, product) in enumerate(ranked, 1)]
    least = min(bounds.bound, max(at for _, at in clicks) - timedelta(minutes=10))
    pairs = [
        (row["id"], at)
        for row in sold
        for product, at in clicks
        if product == row["product"] and row["at"] - timedelta(minutes=5) <= at <= row["at"] <= least
    ]
    found = [(row["id"], row["clicked"]) for step in steps_of("clicked") for row in step]
    assert Counter(found) == Counter(pairs)
    assert len(pairs) > 5
