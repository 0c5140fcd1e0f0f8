"""`boatlift plan`, printed."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from inspect import signature
from typing import TYPE_CHECKING, Any

from rich.filesize import decimal
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

import boatlift
from boatlift.api.dataflow import Dataflow
from boatlift.api.evolution import evolution
from boatlift.api.reports import plan
from boatlift.console.tables import print_json, show
from boatlift.dataflow.identified_rows import MOST_AHEAD
from boatlift.runtime.host.admission import refuse_missing_store
from boatlift.runtime.inspect.determinants import DeterminantRate
from boatlift.runtime.inspect.program import JobReport, ProgramReport
from boatlift.runtime.inspect.rewind import way_back_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DETERMINANTS = {
    "arrival order": "the order in which the steps of its inputs arrived, a record for each",
    "ends of inputs": "how far each step reached in each of its inputs, one record however many steps had come",
    "epoch ends": "the ends of its epochs",
    "answers": "the answers of external systems",
    "rows": "its rows, which it cannot repeat",
}
"""A determinant of a unit to the words for it."""

_INPUTS = {
    "order-insensitive": "the input of the step alone",
    "convergent": "the input of all steps since a checkpoint, the rows of a step in any order",
    "divergent": "the input of its steps",
}
"""The order of a unit (`JobReport`) to the input that a replay of it needs."""


_ARRIVALS = {
    "none": "one a step",
    "gathered": "an epoch takes what has come",
    "each": "the order of arrival",
    "batch": "the ends of epochs",
}
"""The arrival of a unit's messages to what its determinants record."""

_PRICE_OF_A_PUT = 5e-6
"""In dollars, on S3 Standard."""


def show_plan(flow: Dataflow, *, as_json: bool) -> None:
    """Print a program: graph, units, determinants, cost of failures, and the connectors that are not exactly-once."""
    report = plan(flow)
    if as_json:
        print_json(report)
    else:
        show(*_trees(report.processors))
        _show_units(report)
        _show_queries(report)
        _show_long_running(report)
        _show_log(report)
        _show_orders(report)
        _show_ordered(report)
        _show_approaches(report)
        _show_costs(report)
        for name, words in report.forgets.items():
            show(f"\n[bold]No past[/bold] of {name} for a changed program: {words}")
        for group in report.together:
            show(
                f"\n[bold]Shown together[/bold]: {escape(' and '.join(group.sinks))}, a step of all of them in one "
                f"transaction of {escape(group.place)}. Each waits for the slowest, one that is stuck holds all, and "
                "the writes of a step come one after the other"
            )
        for name, words in report.many_files.items():
            show(f"\n[bold]Many files[/bold] in {name}: {words}")
        puts = ", ".join(f"{name} {count:,}" for name, count in report.requests.items())
        price = sum(report.requests.values()) * _PRICE_OF_A_PUT
        show(f"\nPUTs a day into a bucket, at a step a second, without scratch: {puts}: ${price:.2f} on S3 Standard")
        if report.held:
            held = ", ".join(f"{name} {depth}" for name, depth in report.held.items())
            show(
                f"\n[bold]Held by standbys[/bold]: what is chosen counts once so many hold it: {held}. With fewer it "
                f"waits for the store. {min(report.held.values())} of these processes may die at once, the owner among "
                "them; give each a host of its own"
            )
        at_least_once = []
        for name in report.at_least_once:
            condition = report.processors[name].get("exactly_once_if")  # some receivers make a sink exactly-once
            again = "the step under way may come again after a failure"
            at_least_once.append(f"{name} ({again if condition is None else f'exactly once if {condition}'})")
        show(f"\nAt least once: {'; '.join(at_least_once) or 'nothing; every source and sink is exactly-once'}")


