"""What tests of views share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from views.judge import INTERPRETED


@pytest.fixture
def interpreting(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, while it compiles no code."""
    before = {name: spark.conf.get(name) for name in INTERPRETED}
    for name, value in INTERPRETED.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)
