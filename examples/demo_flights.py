"""`make demo-flights`: the flights pipeline of the first example, killed again and again, comes out bit for bit right.

The pipeline of `flights.py` runs once undisturbed and once under attack: its own process is killed by SIGKILL at five
crash points and once in the middle of a Spark job, and started again with the same command each time. Then the two are
compared with each other, bit for bit, and with plain Spark batch queries over all flights.
"""

from __future__ import annotations

import math
import os
import shutil
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from under_attack import HERE, OUTPUT, WrongError, exact, rows_of, run, say, verify

FLOW = "flights:flow"

ATTACKS = (
    ("sink.commit(history):before:6", "just before the sixth week becomes visible in the Parquet history"),
    ("sink.commit(answers):after:5", "just after the fifth week was committed in SQLite, before that is known"),
    ("sink.stage(history):before:1", "in the middle of a Spark job, from inside a task"),
    ("store.create(runs):after:2", "in the middle of a checkpoint: some of its runs are durable, it is not"),
    ("store.create(log):before:12", "just before the log takes in its twelfth group of records"),
    ("store.delete(log):after:3", "in the middle of collecting garbage"),
)


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    try:
        flights = prepare()
        say("running undisturbed")
        run(OUTPUT / "undisturbed", FLOW)
        attack(OUTPUT / "attacked")
        verdict(flights)
    except WrongError as wrong:
        print(f"demo failed: {wrong}")
        sys.exit(1)
    say(f"{time.monotonic() - began:.0f} s in all; look for yourself:")
    look = OUTPUT / "attacked"
    print(f"  sqlite3 {look}/answers.db 'SELECT * FROM delays ORDER BY flights DESC LIMIT 5'")
    print(f"  .venv/bin/python -c \"import pyarrow.parquet as p; print(p.read_table('{look}/history').to_pandas())\"")
    for command in ("status", "log", "checkpoints", "verify"):
        print(f"  .venv/bin/boatlift {command} --store {look}/store")
    print("demo passed")


def prepare() -> int:
    """Cut the flights into weeks, once, for both runs."""
    sys.path.insert(0, str(HERE))
    from cut_flights import cut

    shutil.rmtree(OUTPUT, ignore_errors=True)
    flights = cut(OUTPUT / "data" / "flights")
    weeks = len(list((OUTPUT / "data" / "flights").glob("*.csv")))
    say(f"{flights:,} real flights of 2013 out of New York, one file a week, {weeks} weeks, in {OUTPUT}/data")
    for name in ("undisturbed", "attacked"):
        (OUTPUT / name).mkdir()
        (OUTPUT / name / "data").symlink_to(OUTPUT / "data")
    return flights


def attack(folder: Path) -> None:
    """Kill the pipeline at each point, and start it again."""
    for point, moment in ATTACKS:
        say(f"SIGKILL {moment} ({point})")
        if not run(folder, FLOW, point):
            raise WrongError(f"the run passed {point} without being killed there")
        say(f"  dead; {steps_in_history(folder)} weeks are in the history; starting again")
    run(folder, FLOW)
    say(f"finished; {steps_in_history(folder)} weeks are in the history")


def steps_in_history(folder: Path) -> int:
    """Count the steps that a reader of the history sees."""
    return len(list((folder / "history").glob("step-*.parquet")))


def verdict(flights: int) -> None:
    """Compare the attacked run with the undisturbed one, and both with a batch query."""
    undisturbed, attacked = OUTPUT / "undisturbed", OUTPUT / "attacked"
    for table in ("delays", "carriers"):
        expected, actual = (
            exact(rows_of(folder, f"SELECT * FROM {table} ORDER BY 1, 2")) for folder in (undisturbed, attacked)
        )
        if expected != actual:
            raise WrongError(f"the table {table} of the attacked run differs from that of the undisturbed one")
        say(f"SQLite table {table}: {len(actual)} rows, equal bit for bit")
    changes = compare_history(undisturbed, attacked)
    say(f"Parquet history: {changes} changes, equal row for row and bit for bit")
    compare_with_batch(attacked, flights)
    verify(attacked)


