"""The expressions that a transform may hold, and the advice when one is refused."""

from __future__ import annotations

import itertools
import random
import traceback
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType

from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.spark.plans.row_wise import apply, check_row_wise
from boatlift.spark.plans.step_functions import StepContext, now, rand, step_context, uuid

pytestmark = pytest.mark.spark

SCHEMA = "a int, b string, d double, t timestamp, arr array<int>, m map<string, int>, s struct<x: int, y: string>"
ROWS = [(1, "x", 1.5, None, [1, 2], {"k": 1}, (1, "y")), (None, None, None, None, None, None, None)]

Function = Callable[[DataFrame], DataFrame]


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, SCHEMA)


@pytest.fixture(scope="module")
def static(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "one"), (2, "two")], "a int, name string")


@F.udf(IntegerType())
def plus_one(x: int) -> int:
    return x + 1


@F.udf(IntegerType())
def chance(x: int) -> int:
    return x + random.randrange(2)


chance = chance.asNondeterministic()


ALLOWED: dict[str, Function] = {
    "projection": lambda df: df.select("a", (F.col("d") / 2).alias("half"), F.upper("b"), F.col("s.x"), df["d"]),
    "filter": lambda df: df.where("a > 0 AND b LIKE 'x%' OR t IS NULL").filter(F.col("a").isin(1, 2)),
    "columns": lambda df: df.withColumn("z", F.lit(1)).withColumnRenamed("a", "q").drop("b"),
    "explode": lambda df: df.select("a", F.explode("arr")),
    "outer explode": lambda df: df.select("a", F.posexplode_outer("arr")),
    "stack": lambda df: df.selectExpr("stack(2, a, b, a + 1, b)"),
    "unpivot": lambda df: df.unpivot("b", ["a", "d"], "which", "value"),
    "lambda": lambda df: df.select(
        F.transform("arr", lambda x: x * 2), F.aggregate("arr", F.lit(0), lambda s, x: s + x)
    ),
    "dates": lambda df: df.select(F.date_trunc("hour", "t"), F.unix_timestamp("t"), F.window("t", "10 minutes").start),
    "formats": lambda df: df.select(F.to_json("s"), F.from_json("b", "x int"), F.get_json_object("b", "$.x")),
    "conditions": lambda df: df.select(F.when(F.col("a") > 1, "m").otherwise("n"), F.coalesce("a", F.lit(0))),
    "missing values": lambda df: df.dropna(subset=["a"]).fillna(0).replace(1, 2, ["a"]),
    "struct fields": lambda df: df.withColumn("s", F.col("s").withField("z", F.lit(1)).dropFields("y")),
    "regular expressions": lambda df: df.select(
        F.regexp_replace("b", "x", "y"), F.split("b", ","), F.rlike("b", F.lit("x"))
    ),
    "hashes": lambda df: df.select(
        F.hash("a"), F.xxhash64("a", "b"), F.md5(F.col("b").cast("binary")), F.sha2("b", 256)
    ),
    "union of branches": lambda df: df.where("a > 1").unionByName(df.where("a < 3")),
    "alias": lambda df: df.alias("left").select("left.a"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_row_wise_transforms_pass(rows: DataFrame, name: str) -> None:
    result = check_row_wise(rows, ALLOWED[name], "clean")
    result.collect()


NODES: dict[str, tuple[Function, str]] = {
    "sum": (lambda df: df.groupBy("b").agg(F.sum("a")), "the aggregate sum: use group_by(…).agg(…)"),
    "collect_list": (lambda df: df.agg(F.collect_list("a")), "the aggregate collect_list"),
    "first": (lambda df: df.groupBy("b").agg(F.first("a")), "the aggregate first"),
    "window function": (lambda df: df.withColumn("n", F.row_number().over(Window.orderBy("a"))), "a window function"),
    "limit": (lambda df: df.limit(3), "a limit"),
    "offset": (lambda df: df.offset(3), "a limit (Offset)"),
    "sort": (lambda df: df.orderBy("a"), "a sort (Sort)"),
    "sort within": (lambda df: df.sortWithinPartitions("a"), "a sort (Sort)"),
    "distinct": (lambda df: df.drop("m").distinct(), "a deduplication"),
    "dropDuplicates": (lambda df: df.dropDuplicates(["a"]), "a deduplication"),
    "sample": (lambda df: df.sample(0.5, seed=1), "a sample (Sample): use a filter on bl.rand()"),
    "repartition": (lambda df: df.repartition(4), "a repartitioning"),
    "repartition by": (lambda df: df.repartition("a"), "a repartitioning"),
    "coalesce": (lambda df: df.coalesce(1), "a repartitioning"),
    "intersect": (lambda df: df.drop("m").intersect(df.drop("m")), "a set operation"),
    "except": (lambda df: df.drop("m").exceptAll(df.drop("m")), "holds"),
    "mapInArrow": (lambda df: df.mapInArrow(lambda batches: batches, df.schema), "a function of whole partitions"),
    "mapInPandas": (lambda df: df.mapInPandas(lambda batches: batches, df.schema), "a function of whole partitions"),
    "applyInArrow": (lambda df: df.groupBy("a").applyInArrow(lambda table: table, df.schema), "whole groups"),
    "self join": (lambda df: df.join(df.select("a"), "a"), "a join of the stream with itself"),
    "scalar subquery": (lambda df: df.where("a > (SELECT max(id) FROM range(3))"), "a join with a static table"),
    "exists": (lambda df: df.where("EXISTS (SELECT 1 FROM range(3) WHERE id > 1)"), "a join with a static table"),
    "observe": (lambda df: df.observe("seen", F.count(F.lit(1))), "an observation"),
    "another frame": (lambda df: df.sparkSession.range(3), "not made from its input"),
    "pivot": (lambda df: df.groupBy("b").pivot("a", [1, 2]).agg(F.sum("d")), "holds"),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("deterministic", [None, True, False])
def test_expressions_that_are_not_row_wise_are_refused_whatever_is_declared(
    rows: DataFrame, name: str, deterministic: bool | None
) -> None:
    function, part = NODES[name]
    with pytest.raises(InvalidError) as caught:
        check_row_wise(rows, function, "clean", deterministic)
    assert caught.value.condition == "NOT_ROW_WISE"
    assert caught.value.message.startswith("clean holds ")
    assert part in caught.value.message


EXPRESSIONS: dict[str, tuple[Function, str]] = {
    "current_timestamp": (lambda df: df.withColumn("n", F.current_timestamp()), "current_timestamp, which differs"),
    "now": (lambda df: df.selectExpr("now()"), "bl.now()"),
    "current_date": (lambda df: df.where(F.current_date() > F.col("t")), "bl.now()"),
    "localtimestamp": (lambda df: df.select(F.localtimestamp()), "bl.now()"),
    "unix_timestamp": (lambda df: df.select(F.unix_timestamp()), "bl.now()"),
    "rand": (lambda df: df.withColumn("r", F.rand()), "bl.rand()"),
    "seeded rand": (lambda df: df.withColumn("r", F.rand(7)), "bl.rand()"),
    "randn": (lambda df: df.where(F.randn(3) > 0), "bl.rand()"),
    "nested": (lambda df: df.select(F.when(F.col("a") > F.floor(F.rand() * 3), 1)), "bl.rand()"),
    "in a lambda": (lambda df: df.select(F.transform("arr", lambda x: x + F.rand(1))), "bl.rand()"),
    "uuid": (lambda df: df.selectExpr("uuid()"), "bl.uuid()"),
    "shuffle": (lambda df: df.select(F.shuffle("arr")), "bl.rand()"),
    "id": (lambda df: df.select(F.monotonically_increasing_id()), "bl.uuid()"),
    "partition": (lambda df: df.select(F.spark_partition_id()), "partitions differ"),
    "file name": (lambda df: df.select(F.input_file_name()), "a column that the source adds"),
    "user": (lambda df: df.select(F.current_user()), "F.lit("),
    "UDF": (lambda df: df.select(plus_one("a")), "the UDF plus_one"),
    "UDF that says so": (lambda df: df.select(chance("a")), "the UDF chance"),
    "reflection": (lambda df: df.selectExpr("reflect('java.util.UUID', 'randomUUID')"), "the UDF"),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_that_differ_from_run_to_run_are_refused_unless_declared(rows: DataFrame, name: str) -> None:
    function, part = EXPRESSIONS[name]
    with pytest.raises(InvalidError) as caught:
        check_row_wise(rows, function, "clean")
    assert caught.value.condition == "NOT_DETERMINISTIC"
    assert caught.value.message.startswith("clean ")
    assert part in caught.value.message
    check_row_wise(rows, function, "clean", deterministic=False)


def test_a_udf_counts_as_declared_but_the_clock_does_not(rows: DataFrame) -> None:
    check_row_wise(rows, lambda df: df.select(plus_one("a")), "clean", deterministic=True)
    for function in (EXPRESSIONS["rand"][0], EXPRESSIONS["UDF that says so"][0]):
        with pytest.raises(InvalidError, match="NOT_DETERMINISTIC"):
            check_row_wise(rows, function, "clean", deterministic=True)


def test_a_plan_that_python_builds_differently_each_time_is_refused(rows: DataFrame) -> None:
    count = itertools.count()
    with pytest.raises(InvalidError, match="builds another plan at each call"):
        check_row_wise(rows, lambda df: df.withColumn("n", F.lit(next(count))), "clean")
    with pytest.raises(InvalidError, match="builds another plan at each call"):
        check_row_wise(rows, lambda df: df.where(F.col("d") > random.random()), "clean")


def test_step_functions_pass(rows: DataFrame) -> None:
    with step_context(StepContext(1, 2, "clean", False)):
        check_row_wise(rows, lambda df: df.select(now(), rand("a"), uuid("a", "b")), "clean")


@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti", "cross"])
def test_a_join_with_a_static_table_passes(rows: DataFrame, static: DataFrame, how: str) -> None:
    def join(df: DataFrame) -> DataFrame:
        return df.crossJoin(F.broadcast(static)) if how == "cross" else df.join(static, "a", how)

    check_row_wise(rows, join, "clean").collect()


@pytest.mark.parametrize("how", ["right", "full"])
def test_a_join_that_keeps_static_rows_is_refused(rows: DataFrame, static: DataFrame, how: str) -> None:
    with pytest.raises(InvalidError, match=r"NOT_ROW_WISE.*keeps rows of the static side"):
        check_row_wise(rows, lambda df: df.join(static, "a", how), "clean")


def test_the_stream_may_be_on_the_right(rows: DataFrame, static: DataFrame) -> None:
    check_row_wise(rows, lambda df: static.join(df, "a"), "clean")
    check_row_wise(rows, lambda df: static.join(df, "a", "right"), "clean")
    with pytest.raises(InvalidError, match="NOT_ROW_WISE"):
        check_row_wise(rows, lambda df: static.join(df, "a", "left"), "clean")


def test_a_static_side_is_row_wise_itself(rows: DataFrame, static: DataFrame) -> None:
    check_row_wise(rows, lambda df: df.join(static.where("a > 1").select("a"), "a"), "clean")
    with pytest.raises(InvalidError, match=r"NOT_ROW_WISE.*the aggregate first"):
        check_row_wise(rows, lambda df: df.join(static.groupBy("a").agg(F.first("name")), "a"), "clean")


def test_a_union_with_a_static_table_is_refused(rows: DataFrame, static: DataFrame) -> None:
    with pytest.raises(InvalidError, match=r"NOT_ROW_WISE.*again with every step"):
        check_row_wise(rows, lambda df: df.select("a", "b").union(static), "clean")


def test_an_error_of_the_users_function_keeps_its_own_traceback(rows: DataFrame) -> None:
    def helper(df: DataFrame) -> DataFrame:
        raise ValueError("no such carrier: ZZ")

    with pytest.raises(UserCodeError) as caught:
        check_row_wise(rows, lambda df: helper(df), "clean")  # noqa: PLW0108 a frame of its own

    assert caught.value.message.startswith("clean raised ValueError: no such carrier: ZZ (line ")
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["<lambda>", "helper"]


def test_a_column_that_is_not_there_names_the_users_line(rows: DataFrame) -> None:
    with pytest.raises(UserCodeError) as caught:
        check_row_wise(rows, lambda df: df.select("carrier"), "clean")
    assert "UNRESOLVED_COLUMN" in caught.value.message
    assert caught.value.__cause__ is not None
    frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
    assert [frame.filename for frame in frames] == [__file__]


def test_a_function_that_returns_no_frame_is_refused(rows: DataFrame) -> None:
    with pytest.raises(UserCodeError, match="clean returned a NoneType"):
        apply(rows, lambda df: None, "clean")  # type: ignore[arg-type, return-value]


def test_our_own_errors_pass_through(rows: DataFrame) -> None:
    with pytest.raises(BoatliftError) as caught:
        apply(rows, lambda df: df.withColumn("n", now()), "clean")
    assert caught.value.condition == "OUTSIDE_STEP"


@pytest.mark.parametrize("how", ["join", "union", "alone"])
def test_the_frame_of_another_transform_is_refused(spark: SparkSession, rows: DataFrame, how: str) -> None:
    """Its rows would be those of whichever step the other transform was at."""
    kept: list[DataFrame] = []

    def keep(df: DataFrame) -> DataFrame:
        kept.append(df)
        return df

    check_row_wise(spark.createDataFrame([], rows.schema), keep, "other")

    def use(df: DataFrame) -> DataFrame:
        if how == "alone":
            return kept[0]
        return df.union(kept[0]) if how == "union" else df.join(kept[0], rows.columns[0])

    with pytest.raises(InvalidError, match=r"\[NOT_ON_A_STREAM\] clean uses a DataFrame of another transform"):
        check_row_wise(rows, use, "clean")


def test_a_union_of_the_input_with_itself_passes(rows: DataFrame) -> None:
    check_row_wise(rows, lambda df: df.union(df).unionByName(df), "clean")


def test_a_misspelt_column_is_no_position(spark: SparkSession) -> None:
    """Spark names the columns that there are, among them the position."""
    frame = spark.createDataFrame([], "k LONG, _position LONG")
    with pytest.raises(UserCodeError, match=r"\[USER_CODE\] clean raised AnalysisException.*`nope`"):
        check_row_wise(frame, lambda df: df.where("nope > 0"), "clean")
