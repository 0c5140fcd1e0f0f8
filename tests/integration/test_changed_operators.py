"""Each operator that can be computed from its past changes after a death with input left; sinks end as a fresh store's.

Floats are compared by their bits: by `repr`, as NULLs and −0.0 are.
"""

from __future__ import annotations

from collections import Counter
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from support.changed_operators import OPERATORS, Changing, write
from support.changes import MortalSink, evolve, run, table
from support.crash.mortality import Fate, MortalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        write(number)


def held(operator: Changing) -> list[Any]:
    """Return what each sink holds: the sum of all changes, and the rows of the table."""
    rows = Counter[str]()
    for path in sorted(Path("history").glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            weight = row.pop("_weight")
            rows[repr(sorted(row.items()))] += weight
    answers = [*map(repr, table("answers.db", "totals"))] if operator.key else []
    return [{row: weight for row, weight in rows.items() if weight}, answers]


def of_a_fresh_store(operator: Changing, spark: SparkSession, *, changed: bool) -> list[Any]:
    fresh = Path("fresh")
    fresh.mkdir()
    for name in ("in", "other"):
        (fresh / name).symlink_to(Path(name).absolute())
    with chdir(fresh):
        run(operator.flow(changed=changed), spark)
        return held(operator)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_changes_after_a_death_with_input_left(name: str, spark: SparkSession) -> None:
    operator = OPERATORS[name]
    run(operator.flow(changed=False), spark)
    for number in range(3, 7):
        write(number)
    turn = [*OPERATORS].index(name)
    fate = Fate(5 + turn % 9, after=turn % 2 == 0)
    dying = operator.flow(changed=False, through=partial(MortalSink, fate=fate))
    with pytest.raises(BaseException) as death:
        run(dying, spark, MortalStore.of(Path("store"), fate))
    assert fate.over, death.value
    assert len(list(Path("history").glob("*.parquet"))) < 7, "a death at the end leaves no steps"
    write(7)
    consent = bl.evolution(operator.flow(changed=True), "store", spark=spark)
    assert [consent.processors["op"].change, consent.obstacles] == ["changed", {}]
    run(operator.flow(changed=True), spark, evolve=consent.id)
    shown, expected = held(operator), of_a_fresh_store(operator, spark, changed=True)
    assert shown == expected
    assert expected[0]


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_that_is_computed_anew_gives_sinks_nothing(name: str, spark: SparkSession) -> None:
    operator = OPERATORS[name]
    run(operator.flow(changed=False), spark)
    before, files = held(operator), len(list(Path("history").glob("*.parquet")))
    evolve(operator.flow(changed=False), spark, all="fill")
    assert held(operator) == before
    steps = sorted(Path("history").glob("*.parquet"))
    assert len(steps) == files + 1
    assert pq.read_table(steps[-1]).num_rows == 0
    write(3)  # the state that was computed goes on
    run(operator.flow(changed=False), spark)
    assert held(operator) == of_a_fresh_store(operator, spark, changed=False)


def test_a_table_that_refuses_second_rows_gets_what_differs(spark: SparkSession) -> None:
    operator = replace(OPERATORS["agg"], unique=True)
    run(operator.flow(changed=False), spark)
    evolve(operator.flow(changed=True), spark)
    assert held(operator) == of_a_fresh_store(operator, spark, changed=True)
