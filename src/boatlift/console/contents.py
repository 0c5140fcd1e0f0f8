"""Printed contents of a store: `boatlift status`, `log`, `checkpoints`, `gc`, `bad-rows`, `verify` and `explain`."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from rich.filesize import decimal

from boatlift.api.reports import status as status_at
from boatlift.console.tables import moment, print_json, show, table
from boatlift.dataflow import Sink
from boatlift.errors import InvalidError
from boatlift.runtime.host.clock import LEAST_SECONDS, behind
from boatlift.runtime.inspect.contents import (
    checkpoints_of,
    dead_letters_of,
    kept_in,
    log_at,
    log_records,
    points_of,
    rows_set_aside,
    store_at,
    verification_of,
)
from boatlift.runtime.inspect.explanation import EXECUTED_AGAIN, RollbackCost, Upkeep, explanation_of, monitor_from_log
from boatlift.runtime.inspect.status import LIVING

STATES = {
    "new": "no process has run it yet",
    "stopped": "stopped cleanly",
    "alive": "running (or, in a notebook, its run has ended with an error and the process lives on)",
    "stuck": "stuck: it makes no progress",
    "crashed": "crashed: its process has ended without a clean stop; run it again to resume",
    "running or crashed": "running or crashed: this machine cannot tell whether its process is alive",
}

LINE = 200
"""On a terminal a record is cut after so many characters; elsewhere, and with --json, it is whole."""

_FIELDS = {"time": "step", "digest": "digest_of_rows", "milliseconds": "ms"}
"""A field of a record to its printed name; with --json it has its own."""

_compact = json.JSONEncoder(separators=(",", ":")).encode

DAMAGED = 5
"""The exit status if something is damaged: that of `DataError`."""

HEADINGS = ("processor", "rolled back to", "steps executed again", "of these with the same result", "rows", "seconds")

_PARTS = {
    "left": "rows of the left side",
    "right": "rows of the right side",
    "left_keys": "keys of the left side",
    "right_keys": "keys of the right side",
    "right_kinds": "NULLs of the right side",
    "partials": "partial aggregates",
    "counts": "distinct rows",
    "rows": "rows in order",
}
"""A part of the state of a query's stage, by its name in the store, to the words for it."""


def show_points(path: str, *, as_json: bool) -> None:
    """Print the restore points of a store."""
    points = points_of(log_at(path))
    if as_json:
        print_json({"points": points})
        return
    if not points:
        show("There is no restore point: boatlift keep --name NAME keeps one, bl.Dataflow(…, keep=bl.Keep(…)) many.")
        return
    rows = table("point", "kept at", "after step", "until", "bytes for it alone")
    for each in points:
        steps = ", ".join(f"{step} of {source}" for source, step in each.steps.items())
        until = "it is dropped" if each.until is None else moment(each.until)
        rows.add_row(each.name, moment(each.at), steps, until, decimal(each.bytes))
    show(rows)


