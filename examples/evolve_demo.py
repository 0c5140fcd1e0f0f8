"""`make demo-evolve`: a program is changed three times on one store and taken back once, and killed on each way.

Each time its SQLite tables are compared with those of a fresh store that runs the version over all flights.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from cut_flights import cut
from under_attack import HERE, OUTPUT, WrongError, exact, rows_of, run, say, verify

FLOW = "evolving_flights:flow"
FOLDER = OUTPUT / "evolve"
POINT = "before-4"
WEEKS = 12
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
        say(f"version 1 runs over {WEEKS} weeks of flights")
        set_version(1)
        run(FOLDER, FLOW)
        for (version, what, point, moment), week in zip(CHANGES, weeks[WEEKS:], strict=False):
            (FOLDER / "data" / "flights" / week.name).symlink_to(week)
            if version == CHANGES[-1][0]:
                say(command("keep", "--name", POINT).strip())
            change(version, what, point, moment)
        take_back()
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


def set_version(version: int) -> None:
    """Let every process that begins now run a version."""
    os.environ["FLIGHTS_VERSION"] = str(version)


def change(version: int, what: str, point: str, moment: str) -> None:
    """Change the program, kill it on its way, start it again, and compare."""
    say(f"version {version}: {what}")
    set_version(version)
    consent = plan_id()
    say(f"  boatlift run {FLOW} --store store --evolve {consent}, and SIGKILL {moment} ({point})")
    if not run(FOLDER, FLOW, point, evolve=consent):
        raise WrongError(f"the run passed {point} without being killed there")
    run(FOLDER, FLOW, evolve=consent)
    compare(version, FOLDER / f"fresh-{version}")


def take_back() -> None:
    """Go back to the version before the last change, killed on the way, and take the rest of the flights again."""
    before = CHANGES[-1][0] - 1
    say(f"version {CHANGES[-1][0]} was a mistake: back to {POINT}, which is of version {before}")
    set_version(before)
    report = json.loads(command("rewind", FLOW, "--to", POINT, "--json"))
    at = "store.create(log):after:2"
    say(f"  boatlift rewind {FLOW} --store store --to {POINT} --evolve {report['id']}, and SIGKILL once it is recorded")
    if not run(FOLDER, FLOW, at, evolve=report["id"], rewind=POINT):
        raise WrongError(f"the way back passed {at} without being killed there")
    run(FOLDER, FLOW)
    compare(before, FOLDER / "fresh-again")


def compare(version: int, fresh: Path) -> None:
    """Hold the tables against those of a fresh store."""
    fresh.mkdir()
    (fresh / "data").symlink_to(FOLDER / "data")
    run(fresh, FLOW)
    for table in ("delays", "miles") if version == 3 else ("delays",):
        found, expected = (exact(rows_of(f, f"SELECT * FROM {table} ORDER BY 1, 2")) for f in (FOLDER, fresh))
        if found != expected or not found:
            raise WrongError(f"the table {table} of version {version} differs from that of a fresh store")
        say(f"  {table}: {len(found)} rows, bit for bit those of a fresh store")


def command(*words: str) -> str:
    """Run a command of Boatlift on the store, and return what it prints."""
    words = (sys.executable, "-m", "boatlift.console", *words, "--store", "store")
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    shown = subprocess.run(words, cwd=FOLDER, env=environment, capture_output=True, text=True, check=False)
    if shown.returncode:
        raise WrongError(shown.stderr)
    return shown.stdout


def plan_id() -> str:
    """Show what becomes of the store, and return the id of that plan."""
    report = json.loads(command("plan", FLOW, "--json"))
    for name, each in report["processors"].items():
        if each["change"] != "unchanged":
            say(f"  {name}: {each['change']} ({', '.join(each['differences'])})".replace(" ()", ""))
    return str(report["id"])


if __name__ == "__main__":
    main()
