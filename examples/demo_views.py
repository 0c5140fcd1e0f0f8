"""`make demo-views`: six views in SQL over five tables of real flights, killed again and again, come out right.

The views of `views.sql` run once undisturbed and once under attack: the process is killed by SIGKILL at crash points,
and started again with the same command each time. Then the two are compared with each other, bit for bit, and with the
same SQL as plain Spark batch queries.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from under_attack import HERE, OUTPUT, WrongError, exact, rows_of, run, say, verify

FLOW = "views:flow"
KEYS = {"punctuality": 1, "routes": 2, "ranking": 2, "fog": 1, "unseen": 2}
"""The tables in SQLite, and how many of their first columns are the key, in the order of the query."""

ATTACKS = (
    ("sink.commit(history):before:5", "just before the fifth step becomes visible in the Parquet history"),
    ("sink.commit(routes-table):after:9", "just after a step was committed in SQLite, before that is known"),
    ("sink.stage(history):before:1", "in the middle of a Spark job, from inside a task"),
    ("store.create(runs):after:10", "in the middle of a checkpoint: some of its runs are durable, it is not"),
    ("store.create(log):before:12", "just before the log takes in a group of records"),
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
    print(f"  sqlite3 {OUTPUT / 'attacked'}/answers.db 'SELECT * FROM ranking ORDER BY origin, place'")
    print("demo passed")


def prepare() -> int:
    """Put the tables into files, once, for both runs."""
    sys.path.insert(0, str(HERE))
    from cut_tables import cut_tables

    shutil.rmtree(OUTPUT, ignore_errors=True)
    flights = cut_tables(OUTPUT / "data")
    say(f"{flights:,} real flights with planes, weather, airlines and airports, in {OUTPUT}/data")
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
    say("starting again")
    run(folder, FLOW)


def verdict(flights: int) -> None:
    """Compare the attacked run with the undisturbed one, and with batch queries."""
    held = {}
    for table in KEYS:
        expected, actual = (
            rows_of(OUTPUT / name, f"SELECT * FROM {table} ORDER BY 1, 2") for name in ("undisturbed", "attacked")
        )
        if exact(expected) != exact(actual):
            raise WrongError(f"the table {table} of the attacked run differs from that of the undisturbed one")
        held[table] = actual
        say(f"SQLite table {table}: {len(actual)} rows, equal bit for bit")
    compare_with_batch(OUTPUT / "attacked", held, flights)
    verify(OUTPUT / "attacked")


def compare_with_batch(folder: Path, held: dict[str, list[tuple[Any, ...]]], flights: int) -> None:
    """Run the same SQL as batch queries over all files."""
    os.chdir(folder)
    import boatlift as bl

    spark = bl.session("local[2]", app_name="verdict")
    from views import SCHEMAS

    for name, schema in SCHEMAS.items():
        frame = spark.read.schema(schema).option("header", True).option("nullValue", "NA").csv(f"data/{name}")
        frame.createOrReplaceTempView(name)
    if spark.table("flights").count() != flights:
        raise WrongError("the weeks do not hold all flights")
    for statement in re.split(r";\s*$", (HERE / "views.sql").read_text(encoding="utf-8"), flags=re.MULTILINE):
        if "CREATE VIEW" in statement:
            spark.sql(statement.replace("CREATE VIEW", "CREATE TEMPORARY VIEW"))
    for table, rows in held.items():
        columns = ", ".join(_columns(folder, table))
        expected = [tuple(row) for row in spark.sql(f"SELECT {columns} FROM {table}").collect()]
        agree(table, sorted(expected, key=_key(table)), sorted(rows, key=_key(table)))
    spark.stop()
    say(f"plain Spark batch queries over all {flights:,} flights give the same {len(held)} tables")


def _columns(folder: Path, table: str) -> list[str]:
    with sqlite3.connect(folder / "answers.db") as database:
        return [name for _, name, *_ in database.execute(f"PRAGMA table_info({table})")]


def _key(table: str) -> Any:
    places = KEYS[table]
    return lambda row: [str(value) for value in (row[:places] if table != "ranking" else (row[0], row[3]))]


def agree(what: str, expected: list[tuple[Any, ...]], actual: list[tuple[Any, ...]]) -> None:
    """Compare row by row; a plain average depends on the order of rows, so floats may differ in their last digits."""
    if len(expected) != len(actual):
        raise WrongError(f"{what} has {len(actual)} rows, the batch query {len(expected)}")
    for wanted, got in zip(expected, actual, strict=True):
        for one, other in zip(wanted, got, strict=True):
            close = isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-9)
            if one != other and not close:
                raise WrongError(f"{what}: the batch query gives {wanted}, the view {got}")


if __name__ == "__main__":
    main()
