"""`make demo-evolve`: a program is changed three times on one store and taken back once, and killed on each way.

What is killed is a process of its own; the demo's own session makes the plans, and goes on after each kill. Each time
the SQLite tables are compared with those of a fresh store that runs the version over all flights.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from cut_flights import cut
from pyspark.sql import SparkSession
from under_attack import OUTPUT, WrongError, exact, rows_of, run, say, verify

import boatlift as bl

FLOW = "evolving_flights:flow"
FOLDER = OUTPUT / "evolve"
POINT = "before-4"
WEEKS = 8
"""The weeks of flights that there are at first; a week more comes with each change."""

CHANGES = (
    (2, "another filter, and a further aggregate", "store.create(runs):after:1", "while states are computed"),
    (3, "a view of carriers, and a sink for it", "store.create(log):after:2", "just after the new program is recorded"),
    (4, "another filter, and the view gone", "sink.commit(answers):before:1", "just before SQLite is corrected"),
)
"""Each version, what it changes, and the crash point at which it is killed on its way."""


def main() -> None:
    """Run the demo, print the outcome, and exit with 0 or 1."""
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    try:
        weeks = prepare()
        spark = bl.session(master="local[2]")
        say(f"version 1 runs over {WEEKS} weeks of flights")
        go_on(spark, 1, FOLDER)
        for (version, what, point, moment), week in zip(CHANGES, weeks[WEEKS:], strict=False):
            (FOLDER / "data" / "flights" / week.name).symlink_to(week)
            if version == CHANGES[-1][0]:
                keep()
            change(spark, version, what, point, moment)
        take_back(spark)
        verify(FOLDER)
    except WrongError as wrong:
        print(f"demo-evolve failed: {wrong}")
        sys.exit(1)
    say(f"{time.monotonic() - began:.0f} s in all")
    print("demo-evolve passed")


def prepare() -> list[Path]:
    """Cut the flights into weeks, and put the first of them where the program reads."""
    cut(OUTPUT / "data" / "flights")
    weeks = sorted((OUTPUT / "data" / "flights").glob("*.csv"))
    (FOLDER / "data" / "flights").mkdir(parents=True)
    for week in weeks[:WEEKS]:
        (FOLDER / "data" / "flights" / week.name).symlink_to(week)
    return weeks


def flow_of(version: int, folder: Path) -> bl.Dataflow:
    """Return a version of the program, with the files of a folder; processes that begin now run this version, too."""
    os.environ["FLIGHTS_VERSION"] = str(version)
    sys.modules.pop("evolving_flights", None)
    with contextlib.chdir(folder):
        flow: bl.Dataflow = importlib.import_module("evolving_flights").flow
    return flow


def go_on(spark: SparkSession, version: int, folder: Path, evolve: str | None = None) -> None:
    """Run a version on the store of a folder until its input is exhausted."""
    bl.run(flow_of(version, folder), folder / "store", available_now=True, evolve=evolve, spark=spark)


def keep() -> None:
    """Keep a restore point of the stopped store."""
    command = [sys.executable, "-m", "boatlift.console", "keep", "--store", str(FOLDER / "store"), "--name", POINT]
    subprocess.run(command, check=True)


def change(spark: SparkSession, version: int, what: str, point: str, moment: str) -> None:
    """Change the program, kill it on its way, start it again, and compare."""
    say(f"version {version}: {what}")
    plan: Any = bl.evolution(flow_of(version, FOLDER), FOLDER / "store", spark=spark)
    for name, each in plan.processors.items():
        if each.change != "unchanged":
            say(f"  {name}: {each.change} ({', '.join(each.differences)})".replace(" ()", ""))
    say(f"  boatlift run {FLOW} --store store --evolve {plan.id}, and SIGKILL {moment} ({point})")
    with beside(spark, version) as fresh:
        if not run(FOLDER, FLOW, point, evolve=plan.id):
            raise WrongError(f"the run passed {point} without being killed there")
    go_on(spark, version, FOLDER, plan.id)
    compare(version, fresh)


def take_back(spark: SparkSession) -> None:
    """Go back to the version before the last change, killed on the way, and take the rest of the flights again."""
    before, at = CHANGES[-1][0] - 1, "store.create(log):after:2"
    say(f"version {CHANGES[-1][0]} was a mistake: back to {POINT}, which is of version {before}")
    consent = bl.evolution(flow_of(before, FOLDER), FOLDER / "store", to=POINT, spark=spark).id
    words = f"boatlift rewind {FLOW} --store store --to {POINT} --evolve {consent}"
    say(f"  {words}, and SIGKILL once it is recorded ({at})")
    with beside(spark, before) as fresh:
        if not run(FOLDER, FLOW, at, evolve=consent, rewind=POINT):
            raise WrongError(f"the way back passed {at} without being killed there")
    go_on(spark, before, FOLDER)
    compare(before, fresh)


@contextlib.contextmanager
def beside(spark: SparkSession, version: int) -> Iterator[Path]:
    """Run a version on a fresh store while a process is on its way to a kill; return the folder of that store."""
    fresh = Path(mkdtemp(prefix=f"fresh-{version}-", dir=FOLDER))
    (fresh / "data").symlink_to(FOLDER / "data")
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(go_on, spark, version, fresh)
        yield fresh
        running.result()


def compare(version: int, fresh: Path) -> None:
    """Hold the tables against those of a fresh store."""
    for table in ("delays", "miles") if version == 3 else ("delays",):
        found, expected = (exact(rows_of(f, f"SELECT * FROM {table} ORDER BY 1, 2")) for f in (FOLDER, fresh))
        if found != expected or not found:
            raise WrongError(f"the table {table} of version {version} differs from that of a fresh store")
        say(f"  {table}: {len(found)} rows, bit for bit those of a fresh store")


if __name__ == "__main__":
    main()
