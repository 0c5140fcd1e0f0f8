"""The generator beyond the laws of every source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from boatlift.connectors import generator
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_it_ends_after_its_steps() -> None:
    source = generator({"k": "id"}, rows_per_step=10, steps=2)
    cursor = source.start()
    for start in (0, 10):
        position = source.next(cursor)
        assert position == {"start": start, "end": start + 10}
        cursor = source.advance(cursor, position)
    assert source.next(cursor) is None
    more = generator({"k": "id"}, rows_per_step=10, steps=3)
    assert more.next(cursor) == {"start": 20, "end": 30}


@pytest.mark.parametrize("rows", [1, 65_536, 65_537, 200_000])
@pytest.mark.spark
def test_every_number_comes_once(spark: SparkSession, rows: int) -> None:
    source = generator({"k": "id * 2", "v": "id * 0.5D", "s": "cast(id AS string)"}, rows_per_step=rows)
    position = {"start": 5, "end": 5 + rows}
    read = source.load(spark, position)
    assert read.dtypes == [("k", "bigint"), ("v", "double"), ("s", "string"), ("_position", "bigint")]
    counted = read.selectExpr(
        "count(*)", "count(DISTINCT k)", "min(_position)", "max(_position)", "sum(k - 2 * _position)"
    )
    assert tuple(counted.collect()[0]) == (rows, rows, 5, 4 + rows, 0)


@pytest.mark.spark
def test_large_steps_can_be_read_by_several_tasks(spark: SparkSession) -> None:
    source = generator({"k": "id"}, rows_per_step=1_000_000)
    assert source.load(spark, {"start": 0, "end": 1_000_000}).rdd.getNumPartitions() > 1


@pytest.mark.spark
def test_steps_share_their_compiled_code(spark: SparkSession) -> None:
    source = generator({"k": "xxhash64(id) % 1000", "v": "id * 0.5D"}, rows_per_step=100_000)

    def code(position: dict[str, int]) -> str:
        plan = source.load(spark, position)._jdf.queryExecution().executedPlan()
        jvm = spark._jvm
        assert jvm is not None
        return str(jvm.org.apache.spark.sql.execution.debug.package.codegenString(plan))

    assert (
        code({"start": 0, "end": 100_000}).split("Generated code:")[1]
        == code({"start": 700_000, "end": 800_000}).split("Generated code:")[1]
    )


@pytest.mark.parametrize("expression", ["current_timestamp()", "id + unix_timestamp()", "now()", "CURRENT_DATE"])
def test_expressions_that_read_the_clock_are_refused(expression: str) -> None:
    with pytest.raises(InvalidError, match=r"\[NOT_DETERMINISTIC\]"):
        generator({"k": expression}, rows_per_step=1)


@pytest.mark.spark
def test_random_expressions_are_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidError, match=r"\[NOT_DETERMINISTIC\]"):
        generator({"k": "rand()"}, rows_per_step=1).schema(spark)


@pytest.mark.parametrize(("columns", "rows", "steps"), [({}, 1, None), ({"k": "id"}, 0, None), ({"k": "id"}, 1, 0)])
def test_options_that_make_no_sense_are_refused(columns: dict[str, str], rows: int, steps: int | None) -> None:
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\]"):
        generator(columns, rows_per_step=rows, steps=steps)