def show_evolution(
    flow: Dataflow,
    where: str,
    store: str,
    modes: Mapping[str, str],
    begin: Callable[[], SparkSession],
    *,
    as_json: bool,
    to: str | None = None,
    from_copy: bool = False,
) -> None:
    """Print what becomes of a store if a dataflow runs on it, or goes back, and the command that carries it out."""
    refuse_missing_store(store)
    report = evolution(flow, store, change=modes, to=to, from_copy=from_copy, spark=begin())
    if as_json:
        print_json(report)
        return
    goes_back = to is not None or from_copy
    if not report.is_changed and not goes_back:
        show("The store is of this program: boatlift run goes on with it.")
        return
    at = ", ".join(f"step {step} of {name}" for name, step in report.at.items() if step >= 0)
    if from_copy:
        there = report.back if to is not None else "this copy"
        show(f"The sinks go back to {there}{f', {at}' if at else ''}. Input after it is taken again.\n")
    elif to is None:
        empty = "" if any(each.was for each in report.processors.values()) else "The store has taken no input yet.\n"
        show(f"The store is at {at}.\n" if at else empty)
    else:
        undone = ", ".join(f"{steps} of {name}" for name, steps in report.undone.items())
        show(f"Back to {report.back}{f', {at}' if at else ''}. Steps that are undone and taken again: {undone}.\n")
    grid = Table.grid(padding=(0, 2))
    for name, each in report.processors.items():
        why = f": {', '.join(each.differences)}" if each.differences else ""
        why += f" (the former {each.was})" if each.was else ""
        does = (_MODES_OF_SINKS if each.kind == "sink" else _MODES).get(each.mode, "")
        if goes_back and (each.mode, each.change) == ("fill", "unchanged"):
            does = "goes back to what it held there"
        grid.add_row(f"[bold]{escape(name)}[/bold]", each.kind, escape(f"{each.change}{why}"), does)
    show(grid)
    if report.from_states:
        show(f"\nRows so far are taken from the states of {', '.join(report.from_states)}")
    if report.computed:
        how = "once more, step by step," if report.stepwise else "once"
        rows = {name: f" ({report.rows[name]:,} rows)" if name in report.rows else "" for name in report.computed}
        show(f"\nExecuted {how} over all input so far: {', '.join(f'{name}{said}' for name, said in rows.items())}")
        reads = [f"{decimal(size)} of {source}" for source, size in report.reads.items()]
        if reads:
            show(f"Read again: {', '.join(reads)}")
        if report.seconds:
            show(f"At the rate of the quickest steps so far: at least {max(1, round(report.seconds)):,} s")
    if report.obstacles:
        show("\n[bold]Not yet possible[/bold]")
        for message in report.obstacles.values():
            show(f"  {escape(message)}")
        return
    options = "".join(f" --change {name}={mode}" for name, mode in modes.items())
    if goes_back:
        point = "" if to is None else f" --to {shlex.quote(to)}"
        point += " --from-copy" if from_copy else ""
        show(f"\nboatlift rewind {where} --store {store}{point}{options} --evolve {report.id}")
        return
    show(f"\nboatlift run {where} --store {store}{options} --evolve {report.id}")


def show_way_back(store: str, to: str, *, as_json: bool) -> None:
    """Print what a way back would undo, as far as the log tells without the program."""
    report = way_back_to(store, to)
    if as_json:
        print_json(report)
        return
    when = f", kept at {datetime.fromtimestamp(report.kept_at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    show(f"Back to {report.back}{when if report.kept_at else ''}.\n")
    grid = Table.grid(padding=(0, 2))
    for name, steps in report.undone.items():
        pieces = f", {report.named[name]:,} files" if name in report.named else ""
        undone = f"{steps:,} steps{pieces}: undone, and taken again" if steps else "nothing is undone"
        grid.add_row(f"[bold]{escape(name)}[/bold]", "source", undone)
    for name, how in report.sinks.items():
        grid.add_row(f"[bold]{escape(name)}[/bold]", "sink", escape(_WAYS_BACK[how].format(name)))
    show(grid)
    if report.dropped:
        show(f"\nLater restore points go: {', '.join(report.dropped)}")
    show(f"\nboatlift rewind FLOW --store {store} --to {shlex.quote(to)} shows whether a program can, and its id")


