"""Crash tests of users' own dataflows: `boatlift crash`, and `crash_test` in a test.

Two runs without a crash say what is right, and where a run can die. Then each trial kills a real process by `SIGKILL`
at one crash point, starts the dataflow again until its input is exhausted, and compares what each sink holds. Sinks are
twins in a temporary folder, sources have bounds (`twins`), and all trials share one warm JVM.

    verdict = crash_test("visits:flow", steps=5)
    verdict.assert_right()
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

from boatlift.api.dataflow import Dataflow
from boatlift.api.named import check_flow
from boatlift.errors import InvalidError, UnavailableError
from boatlift.processes.settings import DEFAULT_MASTER
from boatlift.processes.warm_jvm import WarmJvm
from boatlift.tasks.state_memory import MEMORY, StateMemory, give_back_memory
from boatlift.testing.crash import CrashPoint
from boatlift.testing.crash_verdict import CrashTrial, CrashVerdict
from boatlift.testing.held import RowsOfSink, compare
from boatlift.testing.trial import Trial, ask

__all__ = ["BY_THE_CLOCK", "STOPPING", "chosen_points", "crash_test"]

SAMPLE = 20
"""How many crash points a sample has."""

TIMEOUT = 600.0
"""The seconds after which a process that has not ended counts as one that never will."""

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a crash test, with all that it has begun."""

_KILLED = -signal.SIGKILL
BY_THE_CLOCK = ("store.size(log)",)
"""Calls that only a slow run makes: an owner that writes nothing for two seconds looks for a newer one."""

_TELLING = ("sink.commit", "sink.written", "sink.stage", "step", "store.create(log)", "store.create(runs)")
_EFFECTS = ("store.create", "store.delete", "sink.")
"""Calls in the middle of steps, and calls that leave something behind: a sample has these first."""


def crash_test(
    flow: Dataflow | str,
    *,
    input: str | Path | Mapping[str, str | Path] | None = None,  # noqa: A002 - the option's name
    steps: int | None = None,
    points: str | Sequence[str] = "sample",
    seed: int = 0,
    in_parquet: str | Sequence[str] = (),
    master: str = DEFAULT_MASTER,
    conf: Mapping[str, str] | None = None,
    timeout: float = TIMEOUT,
    on_trial: Callable[[CrashTrial], None] = lambda _: None,
) -> CrashVerdict:
    """Kill a dataflow at crash points, start it again, and compare what its sinks hold with an undisturbed run.

    Nothing of yours is written: stores and sinks are temporary, and no source is told that its rows were taken. Each
    crash is a real process that dies of `SIGKILL`. A trial takes two processes, some seconds each.

    Args:
        flow: The dataflow, as `module:attribute`, or a `Dataflow` at the top level of a module.
        input: A folder to read in place of the files of a source, or source to folder; None for the source's own.
        steps: The most steps of each source; a generator without end needs it.
        points: `sample`: 20 of them, drawn by the seed. `all`: the first, a middle and the last visit of each. Or the
            crash points themselves, such as `["sink.commit(kept):before:2"]`; one at least.
        seed: Of the sample.
        in_parquet: Sinks without a twin whose rows a Parquet sink takes instead, or one such sink.
        master: Spark's master URL, a local one.
        conf: Spark settings.
        timeout: The seconds after which a process counts as one that never ends.
        on_trial: Called after each trial.

    Raises:
        InvalidError: `[NO_TWIN]` a sink or source cannot be replaced; `[BAD_OPTION]`; `[FLOW_NOT_FOUND]`.
        BoatliftError: The dataflow fails without a crash.

    Examples:
        >>> from boatlift.testing import crash_test
        >>> crash_test("visits:flow", points=["sink.commit(kept):after:2"]).assert_right()
    """
    where = flow if isinstance(flow, str) else _name_of(flow)
    check_flow(where)
    named = _folders(input)
    fixed = None if isinstance(points, str) else [_point(text) for text in points]
    if fixed is None and points not in ("all", "sample"):
        raise InvalidError("BAD_OPTION", f"points is {points!r}: choose 'all', 'sample', or a list of crash points")
    if fixed is not None and not fixed:
        raise InvalidError("BAD_OPTION", "points is an empty list: choose 'all', 'sample', or name one crash point")
    if steps is not None and steps < 1:
        raise InvalidError("BAD_OPTION", f"steps is {steps}: give a whole number from 1")
    if not timeout > 0:
        raise InvalidError("BAD_OPTION", f"timeout is {timeout}: give seconds, more than 0")
    if not master.startswith("local"):
        raise InvalidError("BAD_OPTION", f"master is {master}: a crash test runs on this machine, so give local[2]")
    sinks = [in_parquet] if isinstance(in_parquet, str) else list(in_parquet)
    options = _options(steps, sinks, master, conf or {}, timeout)
    with _temporary() as root, _memory() as memory:
        ask(root, steps, named, sinks)
        places = {"spark.local.dir": str(root / "spark"), "spark.sql.warehouse.dir": str(root / "warehouse")}
        with WarmJvm(master, {**places, **(conf or {})}) as jvm:
            runs = _Runs(where, root, {**jvm.environment(), **memory}, timeout, named, options)
            expected, passed = runs.undisturbed()
            trials = [runs.repeated(expected)]
            on_trial(trials[0])
            if fixed is not None:
                _refuse_unknown(fixed, passed)
            chosen = fixed if fixed is not None else chosen_points(passed, str(points), seed)
            for point in chosen if trials[0].right else ():
                trials.append(runs.killed_at(point, expected))
                on_trial(trials[-1])
    return CrashVerdict(where, seed, len(passed), tuple(trials))


