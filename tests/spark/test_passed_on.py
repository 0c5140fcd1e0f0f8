"""A column is traced through a transform by what it is, not by its name: a bound is about its values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from boatlift.spark.plans.catalyst import INPUT, passed_on

TRANSFORMS: dict[str, tuple[Callable[[DataFrame], DataFrame], str | None]] = {
    "kept": (lambda df: df.where("k > 1").withColumn("more", F.lit(1)), "at"),
    "exploded": (lambda df: df.withColumn("each", F.explode(F.array("k", "k"))), "at"),
    "renamed": (lambda df: df.withColumnRenamed("at", "time"), "time"),
    "the other's name": (lambda df: df.selectExpr("k", "started AS at"), None),
    "swapped": (lambda df: df.selectExpr("k", "started AS at", "at AS started"), "started"),
    "overwritten": (lambda df: df.withColumn("at", F.date_trunc("hour", "at")), None),
    "dropped": (lambda df: df.select("k"), None),
    "united": (lambda df: df.select("k", "at").union(df.select("k", F.col("started").alias("at"))), None),
    "united with itself": (lambda df: df.union(df), None),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_column_comes_out_as_it_is_or_not_at_all(spark: SparkSession, name: str) -> None:
    function, expected = TRANSFORMS[name]
    rows = spark.createDataFrame([], "k LONG, at TIMESTAMP, started TIMESTAMP").alias(INPUT)
    assert passed_on(function(rows), "at") == expected
