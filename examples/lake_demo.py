"""`make demo-lake`: flights from Kafka into Delta, Parquet and PostgreSQL; the driver and each server are killed.

The store, its scratch and the lake are in a bucket. DuckDB compares every output with the flights that were produced;
the outputs are read by their own clients: deltalake, obstore, psycopg.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import obstore
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from kafka_judge import PATIENCE, real_flights
from obstore.store import S3Store
from psycopg import errors
from under_attack import HERE, OUTPUT, WrongError, say

from boatlift.testing.kafka_broker import KafkaBroker
from boatlift.testing.object_server import ObjectServer
from boatlift.testing.postgres_server import PostgresServer

FLIGHTS, LOT = 60_000, 5_000
"""The flights in all, and those that are produced at once."""

DEATHS = {"landed_table": 3, "history": 3, "routes_table": 3, "archive": 1}
"""The sinks around whose commit the driver dies, and the last of the commits at which it may."""

READY = 180.0
"""Within so many seconds a run has come to its crash point or end, or has counted the flights that were produced."""

COLUMNS = {"number": "INTEGER", "carrier": "VARCHAR", "origin": "VARCHAR", "dest": "VARCHAR", "arr_delay": "INTEGER"}


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    folder = OUTPUT / "lake"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with KafkaBroker() as broker, ObjectServer() as objects, PostgresServer() as postgres:
            say("a Kafka broker, an object store (SeaweedFS) and a PostgreSQL server run")
            os.environ.update({**objects.environment, **postgres.environment, "PGDATABASE": "postgres"})
            os.environ.update(BOATLIFT_DEMO_SERVERS=broker.bootstrap, BOATLIFT_DEMO_LAKE=objects.url("lake"))
            demo = Demo(broker, objects, postgres, folder, int(sys.argv[1]) if len(sys.argv) > 1 else 2013)
            try:
                demo.attack()
                demo.judge()
                demo.count()
            finally:
                if demo.driver is not None:
                    demo.driver.kill()
    except WrongError as wrong:
        print(f"demo-lake failed: {wrong}")
        sys.exit(1)
    say(f"{time.monotonic() - began:.0f} s in all")
    print("demo-lake passed")


class Demo:
    """The servers, the process of the dataflow, and the flights so far."""

    def __init__(
        self, broker: KafkaBroker, objects: ObjectServer, postgres: PostgresServer, folder: Path, seed: int
    ) -> None:
        self.broker, self.objects, self.postgres = broker, objects, postgres
        self.servers = {"the Kafka broker": broker, "the object store": objects, "PostgreSQL": postgres}
        self.folder, self.log, self.inputs = folder, folder / "lake.log", folder / "flights.jsonl"
        self.seed, self.draws = seed, random.Random(seed)
        self.flights = real_flights(FLIGHTS)
        self.produced = 0
        self.kills: Counter[str] = Counter()
        self.driver: subprocess.Popen[bytes] | None = None
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic("departures", 3, 1)])["departures"].result(PATIENCE)

    def attack(self) -> None:
        """Kill everything at drawn moments while flights come, and let the dataflow come to its end."""
        say(f"moments are drawn with seed {self.seed}")
        sink = self.draws.choice(sorted(DEATHS))
        when, visit = self.draws.choice(["before", "after"]), self.draws.randint(1, DEATHS[sink])
        self.driver_dies(f"sink.commit({sink}):{when}:{visit}")
        self.start()
        for name in self.draws.sample(sorted(self.servers), len(self.servers)):
            self.die(name)
            self.produce(LOT)
            self.wait_for(self.produced)
        self.die(*self.servers, "the driver")
        self.produce(FLIGHTS)
        self.start("--available-now")
        self.ends(0, "after all flights")
        say(f"all {self.produced:,} flights are taken")

    def driver_dies(self, at: str) -> None:
        """Run the dataflow to its death at a crash point."""
        self.produce(LOT)
        say(f"SIGKILL of the driver at {at}")
        self.start(at=at)
        self.ends(-signal.SIGKILL, f"at {at}")
        self.kills["the driver"] += 1

    def die(self, *names: str) -> None:
        """Kill servers, and perhaps the driver, in the middle of some steps; start the servers after a while."""
        self.produce(LOT)
        self.wait_for(self.produced - LOT + self.draws.randint(1, LOT // 3))
        taken, away = self.taken(), self.draws.uniform(2, 5)
        if taken == self.produced:
            raise WrongError("no step was under way when a server was to be killed: take more flights a lot")
        say(f"SIGKILL of {', '.join(names)} after {taken:,} of {self.produced:,} flights, for {away:.1f} s")
        for name in names:
            self.servers.get(name, self.driver).kill()
            self.kills[name] += 1
        time.sleep(away)
        for name in names:
            if name in self.servers:
                self.servers[name].restart()

    def produce(self, most: int) -> None:
        """Produce the next flights, and note them for the judge."""
        producer = Producer(
            {"bootstrap.servers": self.broker.bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        with self.inputs.open("a") as inputs:
            for flight in itertools.islice(self.flights, most):
                line = json.dumps(flight)
                producer.produce("departures", line, f"{flight['origin']}-{flight['dest']}")
                inputs.write(f"{line}\n")
                self.produced += 1
        if producer.flush(PATIENCE):
            raise WrongError("the broker has not taken all flights")

    def taken(self) -> int:
        """Return the number of flights that the view in PostgreSQL counts."""
        with self.postgres.connect(os.environ["PGDATABASE"]) as connection, contextlib.suppress(errors.UndefinedTable):
            found = connection.execute("SELECT coalesce(sum(flights), 0)::BIGINT FROM routes").fetchone()
            return int(found[0]) if found else 0
        return 0

    def wait_for(self, flights: int) -> None:
        """Wait until the view in PostgreSQL counts so many flights."""
        until = time.monotonic() + READY
        while self.taken() < flights:
            if self.driver is None or self.driver.poll() is not None or time.monotonic() > until:
                raise WrongError(f"{self.taken():,} of {flights:,} flights came to PostgreSQL: {self.last_words()}")
            time.sleep(0.1)

    def start(self, *options: str, at: str = "") -> None:
        """Start the dataflow as a process of its own, perhaps to its death at a crash point."""
        module = [str(HERE / "kafka_run.py")] if at else ["-m", "boatlift.console", "run"]
        command = [sys.executable, *module, "lake_flights:lake", "--store", self.objects.url("store"), *options]
        tuned = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1", **os.environ, "PYTHONPATH": str(HERE)}
        tuned["BOATLIFT_SCRATCH"] = f"store:{self.folder / 'scratch'}"  # as --scratch
        with self.log.open("a") as out:
            self.driver = subprocess.Popen(
                [*command, *(["--at", at] if at else [])], cwd=self.folder, env=tuned, stdout=out, stderr=out
            )

    def ends(self, status: int, when: str) -> None:
        """Wait until the driver has ended with a status."""
        assert self.driver is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.driver.wait(READY)
        if self.driver.returncode != status:
            raise WrongError(f"the driver ended {when} with {self.driver.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of what the runs have printed."""
        return f"see {self.log}: {self.log.read_text()[-600:]}"

    def judge(self) -> None:
        """Compare each output with the same query of DuckDB over the flights that were produced."""
        from lake_flights import ROUTES  # it reads the environment

        database = duckdb.connect()
        read = f"SELECT * FROM read_json('{self.inputs}', format='newline_delimited', columns={COLUMNS})"
        database.execute(f"CREATE TABLE flights AS {read}")
        found = {"landed": delta("landed"), "history": delta("history"), "archive": parquet("archive")}
        with self.postgres.connect(os.environ["PGDATABASE"]) as connection:
            cursor = connection.execute("SELECT origin, dest, flights, landed, delay, worst FROM routes")
            names = [column.name for column in cursor.description or ()]
            found["routes"] = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in cursor])
        for name, table in found.items():
            database.register(f"{name}_found", table)
        holds = "SELECT * EXCLUDE _weight, sum(_weight)::INTEGER AS copies FROM history_found GROUP BY ALL"
        for title, actual, expected in (
            ("Parquet", "SELECT * FROM archive_found", "SELECT * FROM flights"),
            ("Delta, new rows", "SELECT * FROM landed_found", "SELECT * FROM flights WHERE arr_delay IS NOT NULL"),
            ("Delta, changes", f"SELECT * FROM ({holds}) WHERE copies <> 0", f"SELECT *, 1 AS copies FROM ({ROUTES})"),
            ("PostgreSQL", "SELECT * FROM routes_found", ROUTES),
        ):
            compare(database, title, actual, expected)

    def count(self) -> None:
        """Print the kills that were survived; the dataflow must have met them."""
        told = self.log.read_text()
        met = {"requests without an answer": "has no clear answer yet", "takeovers": "taken over from"}
        counts = {what: told.count(words) for what, words in met.items()}
        say(", ".join(f"{what}: {count}" for what, count in counts.items()))
        if not all(counts.values()):
            raise WrongError("something that was to be survived did not happen")
        say(f"kills survived: {self.kills.total()} ({', '.join(f'{n} of {name}' for name, n in self.kills.items())})")


