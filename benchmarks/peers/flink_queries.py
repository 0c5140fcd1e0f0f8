"""The Nexmark queries in Flink's SQL, each equal in meaning to ours of the same name.

Windows are Flink's own: they need a watermark, and give their rows once, when the watermark passes their end, where
our views give rows at once and revise them. At the end of the input both have the same rows. q13 looks up the static
table at the moment of a bid, which keeps no state.
"""

from __future__ import annotations

from benchmarks.cases.nexmark_queries import COLUMNS

__all__ = ["LEFT_OUT", "QUERIES", "TABLES", "TOP", "TOP_TABLE"]

LEFT_OUT = {"q6": "an OVER window of ten rows takes no input that is revised"}
"""The queries that Flink's SQL refuses."""


def _declared(name: str, columns: str) -> str:
    """Return the declaration of a table of events: they come in order of time, so the watermark follows at once."""
    fields = columns.replace(" TIMESTAMP", " TIMESTAMP(3)").replace("dateTime", "`dateTime`")
    more = "now AS PROCTIME(), WATERMARK FOR `dateTime` AS `dateTime` - INTERVAL '0.001' SECOND"
    return f"CREATE TEMPORARY TABLE {name} ({fields}, {more}) WITH ('connector' = 'peer')"


TABLES = [
    *(_declared(name, columns) for name, columns in COLUMNS.items()),
    "CREATE TEMPORARY TABLE side (key BIGINT, `value` STRING) WITH ('connector' = 'peer', 'kind' = 'side')",
]
"""The tables of events, and the static table of q13, which the connector knows by heart."""

TOP_TABLE = "CREATE TEMPORARY TABLE now (k BIGINT, v DOUBLE) WITH ('connector' = 'peer', 'kind' = 'changes')"
TOP = """SELECT k, v, place FROM (SELECT k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS place FROM now)
         WHERE place <= 3"""
"""The query of `view_top`, and its table of changes."""

_BIDS = "auction, bidder, price, `dateTime`, extra"
_TENS = "DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND"
_DAY = "DATE_FORMAT(`dateTime`, 'yyyy-MM-dd')"

QUERIES = {
    "q0": f"SELECT {_BIDS} FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, `dateTime`, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 3) = 0",
    "q3": """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
             WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """SELECT category, AVG(CAST(final AS DOUBLE)) AS price FROM (
                 SELECT a.id, a.category, MAX(b.price) AS final FROM auction a JOIN bid b ON a.id = b.auction
                 WHERE b.`dateTime` BETWEEN a.`dateTime` AND a.expires GROUP BY a.id, a.category)
             GROUP BY category""",
    "q5": """WITH counts AS (
                 SELECT auction, window_start, window_end, COUNT(*) AS num
                 FROM TABLE(HOP(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
                 GROUP BY auction, window_start, window_end)
             SELECT c.auction, c.num, c.window_start FROM counts c
             JOIN (SELECT window_start, window_end, MAX(num) AS most FROM counts GROUP BY window_start, window_end) m
             ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.most""",
    "q7": f"""SELECT b.auction, b.price, b.bidder, b.`dateTime` FROM (SELECT * FROM TABLE(TUMBLE(TABLE bid, {_TENS}))) b
              JOIN (SELECT MAX(price) AS most, window_start, window_end FROM TABLE(TUMBLE(TABLE bid, {_TENS}))
                    GROUP BY window_start, window_end) m
              ON b.window_start = m.window_start AND b.window_end = m.window_end AND b.price = m.most""",
    "q8": f"""SELECT p.id, p.name, p.window_start FROM
                  (SELECT id, name, window_start, window_end FROM TABLE(TUMBLE(TABLE person, {_TENS}))
                   GROUP BY id, name, window_start, window_end) p
              JOIN (SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, {_TENS}))
                    GROUP BY seller, window_start, window_end) a
              ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": """SELECT id, itemName, seller, auction, bidder, price, bidTime FROM (
                 SELECT a.id, a.itemName, a.seller, b.auction, b.bidder, b.price, b.`dateTime` AS bidTime,
                        ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.`dateTime`, b.bidder) AS place
                 FROM auction a JOIN bid b ON a.id = b.auction AND b.`dateTime` BETWEEN a.`dateTime` AND a.expires)
             WHERE place = 1""",
    "q10": f"SELECT {_BIDS}, {_DAY} AS `day`, DATE_FORMAT(`dateTime`, 'HH:mm') AS `minute` FROM bid",
    "q11": f"""SELECT bidder, COUNT(*) AS bids, window_start, window_end
               FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, {_TENS})) GROUP BY bidder, window_start, window_end""",
    "q13": """SELECT b.auction, b.bidder, b.price, s.`value` FROM (SELECT *, MOD(auction, 20) AS key FROM bid) b
              JOIN side FOR SYSTEM_TIME AS OF b.now AS s ON b.key = s.key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
                     CASE WHEN HOUR(`dateTime`) BETWEEN 8 AND 18 THEN 'dayTime'
                          WHEN HOUR(`dateTime`) <= 6 OR HOUR(`dateTime`) >= 20 THEN 'nightTime'
                          ELSE 'otherTime' END AS kind,
                     CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) AS cs
              FROM bid WHERE 0.908 * price > 1000 AND 0.908 * price < 50000000""",
    "q15": f"""SELECT {_DAY} AS `day`, COUNT(*) AS bids,
                      COUNT(*) FILTER (WHERE price < 10000) AS low, COUNT(DISTINCT bidder) AS bidders,
                      COUNT(DISTINCT bidder) FILTER (WHERE price < 10000) AS low_bidders,
                      COUNT(DISTINCT auction) AS auctions
               FROM bid GROUP BY {_DAY}""",
    "q16": f"""SELECT channel, {_DAY} AS `day`, MAX(DATE_FORMAT(`dateTime`, 'HH:mm')) AS `minute`,
                      COUNT(*) AS bids, COUNT(*) FILTER (WHERE price >= 10000) AS high,
                      COUNT(DISTINCT bidder) AS bidders,
                      COUNT(DISTINCT auction) FILTER (WHERE price >= 10000) AS high_auctions
               FROM bid GROUP BY channel, {_DAY}""",
    "q17": f"""SELECT auction, {_DAY} AS `day`, COUNT(*) AS bids,
                      COUNT(*) FILTER (WHERE price < 10000) AS low, MIN(price) AS least, MAX(price) AS most,
                      AVG(CAST(price AS DOUBLE)) AS mean, SUM(price) AS total
               FROM bid GROUP BY auction, {_DAY}""",
    "q18": f"""SELECT {_BIDS} FROM (
                   SELECT *, ROW_NUMBER() OVER (
                       PARTITION BY bidder, auction ORDER BY `dateTime` DESC, price DESC) AS place
                   FROM bid) WHERE place = 1""",
    "q19": """SELECT auction, bidder, price, place FROM (
                  SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, `dateTime`, bidder) AS place
                  FROM bid) WHERE place <= 10""",
    "q20": """SELECT b.auction, b.bidder, b.price, a.itemName, a.seller, a.category
              FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """SELECT auction, bidder, price, channel,
                     CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2'
                          WHEN 'baidu' THEN '3' ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
              FROM bid
              WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
                    OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2
              FROM bid""",
}  # fmt: skip
