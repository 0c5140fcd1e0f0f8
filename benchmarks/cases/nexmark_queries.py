"""Nexmark: the queries that its users know, in Spark's SQL, and events drawn by its rules.

Of 50 events one is a person, three are auctions and 46 are bids. Half of the bids are for a hot auction and by a hot
bidder, half of the auctions by a hot seller; prices are spread over six powers of ten.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["COLUMNS", "QUERIES", "REFUSED", "SIDE_INPUT", "Rows", "events"]

Rows = list[dict[str, Any]]

SIDE_INPUT = "CREATE OR REPLACE TEMPORARY VIEW side AS SELECT id AS key, concat('value ', id) AS value FROM range(20)"
"""The bounded side input of q13: a static table."""

_BIDS = "auction, bidder, price, dateTime, extra"

QUERIES = {
    "q0": f"SELECT {_BIDS} FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 3 = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
             WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, avg(final) AS price FROM (
                 SELECT a.id, a.category, max(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
                 WHERE b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY a.id, a.category)
             GROUP BY category""",
    "q5": """WITH counts AS (SELECT auction, window.start AS start, count(*) AS num
                             FROM bid GROUP BY auction, window(dateTime, '10 seconds', '2 seconds'))
             SELECT c.auction, c.num, c.start FROM counts c
             JOIN (SELECT start, max(num) AS most FROM counts GROUP BY start) m
             ON c.start = m.start AND c.num = m.most""",
    "q6": """SELECT seller, id, avg(final) OVER (
                 PARTITION BY seller ORDER BY dateTime, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS price
             FROM (SELECT a.id, a.seller, max(b.price) AS final, max(b.dateTime) AS dateTime
                   FROM auction a JOIN bid b ON a.id = b.auction
                   WHERE b.dateTime BETWEEN a.dateTime AND a.expires GROUP BY a.id, a.seller)""",
    "q7": """SELECT b.auction, b.price, b.bidder, b.dateTime FROM bid b
             JOIN (SELECT max(price) AS most, window.start AS start, window.end AS end
                   FROM bid GROUP BY window(dateTime, '10 seconds')) m
             ON b.price = m.most AND b.dateTime >= m.start AND b.dateTime < m.end""",
    "q8": """SELECT p.id, p.name, p.start FROM
                 (SELECT id, name, window.start AS start
                  FROM person GROUP BY id, name, window(dateTime, '10 seconds')) p
             JOIN (SELECT seller, window.start AS start FROM auction GROUP BY seller, window(dateTime, '10 seconds')) a
             ON p.id = a.seller AND p.start = a.start""",
    "q9": """SELECT id, itemName, seller, auction, bidder, price, bidTime FROM (
                 SELECT a.id, a.itemName, a.seller, b.auction, b.bidder, b.price, b.dateTime AS bidTime,
                        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.dateTime, b.bidder) AS place
                 FROM auction a JOIN bid b ON a.id = b.auction AND b.dateTime BETWEEN a.dateTime AND a.expires)
             WHERE place = 1""",
    "q10": f"""SELECT {_BIDS}, date_format(dateTime, 'yyyy-MM-dd') AS day, date_format(dateTime, 'HH:mm') AS minute
               FROM bid""",
    "q11": """SELECT bidder, count(*) AS bids, session_window.start AS start, session_window.end AS end
              FROM bid GROUP BY bidder, session_window(dateTime, '10 seconds')""",
    "q13": "SELECT b.auction, b.bidder, b.price, s.value FROM bid b JOIN side s ON b.auction % 20 = s.key",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
                     CASE WHEN hour(dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
                          WHEN hour(dateTime) <= 6 OR hour(dateTime) >= 20 THEN 'nightTime'
                          ELSE 'otherTime' END AS kind,
                     length(extra) - length(replace(extra, 'c', '')) AS cs
              FROM bid WHERE 0.908 * price > 1000 AND 0.908 * price < 50000000""",
    "q15": """SELECT date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS bids,
                     count(*) FILTER (WHERE price < 10000) AS low, count(DISTINCT bidder) AS bidders,
                     count(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
                     count(DISTINCT auction) AS auctions
              FROM bid GROUP BY date_format(dateTime, 'yyyy-MM-dd')""",
    "q16": """SELECT channel, date_format(dateTime, 'yyyy-MM-dd') AS day, max(date_format(dateTime, 'HH:mm')) AS minute,
                     count(*) AS bids, count(*) FILTER (WHERE price >= 10000) AS high,
                     count(DISTINCT bidder) AS bidders,
                     count(DISTINCT auction) FILTER (WHERE price >= 10000) AS high_auctions
              FROM bid GROUP BY channel, date_format(dateTime, 'yyyy-MM-dd')""",
    "q17": """SELECT auction, date_format(dateTime, 'yyyy-MM-dd') AS day, count(*) AS bids,
                     count(*) FILTER (WHERE price < 10000) AS low, min(price) AS least, max(price) AS most,
                     avg(price) AS mean, sum(price) AS total
              FROM bid GROUP BY auction, date_format(dateTime, 'yyyy-MM-dd')""",
    "q18": f"""SELECT {_BIDS} FROM (
                   SELECT *, row_number() OVER (
                       PARTITION BY bidder, auction ORDER BY dateTime DESC, price DESC) AS place
                   FROM bid) WHERE place = 1""",
    "q19": """SELECT auction, bidder, price, place FROM (
                  SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, dateTime, bidder) AS place
                  FROM bid) WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, a.itemName, a.seller, a.category
              FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """SELECT auction, bidder, price, channel,
                     CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                          WHEN 'baidu' THEN '3' ELSE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
              FROM bid
              WHERE regexp_extract(url, '(&|^)channel_id=([^&]*)', 2) <> ''
                    OR lower(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2
              FROM bid""",
}  # fmt: skip

