"""A real process is killed by SIGKILL at every crash point, started again, and its sinks hold what they must.

The points are not listed anywhere: a first, undisturbed run records every call on the store and on the sinks, and every
step of a processor, and so does a run that recovers. Each is then a place to die: before and after it, on its first, on
a later, and on a during-recovery visit. `make crash` dies at all of them and keeps the table in `docs/crash-points.md`;
`make test` dies at a part of them. Both print the table.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint, main
from boatlift.testing.crash_runs import BY_THE_CLOCK, chosen_points
from support.crash.data import make_files

__all__ = [
    "KILLED",
    "Undisturbed",
    "Victim",
    "chosen",
    "die_at_every_point",
    "die_at_every_point_of_a_recovery",
    "place_of",
    "points_in",
    "run_undisturbed",
    "show",
]

TESTS = Path(__file__).parents[2]
KILLED = -signal.SIGKILL
SINKS = (
    "history",
    "cleaned",
    "told",
    "asked",
    "late",
    "windows",
    "first",
    "silent",
    "counts",
    "walks",
    "kept",
    "sessions",
)
EVERY_POINT = os.environ.get("BOATLIFT_CRASH_POINTS") == "all"
WHOLE_RUNS = 4
"""So many whole runs may pass a point by: a merge that is late leaves nothing to delete."""

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["boatlift.testing.crash", "boatlift.api.running", "pandas"])


@dataclass(frozen=True)
class Victim:
    """A dataflow to be killed.

    Attributes:
        flow: Where it is.
        judge: Finds out of a folder whether its sinks hold what they must, given that of an undisturbed run.
        middle: A moment in the middle of a run, from which recoveries begin.
        acts: The calls that `make test` kills in a run, before or after them.
        points: So many are the least that these are.
        again: The calls that `make test` kills in a recovery, before or after them.
        outcome: What is true of it then, in words.
        make_input: Makes what it reads, for the folder that it runs in.
        store: From the folder that it runs in to the place of its store.
        scratch: `store:` if tasks upload their files.
    """

    flow: str
    judge: Callable[[Path, Path], None]
    middle: CrashPoint
    acts: tuple[str, ...]
    points: int
    again: tuple[str, ...]
    outcome: str
    make_input: Callable[[Path], None] = make_files
    store: Callable[[Path], str] = lambda _folder: "store"
    scratch: str = ""


@dataclass(frozen=True)
class Place:
    """A folder with input, in which a dataflow is run, killed and run again.

    Attributes:
        seen: The files of Parquet sinks that were visible at a kill, with their bytes.
    """

    folder: Path
    jvm: WarmJvm
    victim: Victim
    seen: dict[Path, bytes] = field(default_factory=dict)

    def run(self, *arguments: str) -> int:
        """Run the dataflow to its end in a process of its own, which nothing has run in before."""
        command = [sys.executable, "-m", "boatlift.testing.crash", *self._arguments(*arguments)]
        with self.log.open("a") as out:
            done = subprocess.run(
                command, cwd=self.folder, env=self._environment, stdout=out, stderr=subprocess.STDOUT, check=False
            )
        return self._ended(done.returncode)

    def start(
        self, jvm: WarmJvm, *arguments: str, flow: str = "", available_now: bool = True
    ) -> subprocess.Popen[bytes]:
        """Start a dataflow in a process of its own, which attaches to a JVM.

        Args:
            flow: Another one than the victim's.
            available_now: It ends when its input is exhausted.
        """
        command = [sys.executable, "-m", "boatlift.testing.crash", flow or self.victim.flow]
        command += ["--store", self.victim.store(self.folder)]
        command += [*(["--available-now"] if available_now else []), *arguments]
        environment = {**self._environment, **jvm.environment()}
        with self.log.open("a") as out:
            return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=out, stderr=out)

    def die(self, point: CrashPoint, *, loses_power: bool = False) -> int:
        """Run the dataflow in a process that has its imports already, until it dies at a point.

        Args:
            loses_power: Scratch is lost with the process, so that the next one has nothing to adopt.
        """
        arguments = self._arguments("--at", str(point))
        process = _FORKS.Process(target=_live, args=(self.folder, self._environment, self.log, arguments))
        process.start()
        process.join()
        assert process.exitcode is not None
        if loses_power and process.exitcode == KILLED:
            self.lose_power()
        return self._ended(process.exitcode)

    def lose_power(self) -> None:
        for scratch in ("store/scratch", "scratch"):
            shutil.rmtree(self.folder / scratch, ignore_errors=True)

    def _arguments(self, *more: str) -> list[str]:
        return [self.victim.flow, "--store", self.victim.store(self.folder), "--available-now", *more]

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def _environment(self) -> dict[str, str]:
        scratch = {"BOATLIFT_SCRATCH": f"{self.victim.scratch}{self.folder / 'scratch'}"}  # with a store elsewhere
        path = os.pathsep.join([str(TESTS), str(TESTS.parent / "src")])  # not another tree's that is installed
        return {**os.environ, **self.jvm.environment(), **scratch, "PYTHONPATH": path}

    def _ended(self, code: int) -> int:
        assert code in (0, KILLED), f"ended with {code}: {self.log.read_text()[-3000:]}"
        visible = {path: path.read_bytes() for sink in SINKS for path in (self.folder / sink).glob("*.parquet")}
        changed = [path.name for path, content in self.seen.items() if visible.get(path) != content]
        assert not changed, f"what was seen is not what it was: {changed}"
        self.seen.update(visible)
        return code


def _live(folder: Path, environment: dict[str, str], log: Path, arguments: list[str]) -> None:
    with log.open("a") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.chdir(folder)
    os.environ.update(environment)
    main(arguments)


@dataclass(frozen=True)
class Undisturbed:
    """An undisturbed run."""

    victim: Victim
    folder: Path
    points: list[CrashPoint]

    def judge(self, place: Place) -> None:
        self.victim.judge(place.folder, self.folder)


def run_undisturbed(victim: Victim, folder: Path, jvm: WarmJvm) -> Undisturbed:
    """Run a dataflow undisturbed, and record where it could die."""
    place = place_of(folder, jvm, victim)
    assert place.run("--record", "points.txt") == 0
    victim.judge(place.folder, place.folder)
    return Undisturbed(victim, place.folder, points_in(place.folder / "points.txt"))


def place_of(folder: Path, jvm: WarmJvm, victim: Victim) -> Place:
    victim.make_input(folder)
    return Place(folder, jvm, victim)


def points_in(record: Path) -> list[CrashPoint]:
    return [CrashPoint.parse(line) for line in record.read_text().splitlines()]


def show(when: str, survived: list[CrashPoint], outcome: str) -> None:
    """Print the table of points and outcomes, and append it to the file that the environment names."""
    died: dict[str, dict[str, list[int]]] = {}
    for point in survived:
        died.setdefault(point.call, {"before": [], "after": []})[point.when].append(point.visit)
    lines = [f"\n## {when}: {len(survived)} points\n", "| call | killed before its visits | after its visits | then |"]
    lines += ["|---|---|---|---|"]
    for call, visits in sorted(died.items()):
        before, after = (", ".join(map(str, sorted(visits[which]))) or "–" for which in ("before", "after"))
        lines.append(f"| `{call}` | {before} | {after} | died of signal 9, resumed, {outcome} |")
    text = "\n".join([*lines, ""])
    print(text)
    if "BOATLIFT_CRASH_TABLE" in os.environ:
        with Path(os.environ["BOATLIFT_CRASH_TABLE"]).open("a") as file:
            file.write(text)


def _visits(points: list[CrashPoint]) -> dict[tuple[str, str], int]:
    return {(point.call, point.when): point.visit for point in points}


def chosen(victim: Victim, points: list[CrashPoint]) -> list[CrashPoint]:
    """Return the moments of a run to die at: all on `make crash`; else some of each act that changes something.

    That is before a call on its first visit, or after it on a later one, in turn from call to call.
    """
    if EVERY_POINT:
        return chosen_points(points, "all", seed=0)
    visits = _visits([point for point in points if point.call not in BY_THE_CLOCK])
    return [
        CrashPoint(call, when, 1 if when == "before" else (visits[call, when] + 1) // 2)
        for call, when in _in_turn(visits, victim.acts)
    ]


def _in_turn(visits: Iterable[tuple[str, str]], acts: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return one moment of every other call of each act: before it or after it, in turn from call to call."""
    whens: dict[str, list[str]] = {}
    for call, when in visits:
        if call.startswith(acts):
            whens.setdefault(call, []).append(when)
    calls = [call for act in acts for call in sorted(each for each in whens if each.startswith(act))[::2]]
    chosen = {call: whens[call][turn % len(whens[call])] for turn, call in enumerate(calls)}
    return [(call, when) for call, when in visits if chosen.get(call) == when]