_WAYS_BACK = {
    "undoes": "gets one more step, which takes its later ones back",
    "empties": "empties its later steps",
    "compares": "gets what differs from the past, which is computed",
    "none": "keeps what it holds: --change {}=now",
}
"""A sink's `WayBack` to the words for it."""

_MODES = {
    "fill": "recomputed from the past",
    "replay": "recomputed from the past, step by step",
    "relayout": "its state once more, in another form",
    "carry": "kept with new code",
    "same": "kept: you say that its rows are the same",
    "now": "begins now, without a past",
}
_MODES_OF_SINKS = {
    "fill": "gets what differs from what it holds",
    "new_rows": "gets what comes, and keeps what goes",
    "now": "gets nothing of the past",
}

WIDE = 100
"""Options that take more characters are printed one a line."""


def _trees(processors: Mapping[str, Mapping[str, Any]]) -> list[Tree]:
    """Return a tree for each source, of the processors that its rows flow through."""
    nodes: dict[str, Tree] = {}
    for name, about in processors.items():
        options = [escape(f"{key}: {_text(value)}") for key, value in about.items() if _is_given(about, key, value)]
        between = ", " if sum(map(len, options)) <= WIDE else "\n  "
        label = between.join([f"[bold]{name}[/bold]  {about['kind']}", *options])
        nodes[name] = nodes[about["reads"]].add(label) if "reads" in about else Tree(label)
    return [nodes[name] for name, about in processors.items() if "reads" not in about]


def _is_given(about: Mapping[str, Any], option: str, value: Any) -> bool:
    """Return whether an option differs from the default of the connector's function, such as `bl.files`."""
    connector = getattr(boatlift, about["kind"], None) if "delivery" in about else None
    known = signature(connector).parameters if callable(connector) else {}
    default = known[option].default if option in known else None
    return option not in ("kind", "reads") and value not in (default, None, [])


def _text(value: Any) -> str:
    match value:
        case [[_, _], *_]:  # columns and their types
            return ", ".join(f"{name} {kind}" for name, kind in value)
        case list() | tuple():
            return ", ".join(map(str, value))
        case dict():
            named = {key: f"({_text(each)})" if isinstance(each, dict) else _text(each) for key, each in value.items()}
            return ", ".join(f"{key} {words}" for key, words in named.items())
        case _:
            return str(value)


def _show_units(report: ProgramReport) -> None:
    show("\nThe processors of a line share one Spark job a step (another job divides the rows of a large step first):")
    for name, job in report.jobs.items():
        readers = [other for other, each in report.jobs.items() if name in (*each.reads, *each.looks_up)]
        show(f"  {' and '.join(job.reads)} → {' → '.join(job.executes)}{_more(job, readers)}")


def _show_queries(report: ProgramReport) -> None:
    for name, jobs in report.queries.items():
        show(f"\nA step of {name} has {len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}:")
        for number, words in enumerate(jobs, 1):
            show(f"  {number}. {words}")


def _show_long_running(report: ProgramReport) -> None:
    """Print the units whose steps may go through the long-running job, and why others do not."""
    long_running = [name for name in report.jobs if name not in report.own_jobs]
    show(
        "\nSmall steps that come quickly share a long-running Spark job, if it leaves "
        f"{report.slots_left} of Spark's task slots free: {', '.join(long_running) or 'of no processor'}"
    )
    for why, names in _grouped(report.own_jobs).items():
        show(f"  each step has a job of its own, because {why}: {names}")


