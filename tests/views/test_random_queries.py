"""Random queries as views: after every step the changes add up to Spark's answer."""

from __future__ import annotations

import re
from argparse import Namespace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from views import __main__ as command
from views.judge import WrongError, compare, judge
from views.random_queries import Generated, Table, random_case

QUERIES, STEPS = 15, 2

REWRITTEN = {
    "a window in a LATERAL subquery": r"LATERAL \(SELECT \w+\(.*?\) OVER",
    "a window in a correlated subquery": r"\(SELECT max\(\w+\) FROM \(SELECT .*? OVER",
    "EXISTS with a LIMIT": r"EXISTS \(SELECT [^()]* LIMIT",
    "LATERAL with a LIMIT": r"LATERAL \(SELECT [^()]* LIMIT",
    "the first row of a correlated subquery": r"< \(SELECT [^()]* ORDER BY [^()]* LIMIT 1\)",
    "an order by a subquery": r"ORDER BY abs\(\w+ - \(SELECT .* LIMIT",
    "IN of a constant": r"\d (NOT )?IN \(SELECT",
    "a semi join without equality": r"LEFT (SEMI|ANTI) JOIN .* ON true",
    "a subquery in the condition of an outer join": r"(LEFT|RIGHT|FULL) JOIN \w+ \w+ ON [^()]* \(SELECT",
}
"""Queries that Spark's optimiser rewrites in ways of their own."""


def test_the_queries_have_every_shape_in_them() -> None:
    queries = [query for seed in range(60) for query in random_case(seed, queries=QUERIES, steps=1, rows=1).queries]
    drawn = {shape: sum(re.search(form, query) is not None for query in queries) for shape, form in REWRITTEN.items()}
    assert min(drawn.values()) > 5, drawn


@pytest.mark.parametrize("seed", [1001, 1002])
def test_changes_add_up_to_the_answer_of_spark(interpreting: SparkSession, tmp_path: Path, seed: int) -> None:
    case = random_case(seed, queries=QUERIES, steps=STEPS, rows=5)
    assert judge(interpreting, case, tmp_path / "case") == QUERIES * STEPS


def test_a_wrong_row_is_found(interpreting: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = random_case(1001, queries=1, steps=2, rows=5)
    judge(interpreting, case, tmp_path / "case")
    monkeypatch.chdir(tmp_path / "case")
    case.queries[0] = "SELECT 'other' AS rows"
    with pytest.raises(WrongError, match="query 0, step"):
        compare(interpreting, case)


def test_a_case_that_raises_is_a_failure_like_a_wrong_one(
    interpreting: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The query that raises is reported with the rows that it needs for that, and the next seed is run."""
    table = Table("t", {"k": "BIGINT"}, [[{"k": 1}, {"k": 0}, {"k": 2}], [{"k": 3}]])
    cases = {7: ["SELECT k FROM t", "SELECT 6 DIV k AS q FROM t"], 8: ["SELECT k FROM t", "SELECT k + 1 AS n FROM t"]}
    monkeypatch.setattr(command, "random_case", lambda seed, **_: Generated([table], cases[seed]))
    asked = Namespace(seeds=2, first=7, queries=2, steps=2, disturbed=False)
    assert command.run_seeds(interpreting, asked) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("seed 7 is wrong: [USER_CODE] an expression of v0 failed at step 0: [DIVIDE_BY_ZERO]")
    assert said[1:3] == ["query 0: SELECT 6 DIV k AS q FROM t", "  t (k BIGINT): [[{'k': 0}]]"]
    assert said[3].startswith("seed 7: 2 queries, 0 steps")
    assert said[-1] == "4 queries, 4 steps compared, 0 kills, wrong seeds: [7]"
