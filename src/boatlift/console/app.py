"""`boatlift`: the commands.

A command that reads a store needs neither the program nor a JVM. Spark and Arrow are imported by the commands that need
them, so that `boatlift --help` is quick.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from boatlift._version import __version__
from boatlift.console.asked import seen, sql
from boatlift.console.crash import crash
from boatlift.console.messages import (
    Json,
    JsonLines,
    Master,
    NewStore,
    ProcessorNames,
    Repeated,
    StorePath,
    arguments_named,
    notice,
    print_warnings,
    refused_arguments,
)
from boatlift.console.points import keep, reset, rewind
from boatlift.console.serve import console as serve_console
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.paths import refuse_place, scratch_named
from boatlift.processes.settings import DEFAULT_MASTER

if TYPE_CHECKING:
    from boatlift.runtime.host.progress import Progress

app = App(
    name="boatlift",
    version=__version__,
    help="Exactly-once, rollback-recoverable streaming dataflows on Apache Spark.",
    suppress_keyboard_interrupt=False,  # `main` handles a second Ctrl-C
)

app.register_install_completion_command(help="Install the completion of commands and options by Tab, for this shell.")


@app.command
def run(
    flow: str,
    *,
    store: NewStore,
    available_now: Annotated[bool, Parameter(negative=())] = False,
    accept_released: Annotated[bool, Parameter(negative=())] = False,
    accept_lost: Annotated[bool, Parameter(negative=())] = False,
    take_over: Annotated[bool, Parameter(negative=())] = False,
    skip: Repeated = (),
    set_aside: Repeated = (),
    pause: Repeated = (),
    bytes_in_flight: Annotated[int | None, Parameter(show_default=False)] = None,
    step_timeout: Annotated[float | None, Parameter(show_default=False)] = None,
    short_jobs: Annotated[bool, Parameter(negative=())] = False,
    supervised: Annotated[bool, Parameter(negative=())] = False,
    standby: Annotated[bool, Parameter(negative=())] = False,
    for_handover: Annotated[bool, Parameter(negative=())] = False,
    listen: str = "127.0.0.1:0",
    plain: Annotated[bool, Parameter(negative=())] = False,
    health: Annotated[str, Parameter(show_default=False)] = "",
    console: Annotated[str, Parameter(show_default=False)] = "",
    otel: Annotated[bool, Parameter(negative=())] = False,
    replica: Annotated[bool, Parameter(negative=())] = False,
    evolve: Annotated[str, Parameter(show_default=False)] = "",
    change: Repeated = (),
    scratch: Annotated[str | None, Parameter(show_default=False)] = None,
    linger: Annotated[float | None, Parameter(show_default=False)] = None,
    cache: Annotated[int | None, Parameter(show_default=False)] = None,
    master: Master = DEFAULT_MASTER,
    conf: Repeated = (),
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Run a dataflow from the place that its store has recorded, until the run is stopped.

    Ctrl-C stops the run cleanly; a second Ctrl-C stops it at once. The same command resumes from there.

    Args:
        flow: The dataflow, as module:attribute, such as flights:flow.
        store: The folder of the dataflow's durable state, made if absent; or s3://BUCKET/PREFIX, with the environment's
            AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION.
        available_now: Stop when no source has new input.
        accept_released: If a replay differs from a step that a sink holds, keep the sink's step, and record that.
        accept_lost: Go on without standbys that may have held what the store lacks, and record that.
        take_over: Take the store over from a process of this host that still runs the dataflow. That process ends with
            [FENCED] within seconds, and no row is lost or doubled.
        skip: A step that always fails, such as clean:7. The step yields no rows, and the log records that. Or a step
            that the receiver of a sink refuses, such as desk:7: the sink is not handed it. Or a bad row, such as
            orders:orders.csv:7 or clicks:clicks/0:511, which is set aside. May be repeated.
        set_aside: A source whose bad rows are set aside from now on, such as orders: the store keeps each with its
            place and the reason (boatlift bad-rows shows them), and steps go on without them. The log records that. May
            be repeated.
        pause: A source that takes nothing new in this run, such as orders. May be repeated.
        bytes_in_flight: Ask a source for no further step while so many bytes of rows wait behind it on disk; 16 GiB if
            not given.
        step_timeout: A step without progress for so many seconds is ended and executed again. If not given, the larger
            of 30 and 20 times the longest of its unit's last 100 steps.
        short_jobs: Give each small step a job of its own, also where many could share a long-running job.
        supervised: Start the run again when it is killed, hangs, or fails because something outside it does. It is a
            process of its own, whose JVM outlives it.
        standby: Follow the run that owns the store, on any machine that sees the store, and take over as soon as it
            dies, is stopped, or hands over (boatlift handover). It may come before the store.
        for_handover: Be a standby under other versions or settings than the owner, which takes over after a handover
            alone: an upgrade without a gap.
        listen: Where the owner listens for standbys and commands.
        plain: At an address that other hosts see, speak in clear text and not TLS, which needs the extra tls. Both
            sides prove that they can read the store.
        health: Where GET /livez and GET /readyz are answered, such as 0.0.0.0:8080: whether the process makes progress,
            and whether it owns the dataflow. Nothing is secret there, and nobody has to prove who they are.
        console: Where the page about the dataflow and its metrics are served, such as 127.0.0.1:8642; the address is
            printed. See boatlift console, which does the same as a process of its own.
        otel: Send metrics and traces by OTLP over HTTP, to where the environment's OTEL_EXPORTER_OTLP_ENDPOINT says;
            needs the extra otel.
        replica: Be one of several equal processes: own the dataflow if none of the others does, also after a clean
            stop; otherwise be a standby, and under other versions or settings than the owner one for a handover.
        evolve: The id of the plan by which the store's program becomes this one, as boatlift plan --store shows it.
        change: How the change of a processor is brought about, as in boatlift plan --store; may be repeated.
        scratch: With an s3:// store: the folder for files of running tasks, which every task must see; store or
            store:FOLDER if machines share nothing but the store. If not given: BOATLIFT_SCRATCH; else store on a
            cluster, and a folder in the user's cache with local[…].
        linger: With an s3:// store: the seconds for which steps wait for others before they are recorded together.
            Rows are visible so much later, and there are at most 1 / linger requests a second for the log.
        cache: With an s3:// store: the most bytes of it that are kept on the disk of each machine; 10737418240
            (10 GiB) if not given.
        master: Spark's master URL.
        conf: A Spark setting, name=value; may be repeated.
        quiet: Show only a takeover, warnings and the last line.
    """
    from boatlift.api.named import OneSession, check_flow, load_flow
    from boatlift.console.live import Live, Stages
    from boatlift.console.programs import modes_named, settings, skips_named
    from boatlift.dataflow import plan as planned
    from boatlift.runtime.host.admission import check_owner, check_store
    from boatlift.runtime.host.context import BYTES_IN_FLIGHT, RunOptions

    # All errors that need no JVM to be found are raised before one starts.
    skips, modes = skips_named(skip), modes_named(change)
    most_bytes = BYTES_IN_FLIGHT if bytes_in_flight is None else bytes_in_flight
    RunOptions(
        available_now=available_now,
        bytes_in_flight=most_bytes,
        step_timeout=step_timeout,
        for_handover=for_handover,
        listen=listen,
        plain=plain,
        health=health,
        replica=replica,
    )
    standby = standby or for_handover
    given = {"scratch": scratch, "linger": linger, "cache": cache}
    of_bucket: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if of_bucket and not store.startswith("s3://"):
        option = next(iter(of_bucket))
        raise InvalidError("BAD_OPTION", f"--{option} is for s3:// stores, and {store} is a folder: omit it")
    if scratch is not None:
        scratch_named(scratch)
        os.environ["BOATLIFT_SCRATCH"] = scratch  # sinks in buckets write their files there, too
    refuse_place(store)
    check_flow(flow)
    if not (standby or take_over or replica):
        check_owner(store)
    from boatlift.console.supervisor import BEATS, Supervisor, beating

    if supervised and BEATS not in os.environ:  # else this is the child
        named = {"spark.app.name": flow, **settings(conf)}
        sys.exit(Supervisor(sys.argv[1:], master, named, quiet=quiet).run())
    session = OneSession(master, flow, settings(conf), quiet=quiet)
    notice(f"importing {flow}", quiet=quiet)
    dataflow = load_flow(flow, session)
    from boatlift.api.running import open_bucket, store_awaited
    from boatlift.api.running import run as run_dataflow
    from boatlift.api.served import beside_run

    stages = Stages(dataflow, quiet=quiet, available_now=available_now)
    if standby and not replica and not store_awaited(dataflow.name, store, stages.show):
        return
    check_store(planned(dataflow), store, skips, set_aside, pause)
    place = open_bucket(store, **of_bucket, create=not standby or replica) if of_bucket else store
    spark = session.begin()

    with (
        beside_run(
            store,
            console=console,
            traced=planned(dataflow) if otel else None,
            said=lambda url: notice(f"the console is at {url}"),
            noticed=lambda told: notice(told, quiet=quiet),
        ) as hint,
        Live(dataflow, quiet=quiet, available_now=available_now) as live,
        arguments_named(flow, store),
    ):

        def watch(progress: Progress) -> None:
            live.show(progress)
            hint(progress)

        run_dataflow(
            dataflow,
            place,
            available_now=available_now,
            accept_released=accept_released,
            skip=skips,
            set_aside=set_aside,
            bytes_in_flight=most_bytes,
            long_running=not short_jobs,
            take_over=take_over,
            pause=pause,
            step_timeout=step_timeout,
            standby=standby,
            for_handover=for_handover,
            listen=listen,
            plain=plain,
            health=health,
            replica=replica,
            evolve=evolve,
            change=modes,
            accept_lost=accept_lost,
            spark=spark,
            on_progress=beating(watch),
        )


