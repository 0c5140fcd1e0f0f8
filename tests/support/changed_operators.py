"""Operators in two versions, each over the same input: what `test_changed_operators.py` changes while a store lives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boatlift as bl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = "k INT, v LONG, x DOUBLE, w STRING"

Through = Callable[[Any], Any]


def write(number: int) -> None:
    """Write a file of each source: duplicates, NULLs, floats whose sum depends on the order, and one bad row."""
    for folder in ("in", "other"):
        Path(folder).mkdir(exist_ok=True)
    rows = [
        f"{(number + n) % 5},{(number * 7 + n * 3) % 11},{(n - 4) * 10.0 ** (n + number % 3)},{'abc'[n % 3]}"
        for n in range(9)
    ]
    Path(f"in/{number:03}.csv").write_text("\n".join(["k,v,x,w", *rows, ",,,", rows[0], "bad,1,2,3"]) + "\n")
    names = [f"{(number + n) % 7},{'uvwxyz'[(number * n) % 6]}" for n in range(2)]
    Path(f"other/{number:03}.csv").write_text("\n".join(["k,name", *names]) + "\n")


class Inputs:
    """The sources of a dataflow, each made once it is read."""

    def __init__(self, flow: bl.Dataflow) -> None:
        self.flow = flow

    def rows(self) -> bl.Stream:
        source = bl.files("in/*.csv", schema=SCHEMA, max_files_per_step=1)
        rows = self.flow.source("rows", source, bad_rows="dead_letters")
        rows.bad_rows("bad").sink("bad_out", bl.parquet("bad"))
        return rows

    def others(self) -> bl.Stream:
        return self.flow.source("others", bl.files("other/*.csv", schema="k INT, name STRING", max_files_per_step=1))


@dataclass(frozen=True)
class Changing:
    """An operator named `op` in two versions; the second one if `changed`.

    Attributes:
        build: Adds it.
        key: The key of its rows, for a table of SQLite; empty if they have none.
        appends: Whether its rows never change: a view on top makes changes of them, which sinks can take back.
        unique: Whether the user vouches for the key, because the program does not prove it.
    """

    build: Callable[[Inputs, bool], bl.Stream]
    key: tuple[str, ...] = ()
    appends: bool = False
    unique: bool = False

    def flow(self, *, changed: bool, through: Through = lambda sink: sink) -> bl.Dataflow:
        flow = bl.Dataflow("flow")
        rows = self.build(Inputs(flow), changed)
        if self.appends:
            rows = flow.sql("held", "SELECT * FROM op")
        rows.sink("history", through(bl.parquet("history")))
        if self.key:
            rows.sink("answers", through(bl.sqlite("answers.db", table="totals", key=self.key, unique=self.unique)))
        return flow


def _over_rows(build: Callable[[bl.Stream, bool], bl.Stream]) -> Callable[[Inputs, bool], bl.Stream]:
    return lambda inputs, changed: build(inputs.rows(), changed)


def _query(old: str, new: str, key: tuple[str, ...] = (), *, others: bool = False) -> Changing:
    def build(inputs: Inputs, changed: bool) -> bl.Stream:
        inputs.rows()
        if others:
            inputs.others()
        return inputs.flow.sql("op", new if changed else old)

    return Changing(build, key)


def _transform(old: str, new: str) -> Changing:
    def build(rows: bl.Stream, changed: bool) -> bl.Stream:
        return rows.transform("op", lambda df: df.selectExpr("k", new if changed else old, "w"))

    return Changing(_over_rows(build), appends=True)


def _filter(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.transform("op", lambda df: df.where("v < 5 OR v IS NULL" if changed else "v > 3"))


def _python(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    factor = 2 if changed else 1
    times = F.udf(lambda v: None if v is None else v * factor, "long")
    return rows.transform("op", lambda df: df.withColumn("v", times("v")), deterministic=True)


def _union(rows: bl.Stream, changed: bool) -> bl.Stream:
    few = rows.transform("few", lambda df: df.where("v > 5"))
    many = [rows.transform("many", lambda df: df.where("v < 3"))] if changed else []
    return rows.union("op", few, *many)


def _changes(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.changes("op", weight=f"CASE WHEN v % 2 = 0 THEN {3 if changed else 1} ELSE 2 END")


def _agg(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    v = F.col("v") * 2 if changed else F.col("v")
    x = F.col("x") / 3 if changed else F.col("x")
    least, most = (F.max, F.min) if changed else (F.min, F.max)
    sums = (F.sum(v).alias("v"), F.sum(x).alias("x"), F.avg(x).alias("mean"))
    return rows.group_by("k").agg("op", *sums, least("w").alias("a"), most("w").alias("z"))


def _agg_of_changes(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    counts = rows.group_by("k", "w").agg("counts", F.count("*").alias("n"))
    n = F.col("n") * 2 if changed else F.col("n")
    return counts.group_by("w").agg("op", F.sum(n).alias("n"), F.count("*").alias("keys"))


def _other_key(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    keyed = rows.transform("keyed", lambda df: df.withColumns({"a": F.col("k"), "b": F.col("v").cast("int")}))
    by = keyed.group_by("b" if changed else "a").agg("sums", F.sum("x").alias("x"))
    return by.transform("op", lambda df: df.withColumnRenamed(df.columns[0], "k"))


def _whole(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    return rows.agg("op", F.sum(F.col("x") * (2 if changed else 1)).alias("x"), F.count("k").alias("n"))


def _top_n(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.group_by("k").top_n("op", 3 if changed else 2, order_by=["v DESC", "x"] if changed else ["v", "w"])


def _upserts(rows: bl.Stream, changed: bool) -> bl.Stream:
    return rows.upserts("op", key=["k"], order="x" if changed else "v", deletes="v = 3" if changed else "v = 5")


def _loop(rows: bl.Stream, changed: bool) -> bl.Stream:
    from pyspark.sql import functions as F

    def body(have: DataFrame, links: DataFrame) -> DataFrame:
        start = links.selectExpr("CAST(v % 7 AS INT) AS a", "k AS b", "1L AS n")
        longer = start.select(F.col("a").alias("c"), F.col("b").alias("d"))
        onward = have.join(longer, have.b == longer.c).selectExpr("a", "d AS b", "n + 1 AS n")
        least = start.union(onward.where("n < 6") if changed else onward).groupBy("a", "b")
        return least.agg(F.min("n").alias("n"))

    def short(have: DataFrame, links: DataFrame) -> DataFrame:
        start = links.selectExpr("CAST(v % 7 AS INT) AS a", "k AS b", "1L AS n").where("a > 0")
        return start.groupBy("a", "b").agg(F.min("n").alias("n")).union(have.where("n < 0"))

    return rows.iterate("op", short if changed else body, output="a INT, b INT, n LONG")


def _dead_letters(inputs: Inputs, changed: bool) -> bl.Stream:
    source = bl.files("in/*.csv", schema=SCHEMA, max_files_per_step=1)
    rows = inputs.flow.source("rows", source, bad_rows="dead_letters")
    rows.sink("copy", bl.parquet("copy"))
    bad = rows.bad_rows("bad")
    taken = "upper(text)" if changed else "text"
    return bad.transform("op", lambda df: df.selectExpr("file", "offset", f"{taken} AS text", "reason"))


OPERATORS = {
    "transform": _transform("v * 2 AS v", "v * 3 AS v"),
    "explode": _transform("explode(sequence(0, v)) AS v", "explode(sequence(v, v + 1)) AS v"),
    "filter": Changing(_over_rows(_filter), appends=True),
    "python": Changing(_over_rows(_python), appends=True),
    "union": Changing(_over_rows(_union), appends=True),
    "changes": Changing(_over_rows(_changes)),
    "agg": Changing(_over_rows(_agg), ("k",)),
    "agg of changes": Changing(_over_rows(_agg_of_changes), ("w",)),
    "other key": Changing(_over_rows(_other_key), ("k",)),
    "agg of all": Changing(_over_rows(_whole)),
    "top_n": Changing(_over_rows(_top_n)),
    "upserts": Changing(_over_rows(_upserts), ("k",)),
    "loop": Changing(_over_rows(_loop)),
    "dead letters": Changing(_dead_letters, appends=True),
    "join": _query(
        "SELECT r.k, v, name FROM rows r JOIN others o ON r.k = o.k",
        "SELECT r.k, v, name FROM rows r LEFT JOIN others o ON r.k = o.k AND o.name < 'x'",
        others=True,
    ),
    "full join": _query(
        "SELECT o.k, count(v) AS n, max(name) AS name FROM rows r FULL JOIN others o ON r.k = o.k GROUP BY o.k",
        "SELECT o.k, count(v) AS n, max(name) AS name FROM rows r RIGHT JOIN others o ON r.k < o.k GROUP BY o.k",
        ("k",),
        others=True,
    ),
    "semi join": _query(
        "SELECT k, v FROM rows r WHERE EXISTS (SELECT 1 FROM others o WHERE o.k = r.k AND name > 'w')",
        "SELECT k, v FROM rows r WHERE NOT EXISTS (SELECT 1 FROM others o WHERE o.k = r.k AND name > 'w')",
        others=True,
    ),
    "distinct": _query("SELECT DISTINCT k, w FROM rows", "SELECT DISTINCT k, upper(w) AS w FROM rows"),
    "except": _query(
        "SELECT k FROM rows EXCEPT SELECT k FROM others", "SELECT k FROM others EXCEPT SELECT k FROM rows", others=True
    ),
    "top k": _query(
        "SELECT k, v, x FROM rows ORDER BY v DESC, x, w LIMIT 5", "SELECT k, v, x FROM rows ORDER BY x, v, k LIMIT 7"
    ),
    "min and max": _query(
        "SELECT k, min(x) AS a, max(v) AS b FROM rows GROUP BY k",
        "SELECT k, max(x) AS a, min(v) AS b FROM rows GROUP BY k",
        ("k",),
    ),
    "numbered": _query(
        "SELECT * FROM (SELECT k, v, row_number() OVER (PARTITION BY k ORDER BY v, x, w) AS n FROM rows) WHERE n < 3",
        "SELECT * FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM rows) WHERE n < 4",
    ),
    "window": _query(
        "SELECT k, v, lag(v) OVER (PARTITION BY k ORDER BY v, x) AS l FROM rows",
        "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v, x) AS l FROM rows",
    ),
    "count distinct": _query(
        "SELECT k, count(DISTINCT v) AS n FROM rows GROUP BY k HAVING count(*) > 3",
        "SELECT k, count(DISTINCT w) AS n FROM rows GROUP BY k HAVING count(*) > 4",
        ("k",),
    ),
    "scalar": _query(
        "SELECT k, v FROM rows WHERE v > (SELECT avg(v) FROM rows)",
        "SELECT k, v FROM rows WHERE v < (SELECT avg(v) FROM rows)",
    ),
    "grouping sets": _query(
        "SELECT k, w, sum(x) AS x FROM rows GROUP BY GROUPING SETS ((k), (w), ())",
        "SELECT k, w, sum(x) AS x FROM rows GROUP BY GROUPING SETS ((k, w), (w))",
    ),
    "union all": _query(
        "SELECT k, v FROM rows UNION ALL SELECT k, 0L FROM rows", "SELECT k, v FROM rows UNION SELECT k, 1L FROM rows"
    ),
}
