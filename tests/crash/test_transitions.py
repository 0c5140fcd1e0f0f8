"""A program changes, and a dataflow goes back: its process dies at its acts, and a standby of the old program waits."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl
from boatlift.processes.warm_jvm import WarmJvm
from boatlift.runtime.host.points import change_points
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from boatlift.testing.crash import CrashPoint
from support.changes import changes, run, table, write
from support.crash import changing
from support.crash.tests import KILLED, Place, Victim, chosen, points_in, show

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

ACTS = ("store.create", "sink.open", "sink.take_back", "sink.commit")


@dataclass(frozen=True)
class Change:
    """What is done to a store, again and again until it is done.

    Attributes:
        command: Its options.
        program: What runs after it.
        due: What its sinks hold in the end.
    """

    command: tuple[str, ...]
    program: str
    due: list[Any]


def shown(folder: Path) -> list[Any]:
    with chdir(folder):
        return [table("answers.db", "totals"), *map(changes, ("history", "copy", "more"))]


def victim(program: str) -> Victim:
    flow, nowhere = f"support.crash.changing:{program}", CrashPoint("", "before", 1)
    return Victim(flow, lambda _folder, _due: None, nowhere, ACTS, 6, (), "sinks hold what a fresh store gives")


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Path:
    """A store with a restore point, and steps after it."""
    folder = tmp_path_factory.mktemp("begun")
    with chdir(folder):
        for number in range(4):
            write(folder, number)
        run(changing.flow_of(changed=False), spark)
        list(change_points(Path("store"), "point"))
        for number in (4, 5):
            write(folder, number)
        run(changing.flow_of(changed=False), spark)
    return folder


def fresh(begun: Path, folder: Path, spark: SparkSession, *, changed: bool) -> list[Any]:
    with chdir(folder):
        (folder / "in").symlink_to(begun / "in")
        run(changing.flow_of(changed=changed), spark)
    return shown(folder)


@pytest.fixture(params=["changes", "goes back", "goes back, mended"])
def change(request: pytest.FixtureRequest, begun: Path, tmp_path: Path, spark: SparkSession) -> Change:
    program = "before" if request.param == "goes back" else "after"
    back = None if request.param == "changes" else "point"
    with chdir(begun):
        plan = bl.evolution(changing.flow_of(changed=program == "after"), "store", to=back, spark=spark)
        assert plan.obstacles == {}
    command = ("--evolve", plan.id, *([] if back is None else ["--rewind", back]))
    return Change(command, program, fresh(begun, tmp_path, spark, changed=program == "after"))


def copied(begun: Path, folder: Path) -> Path:
    shutil.copytree(begun, folder, dirs_exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def other_jvm() -> Iterator[WarmJvm]:
    with WarmJvm() as jvm:
        yield jvm


def test_it_dies_at_its_acts_and_is_done_in_the_end(
    begun: Path,
    change: Change,
    tmp_path_factory: pytest.TempPathFactory,
    warm_jvm: WarmJvm,
    other_jvm: WarmJvm,
) -> None:
    of = victim(change.program)
    undisturbed = Place(copied(begun, tmp_path_factory.mktemp("undisturbed")), warm_jvm, of)
    assert undisturbed.run(*change.command, "--record", "points.txt") == 0
    points = chosen(of, points_in(undisturbed.folder / "points.txt"))
    assert any(point.call.startswith("sink.take_back") for point in points) == ("--rewind" in change.command)
    died = list[CrashPoint]()
    for number, point in enumerate(points):
        place = Place(copied(begun, tmp_path_factory.mktemp("dying")), warm_jvm, of)
        with ExitStack() as stack:
            waits: subprocess.Popen[bytes] | None = None
            if number % 2:
                waits = place.start(other_jvm, "--standby", flow=victim("before").flow, available_now=False)
                stack.callback(waits.kill)
            if place.start(warm_jvm, *change.command, "--at", str(point)).wait(300) == KILLED:
                died.append(point)
            if number % 3 == 0:
                ended = place.start(warm_jvm, flow=victim("before").flow).wait(300)  # refused once it is recorded
                assert ended in (0, 1), place.log.read_text()[-3000:]
            done = place.start(warm_jvm, *change.command).wait(300)
            assert done == 0 or "run the program of the store once" in place.log.read_text(), place.log.read_text()[
                -3000:
            ]
            assert place.start(warm_jvm).wait(300) == 0, place.log.read_text()[-3000:]
        assert shown(place.folder) == change.due, f"killed at {point}: {place.log.read_text()[-3000:]}"
        assert list(verify(LocalStore.open(place.folder / "store", create=False))) == []
    assert len(died) >= of.points
    show(f"a program that {' '.join(change.command)}", died, of.outcome)