@app.command
def handover(*, store: StorePath, to: Annotated[str, Parameter(show_default=False)] = "") -> None:
    """Let the run that owns a store stop cleanly, and a standby take the dataflow over.

    Args:
        to: The standby, as host:pid, such as worker-2:4711; if not given, one that waits for a handover, or any.
    """
    from boatlift.runtime.peers.handover import hand_over

    for said in hand_over(store, to):
        print(said, flush=True)


app.command(serve_console, name="console")
app.command(keep)
app.command(sql)
app.command(seen)
app.command(rewind)
app.command(reset)
app.command(crash)


@app.command
def plan(
    flow: str,
    *,
    store: Annotated[str | None, Parameter(name=["--store", "-s"], show_default=False)] = None,
    change: Repeated = (),
    master: Master = "local[1]",
    as_json: Json = False,
) -> None:
    """Show a dataflow's units, determinants and costs of failures, or what becomes of a store, without running it.

    Args:
        flow: The dataflow, as module:attribute.
        store: Show instead what becomes of the states and sinks of this store if the dataflow runs on it, and the id of
            that plan for boatlift run --evolve.
        change: With --store: how the change of a processor is brought about, as name=mode: fill (the default: from the
            whole past), replay (step by step), carry, same or now; of a sink fill (what differs), new_rows or now. May
            be repeated.
        master: Spark's master URL; the session only checks the transformations.
    """
    from boatlift.api.named import OneSession, check_flow, load_flow
    from boatlift.console.plan import show_evolution, show_plan
    from boatlift.console.programs import modes_named
    from boatlift.dataflow import plan as planned

    modes = modes_named(change)
    if modes and store is None:
        raise InvalidError("BAD_OPTION", "--change is about a store: name it with --store")
    check_flow(flow)
    session = OneSession(master, flow)
    dataflow = load_flow(flow, session)
    planned(dataflow)  # raises the program's errors before a JVM starts
    if store is not None:
        show_evolution(dataflow, flow, store, modes, session.begin, as_json=as_json)
        return
    session.begin()
    show_plan(dataflow, as_json=as_json)


