"""What the user wrote has one hash, whatever Spark and Python make of it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from enum import Enum
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor

import boatlift as bl
from boatlift.dataflow import Operator, plan
from boatlift.spark.plans.as_written import as_written
from boatlift.spark.plans.fingerprint import Reached, fingerprint, reaching
from boatlift.spark.plans.function_code import code_hash
from boatlift.spark.plans.row_wise import check_row_wise
from boatlift.spark.plans.step_functions import StepContext, step_context

pytestmark = pytest.mark.spark

LIMIT = 3


def built(build: Callable[[bl.Stream], Any]) -> Operator:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", bl.generator({"k": "id % 3", "v": "id"}, rows_per_step=3))
    build(rows).sink("out", bl.parquet("out"))
    return next(iter(each for unit in plan(flow).units.values() for each in unit.operators))


def transform(function: Any) -> str:
    return as_written(built(lambda rows: rows.transform("op", function)))


def total(column: Column) -> str:
    return as_written(built(lambda rows: rows.group_by("k").agg("op", column.alias("a"))))


def over_limit(df: Any) -> Any:
    return df.where(F.col("v") > LIMIT)


def test_the_same_text_has_the_same_hash(spark: SparkSession) -> None:
    assert transform(over_limit) == transform(over_limit) != ""
    assert total(F.sum("v")) == total(F.sum("v")) != ""
    renamed = built(lambda rows: rows.transform("another", over_limit, policy=bl.Eager()))
    assert as_written(renamed) == transform(over_limit)


def test_what_a_function_reaches_counts(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    before = transform(over_limit)
    monkeypatch.setitem(globals(), "LIMIT", 4)
    assert transform(over_limit) not in (before, "")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("F.sum('v')", "F.sum_distinct('v')"),
        ("F.sum('v') + 1", "F.sum('v') + '1'"),
        ("F.sum('v') + 1", "F.sum('v') + 2**40"),
        ("F.max('v')", "F.max('k')"),
        ("F.expr('sum(v)')", "F.expr('sum(v + 1)')"),
    ],
)
def test_other_columns_differ(spark: SparkSession, one: str, other: str) -> None:
    hashes = {total(eval(each)) for each in (one, other)}
    assert len(hashes) == 2
    assert "" not in hashes


def test_code_whose_text_does_not_identify_it_has_no_hash(spark: SparkSession) -> None:
    table = spark.range(3)
    assert transform(lambda df: df.join(F.broadcast(table), df.k == table.id).drop("id")) == ""
    twice = F.udf(lambda v: v * 2, "long")
    assert total(F.sum(twice("v"))) == ""
    assert total(F.sum(F.col("v") * F.lit(Decimal("1.5")))) == ""


LAYOUTS = (
    "kept = (\n    lambda df: df\n    .where('v > 1')\n    .where('v > 2')\n)\n",
    "kept = lambda df: (df.where('v > 1')\n    .where('v > 2'))\n",
    "kept = [lambda df: df.where('v > 1')\n    .where('v > 2')\n][0]\n",
    "def kept(df):\n    return (\n        df.where('v > 1')\n        .where('v > 2')\n    )\n",
)


@pytest.mark.parametrize("code", LAYOUTS, ids=["indented", "begun", "in a list", "def"])
def test_each_line_of_a_function_counts(code: str, tmp_path: Path, spark: SparkSession) -> None:
    one = of_file(tmp_path / "one.py", code).kept
    other = of_file(tmp_path / "other.py", code.replace("v > 2", "v > 3")).kept
    assert "" not in (transform(one), transform(other))
    assert transform(one) != transform(other)


@pytest.mark.parametrize(
    "body",
    [
        "import os\n    return df.where(f\"v > {os.environ['LEAST']}\")",
        "return df.where('v > ' + open('least').read())",
        "return df.join(df.sparkSession.table('limits'), 'k')",
        "from pluggy import HookimplMarker\n    return df.where(f'v > {len(HookimplMarker.__name__)}')",
    ],
    ids=["environment", "file", "table", "package"],
)
def test_what_text_reaches_elsewhere_has_no_hash(body: str, tmp_path: Path, spark: SparkSession) -> None:
    assert transform(of_file(tmp_path / "own.py", f"def kept(df):\n    {body}\n").kept) == ""


def test_the_tables_and_functions_of_a_plan_are_noted(tmp_path: Path, spark: SparkSession) -> None:
    """A query may name them: its text does not tell what they are."""
    rows, table = spark.createDataFrame([], "k int, v long"), spark.createDataFrame([(1,)], "k int")

    def reached(function: Any) -> Reached:
        with reaching() as noted, step_context(StepContext(0, 0, "op", False)):
            fingerprint(check_row_wise(rows, function, "op", deterministic=True))
        return noted

    assert reached(lambda df: df.join(F.broadcast(table), "k")).tables
    assert not reached(lambda df: df).tables
    hashes = []
    for factor in (2, 3):
        of = of_file(tmp_path / f"{factor}.py", f"def times(v):\n    return v * {factor}\n")
        pickled = reached(lambda df, of=of: df.withColumn("v", F.udf(of.times, "long")("v"))).functions
        hashes.append(as_written(built(lambda rows: rows.transform("op", over_limit)), pickled))
    assert "" not in hashes
    assert hashes[0] != hashes[1]


def test_the_code_of_a_udf_is_identified_by_its_text(spark: SparkSession) -> None:
    def flow(factor: int) -> str:
        times = F.udf(lambda v: v * factor, "long")
        return transform(lambda df: df.withColumn("v", times("v")))

    assert flow(2) == flow(2) != ""
    assert flow(2) != flow(3)


def of_file(path: Path, code: str) -> Any:
    path.write_text(textwrap.dedent(code))
    module = ModuleType("own")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


def test_comments_count_and_bytecode_does_not(tmp_path: Path, spark: SparkSession) -> None:
    plain = of_file(tmp_path / "plain.py", "def kept(df):\n    return df.where('v > 1')\n").kept
    other = of_file(tmp_path / "other.py", "\n\ndef kept(df):\n    # why\n    return df.where('v > 1')\n").kept
    assert code_hash(plain) == code_hash(other)
    assert transform(plain) != transform(other)
    moved = of_file(tmp_path / "moved.py", "\n\n\ndef kept(df):\n\n    return df.where('v > 1')  \n").kept
    assert transform(plain) == transform(moved)


class Counts(StatefulProcessor):
    LIMIT = 3

    def init(self, handle: Any) -> None:
        self.count = handle.getValueState("count", "n LONG")

    @staticmethod
    def over(value: int) -> bool:
        return value > 1

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:  # noqa: N802, N803 - Spark's names
        return iter(())

    def close(self) -> None: ...


def test_constants_static_methods_and_bases_of_a_class_count(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(Counts):
        __slots__ = ("limit",)

        def __init__(self, limit: int) -> None:
            self.limit = limit

    hashes = [code_hash(Own(1)), code_hash(Own(2))]
    monkeypatch.setattr(Counts, "LIMIT", 4)
    hashes.append(code_hash(Own(1)))
    monkeypatch.setattr(Counts, "over", staticmethod(lambda value: value > 2))
    hashes.append(code_hash(Own(1)))
    assert len(set(hashes)) == 4


class Color(Enum):
    RED = 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (re.compile("a" * 300 + "b"), re.compile("a" * 300 + "c")),  # printed, both end after 200 characters
        (re.compile("a"), re.compile("a", re.IGNORECASE)),
        (date(2026, 1, 1), date(2026, 1, 2)),
        (Decimal("1.0"), Decimal("1.00")),
        (Color.RED, 1),
    ],
)
def test_values_that_a_function_reaches_count(one: Any, other: Any) -> None:
    def of(value: Any) -> str:
        return code_hash(lambda: value)

    assert of(one) == of(one) != of(other)


def test_what_a_library_keeps_in_a_class_does_not_count() -> None:
    """Schemas and caches have addresses: a program would be another one in each process."""

    class Own:
        __schema__ = object()
        _cache: ClassVar[dict[str, object]] = {"ref": object()}
        engine = object()

        @cached_property
        def twice(self) -> int:
            return 2

    before = code_hash(Own)
    Own.__schema__ = Own._cache["ref"] = Own.engine = object()
    assert code_hash(Own) == before
    Own.twice = cached_property(lambda self: 3)  # type: ignore[assignment]
    assert code_hash(Own) != before


def test_what_code_uses_of_another_module_counts(tmp_path: Path) -> None:
    def used(value: int) -> str:
        helpers = of_file(tmp_path / "helpers.py", f"RATE = {value}\ndef times(v):\n    return v * RATE\nOTHER = 1\n")
        own = of_file(tmp_path / "own.py", "def function(v):\n    return helpers.times(v)\n")
        own.helpers = helpers
        return code_hash(own.function)

    assert used(1) == used(1) != used(2)
