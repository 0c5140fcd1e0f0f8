"""A session begins when code first asks Spark for one, however it asks, and not before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from boatlift.processes.on_demand import session_on_demand


class BegunError(Exception):
    """Raised where a session would begin."""


@pytest.fixture(autouse=True)
def _no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)


def begin() -> None:
    raise BegunError


@pytest.mark.parametrize(
    "ask",
    [
        lambda: F.count("*"),
        lambda: F.col("a") + 1,
        SparkSession.getActiveSession,
        SparkSession.builder.getOrCreate,
        SparkContext.getOrCreate,
    ],
)
def test_whatever_asks_for_a_session_begins_it(ask: Callable[[], object]) -> None:
    with pytest.raises(BegunError), session_on_demand(begin):
        ask()
    assert SparkContext._active_spark_context is None


def test_code_that_needs_no_session_starts_none() -> None:
    with session_on_demand(begin):
        F.udf(len, LongType())
    assert SparkContext._active_spark_context is None


def test_it_begins_once_and_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def make() -> None:
        made.append(object())
        monkeypatch.setattr(SparkContext, "_active_spark_context", made[-1])

    with session_on_demand(make):
        assert [SparkContext._active_spark_context for _ in range(2)] == made * 2
    assert SparkContext._active_spark_context is made[0]
    with session_on_demand(begin):
        assert SparkContext._active_spark_context is made[0]