@app.command
def look(
    flow: str, *, store: StorePath, step: str, rows: int = 20, master: Master = "local[1]", as_json: JsonLines = False
) -> None:
    """Show the rows that a recorded step takes from its sources, to see why the step fails before it is skipped.

    Args:
        flow: The dataflow, as module:attribute.
        step: The step, such as clean:7.
        rows: The largest number of rows to show of each source.
        master: Spark's master URL.
        as_json: Print JSON, one row a line.
    """
    from boatlift.api.named import OneSession, check_flow, load_flow
    from boatlift.console.look import show_rows
    from boatlift.console.programs import step_named

    processor, time = step_named(step)
    check_flow(flow)
    session = OneSession(master, flow)
    show_rows(session.begin, load_flow(flow, session), store, processor, time, at_most=rows, as_json=as_json)


@app.command
def status(*, store: StorePath, as_json: Json = False) -> None:
    """Show how far each processor is, the steps that a failure now would execute again, and the process that ran last.

    Args:
        as_json: Print JSON.
    """
    from boatlift.console.contents import show_status

    show_status(store, as_json=as_json)


@app.command
def explain(*, store: StorePath, fail: ProcessorNames = "", as_json: Json = False) -> None:
    """Show the cost of a failure now: each processor's rollback, the steps executed again, their time, and the reasons.

    Then show the kept state of each processor, part by part, and the cost of its last steps.

    Args:
        fail: The processors that fail, as p,q; all of them if none is named.
    """
    from boatlift.console.contents import show_explanation

    show_explanation(store, filter(None, map(str.strip, fail.split(","))), as_json=as_json)


@app.command
def gc(*, store: StorePath, as_json: Json = False) -> None:
    """Show the kept data of a store, and the processors that need them. A run deletes data that no processor needs."""
    from boatlift.console.contents import show_kept

    show_kept(store, as_json=as_json)


