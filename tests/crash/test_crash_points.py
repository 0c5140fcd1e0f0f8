"""A real process is killed by SIGKILL at every crash point, started again, and its sinks hold the very same bits.

The points are not listed anywhere: a first, undisturbed run records every call on the store and on the sinks, and so
does a run that recovers. Each call is then a place to die: before and after it, on its first, on a later, and on a
during-recovery visit. `make crash` dies at all of them and keeps the table in `docs/crash-points.md`; `make test` dies
at a part of them. Both print the table.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from boatlift.testing.crash import CrashPoint
from boatlift.testing.warm_jvm import WarmJvm
from support.crash_data import FILES, make_data

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

SUPPORT = Path(__file__).parents[1]
KILLED = -signal.SIGKILL
EVERY_POINT = os.environ.get("BOATLIFT_CRASH_POINTS") == "all"


@dataclass(frozen=True)
class Place:
    """A folder with input, in which the dataflow is run, killed and run again."""

    folder: Path
    jvm: WarmJvm

    def run(self, *arguments: str) -> int:
        command = [sys.executable, "-m", "boatlift.testing.crash", "support.crash_flow:flow", "--store", "store"]
        environment = {**os.environ, **self.jvm.environment(), "PYTHONPATH": str(SUPPORT)}
        log = self.folder / "log.txt"
        with log.open("a") as out:
            done = subprocess.run(
                [*command, "--available-now", *arguments],
                cwd=self.folder,
                env=environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            )
        assert done.returncode in (0, KILLED), log.read_text()[-3000:]
        return done.returncode

    def results(self) -> dict[str, Any]:
        """All that a reader of the sinks sees, floats as bits."""
        seen: dict[str, Any] = {}
        with sqlite3.connect(self.folder / "answers.db") as database:
            for table in ("sums", "extremes"):
                rows = database.execute(f"SELECT * FROM {table}").fetchall()
                bits = [tuple(struct.pack("<d", v) if isinstance(v, float) else v for v in row) for row in rows]
                seen[table] = sorted(bits, key=repr)
        for sink in ("history", "cleaned"):
            for path in sorted((self.folder / sink).glob("*.parquet")):
                seen[f"{sink}/{path.name}"] = [
                    tuple(struct.pack("<d", v) if isinstance(v, float) else v for v in row.values())
                    for row in pq.read_table(path).to_pylist()
                ]
        return seen


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm) -> tuple[dict[str, Any], list[CrashPoint]]:
    place = _place(tmp_path_factory.mktemp("undisturbed"), warm_jvm)
    assert place.run("--record", "points.txt") == 0
    results = place.results()
    assert len(results) == 2 + 2 * FILES
    return results, _points(place.folder / "points.txt")


def _place(folder: Path, jvm: WarmJvm) -> Place:
    make_data(folder / "data")
    return Place(folder, jvm)


def _points(record: Path) -> list[CrashPoint]:
    return [CrashPoint.parse(line) for line in record.read_text().splitlines()]


def _show(when: str, survived: list[CrashPoint]) -> None:
    """Prints the table of points and outcomes, and adds it to the file that the environment names."""
    died: dict[str, dict[str, list[int]]] = {}
    for point in survived:
        died.setdefault(point.call, {"before": [], "after": []})[point.when].append(point.visit)
    lines = [f"\n## {when}: {len(survived)} points\n", "| call | killed before its visits | after its visits | then |"]
    lines += ["|---|---|---|---|"]
    for call, visits in sorted(died.items()):
        before, after = (", ".join(map(str, sorted(visits[which]))) or "–" for which in ("before", "after"))
        lines.append(f"| `{call}` | {before} | {after} | died of signal 9, resumed, bit for bit equal |")
    text = "\n".join([*lines, ""])
    print(text)
    if "BOATLIFT_CRASH_TABLE" in os.environ:
        with Path(os.environ["BOATLIFT_CRASH_TABLE"]).open("a") as file:
            file.write(text)


def _visits(points: list[CrashPoint]) -> dict[tuple[str, str], int]:
    return {(point.call, point.when): point.visit for point in points}


def _chosen(visits: dict[tuple[str, str], int]) -> list[CrashPoint]:
    """Which moments of a whole run to die at: every one on `make crash`; else, of the acts that change something, one visit each.

    Before an act on its first visit and after it on a later one; the recovery's test below dies at all other calls too.
    """
    if EVERY_POINT:
        return [CrashPoint(call, when, v) for (call, when), n in visits.items() for v in sorted({1, (n + 1) // 2, n})]
    acts = ("store.create", "store.delete", "sink.commit", "sink.stage")
    return [
        CrashPoint(call, when, 1 if when == "before" else (last + 1) // 2)
        for (call, when), last in visits.items()
        if call.startswith(acts)
    ]


def test_every_crash_point_is_survived(
    undisturbed: tuple[dict[str, Any], list[CrashPoint]], tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    """`make crash` gives each point a run of its own; `make test` dies at one after the other while it goes on."""
    expected, points = undisturbed
    survived: list[CrashPoint] = []
    place: Place | None = None
    for chosen in _chosen(_visits(points)):
        point, fresh = chosen, place is None
        place = place or _place(tmp_path_factory.mktemp("crash"), warm_jvm)
        while place.run("--at", str(point)) != KILLED:
            # It ended before that visit: what was left of it had fewer, or it collects and merges less when it is slow.
            assert place.results() == expected
            if fresh:
                assert point.visit > 1, f"the run was not killed at {point}"
                point = CrashPoint(point.call, point.when, point.visit // 2)
            place, fresh = _place(tmp_path_factory.mktemp("crash"), warm_jvm), True
        survived.append(point)
        if EVERY_POINT:
            _finish(place, expected, point)
            place = None
    if place is not None:
        _finish(place, expected, survived[-1])
    assert len(survived) > 20
    _show("In a run", survived)


def _finish(place: Place, expected: dict[str, Any], point: CrashPoint) -> None:
    assert place.run() == 0
    assert place.results() == expected, f"killed at {point}, the sinks hold something else"


def test_every_crash_point_of_a_recovery_is_survived(
    undisturbed: tuple[dict[str, Any], list[CrashPoint]], tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    """Killed in the middle, then killed again at the first visit of each call that the recovery makes, in chains."""
    expected, _ = undisturbed
    crashed = _place(tmp_path_factory.mktemp("crashed"), warm_jvm)
    assert crashed.run("--at", "sink.commit(history):after:4") == KILLED

    def again() -> Place:
        folder = tmp_path_factory.mktemp("recovering") / "copy"
        shutil.copytree(crashed.folder, folder)
        return Place(folder, warm_jvm)

    recorded = again()
    assert recorded.run("--record", "points.txt") == 0
    assert recorded.results() == expected
    points = [CrashPoint(call, when, 1) for call, when in _visits(_points(recorded.folder / "points.txt"))]
    place = again()
    for point in points:
        if place.run("--at", str(point)) == 0:
            # The chain has come to its end before the point: begin another one.
            assert place.results() == expected
            place = again()
            assert place.run("--at", str(point)) == KILLED, f"the recovery was not killed at {point}"
    assert place.run() == 0
    assert place.results() == expected
    _show("In a recovery", points)
