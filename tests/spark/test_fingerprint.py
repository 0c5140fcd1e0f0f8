"""The same program has the same hash, in every process; another one has another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.spark.plans.fingerprint import fingerprint, libraries, shape
from boatlift.spark.plans.function_code import describe_function
from boatlift.spark.plans.row_wise import check_row_wise
from boatlift.spark.plans.step_functions import StepContext, now, rand, step_context, uuid

SCHEMA = "a int, b string, d double, t timestamp, arr array<int>"

Function = Callable[[DataFrame], DataFrame]


def base(df: DataFrame) -> DataFrame:
    return df.where("a > 3").select(
        "a",
        F.upper("b").alias("b"),
        F.transform("arr", lambda x: x + 1).alias("arr"),
        F.to_json(F.struct("a")).alias("j"),
    )


def nested(value: bytes) -> Column:
    """Return one literal with bytes inside, which Java prints by their identity."""
    jvm: Any = SparkContext._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    data = catalyst.util.GenericArrayData(SparkContext._gateway.new_array(jvm.java.lang.Object, 1))  # type: ignore[union-attr]
    data.update(0, value)
    kind = jvm.org.apache.spark.sql.types.ArrayType(jvm.org.apache.spark.sql.types.DataTypes.BinaryType, False)
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    return Column(expressions.column(catalyst.expressions.Literal(data, kind)))


@pytest.fixture
def hash_of(spark: SparkSession) -> Callable[..., str]:
    def hash_of(function: Function, clock: int = 0, seed: int = 0, schema: str = SCHEMA, rows: Any = ()) -> str:
        frame = spark.createDataFrame(list(rows), schema)
        with step_context(StepContext(clock, seed, "clean", False)):
            return fingerprint(check_row_wise(frame, function, "clean", deterministic=True))

    return hash_of


HashOf = Callable[..., str]


@pytest.mark.spark
def test_equal_plans_are_equal(hash_of: HashOf) -> None:
    assert hash_of(base) == hash_of(base)
    assert len(hash_of(base)) == 32


@pytest.mark.spark
@pytest.mark.parametrize(
    "change",
    [
        lambda df: base(df).where("a > 4"),
        lambda df: base(df.where("a < 9")),
        lambda df: base(df).select("b", "a", "arr", "j"),
        lambda df: base(df).withColumnRenamed("a", "z"),
        lambda df: base(df).withColumn("a", F.col("a").cast("long")),
        lambda df: df.where("a > 4").select("a", F.upper("b").alias("b"), "arr"),
        lambda df: df.where("a >= 3").select("a", F.upper("b").alias("b"), "arr"),
        lambda df: df.where("a > 3").select("a", F.lower("b").alias("b"), "arr"),
    ],
)
def test_other_plans_differ(hash_of: HashOf, change: Function) -> None:
    assert hash_of(change) != hash_of(base)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("one", "other"),
    [
        # Options stand in no field of a plan's JSON.
        (
            lambda df: df.select(F.to_json(F.struct("a"), {"ignoreNullFields": "false"}).alias("j")),
            lambda df: df.select(F.to_json(F.struct("a"), {"ignoreNullFields": "true"}).alias("j")),
        ),
        (
            lambda df: df.select(F.from_json("b", "x int", {"mode": "FAILFAST"}).alias("j")),
            lambda df: df.select(F.from_json("b", "x int", {"mode": "PERMISSIVE"}).alias("j")),
        ),
        (
            lambda df: df.select(F.transform("arr", lambda x: x + 1).alias("z")),
            lambda df: df.select(F.transform("arr", lambda x: x + 2).alias("z")),
        ),
        (
            lambda df: df.select((F.col("a") + F.col("a")).alias("z")),
            lambda df: df.select(F.try_add("a", "a").alias("z")),
        ),
        (
            lambda df: df.select(F.col("b").cast("int").alias("z")),
            lambda df: df.select(F.col("b").try_cast("int").alias("z")),
        ),
        (lambda df: df.select(F.lit("1").alias("z")), lambda df: df.select(F.lit("2").alias("z"))),
        (lambda df: df.select(F.lit(b"1").alias("z")), lambda df: df.select(F.lit(b"2").alias("z"))),
        (lambda df: df.select(nested(b"1").alias("z")), lambda df: df.select(nested(b"2").alias("z"))),
        (lambda df: df.select(F.lit(1.0).alias("z")), lambda df: df.select(F.lit(1).alias("z"))),
    ],
)
def test_differences_that_are_easily_missed_change_the_hash(hash_of: HashOf, one: Function, other: Function) -> None:
    assert hash_of(one) != hash_of(other)
    assert hash_of(one) == hash_of(one)


@pytest.mark.spark
def test_the_input_does_not_count(spark: SparkSession, tmp_path: Path, hash_of: HashOf) -> None:
    assert hash_of(base, rows=[(1, "x", 1.0, None, [1])]) == hash_of(base)
    for name in ("one", "two"):
        spark.createDataFrame([(1, "x", 1.0, None, [1])], SCHEMA).write.parquet(str(tmp_path / name))
    one, two = (spark.read.schema(SCHEMA).parquet(str(tmp_path / name)) for name in ("one", "two"))
    assert fingerprint(check_row_wise(one, base, "clean")) == fingerprint(check_row_wise(two, base, "clean"))


@pytest.mark.spark
def test_step_constants_do_not_count_but_their_calls_do(hash_of: HashOf) -> None:
    def drawn(df: DataFrame) -> DataFrame:
        return df.select("a", now().alias("n"), rand("a").alias("r"), uuid("a", "b").alias("u"))

    assert hash_of(drawn, clock=1, seed=2) == hash_of(drawn, clock=10**12, seed=-(2**63))
    assert hash_of(drawn) != hash_of(
        lambda df: df.select("a", now().alias("n"), rand("b").alias("r"), uuid("a", "b").alias("u"))
    )


@pytest.mark.spark
def test_each_transform_of_a_chain_counts(spark: SparkSession) -> None:
    def chain(first: Function) -> str:
        frame = check_row_wise(spark.createDataFrame([], SCHEMA), first, "first")
        return fingerprint(check_row_wise(frame, lambda df: df.select("a"), "second"))

    assert chain(lambda df: df.where("a > 1")) != chain(lambda df: df.where("a > 2"))
    assert chain(lambda df: df.where("a > 1")) == chain(lambda df: df.where("a > 1"))


@pytest.mark.spark
def test_literals_with_line_ends_show_nothing_of_the_input_and_hide_no_transform(spark: SparkSession) -> None:
    def chain(literal: str, first: str) -> list[str]:
        frame = check_row_wise(spark.createDataFrame([], SCHEMA).where(F.col("b") != literal), where(first), "first")
        frame = check_row_wise(frame, lambda df: df.select("a"), "second")
        return [shape(frame, functions=False), fingerprint(frame)]

    def where(condition: str) -> Function:
        return lambda df: df.where(condition).where("b <> 'x\ny'")

    one = chain("x\n1", "a > 1")
    assert chain("x\n2", "a > 1") == one
    assert all(found != same for found, same in zip(chain("x\n1", "a > 2"), one, strict=True))


@pytest.mark.spark
def test_a_static_table_counts_by_its_content(spark: SparkSession, hash_of: HashOf) -> None:
    def joined(rows: list[tuple[int, str]]) -> str:
        static = spark.createDataFrame(rows, "a int, name string")
        return hash_of(lambda df: df.join(static, "a", "left").select("a", "name"))

    assert joined([(1, "x"), (2, "y")]) == joined([(2, "y"), (1, "x")])
    assert joined([(1, "x"), (2, "y")]) != joined([(1, "x"), (2, "z")])
    assert joined([(1, "x"), (1, "x")]) != joined([(1, "x")])


TWO_PROCESSES = """
import sys
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType
from boatlift.processes.session import session
from boatlift.spark.plans.row_wise import check_row_wise
from boatlift.spark.plans.fingerprint import fingerprint