@app.command
def log(
    *,
    store: StorePath,
    tail: Annotated[int | None, Parameter(show_default=False)] = None,
    since: Annotated[str | None, Parameter(show_default=False)] = None,
    processor: Annotated[str | None, Parameter(show_default=False)] = None,
    as_json: JsonLines = False,
) -> None:
    """Show the log's records, oldest first: determinants, digests, checkpoints, commits.

    Args:
        tail: Show only so many of the last records.
        since: Show only records written since then, such as 2026-11-26T10:04, in UTC.
        processor: Show only records that name this processor.
        as_json: Print JSON, one record a line.
    """
    from boatlift.console.contents import show_log

    show_log(store, tail=tail, since=since, processor=processor, as_json=as_json)


@app.command
def bad_rows(
    *, store: StorePath, source: Annotated[str, Parameter(show_default=False)] = "", as_json: JsonLines = False
) -> None:
    """Show the bad rows that are set aside: source and step, the place in the input, the row, and the reason.

    Args:
        source: Show only bad rows of this source.
        as_json: Print JSON, one bad row a line, with its whole content: to export them.
    """
    from boatlift.console.contents import show_bad_rows

    show_bad_rows(store, source, as_json=as_json)


@app.command
def checkpoints(*, store: StorePath, as_json: Json = False) -> None:
    """Show the checkpoints that a rollback can choose from, and the runs that hold them."""
    from boatlift.console.contents import show_checkpoints

    show_checkpoints(store, as_json=as_json)


@app.command
def verify(*, store: StorePath, flow: str | None = None, master: Master = "local[1]", as_json: Json = False) -> None:
    """Check every durable byte of a store and, with --flow, the sinks that keep checksums. Exit status 5: damage.

    Args:
        flow: The dataflow, as module:attribute; without it no sink is checked.
        master: Spark's master URL; used only if the dataflow's module needs a session.
    """
    from boatlift.console.contents import show_verification

    sinks = {}
    if flow is not None:
        from boatlift.api.named import OneSession, load_flow
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
    without: ProcessorNames = "",
    epochs: int | None = None,
    evolving: Annotated[bool, Parameter(negative=())] = False,
    trace: Annotated[bool, Parameter(negative=())] = False,
    jobs: int | None = None,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
) -> None:
    """Run random dataflows under random failures, without Spark, and compare their results with a run without failures.

    A seed determines the dataflow, its input and its failures. Exit status 1: a seed failed.

    Args:
        seed: Run this seed and show its dataflow; a failing case is made as small as possible.
        seeds: Run this number of seeds, and show how many failed.
        first_seed: With --seeds: the first seed.
        without: With --seed: leave out these faults, by number from 0, such as 0,2.
        epochs: With --seed: the number of epochs that sources close.
        evolving: The programs change while their stores live.
        trace: With --seed: show every event.
        jobs: With --seeds: the number of processes; by default the number of cores.
        quiet: Show no progress.
    """
    from boatlift.console.simulate import case_of, simulate_one, simulate_range

    if (seed is None) == (seeds is None):
        raise InvalidError("BAD_OPTION", "simulate runs one seed or many: give either --seed N or --seeds K")
    if seeds is not None and (seeds < 1 or without or epochs is not None or trace):
        raise InvalidError("BAD_OPTION", "--seeds takes at least 1; --without, --epochs and --trace go with --seed")
    if seed is not None and jobs is not None:
        raise InvalidError("BAD_OPTION", "--jobs goes with --seeds: one seed runs in one process")
    if seed is not None:
        sys.exit(simulate_one(case_of(seed, without, epochs, evolving=evolving), trace=trace))
    processes = (os.cpu_count() or 1) if jobs is None else jobs
    sys.exit(simulate_range(first_seed, seeds or 0, jobs=processes, quiet=quiet, evolving=evolving))


def main() -> None:
    """Run a command; an error of Boatlift becomes one line, and an exit status by its kind.

    Before that line, an error of the user's own code is shown with the user's part of its traceback.
    """
    if os.getpid() == 1:  # in a container: the system gives this process no default action for signals
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    print_warnings()
    if "BOATLIFT_SPARE" in os.environ:
        from boatlift.console.supervisor import wait_as_spare

        wait_as_spare()
    try:
        with refused_arguments(app):
            app(exit_on_error=False, print_error=False)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe. Python flushes the rest at exit, which must not fail.
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


def _print_own_traceback(error: UserCodeError) -> None:
    """Print the user's part of a traceback: an error of a task has it as a note, one of the driver as its cause."""
    from boatlift.spark.plans.tracebacks import own_frames

    if notes := getattr(error, "__notes__", ()):
        print(*notes, sep="\n", file=sys.stderr)
    elif (cause := error.__cause__) is not None:
        own = own_frames(cause.__traceback__)
        if own is not None or isinstance(cause, SyntaxError):
            traceback.print_exception(type(cause), cause, own)