def chosen_points(passed: Sequence[CrashPoint], points: str, seed: int) -> list[CrashPoint]:
    """Choose the crash points of the trials among those that a run has passed.

    Args:
        points: `all` or `sample`, as for `crash_test`.
        seed: The same points and the same seed give the same sample.
    """
    visits: dict[tuple[str, str], int] = {}
    for point in passed:
        if point.call not in BY_THE_CLOCK:
            visits[point.call, point.when] = max(point.visit, visits.get((point.call, point.when), 0))
    if points == "all":
        return [CrashPoint(*place, v) for place, n in visits.items() for v in sorted({1, (n + 1) // 2, n})]
    draw = random.Random(seed)
    places = sorted(visits)
    draw.shuffle(places)
    places.sort(key=lambda place: (not place[0].startswith(_TELLING), not place[0].startswith(_EFFECTS)))
    orders = {place: draw.sample(range(1, visits[place] + 1), min(visits[place], SAMPLE)) for place in places}
    rounds = (CrashPoint(*place, orders[place][n]) for n in range(SAMPLE) for place in places if n < len(orders[place]))
    return list(islice(rounds, SAMPLE))


class _Runs:
    """The processes of a crash test."""

    def __init__(
        self,
        flow: str,
        root: Path,
        environment: Mapping[str, str],
        timeout: float,
        given: Mapping[str, Path],
        options: Sequence[str],
    ) -> None:
        self._flow, self._root, self._environment, self._timeout = flow, root, environment, timeout
        self._given, self._options = given, options
        self._number = 0

    def undisturbed(self) -> tuple[dict[str, RowsOfSink], list[CrashPoint]]:
        trial, record = self._trial(), self._root / "passed"
        self._succeed(trial, "--record", str(record))
        return trial.held(), [CrashPoint.parse(line) for line in record.read_text().splitlines()]

    def repeated(self, expected: Mapping[str, RowsOfSink]) -> CrashTrial:
        trial, begun = self._trial(), time.monotonic()
        self._succeed(trial)
        sinks = compare(expected, trial.held())
        return CrashTrial(None, False, sinks, "", time.monotonic() - begun, self._command())

    def killed_at(self, point: CrashPoint, expected: Mapping[str, RowsOfSink]) -> CrashTrial:
        trial, begun = self._trial(), time.monotonic()
        code = self._run(trial, "--at", str(point))
        killed = code == _KILLED
        if killed:
            code = self._run(trial)
        failure = "" if code == 0 else self._failure(trial, code)
        sinks = () if failure else compare(expected, trial.held())
        return CrashTrial(point, killed, sinks, failure, time.monotonic() - begun, self._command(point))

    def _trial(self) -> Trial:
        self._number += 1
        trial = Trial(self._root / f"trial-{self._number}")
        trial.folder.mkdir()
        return trial

    def _succeed(self, trial: Trial, *arguments: str) -> None:
        code = self._run(trial, *arguments)
        if code != 0:
            error = trial.error()
            raise error or UnavailableError("RUN_DIED", self._failure(trial, code))

    def _failure(self, trial: Trial, code: int | None) -> str:
        if code is None:
            return f"the run did not end within {self._timeout:g} s"
        error = trial.error()
        if error is not None:
            return f"the run ended with {error}"
        last = (trial.folder / "log").read_text(errors="replace").splitlines()[-1:]
        return f"the run ended with status {code}: {''.join(last)}"

    def _run(self, trial: Trial, *arguments: str) -> int | None:
        """Run the dataflow in a process of its own; return its status, None if it does not end."""
        command = [sys.executable, "-m", "boatlift.testing.crash", self._flow, "--available-now", *arguments]
        command += ["--store", str(trial.folder / "store"), "--trial", str(trial.folder)]
        temporary = self._root / "tmp"
        temporary.mkdir(exist_ok=True)
        environment = {**self._environment, "TMPDIR": str(temporary)}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        process: subprocess.Popen[bytes] | None = None
        try:
            with (trial.folder / "log").open("ab") as log, _uninterrupted():
                process = subprocess.Popen(
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
                )
            return process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _command(self, point: CrashPoint | None = None) -> str:
        at = [] if point is None else ["--at", str(point)]
        sources = json.loads((self._root / "bounds.json").read_text("utf-8"))
        return _again(self._flow, at, self._given, next(iter(sources)), self._options)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put off signals until the block has ended: one inside of `Popen` would leave a process that nothing knows of."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {number: signal.signal(number, lambda each, _frame: arrived.append(each)) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for got in arrived:
            os.kill(os.getpid(), got)


@contextmanager
def _temporary() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="boatlift-crash-test-", ignore_cleanup_errors=True) as name:
        yield Path(name).resolve()


@contextmanager
def _memory() -> Iterator[dict[str, str]]:
    """Yield the variable with which states in memory are in a folder of the crash test's.

    The folder is that of an owner: if this process is killed, the next start of a dataflow gives its memory back.
    """
    with ExitStack() as ends:
        with _uninterrupted():
            folder = _in_memory(ends)
        yield {} if folder is None else {MEMORY: str(folder)}


def _in_memory(ends: ExitStack) -> Path | None:
    give_back_memory()
    try:
        memory = StateMemory()
    except InvalidError:  # there is none, which a dataflow whose states need one says
        return None
    ends.callback(memory.close)
    return memory.folder


def _folders(given: str | Path | Mapping[str, str | Path] | None) -> dict[str, Path]:
    if given is None:
        return {}
    folders = given if isinstance(given, Mapping) else {"": given}
    return {name: Path(folder).absolute() for name, folder in folders.items()}


def _options(
    steps: int | None, in_parquet: Sequence[str], master: str, conf: Mapping[str, str], timeout: float
) -> list[str]:
    """Return the options of the command line that have another value than they have without."""
    options = [] if steps is None else ["--steps", str(steps)]
    for name in in_parquet:
        options += ["--in-parquet", name]
    if master != DEFAULT_MASTER:
        options += ["--master", master]
    for name, value in conf.items():
        options += ["--conf", f"{name}={value}"]
    return options if timeout == TIMEOUT else [*options, "--timeout", f"{timeout:.15g}"]


def _again(flow: str, at: Sequence[str], given: Mapping[str, Path], only: str, options: Sequence[str]) -> str:
    """Return the command that repeats a trial; the folder for the only source has its name."""
    inputs = [word for name, folder in given.items() for word in ("--input", f"{name or only}={folder}")]
    return shlex.join(["boatlift", "crash", flow, *at, *inputs, *options])


def _point(text: str) -> CrashPoint:
    try:
        return CrashPoint.parse(text)
    except ValueError as error:
        raise InvalidError("BAD_OPTION", str(error)) from None


def _refuse_unknown(points: Sequence[CrashPoint], passed: Sequence[CrashPoint]) -> None:
    places = dict.fromkeys(f"{each.call}:{each.when}" for each in passed)
    for point in points:
        place = f"{point.call}:{point.when}"
        if place not in places:
            near = get_close_matches(place, places, 3, 0.3) or list(places)[:3]
            named = ", ".join(f"{each}:1" for each in near)
            raise InvalidError("BAD_OPTION", f"no run comes to crash point {point}: choose one such as {named}")


def _name_of(flow: Dataflow) -> str:
    for name, module in list(sys.modules.items()):
        if name != "__main__" and module is not None:
            for attribute, value in list(vars(module).items()):
                if value is flow:
                    return f"{name}:{attribute}"
    raise InvalidError(
        "FLOW_NOT_FOUND",
        f"dataflow {flow.name} is no attribute of an imported module, and each process of a crash test imports it: "
        "assign it at the top level of a module, or give 'module:attribute'",
    )