def die_at_every_point(undisturbed: Undisturbed, folders: Callable[[str], Path], jvm: WarmJvm) -> None:
    """`make crash` gives each point a run of its own; `make test` dies at one after the other while it goes on."""
    victim = undisturbed.victim
    survived: list[CrashPoint] = []
    place: Place | None = None
    for each in chosen(victim, undisturbed.points):
        point, fresh = each, place is None
        place = place or place_of(folders("crash"), jvm, victim)
        whole_runs = 0
        while place.die(point, loses_power=len(survived) % 2 == 1) != KILLED:
            # The run ended before that visit: the rest of it had fewer, or a slow machine collects and merges less.
            undisturbed.judge(place)
            if fresh:
                whole_runs += point.visit == 1
                assert whole_runs < WHOLE_RUNS, f"{WHOLE_RUNS} whole runs were not killed at {point}"
                point = CrashPoint(point.call, point.when, max(1, point.visit // 2))
            place, fresh = place_of(folders("crash"), jvm, victim), True
        survived.append(point)
        if EVERY_POINT:
            _finish(place, undisturbed, point)
            place = None
    if place is not None:
        _finish(place, undisturbed, survived[-1])
    assert len(survived) >= victim.points
    show(f"{victim.flow}, in a run", survived, victim.outcome)


def _finish(place: Place, undisturbed: Undisturbed, killed_at: CrashPoint) -> None:
    assert place.run() == 0
    try:
        undisturbed.judge(place)
    except AssertionError as error:
        error.add_note(f"killed at {killed_at}, last of all")
        raise


def _copied_if_there(source: str, target: str) -> None:
    """Copy a file; in scratch one may go meanwhile, because a task of the dead process has not ended yet."""
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        if "scratch" not in Path(source).parts:
            raise


def die_at_every_point_of_a_recovery(undisturbed: Undisturbed, folders: Callable[[str], Path], jvm: WarmJvm) -> None:
    """Killed in the middle, then killed again at the first visit of each call that the recovery makes, in chains."""
    victim = undisturbed.victim
    crashed = place_of(folders("crashed"), jvm, victim)
    assert crashed.die(victim.middle) == KILLED

    def again(*, loses_power: bool) -> Place:
        folder = folders("recovering") / "copy"
        shutil.copytree(crashed.folder, folder, copy_function=_copied_if_there)
        place = Place(folder, jvm, victim)
        if loses_power:
            place.lose_power()
        return place

    visits: dict[tuple[str, str], int] = {}
    for loses_power in (True, False):
        recorded = again(loses_power=loses_power)
        assert recorded.run("--record", "points.txt") == 0
        undisturbed.judge(recorded)
        visits |= _visits(points_in(recorded.folder / "points.txt"))
    acts = ("adopt", *victim.again)
    points = [CrashPoint(call, when, 1) for call, when in (visits if EVERY_POINT else _in_turn(visits, acts))]
    assert points
    place: Place | None = None
    for n, point in enumerate(points):
        if place is not None and place.die(point, loses_power=n % 2 == 1) == 0:
            # The chain has come to its end before the point: begin another one.
            undisturbed.judge(place)
            place = None
        if place is None:
            place = again(loses_power=not point.call.startswith("adopt"))
            assert place.die(point) == KILLED, f"the recovery was not killed at {point}"
    assert place is not None
    _finish(place, undisturbed, points[-1])
    show(f"{victim.flow}, in a recovery", points, victim.outcome)
