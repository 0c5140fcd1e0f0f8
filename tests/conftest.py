"""What all tests share: one Spark session, one warm JVM; tests that use either are marked `spark`.

Tests start many JVMs that live for seconds: none of them, nor those of the processes they start, waits for the optimising compiler. No
test fails for being slow: machines are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.warm_jvm import WarmJvm


for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m")


settings.register_profile("boatlift", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("boatlift")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "warm_jvm"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run."""
    from boatlift.engine.session import session

    made = session()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def warm_jvm() -> Iterator[WarmJvm]:
    """A JVM that outlives the driver processes which tests kill."""
    from boatlift.testing.warm_jvm import WarmJvm

    with WarmJvm() as jvm:
        yield jvm
