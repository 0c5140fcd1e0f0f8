"""Rows a second of upserts into PostgreSQL, exactly once, the whole dataflow with it.

Beside it Spark's JDBC writer in `foreachBatch`, at least once: the writer can only insert, so it fills a table from
which a statement upserts. Reported too: its inserts alone with the driver's fastest options. And psycopg's COPY of rows
that are in memory. All write new keys into a table with a unique index of the key.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from boatlift.testing.postgres_server import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from boatlift.dataflow.contracts import Sink

__all__ = ["measure"]

ROOT = Path(__file__).resolve().parents[2]
STEPS, WARM_UPS = 4, 1
PRIME = 7_368_787  # so that keys are scattered, each once
OURS, COPY = "boatlift", "psycopg's COPY alone"
JDBC, INSERTS = "Spark's JDBC writer", "Spark's JDBC writer, inserts alone, rewritten by its driver"
LEAST = {JDBC: 3.0, COPY: 0.5}


@dataclass(frozen=True, slots=True)
class There:
    """The server and the session of all sides."""

    server: PostgresServer
    spark: SparkSession
    rows: int

    def new_table(self, *, unique: bool = True) -> str:
        """Make a table, with a unique key."""
        name = f"t_{uuid.uuid4().hex[:8]}"
        with self.server.connect() as connection:
            key = "UNIQUE" if unique else ""
            connection.execute(f"CREATE TABLE {name} (k bigint {key}, n bigint, v double precision)")
        return name


def measure(effort: Effort) -> Result:
    """Write a million rows in four steps, in turns."""
    rows = effort.keys(1_000_000) // STEPS * STEPS
    sides: dict[str, Callable[[There], float]] = {
        OURS: _ours,
        JDBC: _jdbc,
        INSERTS: partial(_jdbc, inserts_alone=True),
        COPY: _copy,
    }
    with _there(rows) as there:
        turns = [{name: side(there) for name, side in sides.items()} for _ in range(WARM_UPS + effort.rounds)]
    rates = {name: [turn[name] for turn in turns[WARM_UPS:]] for name in sides}
    ratios = {name: median_ratio(rates[OURS], rates[name]) for name in LEAST}
    return Result(
        name="postgres_write",
        target="rows/s: at least " + ", ".join(f"{least:g} of {name}" for name, least in LEAST.items()),
        met=all(ratios[name] >= least for name, least in LEAST.items()),
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


@contextmanager
def _there(rows: int) -> Iterator[There]:
    import boatlift as bl

    subprocess.run([sys.executable, str(ROOT / "scripts" / "kafka_jars.py"), "postgres"], check=True)
    (jar,) = (ROOT / ".kafka" / "postgres" / "libs").glob("*.jar")
    with PostgresServer({"shared_buffers": "512MB", "max_wal_size": "4GB"}) as server:
        spark = bl.session(**{"spark.jars": str(jar), "spark.driver.memory": "4g"})
        try:
            yield There(server, spark, rows)
        finally:
            spark.stop()


def _ours(there: There) -> float:
    import boatlift as bl

    reached = " ".join(f"{name[2:].lower()}={value}" for name, value in there.server.environment.items())
    place = reached.replace("database=", "dbname=") + " dbname=postgres"
    return upserts_a_second(there.spark, there.rows, lambda table: bl.postgres(place, table=table, key=["k"]))


def upserts_a_second(spark: SparkSession, rows: int, sink: Callable[[str], Sink]) -> float:
    """Return the rows a second of a dataflow into the sink of a new table."""
    import boatlift as bl

    columns = {"k": f"id * {PRIME} % {rows}", "n": "id", "v": "id * 0.25D"}
    flow = bl.Dataflow(f"written_{uuid.uuid4().hex[:8]}")
    flow.source("rows", bl.generator(columns, rows_per_step=rows // STEPS, steps=STEPS)).sink("out", sink(flow.name))
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        bl.run(flow, f"{folder}/store", available_now=True, spark=spark)
        return rows / (time.perf_counter() - began)


def _jdbc(there: There, *, inserts_alone: bool = False) -> float:
    table, environment = there.new_table(), there.server.environment
    filled = table if inserts_alone else there.new_table(unique=False)
    options = {
        "url": f"jdbc:postgresql://127.0.0.1:{there.server.port}/postgres",
        "dbtable": filled,
        "driver": "org.postgresql.Driver",
        "user": environment["PGUSER"],
        "password": environment["PGPASSWORD"],
        **({"reWriteBatchedInserts": "true", "batchsize": "10000"} if inserts_alone else {"truncate": "true"}),
    }
    upsert = f"INSERT INTO {table} SELECT * FROM {filled} ON CONFLICT (k) DO UPDATE SET n = excluded.n, v = excluded.v"
    left = STEPS

    def write(batch: DataFrame, _number: int) -> None:
        nonlocal left
        if left:
            batch.selectExpr(f"value * {PRIME} % {there.rows} AS k", "value AS n", "value * 0.25D AS v").write.format(
                "jdbc"
            ).options(**options).mode("append" if inserts_alone else "overwrite").save()
            if not inserts_alone:
                with there.server.connect() as connection:
                    connection.execute(upsert)
            left -= 1

    each = there.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", there.rows // STEPS).load()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        query = each.writeStream.foreachBatch(write).option("checkpointLocation", folder).start()
        while left and query.isActive:
            time.sleep(0.005)
        took = time.perf_counter() - began
        query.stop()
    if left:
        raise RuntimeError(f"{left} steps of Spark's writer are missing: {query.exception()}")
    return there.rows / took


def _copy(there: There) -> float:
    table, step = there.new_table(), there.rows // STEPS
    rows = [(number * PRIME % there.rows, number, number * 0.25) for number in range(there.rows)]
    began = time.perf_counter()
    with there.server.connect() as connection:
        for start in range(0, there.rows, step):
            with connection.cursor().copy(f"COPY {table} (k, n, v) FROM STDIN") as copy:
                for row in rows[start : start + step]:
                    copy.write_row(row)
    return there.rows / (time.perf_counter() - began)
