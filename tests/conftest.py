"""What all tests share: one Spark session, one warm JVM, one Kafka broker, one object store, one PostgreSQL
and one MariaDB server; tests that use them are marked `spark`, `kafka`, `objects`, `postgres` or `mysql`.

Tests start many JVMs that live for seconds: none of them, nor those of the processes they start, waits for the
optimising compiler. No test fails for being slow: machines are.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import pymysql
import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.processes.warm_jvm import WarmJvm
    from boatlift.testing.kafka_broker import KafkaBroker
    from boatlift.testing.mysql_server import MysqlServer
    from boatlift.testing.object_server import ObjectServer
    from boatlift.testing.postgres_server import PostgresServer


pytest_plugins = ["support.turns"]

for variable in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
    os.environ.setdefault(variable, "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m")


settings.register_profile("boatlift", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("boatlift")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"spark", "warm_jvm"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
        if "kafka_broker" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if "shared_objects" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.objects)
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.postgres)
        if "mysql_server" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.mysql)


@pytest.fixture(autouse=True)
def _computer_started_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each run in this process recover from durable facts alone, as after a loss of power."""
    if "adopts" not in request.keywords:
        monkeypatch.setattr("boatlift.runtime.host.soft_checkpoints.boot_of_computer", lambda: uuid.uuid4().hex)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of a test run."""
    from boatlift.processes.session import session

    made = session()
    yield made
    made.stop()


@pytest.fixture(scope="session")
def warm_jvm() -> Iterator[WarmJvm]:
    """A JVM that outlives the driver processes which tests kill."""
    from boatlift.processes.warm_jvm import WarmJvm

    with WarmJvm() as jvm:
        yield jvm


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[KafkaBroker]:
    """The one Kafka broker of a test run; tests ask for `kafka_broker`."""
    from boatlift.testing.kafka_broker import KafkaBroker
    from support.kafka import USERS

    with KafkaBroker(users=USERS) as broker:
        yield broker


@pytest.fixture
def kafka_broker(shared_broker: KafkaBroker) -> Iterator[KafkaBroker]:
    """The broker, whatever became of it in the test before."""
    yield shared_broker
    if shared_broker.running:
        shared_broker.resume()
    else:
        shared_broker.restart()


@pytest.fixture(scope="session")
def shared_objects() -> Iterator[ObjectServer]:
    """The one object store of a test run; tests ask for `object_server`."""
    from boatlift.testing.object_server import ObjectServer

    with ObjectServer() as server:
        yield server


@pytest.fixture
def object_server(shared_objects: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> ObjectServer:
    """The object store, whatever became of it in the test before; the environment names it."""
    if not shared_objects.running:
        shared_objects.restart()
    for name, value in shared_objects.environment.items():
        monkeypatch.setenv(name, value)
    return shared_objects


@pytest.fixture
def objects_for_tasks(
    object_server: ObjectServer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> ObjectServer:
    """The object store, with its variables in the environment of Python workers, as on machines of a cluster."""
    for name, value in object_server.environment.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    return object_server


@pytest.fixture(scope="session")
def shared_postgres() -> Iterator[PostgresServer]:
    """The one PostgreSQL server of a test run; tests ask for `postgres_server`."""
    from boatlift.testing.postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_server(shared_postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    """The server, whatever became of it in the test before, with a database of the test's own in the environment."""
    if not shared_postgres.running:
        shared_postgres.restart()
    name = f"test_{uuid.uuid4().hex}"
    with shared_postgres.connect() as connection:
        connection.execute(f"CREATE DATABASE {name}")
    for variable, value in {**shared_postgres.environment, "PGDATABASE": name}.items():
        monkeypatch.setenv(variable, value)
    yield shared_postgres
    if shared_postgres.running:
        with shared_postgres.connect() as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def shared_mysql() -> Iterator[MysqlServer]:
    """The one MariaDB server of a test run; tests ask for `mysql_server`."""
    from boatlift.testing.mysql_server import MysqlServer

    with MysqlServer() as server:
        yield server


@pytest.fixture
def mysql_server(shared_mysql: MysqlServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[MysqlServer]:
    """The server, whatever became of it in the test before, with a database of the test's own in the environment."""
    if not shared_mysql.running:
        shared_mysql.restart()
    name = f"test_{uuid.uuid4().hex}"
    with shared_mysql.connect() as connection:
        connection.query(f"CREATE DATABASE {name}")
    for variable, value in {**shared_mysql.environment, "MYSQL_TEST_DATABASE": name}.items():
        monkeypatch.setenv(variable, value)
    yield shared_mysql
    if shared_mysql.running:
        with shared_mysql.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (name,))
            for (session,) in cursor.fetchall():
                with suppress(pymysql.OperationalError):  # it has ended by itself
                    cursor.execute(f"KILL {session}")
            cursor.execute(f"DROP DATABASE {name}")
