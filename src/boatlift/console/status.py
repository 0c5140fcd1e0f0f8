"""`boatlift status`, printed."""

from __future__ import annotations

import shlex
import time
from pathlib import Path

from rich.filesize import decimal

from boatlift.api.reports import status as status_at
from boatlift.console.tables import moment, print_json, show, table
from boatlift.runtime.host.clock import LEAST_SECONDS, behind
from boatlift.runtime.inspect.status import LIVING

STATES = {
    "new": "no process has run it yet",
    "stopped": "stopped cleanly",
    "alive": "running (or, in a notebook, its run has ended with an error and the process lives on)",
    "crashed": "crashed: its process has ended without a clean stop; run it again to resume",
    "running or crashed": "running or crashed: this machine cannot tell whether its process is alive",
}


def show_status(path: Path, *, as_json: bool) -> None:
    """Print the progress of each processor, by the store."""
    status = status_at(path)
    if as_json:
        print_json(status.as_json())
        return
    print(f"{status.dataflow}: {STATES[status.state]}")
    print(f"store: {status.store}")
    if status.owner is not None:
        print(f"last owner: process {status.owner.pid} on {status.owner.host}, since {moment(status.owner.at)}")
        print(f"last record: {moment(status.last_record_at)}")
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
    for sink, step in status.sinks.items():
        holds = f"holds steps up to {step}" if step >= 0 else "holds nothing"
        print(f"{sink}: {holds}, as far as the log knows")
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
    told: dict[str, list[str]] = {}
    for name, own in ((name, own) for numbers in status.numbers.values() for name, own in numbers.items()):
        told.setdefault(f"{own.in_words(moment)} up to step {own.step}, its newest checkpoint", []).append(name)
    for words, names in told.items():
        print(f"{' and '.join(names)}: {words}")
