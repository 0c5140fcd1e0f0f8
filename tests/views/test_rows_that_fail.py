"""Expressions that fail for some rows: where Spark gives rows, the view gives them; where Spark fails, it fails."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import boatlift as bl
from boatlift.spark.jobs import planner
from boatlift.spark.plans.catalyst import items
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.never_fails import never_fails
from views.judge import RaisedError, compare, judge, run_case, write
from views.random_queries import Generated, Table

STEPS = 2

FAILING = [
    "10 / a.v",
    "10 DIV a.v",
    "cast(a.s AS INT)",
    "(9223372036854775807 - a.v + 1) % 1000",
    "element_at(array(1, 2, 3, 4, 5, NULL), cast(least(a.v, 5) AS INT))",
    "if(a.v = 0, raise_error('zero'), a.v)",
    "a.v % a.v",
]
"""Each fails for a row with `v` = 0 and `s` = 'x'."""

SHAPES = [
    "SELECT a.k, {e} AS x FROM a JOIN b ON a.k = b.k",
    "SELECT a.k, {e} AS x, b.w FROM a JOIN b ON a.k = b.k AND a.v < b.w + 3",
    "SELECT a.k, b.w FROM a JOIN b ON a.k = b.k AND {e} + b.w > 3",
    "SELECT a.k, {e} AS x, d.w FROM b LEFT JOIN a ON a.k = b.k JOIN b d ON d.k = b.k",
    "SELECT k, {e} AS x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k)",
    "SELECT k, {e} AS x FROM a WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.k = a.k)",
    "SELECT k, {e} AS x FROM a WHERE k NOT IN (SELECT k FROM c)",
    "SELECT k, {e} AS x FROM a WHERE k < 50",
    "SELECT k FROM a WHERE k < 50 AND {e} > 3",
    "SELECT k, CASE WHEN a.v <> 0 THEN {e} END AS x FROM a",
    "SELECT a.k, b.w FROM a LEFT JOIN b ON a.k = b.k AND {e} > 3",
    "SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND {e} > 3)",
    "SELECT k, EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND {e} > 3) AS there FROM a",
    "SELECT a.k, sum({e}) AS s FROM a JOIN b ON a.k = b.k GROUP BY a.k",
    "SELECT {e} AS x, count(*) AS n FROM a JOIN b ON a.k = b.k GROUP BY 1",
    "SELECT a.k, sum({e}) AS s, percentile(a.v, 0.5) AS p FROM a WHERE a.k < 50 GROUP BY a.k",
    "SELECT k, min({e}) FILTER (WHERE a.v <> 0) AS lo, count(DISTINCT if(a.v > 0, {e}, 0)) AS n FROM a GROUP BY k",
    "SELECT DISTINCT {e} AS x FROM a JOIN b ON a.k = b.k",
    "SELECT d.k, b.w FROM (SELECT a.k, {e} AS x FROM a JOIN c ON a.k + 90 = c.k) d JOIN b ON d.x <=> b.w",
    (
        "WITH d AS (SELECT a.k, {e} AS x FROM a JOIN b ON a.k = b.k) "
        "SELECT * FROM (SELECT k, x, rank() OVER (PARTITION BY k ORDER BY x) AS r FROM d) WHERE r < 3"
    ),
    "SELECT k, {e} AS x, count(*) OVER (PARTITION BY {e}) AS n FROM a WHERE k < 50",
    "SELECT k, {e} AS x FROM a WHERE k < 50 ORDER BY x, k LIMIT 3",
    "SELECT a.k, explode(array({e}, 1)) AS x FROM a JOIN b ON a.k = b.k",
    "SELECT k, {e} AS x FROM a WHERE k < (SELECT max(k) + 9 FROM b)",
    "SELECT k, {e} AS x FROM a WHERE k < 50 UNION ALL SELECT k, w FROM b",
    "SELECT a.k, 10 / (a.v - b.w) AS x FROM a JOIN b ON a.k = b.k",  # pairs with v = w come and go within a step
    "SELECT a.k, b.w FROM a JOIN b ON a.k = b.k AND 10 / (a.v - b.w) > 1",
    (
        "WITH RECURSIVE r AS (SELECT k, v FROM a WHERE k < 50 UNION ALL SELECT r.k + 1, 9223372036854775807 - a.v + 1 "
        "FROM r JOIN a ON r.k = a.k WHERE r.k < 2 AND a.v > 0) SELECT * FROM r"
    ),
]

V = (1, 2, 4, 5)
"""10 / v is exact, and no v is a w."""
KEYS = range(4)


def _tables(seed: int) -> list[Table]:
    """Return tables in which a row of `a` fails only if it has no partner in `b`, or goes within the step.

    A pair with equal `v` and `w` is never there: one of its rows goes as the other comes.
    """
    chance = random.Random(f"failing {seed}")
    pair_a, pair_b = {"k": 1, "v": 20, "s": "20"}, {"k": 1, "w": 20}
    held: dict[str, list[dict[str, Any]]] = {"a": [], "b": []}
    steps: dict[str, list[list[dict[str, Any]]]] = {"a": [], "b": [], "c": [[{"k": 90}, {"k": 91}, {"k": 92}]]}
    for step in range(STEPS):
        values = [chance.choice(V) for _ in range(4)]
        bad = [
            {"k": key, "v": 0, "s": "x"} for key in (chance.choice(KEYS), chance.choice(KEYS), chance.choice((90, 91)))
        ]
        coming = {
            "a": [{"k": chance.choice(KEYS), "v": v, "s": str(v)} for v in values] + bad[2:],
            "b": [{"k": chance.choice(KEYS), "w": chance.randrange(10, 13)} for _ in range(3)],
        }
        goes = step % 2
        changes = {
            "a": [*bad[:2], *map(_gone, bad[:2]), _gone(pair_a) if goes else pair_a],
            "b": [pair_b if goes else _gone(pair_b)] if step else [],
        }
        for name, rows in held.items():
            going = [rows.pop(chance.randrange(len(rows))) for _ in range(2) if rows]
            rows += coming[name]
            steps[name].append([*coming[name], *changes[name], *map(_gone, going)])
    columns = {"a": {"k": "BIGINT", "v": "BIGINT", "s": "STRING"}, "b": {"k": "BIGINT", "w": "BIGINT"}}
    return [Table(name, {"k": "BIGINT", **columns.get(name, {})}, steps[name]) for name in steps]


def _gone(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "_weight": -1}


@pytest.mark.parametrize("divided", [False, True], ids=["one task", "divided"])
def test_where_spark_gives_rows_the_view_gives_them(
    interpreting: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, divided: bool
) -> None:
    """Law: a row that is not in the answer does not fail, whatever is computed of it on the way."""
    chance = random.Random(f"failing {divided}")
    if divided:
        monkeypatch.setattr(planner, "ONE_TASK_BYTES", 0)
    shapes = [*SHAPES[7:9], *(each for each in SHAPES if "v - b.w" in each)] if divided else SHAPES
    queries = [shape.format(e=chance.choice(FAILING)) for shape in shapes]
    assert judge(interpreting, Generated(_tables(7), queries), tmp_path / "case") == STEPS * len(queries)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT a.k, 10 / a.v AS x FROM a JOIN b ON a.k = b.k", "[DIVIDE_BY_ZERO]"),
        ("SELECT k, cast(s AS INT) AS n FROM a", "[CAST_INVALID_INPUT]"),
        ("SELECT a.k, if(a.v = 0, raise_error('none'), 1) AS n FROM a", "[USER_RAISED_EXCEPTION]"),
        ("SELECT a.k, b.w FROM a JOIN b ON 10 / a.v = b.k", "[DIVIDE_BY_ZERO]"),
        ("SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = cast(a.s AS INT))", "[CAST_INVALID_INPUT]"),
        ("SELECT x, b.w FROM (SELECT k, 10 / v AS x FROM a) d JOIN b ON d.k = b.k", "[DIVIDE_BY_ZERO]"),
        ("SELECT (SELECT k FROM b WHERE w < 20) AS k", "[SCALAR_SUBQUERY_TOO_MANY_ROWS]"),
    ],
)
def test_where_spark_fails_the_view_fails(interpreting: SparkSession, tmp_path: Path, query: str, says: str) -> None:
    a = Table("a", {"k": "BIGINT", "v": "BIGINT", "s": "STRING"}, [[{"k": 1, "v": 0, "s": "x"}]])
    b = Table("b", {"k": "BIGINT", "w": "BIGINT"}, [[{"k": 1, "w": 1}, {"k": 2, "w": 2}]])
    with pytest.raises(RaisedError) as raised:
        judge(interpreting, Generated([a, b], [query]), tmp_path / "case")
    assert raised.value.condition == "USER_CODE"
    assert says in str(raised.value)
    assert isinstance(raised.value.__cause__, bl.UserCodeError)


FAILING_KEYS = [
    "SELECT a.k, b.w FROM a JOIN b ON {e} = b.k",
    "SELECT a.k, b.w FROM b JOIN a ON {e} = b.k AND a.k < b.w",
    "SELECT a.k, b.w FROM b LEFT JOIN a ON {e} = b.k",
    "SELECT a.k, b.w FROM a LEFT JOIN b ON {e} = b.k",
    "SELECT a.k, b.w FROM a FULL JOIN b ON {e} = b.k",
    "SELECT a.k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = {e})",
    "SELECT a.k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = {e})",
    "SELECT k FROM a WHERE {e} NOT IN (SELECT k FROM b)",
    "SELECT k FROM b WHERE k NOT IN (SELECT {e} FROM a)",
    "SELECT k FROM b WHERE k IN (SELECT {e} FROM a)",
    "SELECT count(*) AS n FROM a JOIN b ON {e} = b.k JOIN b c ON b.w = c.k",
]
FAILING_COLUMNS = [
    "SELECT d.k, x, b.w FROM (SELECT k, {e} AS x FROM a) d JOIN b ON d.k = b.k",
    "SELECT b.k, x, b.w FROM b LEFT JOIN (SELECT k, {e} AS x FROM a) d ON d.k = b.k",
    "SELECT k, x FROM (SELECT k, {e} AS x FROM a) d WHERE EXISTS (SELECT 1 FROM b WHERE d.k = b.k)",
]


def _beside_nothing(*, without: bool = False) -> list[Table]:
    """Return tables in which the rows of `a` that fail come while `b` is empty, and go when it is not.

    Args:
        without: Whether the rows that fail never come.
    """
    bad, good = {"k": 1, "v": 0, "s": "x"}, {"k": 2, "v": 5, "s": "5"}
    a = [[bad, good], [{"k": 3, "v": 2, "s": "2"}, bad], [_gone(bad), _gone(bad)], [_gone(good)]]
    b: list[list[dict[str, Any]]] = [[], [], [{"k": 2, "w": 5}, {"k": 5, "w": 2}], [{"k": 1, "w": 1}]]
    if without:
        a = [[row for row in step if row["v"]] for step in a]
    return [
        Table("a", {"k": "BIGINT", "v": "BIGINT", "s": "STRING"}, a),
        Table("b", {"k": "BIGINT", "w": "BIGINT"}, b),
    ]


def test_a_key_does_not_fail_beside_an_empty_side(interpreting: SparkSession, tmp_path: Path) -> None:
    queries = [shape.format(e=FAILING[number % 3]) for number, shape in enumerate(FAILING_KEYS)]
    assert judge(interpreting, Generated(_beside_nothing(), queries), tmp_path / "case") == 4 * len(queries)


def test_a_column_does_not_fail_beside_an_empty_side(
    interpreting: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark computes such a column for the few rows of a test all the same, so its answer is without them."""
    monkeypatch.chdir(tmp_path)
    queries = [shape.format(e=FAILING[number % 3]) for number, shape in enumerate(FAILING_COLUMNS)]
    write(Generated(_beside_nothing(), queries))
    run_case(interpreting, Generated(_beside_nothing(), queries))
    assert compare(interpreting, Generated(_beside_nothing(without=True), queries)) == 4 * len(queries)