def show_status(path: str, *, as_json: bool) -> None:
    """Print the progress of each processor, by the store."""
    status = status_at(path)
    if as_json:
        print_json(status.as_json())
        return
    print(f"{status.dataflow}: {STATES[status.state]}")
    for each in status.stuck:
        where = f"step {each.step} of {each.processor}" if each.step >= 0 else each.processor
        print(f"stuck since {moment(each.since)}: {where}: {each.why}")
    print(f"store: {status.store}")
    if status.owner is not None:
        print(f"last owner: process {status.owner.pid} on {status.owner.host}, since {moment(status.owner.at)}")
        print(f"last record: {moment(status.last_record_at)}")
    for standby in status.standbys:
        ready = "is ready" if standby.ready else "is not ready yet"
        waits = ", and waits for a handover" if standby.handover_only else ""
        behind_by = f", {standby.behind:,} objects of the log behind" if standby.behind else ""
        holds = f", holds {standby.holds:,} bytes that the log lacks" if standby.holds else ""
        print(f"standby: process {standby.pid} on {standby.host} {ready}{behind_by}{waits}{holds}")
    if (there := sum(not each.handover_only for each in status.standbys)) < status.depth:
        print(
            f"determinants: peers:{status.depth} needs {status.depth} standbys, {there} there: all waits for the store"
        )
    if (ahead := status.last_record_at // 1000 - int(time.time())) >= LEAST_SECONDS:
        print(behind(ahead))
    for source, step in status.closed.items():
        print(f"{source}: {'no step is' if step < 0 else f'steps up to {step} are'} recorded")
    rows = table("processor", "last step", "last checkpoint", "never undone up to", "steps executed again")
    for name, unit in status.processors.items():
        steps = ("none" if step < 0 else str(step) for step in (unit.executed, unit.checkpoint, unit.stable))
        rows.add_row(name, *steps, str(unit.to_replay))
    show(rows)
    for name, unit in status.processors.items():
        if unit.one_at_a_time:
            print(f"{name}: its steps are those of {' and '.join(unit.one_at_a_time)} together, one after the other")
    if not status.stopped_cleanly:
        again = sum(unit.to_replay for unit in status.processors.values())
        number = "no step" if not again else "1 step" if again == 1 else f"{again:,} steps"
        more = f": `{shlex.join(('boatlift', 'explain', '--store', str(path)))}` shows which, and why" if again else ""
        print(f"if everything failed now, {number} would be executed again{more}")
        if again and status.adoptable:
            print("if the driver alone died, no recorded step would be executed again")
    for sink, step in status.sinks.items():
        holds = f"holds steps up to {step}" if step >= 0 else "holds nothing"
        print(f"{sink}: {holds}, as far as the log knows")
    for group in status.together:
        held_by = f"; all wait for {' and '.join(group.held_by)}" if group.held_by else ""
        shown = f"steps up to {group.step}" if group.step >= 0 else "no step yet"
        print(f"{' and '.join(group.sinks)} are shown together: {shown}{held_by}")
    for kept in status.in_flight:
        waits = f"the rows of {kept.messages:,} steps wait in the store, {kept.bytes:,} bytes"
        print(f"{kept.sender} -> {kept.reader}: {waits}")
    for source, waiting in ({} if status.input is None else status.input.waiting).items():
        size = f", {decimal(waiting.bytes)}" if waiting.bytes else ""
        since = f", the oldest since {moment(waiting.oldest_at)}" if waiting.oldest_at else ""
        print(f"{source}: {waiting.count:,} {waiting.unit} wait to be taken{size}{since}")
    if status.state in LIVING:
        most = status.owner.bytes_in_flight if status.owner is not None else 0
        limit = f"; with {most:,} or more, sources are asked for no further step" if most else ""
        print(f"rows under way or waiting in scratch: {status.scratch:,} bytes{limit}")
    if status.activity is not None and (held := status.activity.process.state_bytes):
        print(f"states in memory: {decimal(held)} of a memory file system")
    if status.activity is not None and status.activity.page:
        print(f"Spark's own page: {status.activity.page}")
    told: dict[str, list[str]] = {}
    for name, own in ((name, own) for numbers in status.numbers.values() for name, own in numbers.items()):
        told.setdefault(f"{own.in_words(moment)} up to step {own.step}, its newest checkpoint", []).append(name)
    for words, names in told.items():
        print(f"{' and '.join(names)}: {words}")


def show_log(
    path: str, *, tail: int | None = None, since: str | None = None, processor: str | None = None, as_json: bool
) -> None:
    """Print the records that the log still has, one a line."""
    if tail is not None and tail < 1:
        raise InvalidError("BAD_OPTION", f"--tail {tail}: give the number of records to show, at least 1")
    log = log_at(path)
    if processor is not None and processor not in (known := monitor_from_log(log.history)[0].graph.vertices):
        names = ", ".join(known)
        raise InvalidError("BAD_OPTION", f"{log.dataflow} has no processor {processor}: choose from {names}")
    records = log_records(log, 0 if since is None else _milliseconds(since), processor)
    for line in records if tail is None else deque(records, tail):
        if as_json:
            print(json.dumps(line.as_json()))
        else:
            fields = (f"{_FIELDS.get(key, key)}={_compact(value)}" for key, value in line.fields.items())
            text = "  ".join(fields)
            shown = text if len(text) <= LINE or not sys.stdout.isatty() else f"{text[: LINE - 1]}…"
            print(f"{line.object:>6}  {moment(line.written_at):<23}  {line.record:<10} {shown}")


def _milliseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidError("BAD_OPTION", f"--since {text}: write a time such as 2026-11-26T10:04 (UTC)") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def show_checkpoints(path: str, *, as_json: bool) -> None:
    """Print the checkpoints that a rollback can choose from."""
    checkpoints = checkpoints_of(log_at(path))
    if as_json:
        print_json({"checkpoints": checkpoints})
        return
    rows = table("processor", "step", "files", "rows", "bytes", "new bytes since the one before")
    for each in checkpoints:
        counts = (each.step, each.files, each.rows, each.bytes, each.new_bytes)
        rows.add_row(each.processor, *(f"{count:,}" for count in counts))
    show(rows)


def show_kept(path: str, *, as_json: bool) -> None:
    """Print the kept data of a store, and the processors that may need them."""
    kept = kept_in(store_at(path), log_at(path))
    if as_json:
        print_json({"kept": kept})
        return
    rows = table("kept", "of", "steps", "files", "bytes", "for which processor")
    for each in kept:
        counts = (f"{n:,}" if n else "" for n in (each.times, each.runs, each.size))
        whose = "" if each.whose == "-" else each.whose
        rows.add_row("determinants" if each.what == "choices" else each.what, whose, *counts, each.why)
    show(rows)
    size = sum(each.size for each in kept)
    print(f"{size:,} bytes in all; the log has the positions, determinants and digests")


def show_bad_rows(path: str, source: str, *, as_json: bool) -> None:
    """Print the bad rows that are set aside, and the streams that other bad rows go to."""
    streams, found = dead_letters_of(path, source), rows_set_aside(path, source)
    if as_json:
        for bad in found:
            row = {"source": bad.source, "step": bad.step, "place": bad.place, "letter": json.loads(bad.dead_letter)}
            print(json.dumps(row, ensure_ascii=False))
        return
    rows = table("source", "step", "place", "row", "reason")
    for name, stream in streams.items():
        print(f"bad rows of {name} go to the stream {stream}, not here")
    for bad in found:
        dead_letter = json.loads(bad.dead_letter)
        text = dead_letter.get("text", dead_letter.get("value"))
        rows.add_row(bad.source, f"{bad.step:,}", bad.place, "" if text is None else text, dead_letter["reason"])
    if rows.row_count:
        show(rows)
    else:
        print("no bad row is set aside")


def show_verification(path: str, sinks: Mapping[str, Sink], *, as_json: bool) -> int:
    """Check a store and sinks, print the outcome, and return the exit status."""
    outcome = verification_of(path, sinks)
    if as_json:
        print_json(outcome)
    else:
        print(*outcome.findings, sep="\n", end="\n" if outcome.findings else "")
        checked = ", ".join(["the store", *(f"sink {name}" for name in outcome.sinks)])
        print(f"everything verifies: {checked}" if outcome.ok else f"{len(outcome.faults)} faults")
    return 0 if outcome.ok else DAMAGED


def show_explanation(path: str, failed: Iterable[str], *, as_json: bool) -> None:
    """Print the cost of a failure, then each processor's kept state, and the cost of its last steps."""
    explanation = explanation_of(log_at(path), frozenset(failed))
    if as_json:
        print_json(explanation)
        return
    failing = "everything" if explanation.everything_fails else ", ".join(explanation.failed)
    print(f"If {failing} failed now, as far as the log knows:\n")
    _show_costs(explanation.processors)
    print("\nWhere each processor resumes from:")
    for cost in explanation.processors.values():
        print(f"  {cost.does}")
    for line in explanation.queues:
        print(f"  {line}")
    print()
    _show_upkeep(explanation.upkeep)


def _show_costs(processors: Mapping[str, RollbackCost]) -> None:
    costs = {name: cost for name, cost in processors.items() if cost.steps}
    if not costs:
        print("Nothing is executed again.")
        return
    rows = table(*HEADINGS, title="The cost of the rollback, by the recorded cost of the steps")
    for name, cost in costs.items():
        counts = (f"{count:,}" for count in (cost.steps, cost.repeated, cost.rows))
        rows.add_row(name, cost.rolled_back_to, *counts, f"{cost.seconds:.1f}")
    show(rows)
    print(EXECUTED_AGAIN)


def _show_upkeep(upkeep: Mapping[str, Upkeep]) -> None:
    rows = table(
        "processor", "part of its state", "files", "rows", "bytes", "rows a step", "ms a step", title="Kept state"
    )
    for name, each in upkeep.items():
        cost = (f"{each.rows:,}", f"{each.milliseconds:,.0f}") if each.steps else ("", "")
        if not each.state:
            rows.add_row(name, "none" if each.checkpoint < 0 else "empty", "", "", "", *cost)
        stages = {kept.part.partition("/")[0] for kept in each.state}
        for number, kept in enumerate(each.state):
            counts = (f"{count:,}" for count in (kept.files, kept.rows, kept.bytes))
            part = _part_in_words(kept.part, several_stages=len(stages) > 1)
            rows.add_row(name if number == 0 else "", part, *counts, *(cost if number == 0 else ("", "")))
    show(rows)


def _part_in_words(name: str, *, several_stages: bool) -> str:
    """Return the words for a part of a state, with the stage of a query by the number that `boatlift plan` prints."""
    stage, *operators, part = name.split("/") if "/" in name else ("", name)
    if not stage:
        return name.removeprefix("_") or "all"
    words = f"rows of input {part}" if part.isdecimal() else _PARTS.get(part, part)
    place = ", ".join([f"stage {stage}"] * several_stages + operators)
    return f"{place}: {words}" if place else words
