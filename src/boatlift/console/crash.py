"""`boatlift crash`: a user's dataflow is killed at crash points."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from boatlift.console.messages import Json, Master, Repeated, notice
from boatlift.errors import InvalidError
from boatlift.processes.settings import DEFAULT_MASTER

if TYPE_CHECKING:
    from boatlift.testing import CrashTrial, CrashVerdict


def crash(
    flow: str,
    *,
    points: Literal["sample", "all"] = "sample",
    seed: int = 0,
    at: Repeated = (),
    steps: Annotated[int | None, Parameter(show_default=False)] = None,
    input: Repeated = (),  # noqa: A002 - the option's name
    in_parquet: Repeated = (),
    timeout: Annotated[float, Parameter(show_default=False)] = 600.0,
    master: Master = DEFAULT_MASTER,
    conf: Repeated = (),
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
    as_json: Json = False,
) -> None:
    """Kill a dataflow at crash points, start it again, and compare what its sinks hold with a run without a crash.

    Stores and sinks are temporary: each sink is replaced by its twin, and yours are not opened. Exit status 0: right;
    1: wrong.

    Args:
        flow: The dataflow, as module:attribute.
        points: A sample of 20 crash points, or all calls, each on its first, a middle and its last visit.
        seed: The seed of the sample: the same seed draws the same sample.
        at: This crash point alone, such as sink.commit(kept):before:2; may be repeated.
        steps: The most steps of each source. A generator without end needs it.
        input: The folder to read in place of the files of a source, as FOLDER or SOURCE=FOLDER; may be repeated. Write
            ./day=1 for a folder day=1. If not given: the files that are there now, of which links are made.
        in_parquet: A sink without a twin, such as a topic: a Parquet sink takes its rows. May be repeated.
        timeout: The seconds after which a run counts as one that never ends; 600 if not given.
        master: Spark's master URL, a local one.
        conf: A Spark setting, name=value; may be repeated.
        quiet: Show no progress.
        as_json: Print JSON.
    """
    from boatlift.console.programs import settings
    from boatlift.testing import crash_test

    if at and (points != "sample" or seed):
        raise InvalidError("BAD_OPTION", "--at names the crash points: leave out --points and --seed")
    folders, named, done = _folders(input), settings(conf), 0

    def progress(trial: CrashTrial) -> None:
        nonlocal done
        if trial.point is None:
            what = "a second run without a crash"
        else:
            what = f"killed at {trial.point}" if trial.killed else f"ended before {trial.point}"
        notice(f"{done}: {what}: {'right' if trial.right else 'WRONG'}, {trial.seconds:.1f} s", quiet=quiet)
        done += 1

    _stop_at_signals()
    verdict = crash_test(
        flow,
        input=folders,
        steps=steps,
        points=at or points,
        seed=seed,
        in_parquet=in_parquet,
        master=master,
        conf=named,
        timeout=timeout,
        on_trial=progress,
    )
    _show(verdict, as_json=as_json)
    sys.exit(0 if verdict.right else 1)


def _stop_at_signals() -> None:
    from boatlift.testing.crash_runs import STOPPING

    for number in STOPPING:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # nohup has it ignored
            signal.signal(number, _stop)


def _stop(number: int, _frame: object) -> None:
    """End the crash test, once: nothing interrupts the end of its processes and the removal of its files."""
    from boatlift.testing.crash_runs import STOPPING

    for each in STOPPING:
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _folders(given: tuple[str, ...]) -> dict[str, str]:
    folders: dict[str, str] = {}
    for each in given:
        name, sign, folder = each.partition("=")
        if not sign or "/" in name:
            name, sign, folder = "", "", each
        if name in folders:
            raise InvalidError("BAD_OPTION", f"--input {each} is the second folder of one source: give one")
        if not folder or (sign and not name):
            raise InvalidError("BAD_OPTION", f"--input {each} names no folder: write FOLDER or SOURCE=FOLDER")
        folders[name] = folder
    return folders


def _show(verdict: CrashVerdict, *, as_json: bool) -> None:
    from rich.markup import escape

    from boatlift.console.tables import print_json, show, table

    if as_json:
        print_json(
            {
                "flow": verdict.flow,
                "verdict": "right" if verdict.right else "wrong",
                "seed": verdict.seed,
                "passed": verdict.passed,
                "trials": [
                    {
                        "point": None if trial.point is None else str(trial.point),
                        "killed": trial.killed,
                        "right": trial.right,
                        "first": trial.first,
                        "seconds": round(trial.seconds, 3),
                        "again": trial.command,
                        "sinks": trial.sinks,
                    }
                    for trial in verdict.trials
                ],
            }
        )
        return
    sinks = table("sink", "delivery", "rows", "trials", "wrong", "rows lost", "extra", "parts delivered again")
    for name in [each.sink for each in verdict.trials[0].sinks]:
        found = [each for trial in verdict.trials for each in trial.sinks if each.sink == name]
        wrong = [each for each in found if not each.right]
        sinks.add_row(
            escape(name),
            "at least once" if found[0].at_least_once else "exactly once",
            f"{found[0].expected:,}",
            str(len(found)),
            str(len(wrong)),
            f"{max((each.lost for each in wrong), default=0):,}",
            f"{max((each.extra for each in wrong), default=0):,}",
            str(sum(each.repeated for each in found)) if found[0].at_least_once else "-",
        )
    show(sinks, escape(verdict.text))
