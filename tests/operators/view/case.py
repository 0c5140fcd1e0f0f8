"""Views in the laws of operators: a linear one, a join, an outer join with an aggregate over it, a ranking."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import boatlift as bl
from operators.laws import OperatorCase, Rows, as_row, changes_of

Given = list[dict[str, Any]]

JOIN = "SELECT a.k, a.v, b.x FROM rows a JOIN more b ON a.k = b.k AND a.v = b.v + 1"
COUNTS = """
    SELECT a.k, count(b.v) AS n, max(a.v) AS v
    FROM rows a LEFT JOIN (SELECT DISTINCT k, v FROM more WHERE x > 0.25) b ON a.k = b.k AND a.v > b.v
    GROUP BY a.k
"""


def ranked(rows: Any) -> Any:
    """The two largest values of each key."""
    from pyspark.sql import functions as F
    from pyspark.sql.window import Window

    place = F.row_number().over(Window.partitionBy("k").orderBy(F.desc("v"), "x"))
    return rows.withColumn("place", place).where("place <= 2")


def joined(rows: Given, more: Given) -> Rows:
    pairs = ((a, b) for a in rows for b in more if a["k"] == b["k"] and a["v"] == b["v"] + 1)
    return Counter(as_row({"k": a["k"], "v": a["v"], "x": b["x"]}) for a, b in pairs)


def counted(rows: Given, more: Given) -> Rows:
    distinct = {(b["k"], b["v"]) for b in more if b["x"] > 0.25}
    counts: dict[str, int] = defaultdict(int)
    largest: dict[str, int] = {}
    for row in rows:
        counts[row["k"]] += sum(k == row["k"] and row["v"] > v for k, v in distinct)
        largest[row["k"]] = max(row["v"], largest.get(row["k"], row["v"]))
    return Counter(as_row({"k": key, "n": counts[key], "v": value}) for key, value in largest.items())


def first_two(rows: Given, _more: Given) -> Rows:
    groups: dict[str, Given] = defaultdict(list)
    for row in rows:
        groups[row["k"]].append(row)
    return Counter(
        as_row({**row, "place": place})
        for group in groups.values()
        for place, row in enumerate(sorted(group, key=lambda row: (-row["v"], row["x"]))[:2], 1)
    )


MET = """
    SELECT a.k, a.v, b.n FROM `met-merged` a
    JOIN (SELECT k, count(*) AS n FROM more GROUP BY k) b ON a.k = b.k WHERE a.x < 0.5
    UNION ALL SELECT k, max(v), count(*) FROM more GROUP BY k
"""


def build_met(rows: bl.Stream, more: bl.Stream) -> bl.Stream:
    """A view of a stream with times of its own, and of one without."""
    rows.merge("met-merged", more)
    return rows.dataflow.sql("met", MET)


def met(rows: Given, more: Given) -> Rows:
    counts = Counter(row["k"] for row in more)
    largest = {key: max(row["v"] for row in more if row["k"] == key) for key in counts}
    chosen = [(row["k"], row["v"]) for row in [*rows, *more] if row["x"] < 0.5 and row["k"] in counts]
    return Counter(as_row({"k": key, "v": v, "n": counts[key]}) for key, v in [*chosen, *largest.items()])


CASES = [
    OperatorCase("met", build_met, met, changes_of, chosen=True),
    OperatorCase(
        "view",
        lambda rows, _more: rows.dataflow.sql("view", "SELECT k, v + 1 AS v FROM rows WHERE x < 0.75"),
        lambda rows, _more: Counter(as_row({"k": row["k"], "v": row["v"] + 1}) for row in rows if row["x"] < 0.75),
        changes_of,
    ),
    OperatorCase("view-join", lambda rows, _more: rows.dataflow.sql("view-join", JOIN), joined, changes_of),
    OperatorCase("view-counts", lambda rows, _more: rows.dataflow.sql("view-counts", COUNTS), counted, changes_of),
    OperatorCase("view-ranked", lambda rows, _more: rows.dataflow.view("view-ranked", ranked), first_two, changes_of),
]


def build_over_view(rows: bl.Stream, _more: bl.Stream) -> bl.Stream:
    """A view over a view, and an aggregate over that."""
    rows.dataflow.sql("pairs", "SELECT a.k, b.v FROM rows a JOIN more b ON a.k = b.k WHERE a.v < b.v")
    return rows.dataflow.sql(
        "view-over-view", "SELECT v, count(DISTINCT k) AS n FROM pairs GROUP BY v HAVING count(*) > 3"
    )


def over_view(rows: Given, more: Given) -> Rows:
    groups: dict[int, list[str]] = defaultdict(list)
    for a in rows:
        for b in more:
            if a["k"] == b["k"] and a["v"] < b["v"]:
                groups[b["v"]].append(a["k"])
    return Counter(as_row({"v": v, "n": len(set(keys))}) for v, keys in groups.items() if len(keys) > 3)


CASES.append(OperatorCase("view-over-view", build_over_view, over_view, changes_of))
