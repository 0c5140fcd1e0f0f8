"""Aggregates are read from Spark's Columns; the key hash agrees with how Spark partitions."""

from __future__ import annotations

import math
import struct

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from boatlift.errors import InvalidError
from boatlift.spark.aggregates.columns import parse_aggregates
from boatlift.spark.plans.column_rules import canonical_key
from boatlift.state.key_groups import key_hash

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [("x", 1, 2, 1.5, 2.5, None)], "k string, i int, l long, f float, d double, money decimal(10,2)"
    )


def test_each_function_is_read_with_argument_name_and_types(frame: DataFrame) -> None:
    parsed = parse_aggregates(
        frame,
        ["k"],
        [
            F.count("*"),
            F.count(F.lit(1)).alias("ones"),
            F.count("i"),
            F.sum("i").alias("total"),
            F.sum("f"),
            F.avg("l"),
            F.mean(F.col("d") * 2).alias("m"),
            F.min("k"),
            F.max(frame["d"]),
            F.min("money").alias("least"),
            F.sum("money").alias("paid"),
            F.avg("money").alias("price"),
            F.stddev("i").alias("sd"),
            F.var_pop("d").alias("vp"),
        ],
    )
    got = [(a.function, a.output, a.input_type, a.output_type, a.spark_type.simpleString()) for a in parsed.aggregates]
    assert got == [
        ("count_all", "count(1)", None, pa.int64(), "bigint"),
        ("count_all", "ones", None, pa.int64(), "bigint"),
        ("count", "count(i)", pa.int32(), pa.int64(), "bigint"),
        ("sum", "total", pa.int32(), pa.int64(), "bigint"),
        ("sum", "sum(f)", pa.float32(), pa.float64(), "double"),
        ("avg", "avg(l)", pa.int64(), pa.float64(), "double"),
        ("avg", "m", pa.float64(), pa.float64(), "double"),
        ("min", "min(k)", pa.string(), pa.string(), "string"),
        ("max", "max(d)", pa.float64(), pa.float64(), "double"),
        ("min", "least", pa.decimal128(10, 2), pa.decimal128(10, 2), "decimal(10,2)"),
        ("sum", "paid", pa.decimal128(10, 2), pa.decimal128(20, 2), "decimal(20,2)"),
        ("avg", "price", pa.decimal128(10, 2), pa.decimal128(14, 6), "decimal(14,6)"),
        ("stddev_samp", "sd", pa.float64(), pa.float64(), "double"),
        ("var_pop", "vp", pa.float64(), pa.float64(), "double"),
    ]


def test_aggregates_of_one_expression_share_their_argument(frame: DataFrame) -> None:
    parsed = parse_aggregates(frame, ["k"], [F.sum("i"), F.avg("i"), F.count(frame["i"]), F.max(F.col("i") + 1)])
    assert [a.argument for a in parsed.aggregates] == ["_argument0", "_argument0", "_argument0", "_argument1"]
    selected = frame.select(*[column.alias(name) for name, column in parsed.arguments])
    assert [tuple(row) for row in selected.collect()] == [(1, 2)]


def test_timestamps_carry_the_time_zone_of_the_session_as_batches_do(spark: SparkSession) -> None:
    for zone in ("Asia/Tokyo", "UTC"):  # the shared session ends as it began
        spark.conf.set("spark.sql.session.timeZone", zone)
        frame = spark.createDataFrame([], "k string, t timestamp")
        latest = parse_aggregates(frame, ["k"], [F.max("t")]).aggregates[0]
        assert (latest.input_type, latest.output_type) == (pa.timestamp("us", zone), pa.timestamp("us", zone))


def test_the_fingerprint_distinguishes_aggregates(frame: DataFrame) -> None:
    def of(*columns: Column) -> str:
        return parse_aggregates(frame, ["k"], columns).fingerprint

    assert of(F.sum("i").alias("z")) == of(F.sum("i").alias("z"))
    assert len({of(F.sum("i").alias("z")), of(F.avg("i").alias("z")), of(F.sum("i").alias("y"))}) == 3


def test_a_column_called_1_is_no_constant(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("x", None)], "k string, `1` int")
    assert parse_aggregates(frame, ["k"], [F.count("`1`")]).aggregates[0].function == "count"
    assert parse_aggregates(frame, ["k"], [F.count(F.lit(None))]).aggregates[0].function == "count"


