"""`boatlift`: the commands.

Those that read a store need neither the program nor a JVM. Spark and Arrow are imported by the commands that need
them, so that `boatlift --help` is quick.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from boatlift import __version__
from boatlift.console.telling import begin_warnings, tell
from boatlift.errors import FLOW_AND_STORE, BoatliftError, InvalidError, UserCodeError
from boatlift.paths import refuse_url
from boatlift.spark.session.session import DEFAULT_MASTER

__all__ = ["main"]

app = App(
    name="boatlift",
    version=__version__,
    help="Exactly-once, rollback-recoverable streaming dataflows on Apache Spark.",
    suppress_keyboard_interrupt=False,  # `main` says what a second Ctrl-C means
)

StorePath = Annotated[Path, Parameter(name=["--store", "-s"], env_var="BOATLIFT_STORE")]
Master = Annotated[str, Parameter(env_var="BOATLIFT_MASTER")]
Json = Annotated[bool, Parameter(name="--json", negative=())]


@app.command
def run(
    flow: str,
    *,
    store: StorePath,
    available_now: Annotated[bool, Parameter(negative=())] = False,
    accept_released: Annotated[bool, Parameter(negative=())] = False,
    skip: tuple[str, ...] = (),
    master: Master = DEFAULT_MASTER,
    conf: tuple[str, ...] = (),
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Run a dataflow from where its store says it was, until it is stopped.

    Ctrl-C stops it cleanly; a second Ctrl-C at once. Run the same command again and it goes on.

    Args:
        flow: Where the dataflow is: module:attribute, such as flights:flow.
        store: The folder of its durable state; made if absent.
        available_now: Stop when every source has nothing new.
        accept_released: Let stand what sinks hold of a step that a replay now gives differently, and put it on the record.
        skip: A step that fails whenever it is tried, as clean:7; it gives nothing, and that is put on the record. May be repeated.
        master: Spark's master URL.
        conf: A Spark setting, name=value; may be repeated.
        quiet: Show a takeover, warnings and the last line alone.
    """
    from boatlift.console.live import Live
    from boatlift.console.programs import OneSession, check_flow, check_store, load_flow, settings, steps_named

    # All that can be told without a JVM is told before one starts.
    skips = steps_named(skip)
    refuse_url(store, "a store")
    check_flow(flow)
    session = OneSession(master, flow, settings(conf), quiet=quiet)
    tell(f"importing {flow}", quiet=quiet)
    dataflow = load_flow(flow, session)
    check_store(dataflow, store, skips)
    spark = session.begin()
    from boatlift.api.running import run as run_dataflow

    with Live(dataflow, quiet=quiet, available_now=available_now) as live, _arguments_named(flow, store):
        run_dataflow(
            dataflow,
            store,
            available_now=available_now,
            accept_released=accept_released,
            skip=skips,
            spark=spark,
            on_progress=live.show,
        )


@app.command
def plan(flow: str, *, master: Master = "local[1]", as_json: Json = False) -> None:
    """Show what a dataflow is and what running it would log, without running it.

    Args:
        flow: Where the dataflow is: module:attribute.
        master: Spark's master URL; only for checking the transformations.
        as_json: Print JSON.
    """
    from boatlift.console.programs import OneSession, check_flow, load_flow
    from boatlift.console.shows import show_plan
    from boatlift.dataflow import plan as planned

    check_flow(flow)
    session = OneSession(master, flow)
    dataflow = load_flow(flow, session)
    planned(dataflow)  # what is wrong with it is told before a JVM starts
    session.begin()
    show_plan(dataflow, as_json=as_json)


@app.command
def look(
    flow: str, *, store: StorePath, step: str, rows: int = 20, master: Master = "local[1]", as_json: Json = False
) -> None:
    """Show the rows that a recorded step takes from its sources: to see why it fails, before it is skipped.

    Args:
        flow: Where the dataflow is: module:attribute.
        store: The folder of its durable state.
        step: Which, as clean:7.
        rows: How many at most.
        master: Spark's master URL.
        as_json: Print JSON, one row a line.
    """
    from boatlift.console.look import show_rows
    from boatlift.console.programs import OneSession, check_flow, load_flow, steps_named

    ((processor, time),) = steps_named((step,))
    check_flow(flow)
    session = OneSession(master, flow)
    show_rows(session.begin, load_flow(flow, session), store, processor, time, at_most=rows, as_json=as_json)


@app.command
def status(*, store: StorePath, as_json: Json = False) -> None:
    """Show where each processor is, what would be replayed after a failure, and who ran it last.

    Args:
        store: The folder of the dataflow's durable state.
        as_json: Print JSON.
    """
    from boatlift.console.status import show_status

    show_status(store, as_json=as_json)


@app.command
def explain(*, store: StorePath, fail: str = "", as_json: Json = False) -> None:
    """Show what a failure would cost now: who goes back to where, what is executed again, how long that took before, and why not less.

    Args:
        store: The folder of the dataflow's durable state.
        fail: Who fails, as p,q; everybody if nothing is said.
        as_json: Print JSON.
    """
    from boatlift.console.explain import show_explanation

    show_explanation(store, filter(None, map(str.strip, fail.split(","))), as_json=as_json)


