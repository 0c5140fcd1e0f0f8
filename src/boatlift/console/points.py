"""`boatlift keep`, `rewind` and `reset`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from boatlift.console.messages import Json, Master, Repeated, StorePath, arguments_named
from boatlift.errors import InvalidError
from boatlift.processes.settings import DEFAULT_MASTER


def keep(
    *,
    store: StorePath,
    name: Annotated[str, Parameter(show_default=False)] = "",
    drop: Annotated[str, Parameter(show_default=False)] = "",
    as_json: Json = False,
) -> None:
    """Keep a restore point, to which boatlift rewind goes back with the sinks; or list the points of a store.

    Args:
        name: Keep a point of this name: at the end of the steps under way, or now if no run owns the store.
        drop: Drop the point of this name.
        as_json: Print JSON.
    """
    from boatlift.console.contents import show_points
    from boatlift.runtime.host.points import change_points

    if name and drop:
        raise InvalidError("BAD_OPTION", "give either --name or --drop")
    if not name and not drop:
        show_points(store, as_json=as_json)
        return
    for said in change_points(store, name or drop, drop=bool(drop)):
        print(said, flush=True)


def rewind(
    flow: Annotated[str, Parameter(show_default=False)] = "",
    *,
    store: StorePath,
    to: Annotated[str, Parameter(show_default=False)] = "",
    from_copy: Annotated[bool, Parameter(negative=())] = False,
    evolve: Annotated[str, Parameter(show_default=False)] = "",
    change: Repeated = (),
    take_over: Annotated[bool, Parameter(negative=())] = False,
    master: Master = DEFAULT_MASTER,
    conf: Repeated = (),
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=())] = False,
    as_json: Json = False,
) -> None:
    """Take a dataflow back to a restore point with its sinks, and stop; without --evolve, show what would become of it.

    The next boatlift run takes the input after the point again. Without a dataflow it shows what the log tells of the
    way back, and starts no JVM.

    Args:
        flow: The dataflow, as module:attribute; also a mended one.
        to: The point, as boatlift keep lists them; or the last one before a time in UTC (2026-11-29T10:00) or before a
            step (flights:4711); or beginning.
        from_copy: The store is restored from an older copy, and its sinks have gone on since: they come to it. Without
            --to the store stays where the copy is.
        evolve: The id of the plan, as this command shows it.
        change: As for boatlift plan --store; may be repeated.
        take_over: As for boatlift run.
        master: Spark's master URL.
        conf: A Spark setting, name=value; may be repeated.
        quiet: Show only a takeover, warnings and the last line.
        as_json: Without --evolve: print JSON.
    """
    from boatlift.api.named import OneSession, check_flow, load_flow
    from boatlift.console.live import Live
    from boatlift.console.plan import show_evolution, show_way_back
    from boatlift.console.programs import modes_named, settings
    from boatlift.dataflow import plan as planned
    from boatlift.runtime.host.admission import check_owner, refuse_missing_store

    modes = modes_named(change)
    if not to and not from_copy:
        raise InvalidError("BAD_OPTION", "say where it goes back to (--to), or that the store is a copy (--from-copy)")
    if not flow:
        if evolve or modes or from_copy:
            raise InvalidError(
                "BAD_OPTION", "--evolve, --change and --from-copy need the dataflow: boatlift rewind FLOW --store …"
            )
        show_way_back(store, to, as_json=as_json)
        return
    check_flow(flow)
    refuse_missing_store(store)
    if evolve and not take_over:
        check_owner(store)
    session = OneSession(master, flow, settings(conf), quiet=quiet)
    dataflow = load_flow(flow, session)
    planned(dataflow)  # raises the program's errors before a JVM starts
    if not evolve:
        show_evolution(dataflow, flow, store, modes, session.begin, as_json=as_json, to=to or None, from_copy=from_copy)
        return
    from boatlift.api.evolution import rewind as take_back

    spark = session.begin()
    with Live(dataflow, quiet=quiet, available_now=True) as live, arguments_named(flow, store):
        take_back(
            dataflow,
            store,
            to=to or None,
            from_copy=from_copy,
            evolve=evolve,
            change=modes,
            take_over=take_over,
            spark=spark,
            on_progress=live.show,
        )


def reset(
    flow: str, *, store: StorePath, evolve: Annotated[str, Parameter(show_default=False)] = "", change: Repeated = ()
) -> None:
    """Empty a dataflow and its sinks, as boatlift rewind --to beginning; without --evolve, show what would become.

    Args:
        evolve: The id of the plan, as this command shows it.
        change: As for boatlift plan --store; may be repeated.
    """
    rewind(flow, store=store, to="beginning", evolve=evolve, change=change)