def _grouped(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return each value with the names that have it."""
    return {why: ", ".join(name for name in reasons if reasons[name] == why) for why in reasons.values()}


def _more(job: JobReport, readers: Sequence[str]) -> str:
    targets = [f"sink {', '.join(job.stages_for)}"] if job.stages_for else []
    targets += [f"files for {', '.join(readers)}"] if job.keeps_output else []
    return "".join(
        [
            f", looking up {', '.join(job.looks_up)}" if job.looks_up else "",
            f" → {' and '.join(targets)}" if targets else "",
            f", the rows of {', '.join(job.history)} durable for it" if job.history else "",
            ", from all rows since the beginning" if job.everything else "",
        ]
    )


def _show_log(report: ProgramReport) -> None:
    show("\nDurable in the log before any effect of a step can be seen:")
    for name, determinants in report.recorded.items():
        if name in report.jobs:
            show(f"  {name}: {' and '.join(_DETERMINANTS[each] for each in determinants)}")
        else:
            no_rows = "" if "position" in determinants else "; no rows: the clients push again what a failure undoes"
            show(f"  {name}: {', '.join(determinants)}{no_rows}")
    _show_rates(report)
    _show_unawaited(report)
    if compared := [name for name, job in report.jobs.items() if job.deterministic]:
        show("\nIn the log later, to compare a replay with: a checksum of the rows of each step of")
        show(f"  {', '.join(compared)}")


def _show_rates(report: ProgramReport) -> None:
    """Print how many determinants each unit records."""
    rates = {name: _rate(each) for name, each in report.rates.items()}
    show("\nDeterminants that are recorded for 1,000 messages, beside the steps of sources:")
    for words, names in _grouped(rates).items():
        show(f"  {names}: {words}")


def _rate(rate: DeterminantRate) -> str:
    counted = f"{rate.least:,}" if rate.least == rate.most else f"{rate.least:,} under load, up to {rate.most:,}"
    return f"{counted} ({_ARRIVALS[rate.arrival]})" if rate.most else "none"


def _show_unawaited(report: ProgramReport) -> None:
    """Print the sinks whose receivers recognise rows, and why some wait nevertheless."""
    for why, names in _grouped(report.unawaited).items():
        if why:
            show(f"\nReceivers that recognise rows, and wait for the log because {why}: {names}")
        else:
            show(
                f"\n[bold]Wait for nothing[/bold]: {names}. The receiver recognises rows by key; after a crash "
                f"the rows that the log does not know come again, those of {MOST_AHEAD} steps at most"
            )


def _show_orders(report: ProgramReport) -> None:
    """Print what a replay of each unit has to repeat."""
    show("\nWhat a replay has to repeat, to give the same rows:")
    for repeats, names in _grouped({name: _repeats(report, name) for name in report.jobs}).items():
        show(f"  {names}: {repeats}")


def _repeats(report: ProgramReport, name: str) -> str:
    job = report.jobs[name]
    if not job.deterministic:
        kept = "a checkpoint" if "every" in job.policy else "each step"
        return f"nothing; its rows are durable with {kept} before a sink sees them"
    chosen = [_DETERMINANTS[each] for each in report.recorded.get(name, ())]
    why = f", because {job.order_why}" if job.order_why else ""
    return " and ".join([_INPUTS[job.order], *chosen]) + why


def _show_ordered(report: ProgramReport) -> None:
    """Print which rows keep, within a step, the order that they have in the source, and where that ends."""
    show("\nWithin a step, rows keep the order that they have in one")
    for part in dict.fromkeys(report.ordered.values()):
        show(f"  {part}: {', '.join(name for name, within in report.ordered.items() if within == part)}")
    if not report.ordered:
        show("  part of the input: nowhere")
    behind = [name for name, about in report.processors.items() if about.get("reads") in report.ordered]
    if ends := [name for name in behind if report.processors[name]["kind"] != "sink" and name not in report.ordered]:
        show(f"  and no longer behind {', '.join(ends)}")


def _show_approaches(report: ProgramReport) -> None:
    known = {name: job.approach for name, job in report.jobs.items() if job.approach}
    if known:
        show("\nHow states get over a failure:")
        for approach, names in _grouped(known).items():
            show(f"  {approach}: {names}")


def _show_costs(report: ProgramReport) -> None:
    show("\nExecuted again if one processor failed at the worst moment of a long run (beside the steps under way):")
    for name, again in report.executed_again.items():
        steps = ", ".join(f"{count} steps of {other}" for other, count in again.items())
        show(f"  {name}: {steps or 'nothing'}")
    for name, cheaper in report.needless_policies.items():
        own = report.jobs[name].policy
        show(f"  [bold]{own} of {name} buys nothing[/bold]: with {cheaper} every failure costs the same")