def delta(name: str) -> pa.Table:
    """Read a Delta table of the lake."""
    options = {"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"], "AWS_ALLOW_HTTP": "true"}
    table = DeltaTable(f"{os.environ['BOATLIFT_DEMO_LAKE']}/{name}", storage_options=options)
    return pa.table(table.to_pyarrow_dataset().to_table())


def parquet(name: str) -> pa.Table:
    """Read the Parquet files of a folder of the lake."""
    store = S3Store.from_url(f"{os.environ['BOATLIFT_DEMO_LAKE']}/{name}", client_options={"allow_http": True})
    paths = [each["path"] for each in obstore.list(store).collect() if each["path"].endswith(".parquet")]
    return pa.concat_tables(pq.read_table(pa.BufferReader(obstore.get(store, path).bytes())) for path in paths)


def compare(database: duckdb.DuckDBPyConnection, title: str, actual: str, expected: str) -> None:
    """Compare the rows of two queries, each as often as it is there."""
    more, lacks = (
        database.sql(f"({one}) EXCEPT ALL ({other})").fetchall()
        for one, other in ((actual, expected), (expected, actual))
    )
    if more or lacks:
        raise WrongError(f"{title}: {len(lacks)} rows are lacking: {lacks[:3]}; {len(more)} are too many: {more[:3]}")
    say(f"{title}: {len(database.sql(actual)):,} rows, those of DuckDB")


if __name__ == "__main__":
    main()