spark = session()
for _ in range(int(sys.argv[1])):  # moves every counter of the JVM and of PySpark
    spark.range(3).select(F.transform(F.array("id"), lambda x: x)).schema

FACTORS = {"one", "two", "three"}

@F.udf(IntegerType())
def udf(x):
    return len(FACTORS) * x if str(x) in {"1", "22", "333"} else x

frame = spark.createDataFrame([], "a int, b string, arr array<int>")
print(fingerprint(check_row_wise(frame, lambda df: df.where(df["a"] > 2).select(
    F.transform("arr", lambda x: x + 1), udf("a"), F.explode("arr")), "clean", deterministic=True)))
"""


@pytest.mark.spark
def test_two_processes_agree(warm_jvm: WarmJvm) -> None:
    hashes = {
        subprocess.run(
            [sys.executable, "-c", TWO_PROCESSES, count],
            env={**warm_jvm.environment(), "PYTHONHASHSEED": count},
            check=True, capture_output=True, text=True,
        ).stdout
        for count in ("1", "5")
    }  # fmt: skip
    assert len(hashes) == 1


@pytest.mark.spark
def test_the_code_of_a_udf_counts(hash_of: HashOf) -> None:
    def with_udf(function: Callable[[int], int]) -> str:
        function.__name__ = function.__qualname__ = "score"
        udf = F.udf(function, IntegerType())
        return hash_of(lambda df: df.select(udf("a").alias("z")))

    assert with_udf(lambda x: x + 1) == with_udf(lambda x: x + 1)
    assert with_udf(lambda x: x + 1) != with_udf(lambda x: x + 2)


def outer(factor: int) -> Callable[[int], int]:
    return lambda x: x * factor


def calls_helper(x: int) -> int:
    return helper(x)


def helper(x: int) -> int:
    return x * LIMIT


LIMIT = 3


class Scorer:
    def __init__(self, weight: int) -> None:
        self.weight = weight

    def __call__(self, x: int) -> int:
        return x * self.weight


def test_a_function_is_its_code_its_closure_and_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_function(outer(1)) == describe_function(outer(1))
    assert describe_function(outer(1)) != describe_function(outer(2))
    assert describe_function(lambda x: [y for y in x if y > 1]) != describe_function(lambda x: [y for y in x if y > 2])
    assert describe_function(lambda x, y=1: x) != describe_function(lambda x, y=2: x)
    assert describe_function(lambda x: x in {"a", "b"}) == describe_function(lambda x: x in {"b", "a"})
    assert describe_function(Scorer(1)) != describe_function(Scorer(2))
    assert describe_function(Scorer(1).__call__) == describe_function(Scorer(1).__call__)
    assert describe_function(Scorer(1).__call__) != describe_function(Scorer(2).__call__)
    assert describe_function(partial(helper, x=1)) == describe_function(partial(helper, x=1))
    assert describe_function(partial(helper, x=1)) != describe_function(partial(helper, x=2))
    assert describe_function(partial(outer, 1)) != describe_function(partial(Scorer, 1))
    before = describe_function(calls_helper)
    assert describe_function(calls_helper) == before
    monkeypatch.setitem(globals(), "LIMIT", 4)
    assert describe_function(calls_helper) != before


def test_a_function_that_calls_itself_ends() -> None:
    def factorial(n: int) -> int:
        return 1 if n < 2 else n * factorial(n - 1)

    assert describe_function(factorial) == describe_function(factorial)


@pytest.mark.spark
def test_packages_that_udfs_use_are_no_part_of_the_program(spark: SparkSession) -> None:
    import msgspec

    def encoded(value: int) -> bytes:
        return msgspec.json.encode(value)

    frame = spark.range(3).select(F.udf(encoded, "binary")("id"))
    assert libraries(frame) == {"msgspec": msgspec.__version__}
    assert libraries(spark.range(3).selectExpr("id + 1")) == {}
    assert msgspec.__version__ not in str(describe_function(encoded))


JOIN = "SELECT {one}.id, {other}.n FROM {left} AS {one} JOIN {right} AS {other} ON {one}.id > {other}.n"


def test_names_of_tables_and_subqueries_do_not_count_but_their_columns_do(spark: SparkSession) -> None:
    """A stream may get another name; which side a column is of is no name."""
    for name in ("numbers", "`other numbers`"):
        spark.range(3).withColumn("n", F.col("id") + 1).createOrReplaceTempView(name)

    def hashed(query: str, **names: str) -> str:
        return fingerprint(spark.sql(query.format(**{"one": "x", "other": "y", **names})))

    joined = hashed(JOIN, left="numbers", right="numbers")
    assert joined == hashed(JOIN, one="`a b`", other="c", left="`other numbers`", right="numbers")
    assert joined != hashed(JOIN.replace("{one}.id,", "{other}.id,"), left="numbers", right="numbers")
    assert joined != hashed(JOIN.replace("> {other}.n", "> {one}.n"), left="numbers", right="numbers")
    for name in ("t", "`a, (b`"):
        again = f"WITH {name} AS (SELECT id FROM numbers WHERE n > 1) SELECT id FROM {name}"
        assert hashed(again) == hashed("WITH u AS (SELECT id FROM numbers WHERE n > 1) SELECT id FROM u")