NEVER = [
    "v", "s = 'x' OR v > 1", "CASE WHEN v > 1 THEN upper(s) END", "x * 2", "x / 2", "d * d", "d + 1",
    "cast(n AS BIGINT)", "cast(v AS STRING)", "cast(v AS DOUBLE)", "v % 7", "try_add(v, 1)", "try_cast(s AS INT)",
    "concat(s, '!')", "year(t)", "date_trunc('DAY', t)", "named_struct('a', v).a", "coalesce(s, 'none')",
]  # fmt: skip
MAY = [
    "v + 1", "-v", "10 / v", "x / v", "v DIV 2", "v % v", "e * e", "cast(s AS INT)", "cast(v AS INT)", "to_date(s)",
    "array(v)[v]", "CASE WHEN v > 1 THEN 1 / v END", "raise_error(s)", "round(d, 1)", "t + INTERVAL 1 DAY", "s RLIKE s",
    "cast(array(date(t)) AS ARRAY<TIMESTAMP>)",
]  # fmt: skip
"""What is not known to have a value for every row."""


def test_what_never_fails_is_known(interpreting: SparkSession) -> None:
    nodes = CatalystPlan(interpreting)
    table = nodes.empty(
        StructType.fromDDL("v BIGINT, n INT, s STRING, x DOUBLE, d DECIMAL(9,2), e DECIMAL(30,2), t TIMESTAMP")
    )
    plan = nodes.optimised(table.selectExpr(*NEVER, *MAY))
    known = [never_fails(each, nodes) for each in items(plan.projectList())]
    assert dict(zip([*NEVER, *MAY], known, strict=True)) == dict.fromkeys(NEVER, True) | dict.fromkeys(MAY, False)
