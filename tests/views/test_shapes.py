"""Each kind of query that Spark's SQL has, as a view: after every step the changes add up to Spark's answer."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from views.judge import judge
from views.random_queries import Generated, Table

STEPS = 2

JOINS = [
    "SELECT a.k, a.v, b.x FROM a JOIN b ON a.k = b.k",
    "SELECT a.k, b.x * a.v AS p FROM a JOIN b ON a.k = b.k AND a.v < b.v WHERE a.v > 0",
    "SELECT a.k, b.v, c.v AS w FROM a JOIN b ON a.k = b.k JOIN a c ON c.v = b.v",
    "SELECT a.k, b.k AS l FROM a, b WHERE a.v = 1 AND b.v = 2",
    "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v = b.v",
    "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v > 1",
    "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND b.v > a.v",
    "SELECT a.k, coalesce(b.v, -1) + 1 AS w FROM a FULL JOIN b ON a.k = b.k AND b.v > 1",
    "SELECT a.k, a.v, b.v AS w FROM a FULL JOIN b ON a.k = b.k AND b.v > 1 AND a.v > 1",
    "SELECT a.v, b.x FROM a JOIN b ON struct(a.k, a.v) = struct(b.k, b.v)",
    "SELECT a.v, b.x FROM a LEFT JOIN b ON array(a.x, 1) = array(b.x, 1)",
    "SELECT b.k, a.v FROM a RIGHT JOIN b ON a.k = b.k",
    "SELECT a.k, b.k AS l, a.v FROM a FULL JOIN b ON a.v = b.v",
    "SELECT a.k, b.x FROM a JOIN b ON a.k <=> b.k",
    "SELECT a.v, b.x FROM a JOIN b ON a.v = b.x",
    "SELECT * FROM a LEFT SEMI JOIN b ON a.k = b.k",
    "SELECT * FROM a LEFT ANTI JOIN b ON a.k = b.k AND b.v > a.v",
    "SELECT * FROM a LEFT ANTI JOIN b ON a.k = b.k AND a.v > 1",
    "SELECT a.k, a.v + 1 AS w FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND b.v = a.v)",
    "SELECT * FROM a WHERE v NOT IN (SELECT v FROM b)",
    "SELECT k FROM a WHERE v + 1 NOT IN (SELECT v FROM b WHERE v > 1)",
    "SELECT * FROM a WHERE v IN (SELECT v FROM b) OR k = 'x'",
    "SELECT k, EXISTS (SELECT 1 FROM b WHERE b.k = a.k) AS there FROM a",
    "SELECT k, v FROM a WHERE v > (SELECT avg(v) FROM b)",
    "SELECT k, (SELECT max(v) FROM b WHERE b.k = a.k) AS m FROM a",
    "SELECT a.k, s.m FROM a, LATERAL (SELECT max(b.v) AS m FROM b WHERE b.k = a.k) s",
    "SELECT a.k, n.name FROM a JOIN VALUES (1, 'one'), (2, 'two') AS n(v, name) ON a.v = n.v",
    "SELECT n.v, count(a.k) AS n FROM VALUES (1), (2), (9) AS n(v) LEFT JOIN a ON a.v = n.v GROUP BY n.v",
]
AGGREGATES = [
    "SELECT k, count(*) AS n, sum(v) AS s, avg(x) AS m FROM a GROUP BY k",
    "SELECT count(*) AS n, sum(v) AS s, avg(d) AS m FROM a WHERE v > 2",
    "SELECT k, min(x) AS lo, max(v) AS hi, count(DISTINCT v) AS n FROM a GROUP BY k",
    "SELECT x, count(*) AS n FROM a GROUP BY x",
    "SELECT DISTINCT k, 0 AS zero, v + 1 AS w FROM a",
    "SELECT k, min(x) AS lo, max(x) AS hi, min(d) AS ld, max(t) AS ht, min(k) AS lk FROM a GROUP BY k",
    "SELECT min(v) AS lo, max(k) AS hi FROM a WHERE x > 0",
    "SELECT d, sum(d) AS s, avg(d) AS m FROM a GROUP BY d",
    "SELECT k, sum(v) FILTER (WHERE x > 1) AS s, round(stddev(v), 9) AS sd, percentile(v, 0.5) AS p FROM a GROUP BY k",
    "SELECT k, count(*) FILTER (WHERE v > 1) c, round(var_pop(v), 9) p, round(var_samp(x), 9) AS s FROM a GROUP BY k",
    "SELECT k, count(DISTINCT v) AS n, count(DISTINCT x) m, sum(v) s, max(t) AS t, avg(DISTINCT d) d FROM a GROUP BY k",
    "SELECT count(DISTINCT v) AS n, sum(DISTINCT v) AS s, min(k) AS lo, round(stddev_pop(d), 9) AS sd FROM a",
    "SELECT k, count(DISTINCT v, x) AS n, max(k COLLATE UTF8_LCASE) AS hi FROM a GROUP BY k",
    "SELECT k, array_sort(collect_list(v)) AS l, array_sort(collect_set(v)) AS c FROM a GROUP BY k",
    "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM a GROUP BY k) GROUP BY n",
    "SELECT k, v, count(*) AS n FROM a GROUP BY ROLLUP (k, v)",
    "SELECT k, v, sum(v) AS s FROM a GROUP BY CUBE (k, v) HAVING count(*) > 1",
    "SELECT * FROM (SELECT k, v FROM a) PIVOT (count(*) AS n FOR v IN (1, 2, 3))",
    "SELECT DISTINCT k, v FROM a",
    "SELECT DISTINCT v % 2 AS p FROM a UNION SELECT v FROM b",
    "SELECT lower(l) AS l, sum(v) AS s FROM (SELECT k COLLATE UTF8_LCASE AS l, v FROM a) GROUP BY l HAVING sum(v) > 3",
    "SELECT named_struct('k', k, 'v', v) AS s, array(v, NULL) AS l, count(*) AS n FROM a GROUP BY ALL",
    "SELECT k, max(struct(v, k)) AS m FROM a GROUP BY k",
    "SELECT date_trunc('HOUR', t) AS h, count(*) AS n FROM a GROUP BY ALL",
    "SELECT window.start AS w, k, count(*) AS n FROM a GROUP BY window(t, '2 hours', '1 hour'), k",
    "SELECT s, count(*) n, min(v) lo FROM (SELECT CASE WHEN v > 1 THEN struct(k, x) END AS s, v FROM a) GROUP BY s",
    "SELECT s.k, n + 1 n FROM (SELECT s, sum(v) n FROM (SELECT struct(k, x) AS s, v FROM a) GROUP BY s) WHERE n > 1",
    "SELECT session_window AS w, k, count(*) AS n FROM a GROUP BY session_window(t, '30 minutes'), k",
    "SELECT count(DISTINCT n) AS c FROM (SELECT k, count(v) AS n FROM a GROUP BY k) WHERE n IS NULL",
    "SELECT count(*) AS n, max(v) AS m FROM a WHERE 1 > 2",
]
OTHERS = [
    "SELECT k, v + 1 AS v, upper(k) AS u FROM a WHERE v IS NOT NULL",
    "SELECT k, e FROM a LATERAL VIEW explode(sequence(1, v)) AS e WHERE v > 0",
    "SELECT k, v FROM a UNION ALL SELECT k, v FROM b",
    "SELECT k, v FROM a EXCEPT SELECT k, v FROM b",
    "SELECT k, v FROM a EXCEPT ALL SELECT k, v FROM b",
    "SELECT count(*) n, count(DISTINCT v) + 1 m FROM a EXCEPT ALL SELECT count(*) n, count(DISTINCT v) + 1 m FROM a",
    "SELECT k, v FROM a INTERSECT SELECT k, v FROM b",
    "SELECT k, v FROM a INTERSECT ALL SELECT k, v FROM b",
    "SELECT * FROM a ORDER BY v DESC, k, x, d, t LIMIT 3",
    "SELECT k, v FROM a ORDER BY v, k NULLS LAST LIMIT 2 OFFSET 1",
    "SELECT * FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM a) WHERE r <= 2",
    "SELECT * FROM (SELECT k, x, dense_rank() OVER (PARTITION BY k ORDER BY x NULLS LAST) AS r FROM a) WHERE r <= 2",
    "SELECT * FROM (SELECT k, d, row_number() OVER (ORDER BY k DESC, d, v, x, t) AS r FROM a) WHERE r <= 4",
    "SELECT k, v, sum(v) OVER (PARTITION BY k ORDER BY v RANGE BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM a",
    "SELECT k, v, lag(v) OVER (ORDER BY v, k, x, d, t) AS before FROM a",
    "WITH s AS (SELECT k, sum(v) AS s FROM a GROUP BY k) SELECT s.k, s.s, b.x FROM s JOIN b ON s.k = b.k AND s.s > b.v",
    "WITH s AS (SELECT k, count(*) AS c FROM a GROUP BY k) SELECT k, c FROM s WHERE c = (SELECT max(c) FROM s)",
]  # fmt: skip

OF_SUBQUERIES = [
    # What Spark's optimiser makes of them, its analyser would not take.
    "SELECT a.k, t.r FROM a, LATERAL (SELECT row_number() OVER (ORDER BY v, x) AS r FROM b WHERE b.k = a.k) t",
    "SELECT k, n FROM a LEFT JOIN LATERAL (SELECT count(*) OVER (PARTITION BY x) n FROM b WHERE b.k < a.k) t ON n > 1",
    "SELECT k, v FROM a WHERE v < (SELECT max(s) FROM (SELECT sum(v) OVER (ORDER BY v) AS s FROM b WHERE b.k = a.k))",
    "SELECT k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k LIMIT 1)",
    "SELECT k, v FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.x = a.x LIMIT 1)",
    "SELECT k, v FROM a WHERE NOT EXISTS (SELECT v FROM b WHERE b.k = a.k ORDER BY x LIMIT 1)",
    "SELECT k, v FROM a WHERE v IN (SELECT max(v) FROM b WHERE b.k = a.k LIMIT 10)",
    "SELECT k, v FROM a WHERE v IN (SELECT v FROM b WHERE b.k = a.k ORDER BY v LIMIT 2)",
    "SELECT k, (SELECT v FROM b WHERE b.k < a.k ORDER BY v DESC LIMIT 1) AS m FROM a",
    "SELECT a.k, t.v FROM a, LATERAL (SELECT v, x FROM b WHERE b.k = a.k ORDER BY v DESC, x LIMIT 2) t",
    "SELECT k, (SELECT count(*) FROM (SELECT 1 FROM b WHERE b.k = a.k LIMIT 2)) AS n FROM a",
    "SELECT k, v FROM a ORDER BY v - (SELECT avg(v) FROM b), k, v LIMIT 3",
    "SELECT k, rank() OVER (PARTITION BY k ORDER BY v - (SELECT min(v) FROM b)) AS r FROM a",
    "SELECT k FROM a WHERE 5 IN (SELECT v FROM b)",
    "SELECT k FROM a WHERE 5 NOT IN (SELECT v FROM b WHERE v > 1)",
    "SELECT k, 3 IN (SELECT v FROM b) AS there FROM a",
    "SELECT * FROM a LEFT SEMI JOIN b",
    "SELECT * FROM a LEFT ANTI JOIN b ON b.v > 3",
    "SELECT * FROM a LEFT ANTI JOIN b ON a.v > 1 AND b.v > 1",
    "SELECT k, v FROM a LEFT SEMI JOIN (SELECT x FROM b LEFT SEMI JOIN a ON a.v > 2) ON true",
    "SELECT p, q FROM ((SELECT v, v FROM a ORDER BY v LIMIT 3) UNION ALL SELECT v, v + 1 FROM b) AS t(p, q)",
    "SELECT * FROM a LEFT SEMI JOIN b ON a.v < b.v",
    "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v > (SELECT min(v) FROM b)",
    "SELECT a.k, a.v, b.v AS w FROM a RIGHT JOIN b ON a.k = b.k AND a.v + b.v > (SELECT max(v) FROM b)",
    "SELECT a.k, a.v, b.v AS w FROM a FULL JOIN b ON a.k = b.k AND b.v >= (SELECT avg(v) FROM a)",
    "SELECT a.k, a.v, b.v AS w FROM a LEFT JOIN b ON a.k = b.k AND a.v IN (SELECT v FROM b)",
]

NEVER_NULL = [
    # Spark merges equal subqueries into one, whose result is a struct with a field that is never NULL.
    "WITH s AS (SELECT count(v) AS n, max(v) m FROM a) SELECT * FROM s WHERE n > 1 EXCEPT SELECT * FROM s WHERE n > 1",
    "WITH s AS (SELECT count(DISTINCT v) AS n, max(k) AS m FROM a) SELECT n, m FROM s UNION ALL SELECT n, m FROM s",
    "WITH s AS (SELECT k, count(*) n FROM a GROUP BY k) SELECT s.k, struct(n) x FROM s JOIN b ON array(n) = array(b.v)",
    "SELECT k, struct(count(*)) AS n FROM a GROUP BY k EXCEPT SELECT k, struct(count(x)) AS n FROM b GROUP BY k",
    "SELECT n, max(k) m, percentile(v, 0.5) AS p FROM (SELECT array(count(*)) n, k, v FROM a GROUP BY k, v) GROUP BY n",
]
UNIONS = [
    "SELECT x, max(k) m FROM (SELECT k, array(coalesce(v, 0)) x FROM b UNION ALL SELECT k, array(v) FROM a) GROUP BY x",
    "SELECT x, max(v) m FROM (SELECT v, struct(ifnull(v, 0)) x FROM b UNION ALL SELECT v, struct(v) FROM a) GROUP BY x",
    "SELECT k, array(coalesce(v, 0)) AS x FROM b UNION ALL SELECT k, array(v) FROM c",
]


def tables(steps: int) -> list[Table]:
    chance = random.Random("shapes")

    def value(kind: str) -> Any:
        if chance.random() < 0.1:
            return None
        small = chance.choice((0, 1, 1, 2, 3, 5, -1))
        match kind:
            case "STRING":
                return chance.choice(("x", "y", "Y", "z", ""))
            case "DOUBLE":
                return chance.choice((small / 2, small * 1.0, float("nan"), -0.0, 0.0))
            case "DECIMAL(9,2)":
                return Decimal(small) / 4
            case "TIMESTAMP":
                return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=17 * chance.randrange(20))
            case _:
                return small

    def table(name: str, columns: dict[str, str]) -> Table:
        def row() -> dict[str, Any]:
            return {column: value(kind) for column, kind in columns.items()}

        return Table(name, columns, [[row() for _ in range(chance.choice((0, 3, 5, 7)))] for _ in range(steps)])

    def losing(whole: Table) -> Table:
        """Return a table of which a third of each step's rows go at the next step."""
        gone = [[{**row, "_weight": -1} for row in rows[::3]] for rows in whole.steps]
        return replace(whole, steps=[rows + left for rows, left in zip(whole.steps, [[], *gone], strict=False)])

    first = losing(table("a", {"k": "STRING", "v": "BIGINT", "x": "DOUBLE", "d": "DECIMAL(9,2)", "t": "TIMESTAMP"}))
    return [first, table("b", {"k": "STRING", "v": "BIGINT", "x": "DOUBLE"})]


@pytest.mark.parametrize(
    "queries",
    [JOINS, AGGREGATES, OTHERS, OF_SUBQUERIES, NEVER_NULL],
    ids=["joins", "aggregates", "others", "of subqueries", "never null"],
)
def test_changes_add_up_to_the_answer_of_spark(spark: SparkSession, tmp_path: Path, queries: list[str]) -> None:
    assert judge(spark, Generated(tables(STEPS), queries), tmp_path / "case") == STEPS * len(queries)


def test_a_union_to_which_one_side_brings_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's type of a value says whether one inside it may be NULL: of one side it says more than of both."""
    goes, comes = tables(STEPS)
    some = slice(STEPS - 1)
    ends = [replace(goes, steps=goes.steps[some]), replace(comes, name="c", steps=comes.steps[some])]
    assert judge(spark, Generated([*ends, comes], UNIONS), tmp_path / "case") == STEPS * len(UNIONS)