REFUSED = {"q12": "SELECT bidder, count(*) AS bids FROM bid GROUP BY bidder, window(current_timestamp(), '10 seconds')"}
"""A window of processing time: the clock of a step."""

COLUMNS = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, dateTime TIMESTAMP, extra STRING",
    "auction": "id BIGINT, itemName STRING, initialBid BIGINT, dateTime TIMESTAMP, expires TIMESTAMP, seller BIGINT, "
    "category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, dateTime TIMESTAMP, extra STRING",
}

_BEGIN = datetime(2015, 7, 15, tzinfo=UTC)
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle")
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")


def events(count: int, steps: int, seed: int = 0) -> dict[str, list[Rows]]:
    """Return for each table the rows of each step, with so many events a step in all."""
    drawn = _events(random.Random(f"nexmark {seed}"))
    tables: dict[str, list[Rows]] = {name: [[] for _ in range(steps)] for name in COLUMNS}
    for step in range(steps):
        for _ in range(count):
            name, row = next(drawn)
            tables[name][step].append(row)
    return tables


def _events(chance: random.Random) -> Iterator[tuple[str, dict[str, Any]]]:
    people = auctions = number = 0
    while True:
        at = _BEGIN + timedelta(milliseconds=100 * number)
        extra = "".join(chance.choices("abcdefgh", k=8))
        place = number % 50
        number += 1
        if place == 0:
            person = {"id": 1000 + people, "name": f"{chance.choice('ABCDE')} {chance.choice('XYZ')}"}
            person |= {"city": chance.choice(_CITIES), "state": chance.choice(_STATES)}
            yield "person", person | {"dateTime": at, "extra": extra}
            people += 1
        elif place < 4:
            seller = people - 1 - (0 if chance.random() < 0.5 else chance.randrange(min(people, 10)))
            auction = {"id": 1000 + auctions, "itemName": f"item {chance.randrange(100)}"}
            auction |= {"initialBid": _price(chance), "expires": at + timedelta(seconds=chance.randrange(1, 20))}
            auction |= {"seller": 1000 + seller, "category": 10 + chance.randrange(5)}
            yield "auction", auction | {"dateTime": at, "extra": extra}
            auctions += 1
        else:
            hot = chance.random() < 0.5
            auction_id = auctions - 1 - (0 if hot else chance.randrange(min(auctions, 20)))
            bidder = people - 1 - (0 if chance.random() < 0.5 else chance.randrange(min(people, 20)))
            channel = chance.choice(_CHANNELS) if chance.random() < 0.5 else f"channel-{chance.randrange(100)}"
            url = f"https://www.nexmark.com/{extra[:3]}/{extra[3:5]}/{extra[5:]}/item.htm?query=1"
            if channel not in _CHANNELS and chance.random() < 0.9:
                url += f"&channel_id={chance.randrange(1000)}"
            bid = {"auction": 1000 + auction_id, "bidder": 1000 + bidder, "price": _price(chance)}
            yield "bid", bid | {"channel": channel, "url": url, "dateTime": at, "extra": extra}


def _price(chance: random.Random) -> int:
    return round(10 ** (chance.random() * 6) * 100)
