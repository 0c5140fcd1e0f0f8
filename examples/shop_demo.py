"""`make demo-shop`: a job as people have it, on files and Kafka; killed, started again, and compared with plain Python.

What a shop needs is in `shop.py`. This file makes the data, kills the run, and judges its six outputs.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from under_attack import OUTPUT, WrongError, rows_of, run, say, verify

from boatlift.testing.kafka_broker import KafkaBroker

ATTACKS = (
    ("step(revenue):after:3", "revenue has executed a step"),
    ("sink.commit(revenue_now):after:4", "the live table holds a step that nothing else knows of"),
    ("sink.written(top_five):after:2", "rows of the top five are in an open transaction"),
    ("store.create(runs):after:6", "a checkpoint is half durable"),
)
DAY = datetime(2013, 6, 1, tzinfo=UTC)
LATENESS = timedelta(hours=2)
PATIENCE = 60.0
PRODUCTS = [f"product {number}" for number in range(20)]
REGIONS = ("north", "south", "west")


@dataclass
class Shop:
    """What happened, as plain Python knows it.

    Attributes:
        files: The good orders of each file: id, customer, product, pieces, price, time.
        bad: The lines of orders that are none.
        home: Where each customer lives in the end.
        clicks: Product to the number of clicks.
    """

    files: list[list[tuple[int, int, str, int, Decimal, datetime]]] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)
    home: dict[int, str] = field(default_factory=dict)
    clicks: Counter[str] = field(default_factory=Counter)


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    folder = OUTPUT / "shop"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with KafkaBroker() as broker:
            os.environ["BOATLIFT_DEMO_SERVERS"] = broker.bootstrap
            shop = open_shop(folder, broker.bootstrap, files=24, seed=2013)
            orders = sum(map(len, shop.files))
            say(f"{orders:,} orders in {len(shop.files)} files, {shop.clicks.total():,} clicks in Kafka, six outputs")
            for point, moment in ATTACKS:
                if not run(folder, "shop:flow", point):
                    raise WrongError(f"the run passed {point} without being killed there")
                say(f"SIGKILL as {moment} ({point}); the same command goes on")
            run(folder, "shop:flow")
            judge(folder, broker.bootstrap, shop)
            verify(folder)
    except WrongError as wrong:
        print(f"demo-shop failed: {wrong}")
        sys.exit(1)
    say(f"{time.monotonic() - began:.0f} s in all; the outputs are in {folder}")
    print("demo-shop passed")


def open_shop(folder: Path, servers: str, *, files: int, seed: int) -> Shop:
    """Write orders and customers into a folder, and clicks into a topic; some of it late, some of it wrong."""
    draw, shop = random.Random(seed), Shop()
    for name in ("orders", "customers"):
        (folder / name).mkdir()
    for number in range(files):
        good = [_order(draw, number, number * 100 + place) for place in range(100)]
        lines = [f"{i},{c},{product},{n},{price},{at:%Y-%m-%d %H:%M:%S}" for i, c, product, n, price, at in good]
        if number % 8 == 3:
            shop.bad.append(f"{number * 100 + 99},7,product 1,many,1.00,{DAY:%Y-%m-%d %H:%M:%S}")
            lines.insert(draw.randrange(len(lines)), shop.bad[-1])
        header = "id,customer,product,pieces,price,at"
        (folder / "orders" / f"{number:03}.csv").write_text("\n".join([header, *lines]) + "\n")
        shop.files.append(good)
    for part in range(2):
        moved = range(50) if part == 0 else draw.sample(range(50), 10)
        regions = {customer: draw.choice(REGIONS) for customer in moved}
        shop.home |= regions
        since = DAY + timedelta(days=part)
        rows = [f"{customer},{region},{since:%Y-%m-%d %H:%M:%S}" for customer, region in regions.items()]
        (folder / "customers" / f"{part}.csv").write_text("\n".join(["customer,region,since", *rows]) + "\n")
    _click(draw, shop, servers)
    return shop


def _order(draw: random.Random, hour: int, number: int) -> tuple[int, int, str, int, Decimal, datetime]:
    ago = timedelta(hours=5) if draw.random() < 0.02 else timedelta()
    at = DAY + timedelta(hours=hour, seconds=draw.randrange(3600)) - ago
    product = PRODUCTS[min(draw.randrange(len(PRODUCTS)), draw.randrange(len(PRODUCTS)))]
    return number, draw.randrange(50), product, draw.randint(1, 5), Decimal(draw.randrange(100, 9999)) / 100, at


def _click(draw: random.Random, shop: Shop, servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in ("clicks", "top-products")]).values():
        made.result(PATIENCE)
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for number in range(2000):
        product = draw.choice(PRODUCTS)
        shop.clicks[product] += 1
        producer.produce("clicks", json.dumps({"product": product}))
        if number % 500 == 7:
            producer.produce("clicks", "no JSON")
    if producer.flush(PATIENCE):
        raise WrongError("the broker does not take the clicks")


def judge(folder: Path, servers: str, shop: Shop) -> None:
    """Compare each output with what plain Python makes of the same data."""
    kept, late = _judged(shop.files)
    revenue: dict[tuple[str, str], list[Any]] = defaultdict(lambda: [0, Decimal(0)])
    pieces: Counter[str] = Counter()
    for _, customer, product, number, price, at in kept:
        entry = revenue[shop.home[customer], f"{at:%Y-%m-%dT%H}"]
        entry[0] += 1
        entry[1] += number * price
        pieces[product] += number
    held = rows_of(folder, "SELECT region, hour, orders, revenue FROM revenue", "shop.db")
    found = {(region, hour[:13]): [orders, Decimal(total)] for region, hour, orders, total in held}
    _same("live revenue", found, dict(revenue))
    best = sorted(pieces, key=lambda product: (-pieces[product], product))[:5]
    _same("top five", _topic(servers, "top-products"), {p: (pieces[p], shop.clicks[p]) for p in best})
    _same("late orders", Counter(_column(folder / "late", "id")), Counter(late))
    _same("bad orders", len(_column(folder / "bad", "reason")), len(shop.bad))
    _same("bad messages", len(_column(folder / "bad-messages", "reason")), 4)
    bound = max(at for *_, at in kept) - LATENESS
    done: Counter[datetime] = Counter()
    for *_, number, _, at in kept:
        begin = at.replace(minute=0, second=0)
        if begin + timedelta(hours=1) <= bound:
            done[begin] += number
    rows = pq.read_table(folder / "hours").to_pylist()
    _same(
        "final hours", [(row["window_start"].replace(tzinfo=UTC), row["pieces"]) for row in rows], sorted(done.items())
    )


def _judged(files: Sequence[Sequence[tuple[int, int, str, int, Decimal, datetime]]]) -> tuple[list[Any], list[int]]:
    """Return the orders that are in time, and the numbers of those that are late: each file is a step."""
    kept, late, latest = [], [], DAY - timedelta(days=1)
    for orders in files:
        bound = latest - LATENESS
        for order in orders:
            (kept if order[-1] >= bound else late).append(order)
        latest = max([latest, *(order[-1] for order in orders)])
    return kept, [order[0] for order in late]


def _column(folder: Path, name: str) -> list[Any]:
    column: list[Any] = pq.read_table(folder)[name].to_pylist()
    return column


def _topic(servers: str, topic: str) -> Mapping[str, tuple[int, int]]:
    """Return what a plain consumer finds to hold in a topic: the newest value of each key."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": "judge", "auto.offset.reset": "earliest", "log_level": 0,
         "enable.partition.eof": True}
    )  # fmt: skip
    consumer.subscribe([topic])
    held: dict[str, tuple[int, int]] = {}
    ends: set[int] = set()
    while len(ends) < 2:
        message = consumer.poll(PATIENCE)
        if message is None:
            raise WrongError(f"the broker does not give {topic}")
        if message.error() is not None:
            ends.add(message.partition())
            continue
        key = message.key().decode()
        held.pop(key, None)
        if message.value() is not None:
            value = json.loads(message.value())
            held[value["product"]] = (value["pieces"], value["clicks"])
    consumer.close()
    return held


def _same(what: str, found: Any, right: Any) -> None:
    if found != right:
        raise WrongError(f"{what}: {found} is there, and {right} is right")
    say(f"{what}: what a plain computation gives ({len(right) if hasattr(right, '__len__') else right})")


if __name__ == "__main__":
    main()