@app.command
def gc(*, store: StorePath, as_json: Json = False) -> None:
    """Show what a store keeps, and for whom. It deletes nothing: whoever runs the dataflow does.

    Args:
        store: The folder of the dataflow's durable state.
        as_json: Print JSON.
    """
    from boatlift.console.kept import show_kept

    show_kept(store, as_json=as_json)


@app.command
def log(*, store: StorePath, as_json: Json = False) -> None:
    """Show the log's records: what was decided, made and kept, oldest first.

    Args:
        store: The folder of the dataflow's durable state.
        as_json: Print JSON, one record a line.
    """
    from boatlift.console.shows import show_log

    show_log(store, as_json=as_json)


@app.command
def checkpoints(*, store: StorePath, as_json: Json = False) -> None:
    """Show the checkpoints a rollback could choose, and the runs they are made of.

    Args:
        store: The folder of the dataflow's durable state.
        as_json: Print JSON.
    """
    from boatlift.console.shows import show_checkpoints

    show_checkpoints(store, as_json=as_json)


@app.command
def verify(*, store: StorePath, flow: str | None = None, master: Master = "local[1]", as_json: Json = False) -> None:
    """Check every durable byte of a store, and what its dataflow's sinks keep checksums of; exit status 5 if something is wrong.

    Args:
        store: The folder of the dataflow's durable state.
        flow: Where the dataflow is: module:attribute. Without it the sinks are not known, and not checked.
        master: Spark's master URL; only for making the dataflow.
        as_json: Print JSON.
    """
    from boatlift.console.shows import show_verification

    sinks = {}
    if flow is not None:
        from boatlift.console.programs import OneSession, load_flow
        from boatlift.dataflow import plan as planned

        dataflow = load_flow(flow, OneSession(master, flow))
        sinks = {name: processor.sink for name, processor in planned(dataflow).sinks.items()}
    sys.exit(show_verification(store, sinks, as_json=as_json))


@app.command
def simulate(
    *,
    seed: int | None = None,
    seeds: int | None = None,
    first_seed: int = 0,
    without: str = "",
    epochs: int | None = None,
    trace: Annotated[bool, Parameter(negative=())] = False,
    jobs: int | None = None,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Run whole random dataflows under random failures, without Spark, and hold what comes out against a run without failures.

    A seed gives everything, and always the same. Exit status 1 if any failed.

    Args:
        seed: Run this one, and show what it is; one that fails is made as small as it can be.
        seeds: Run so many, and say how many failed.
        first_seed: The first of them.
        without: With --seed: leave out these faults, by number from 0, as 0,2.
        epochs: With --seed: let sources close so many epochs.
        trace: With --seed: show all that happened.
        jobs: With --seeds: run them in so many processes; as many as there are cores, if not given.
        quiet: Show no progress.
    """
    from boatlift.console.simulate import case_of, simulate_one, simulate_range

    if (seed is None) == (seeds is None):
        raise InvalidError("BAD_OPTION", "give either --seed N or --seeds K")
    if seeds is not None and (seeds < 1 or without or epochs is not None or trace):
        raise InvalidError("BAD_OPTION", "--seeds takes at least 1, and --without, --epochs and --trace go with --seed")
    if seed is not None and jobs is not None:
        raise InvalidError("BAD_OPTION", "--jobs goes with --seeds: one seed runs in one process")
    if seed is not None:
        sys.exit(simulate_one(case_of(seed, without, epochs), trace=trace))
    sys.exit(simulate_range(first_seed, seeds or 0, jobs=(os.cpu_count() or 1) if jobs is None else jobs, quiet=quiet))


def main() -> None:
    """Runs a command; an error of ours becomes one line and an exit status by its kind.

    What the user's own code raised is shown before it, with its own traceback.
    """
    begin_warnings()
    try:
        app()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it, such as `head`, has seen enough; nor shall Python fail to flush what is left on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except BoatliftError as error:
        if isinstance(error, UserCodeError):
            _print_own_traceback(error)
        print(f"boatlift: {error}", file=sys.stderr)
        if error.__cause__ is not None and error.condition == "INTERNAL":
            raise
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("boatlift: stopped at once; run the same command again to go on", file=sys.stderr)
        sys.exit(130)


@contextmanager
def _arguments_named(flow: str, store: Path) -> Iterator[None]:
    """Put the command's own arguments into what an error of the user's code advises to type."""
    try:
        yield
    except UserCodeError as error:
        error.remedy = error.remedy.replace(FLOW_AND_STORE, shlex.join((flow, "--store", str(store))))
        raise


def _print_own_traceback(error: UserCodeError) -> None:
    """Print the user's part of the traceback of what code of the user raised: in a task it is a note, here it is the cause."""
    from boatlift.spark.plans.tracebacks import own_frames

    if notes := getattr(error, "__notes__", ()):
        print(*notes, sep="\n", file=sys.stderr)
    elif (cause := error.__cause__) is not None:
        own = own_frames(cause.__traceback__)
        if own is not None or isinstance(cause, SyntaxError):
            traceback.print_exception(type(cause), cause, own)
