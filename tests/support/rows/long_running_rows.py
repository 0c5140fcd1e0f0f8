"""The rows of small steps, and transforms of them with which a mark cannot be computed."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

__all__ = ["SCHEMA", "hard", "many", "row", "rows_of"]

SCHEMA = "id LONG NOT NULL, item STRING, amount DOUBLE, cost DECIMAL(12, 2), at TIMESTAMP, tags ARRAY<STRING>"


def row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "item": None if number % 5 == 4 else f"item {number % 3}",
        "amount": number / 7,
        "cost": f"{number}.25",
        "at": f"2026-01-0{1 + number % 9}T00:00:00Z",
        "tags": [str(number), "x"] if number % 2 else None,
    }


def rows_of(step: int) -> list[dict[str, Any]]:
    """As many as from none that pass the filter to more than travel together."""
    return [row(1000 * step + number) for number in range((1, 3, 200, 64)[step % 4])]


def hard(df: DataFrame) -> DataFrame:
    """Expressions that fail with what no row has, and a filter that lets none of some steps pass."""
    return df.where("id >= 1000 AND 1000 DIV id >= 0").select(
        "id",
        F.when(F.col("id") < 1000, F.raise_error(F.lit("no such row")).cast("bigint")).otherwise(1 / F.col("id"))
        .alias("inverse"),
        F.element_at(F.coalesce("tags", F.array(F.lit("none"))), 1).alias("first.tag"),
        F.struct("item", F.col("amount").cast("float").alias("amount")).alias("nested"),
        "cost",
        "at",
    ).where("`first.tag` IS NOT NULL")  # fmt: skip


def many(df: DataFrame) -> DataFrame:
    """Several rows of a row, one, and none; a generator whose array cannot be computed of what no row has."""
    some = F.when(F.col("id") < 1000, F.raise_error(F.lit("no such row")).cast("array<string>")).otherwise(
        F.col("tags")
    )
    nested = F.array(F.struct("tag", F.length("tag").alias("length")))
    return df.where("id >= 1000").select("id", F.explode(some).alias("tag")).select("id", F.inline(nested))
