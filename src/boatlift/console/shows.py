"""What a store and a program look like: tables for people, JSON for programs. Reads only; owns no logic."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from rich.tree import Tree

from boatlift.console.tables import console, moment, table
from boatlift.dataflow import Dataflow, Delivery, Plan, Sink, Unit, plan
from boatlift.dataflow.processors import (
    Aggregate,
    Lookup,
    Recomputation,
    SinkProcessor,
    SourceProcessor,
    Transform,
    Union,
    describe_policy,
    upstreams_of,
)
from boatlift.runtime.graph import program_of
from boatlift.runtime.inspect.failure_costs import costs_of, needless_policies
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import last_number
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.verify import verify

__all__ = ["show_checkpoints", "show_log", "show_plan", "show_verification"]

LINE = 200
"""On a terminal a record is cut after so many characters; elsewhere, and with --json, it is whole."""


def show_plan(flow: Dataflow, *, as_json: bool) -> None:
    """Shows a program: its graph, its units, what will be logged, what is not exactly-once."""
    from pyspark.sql import SparkSession

    from boatlift.spark.program import compile_program

    planned = plan(flow)
    spark = SparkSession.getActiveSession()
    assert spark is not None, "the command has started a session"
    program = compile_program(spark, planned)
    described = {name: _described(planned, name) for name in planned.processors}
    units = {name: _executed(unit) for name, unit in planned.units.items()}
    loose = [name for name, processor in planned.processors.items() if _delivery(processor) is Delivery.AT_LEAST_ONCE]
    policies = {name: unit.policy for name, unit in planned.units.items()}
    costs = costs_of(program_of(planned))
    needless = needless_policies(partial(program_of, planned), policies)
    if as_json:
        _print_json(
            {
                "dataflow": flow.name,
                "executed_again": costs,
                "needless_policies": {name: describe_policy(policy) for name, policy in needless.items()},
                "processors": described,
                "units": units,
                "at_least_once": loose,
                "program": program.identity,
            }
        )
        return
    show = console().print
    for source in planned.sources:
        tree = Tree(f"[bold]{source}[/bold]  {_words(described[source])}")
        _grow(tree, planned, source, described)
        show(tree)
    show("\nExecuted together, as one Spark job a step (a large step's rows are divided by another one before it):")
    for name, unit in planned.units.items():
        sinks = f", staging for {', '.join(s.name for s in unit.sinks)}" if unit.sinks else ""
        kept = ", its output kept as runs for its readers" if unit.materialised else ""
        kept += ", from everything since the beginning" if unit.recomputation and unit.recomputation.everything else ""
        looks = f", looking up {', '.join(table.upstream for table in unit.tables)}" if unit.tables else ""
        show(f"  {' and '.join(unit.roots)} → {' → '.join(units[name])}{looks}{sinks}{kept}")
    show("\nDurable in the log before anything of a step can be seen:")
    for source in planned.sources:
        forgets = "keys, clock, seed; no rows: what a failure takes back is pushed again"
        show(f"  {source}: {forgets if planned.forgets(source) else 'position, clock, seed'}")
    for name, unit in planned.units.items():
        if not unit.repeats:
            show(f"  {name}: its rows, which could not be made again")
    show("\nLogged after it, perhaps when sinks show the step already, to compare a replay with:")
    for name in (name for name, unit in planned.units.items() if unit.repeats):
        show(f"  {name}: its digest (a sink keeps its own, and compares too)")
    show("\nExecuted again if one failed, at the worst moment of a long run (and what was under way):")
    for name, again in costs.items():
        steps = ", ".join(f"{count} steps of {other}" for other, count in again.items())
        show(f"  {name}: {steps or 'nothing'}")
    for name, policy in needless.items():
        cheaper, own = describe_policy(policy), describe_policy(policies[name])
        show(f"  [bold]{own} of {name} buys nothing[/bold]: with {cheaper} every failure costs the same")
    show(f"\nAt least once: {', '.join(loose) if loose else 'nothing; every source and sink is exactly-once'}")


def _described(planned: Plan, name: str) -> dict[str, Any]:
    processor = planned.processors[name]
    about: dict[str, Any] = {"kind": type(processor).__name__.removesuffix("Processor").lower()}
    if isinstance(processor, SourceProcessor):
        about |= {"delivery": processor.source.delivery.value, **processor.source.describe()}
    elif isinstance(processor, SinkProcessor):
        about |= {"delivery": processor.sink.delivery.value, **processor.sink.describe()}
    else:
        about["policy"] = describe_policy(processor.policy)
    if isinstance(processor, Transform) and not processor.repeats:
        about["deterministic"] = False
    if isinstance(processor, Aggregate):
        about["keys"] = list(processor.keys)
    if isinstance(processor, Union):
        about |= {"with": list(processor.others), "as_they_come": processor.as_they_come}
    if isinstance(processor, Lookup):
        about["tables"] = {t.name: {"reads": t.upstream, "keys": list(t.keys)} for t in processor.tables}
    if isinstance(processor, Recomputation):
        about["over"] = "everything" if processor.everything else "batch"
        if processor.function is None:
            about["kind"] = "gathering"
    upstream = next(iter(upstreams_of(processor)), None)
    return about if upstream is None else {**about, "reads": upstream}


def _executed(unit: Unit) -> list[str]:
    """Names the processors of a unit, in order."""
    parts = [*([unit.union] if unit.union else ()), *unit.chain, *([unit.end] if unit.end else ()), *unit.after]
    names = [part.name for part in parts]
    return names or [unit.name]


def _delivery(processor: Any) -> Delivery:
    connector = getattr(processor, "source", None) or getattr(processor, "sink", None)
    return Delivery.EXACTLY_ONCE if connector is None else connector.delivery


def _words(about: dict[str, Any]) -> str:
    return ", ".join(f"{key}: {value}" for key, value in about.items() if key != "reads")


def _grow(tree: Tree, planned: Plan, name: str, described: dict[str, dict[str, Any]]) -> None:
    for other, processor in planned.processors.items():
        if name in upstreams_of(processor)[:1]:
            _grow(tree.add(f"[bold]{other}[/bold]  {_words(described[other])}"), planned, other, described)


def show_log(path: Path, *, as_json: bool) -> None:
    """Shows every record that is still kept."""
    for number, at, record in _records(path):
        fields = msgspec.to_builtins(record)
        kind = fields.pop("type")
        if as_json:
            print(json.dumps({"object": number, "written_at": at or None, "record": kind, **fields}))
        else:
            print(f"{number:>6}  {moment(at):<23}  {kind:<10} {_line(fields)}")


def show_checkpoints(path: Path, *, as_json: bool) -> None:
    """Shows the checkpoints that a rollback could choose."""
    history = _open(path).history
    kept = [state for by_frontier in history.live_records.states.values() for state in by_frontier.values()]
    if as_json:
        _print_json(
            [
                {
                    "processor": state.processor,
                    "frontier": state.frontier,
                    "runs": [msgspec.to_builtins(run) for run in runs_of(state.content)],
                }
                for state in kept
            ]
        )
        return
    shown = table("processor", "step", "runs", "rows", "bytes", "new bytes since the one before")
    before: dict[str, set[str]] = {}
    for checkpoint in kept:
        runs = list(runs_of(checkpoint.content))
        named = {run.name: run.size for run in runs}
        fresh = sum(size for name, size in named.items() if name not in before.get(checkpoint.processor, set()))
        before[checkpoint.processor] = set(named)
        rows = sum(run.rows for run in runs)
        cells: Sequence[object] = (last_number(checkpoint.frontier), len(named), rows, sum(named.values()), fresh)
        shown.add_row(checkpoint.processor, *(f"{cell:,}" for cell in cells))
    console().print(shown)


def show_verification(path: Path, sinks: Mapping[str, Sink], *, as_json: bool) -> int:
    """Checks every durable byte of a store, and these sinks, and gives the exit status."""
    findings = list(verify(LocalStore.open(path, create=False)))
    for sink in sinks.values():
        findings += sink.verify()
    wrong = [finding for finding in findings if finding.is_error]
    if as_json:
        checked = {"store": str(path), "sinks": sorted(sinks)}
        _print_json({"ok": not wrong, **checked, "findings": [msgspec.to_builtins(finding) for finding in findings]})
    else:
        for finding in findings:
            print(finding)
        looked_at = ", ".join(["the store", *(f"sink {name}" for name in sorted(sinks))])
        print(f"{len(wrong)} faults" if wrong else f"everything verifies: {looked_at}")
    return 5 if wrong else 0


def _open(path: Path) -> Log:
    return Log.open(LocalStore.open(path, create=False), None)


def _records(path: Path) -> Iterable[tuple[int, int, Any]]:
    for group in _open(path).groups():
        for record in group.records:
            yield group.header.number, group.header.at, record


def _line(fields: dict[str, Any]) -> str:
    text = "  ".join(f"{key}={json.dumps(value, separators=(',', ':'))}" for key, value in fields.items())
    return text if len(text) <= LINE or not sys.stdout.isatty() else f"{text[: LINE - 1]}…"


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, default=str))