UNSUPPORTED = {
    "distinct": (lambda: F.countDistinct("i"), "a view keeps them"),
    "sum distinct": (lambda: F.sum_distinct("i"), "a view keeps them"),
    "first": (lambda: F.first("i"), "min(…) or max(…)"),
    "collect_list": (lambda: F.collect_list("i"), "write a view"),
    "skewness": (lambda: F.skewness("d"), "write a view"),
    "approximate": (lambda: F.approx_count_distinct("i"), "a view keeps them"),
    "median": (lambda: F.median("d"), "not kept as state"),
    "around": (lambda: F.sum("i") + 1, "compute with the result in a transform"),
    "cast": (lambda: F.sum("i").cast("int").alias("z"), "compute with the result in a transform"),
    "text": (lambda: F.expr("sum(i) AS z"), "write F.sum('x')"),
    "window": (lambda: F.sum("i").over(Window.partitionBy("k")), None),
    "text sum": (lambda: F.sum("k"), "cast it to a number (long, double, decimal)"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_anything_else_is_refused_with_what_to_use(frame: DataFrame, name: str) -> None:
    make, part = UNSUPPORTED[name]
    with pytest.raises(InvalidError) as caught:
        parse_aggregates(frame, ["k"], [make()])
    if part is None:
        assert caught.value.condition in ("UNSUPPORTED_AGGREGATE", "SCHEMA_MISMATCH")
    else:
        assert caught.value.condition == "UNSUPPORTED_AGGREGATE"
        assert part in caught.value.message
        assert "count, sum, avg, min, max, variances" in caught.value.message


def test_arguments_are_row_wise_and_deterministic(frame: DataFrame) -> None:
    with pytest.raises(InvalidError, match=r"NOT_DETERMINISTIC.*the aggregate z holds rand"):
        parse_aggregates(frame, ["k"], [F.sum(F.rand()).alias("z")])


@pytest.mark.parametrize(
    ("keys", "columns", "part"),
    [
        (["k"], "lost", "nowhere"),
        (["k"], "twice", "two columns z"),
        (["k"], "key", "two columns k"),
        (["missing"], "plain", "no column missing"),
    ],
)
def test_names_must_fit(frame: DataFrame, keys: list[str], columns: str, part: str) -> None:
    made = {
        "lost": lambda: [F.sum("nowhere")],
        "twice": lambda: [F.sum("i").alias("z"), F.max("i").alias("z")],
        "key": lambda: [F.sum("i").alias("k")],
        "plain": lambda: [F.sum("i")],
    }[columns]()
    with pytest.raises(InvalidError) as caught:
        parse_aggregates(frame, keys, made)
    assert caught.value.condition == "SCHEMA_MISMATCH"
    assert part in caught.value.message


def test_a_collated_key_is_refused(frame: DataFrame) -> None:
    collated = frame.withColumn("k", F.collate("k", "UTF8_LCASE"))
    with pytest.raises(InvalidError, match=r"SCHEMA_MISMATCH.*texts are equal"):
        parse_aggregates(collated, ["k"], [F.sum("i")])


OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_1234))[0]


@pytest.mark.parametrize("kind", ["double", "float"])
def test_equal_float_keys_have_equal_bits_and_hashes(spark: SparkSession, kind: str) -> None:
    values = pa.table({"k": pa.array([0.0, -0.0, math.nan, OTHER_NAN, -math.nan, None, 1.5], pa.float64())})
    frame = spark.createDataFrame(values).select(F.col("k").cast(kind))
    canonical = frame.select(canonical_key(frame, "k"))
    assert canonical.schema.simpleString() == f"struct<k:{kind}>"
    rows = canonical.selectExpr("k", f"{key_hash(['k'])} AS h", "hash(k) AS s").collect()

    zero, minus, *nans, null, plain = rows
    assert (math.copysign(1, zero.k), math.copysign(1, minus.k)) == (1, 1)
    assert zero.h == minus.h
    assert len({struct.pack("<d", row.k) for row in nans}) == 1
    assert len({(row.h, row.s) for row in nans}) == 1
    assert null.k is None
    assert plain.k == 1.5
    assert len({zero.h, nans[0].h, plain.h}) == 3


def test_other_keys_are_left_alone(frame: DataFrame) -> None:
    assert str(canonical_key(frame, "k")) == str(F.col("`k`"))


@pytest.mark.parametrize("partitions", [1, 2, 4, 64])
def test_spark_puts_key_group_g_into_partition_g_mod_n(spark: SparkSession, partitions: int) -> None:
    keys = spark.range(5000).select(
        F.when(F.col("id") % 7 != 0, F.col("id")).alias("a"),
        F.concat(F.lit("key-"), (F.col("id") % 911).cast("string")).alias("b"),
        (F.col("id") / 3).alias("c"),
    )
    columns = ["a", "b", "c"]
    placed = keys.repartition(partitions, *columns).selectExpr(
        f"{key_hash(columns)} AS h", "hash(a, b, c) AS s", "spark_partition_id() AS p"
    )
    rows = placed.collect()
    assert len({row.p for row in rows}) == partitions
    for row in rows:
        group = (row.h >> 52) & 0xFFF
        assert group == row.s % 4096
        assert row.p == group % partitions


def test_the_low_bits_of_the_hash_are_those_of_another_hash(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr(f"{key_hash(['id'])} AS h", "xxhash64(id) AS x").collect()
    assert all(row.h & (2**52 - 1) == (row.x % 2**64) >> 12 for row in rows)