def compare_history(undisturbed: Path, attacked: Path) -> int:
    """Compare the two histories, step by step, with a plain reader."""
    import pyarrow.parquet as pq

    names = [sorted(path.name for path in (f / "history").glob("*.parquet")) for f in (undisturbed, attacked)]
    if names[0] != names[1]:
        raise WrongError(f"the histories have other steps: {set(names[0]) ^ set(names[1])}")
    changes = 0
    for name in names[0]:
        expected, actual = (pq.read_table(f / "history" / name) for f in (undisturbed, attacked))
        if not expected.equals(actual):
            raise WrongError(f"{name} differs between the two histories")
        changes += actual.num_rows
    return changes


def compare_with_batch(folder: Path, flights: int) -> None:
    """Ask Spark, in plain batch queries, what both tables should hold, and the history what is left of its changes."""
    sys.path.insert(0, str(HERE))
    os.chdir(folder)
    import boatlift as bl

    spark = bl.session("local[2]", app_name="verdict")
    from flights import SCHEMA, landed
    from pyspark.sql import functions as F

    everything = spark.read.schema(SCHEMA).option("header", True).option("nullValue", "NA").csv("data/flights")
    if everything.count() != flights:
        raise WrongError("the weeks do not hold all flights")
    rows = landed(everything)
    of_route = rows.groupBy("origin", "dest").agg(F.count("*"), F.avg("arr_delay"), F.avg("speed"), F.max("arr_delay"))
    of_carrier = rows.groupBy("carrier").agg(F.count("*"), F.sum("speed"), F.min("dep_delay"), F.max("dep_delay"))
    routes = {tuple(row)[:2]: tuple(row)[2:] for row in of_route.collect()}
    carriers = {tuple(row)[:1]: tuple(row)[1:] for row in of_carrier.collect()}
    spark.stop()
    with sqlite3.connect("answers.db") as database:
        delays = database.execute("SELECT origin, dest, flights, delay, speed, worst FROM delays").fetchall()
        punctuality = database.execute("SELECT carrier, flights, speeds, earliest, latest FROM carriers").fetchall()
    agree("the table of routes", {row[:2]: row[2:] for row in delays}, routes)
    agree("the table of carriers", {row[:1]: row[1:] for row in punctuality}, carriers)
    if sorted(left_of(folder / "history")) != sorted(delays):
        raise WrongError("what the history's changes leave is not what the table of routes holds")
    counted = sum(row[2] for row in delays)
    say(
        f"plain Spark batch queries over all flights give the same {len(delays)} routes and "
        f"{len(punctuality)} carriers, "
        f"{counted:,} flights landed; the history's changes add up to the routes"
    )


def agree(
    what: str, actual: Mapping[tuple[Any, ...], tuple[Any, ...]], expected: Mapping[Any, tuple[Any, ...]]
) -> None:
    """Compare key by key; a plain sum of floats depends on the order, so floats may differ in their last digits."""
    if expected.keys() != actual.keys():
        raise WrongError(f"{what} has other keys than the batch query")
    for key, values in expected.items():
        for wanted, got in zip(values, actual[key], strict=True):
            exact = not isinstance(wanted, float)
            if wanted != got if exact else not math.isclose(wanted, got, rel_tol=1e-9):
                raise WrongError(f"{what}, {key}: the batch query gives {wanted}, the pipeline {got}")


def left_of(history: Path) -> list[tuple[Any, ...]]:
    """Take back every row of a history that was taken back; return those that are left."""
    import pyarrow.parquet as pq

    weights: Counter[tuple[Any, ...]] = Counter()
    columns = ["origin", "dest", "flights", "delay", "speed", "worst", "_weight"]
    for path in sorted(history.glob("*.parquet")):
        for *row, weight in zip(*pq.read_table(path).select(columns).to_pydict().values(), strict=True):
            weights[tuple(row)] += weight
    if not set(weights.values()) <= {0, 1}:
        raise WrongError("the history takes back what it never gave, or gives it twice")
    return [row for row, weight in weights.items() if weight]


if __name__ == "__main__":
    main()
