"""Rows that a user's function gives, and moments that it gets: what does not fit is named."""

from __future__ import annotations

import re
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructType, TimestampType

from boatlift.errors import DataError
from boatlift.operators.process.by_key import Context
from boatlift.operators.process.rows import rows_of, table_of

SCHEMA = StructType().add("customer", LongType()).add("at", TimestampType()).add("names", ArrayType(StringType()))
AT = datetime(2024, 1, 1)  # noqa: DTZ001 - in UTC, as all times of rows

MISFITS: dict[str, tuple[Any, str]] = {
    "text for a time": ((1, "2024-01-01 00:00:00", []), "column at has '2024-01-01 00:00:00', a str"),
    "text for a number": (("many", AT, []), "column customer has 'many', a str"),
    "a number for a list": ((1, AT, 7), "column names has 7, a int"),
    "by name": ({"customer": 1, "at": 3, "names": []}, "column at has 3, a int"),
    "an object": (SimpleNamespace(customer=2**70, at=AT, names=None), f"column customer has {2**70}, a int"),
    "one value": ("x", "'x' is no tuple of 3 values"),
    "no row": (5, "5 is no tuple of 3 values"),
    "nothing": ((), "() is no tuple of 3 values"),
    "too few": ((1, AT), "(1, datetime.datetime(2024, 1, 1, 0, 0)) is no tuple of 3 values"),
    "long": ((1, "x" * 1000, []), "column at has '" + "x" * 99 + "…, a str"),
}


@pytest.mark.parametrize("case", MISFITS)
def test_a_value_that_does_not_fit_is_named_with_its_column(case: str) -> None:
    row, words = MISFITS[case]
    with pytest.raises(ValueError, match=re.escape(words)):
        table_of([(1, AT, ["a"]), None, row], SCHEMA)


def test_rows_that_fit() -> None:
    assert table_of([(1, AT, ["a"]), {"customer": 2}], SCHEMA).column("customer").to_pylist() == [1, 2]


def test_a_watermark_beyond_pythons_years_is_none_or_the_last_moment() -> None:
    begin, end = -62_135_596_800_000, 253_402_300_800_000
    bounds = [Context(0, each, 0).bound for each in (begin - 1, begin, end - 1000, end, 1_700_000_000_000_000)]
    assert bounds == [None, datetime.min, datetime(9999, 12, 31, 23, 59, 59), datetime.max, datetime.max]  # noqa: DTZ001, DTZ901


def test_a_row_with_a_year_that_python_has_not_is_a_bad_row() -> None:
    for micros in (1_700_000_000_000_000_000, -62_135_596_800_000_001):
        times = pa.array([micros], pa.timestamp("us", "UTC"))
        table = pa.table({"customer": [1], "at": times, "names": pa.array([["a"]])})
        with pytest.raises(DataError, match=r"^\[BAD_ROW\] p calls .* with a row that Python cannot hold"):
            rows_of(table, SCHEMA, "p")
