"""Random queries as views: after every step the changes add up to Spark's answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from views.judge import WrongError, compare, judge
from views.random_queries import random_case

QUERIES, STEPS = 15, 2


@pytest.mark.parametrize("seed", [1001, 1002, 1003, 1004])
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
