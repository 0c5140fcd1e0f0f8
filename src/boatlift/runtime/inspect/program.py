"""A program before it runs: its processors, jobs and determinants, and the cost of failures under its policies."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec

from boatlift.dataflow import Delivery, Ephemeral, History, Lazy, Plan, Timing, Unit, batch_of
from boatlift.dataflow.identified_rows import recognises_rows, why_it_waits
from boatlift.dataflow.order import OrderKind, order_of
from boatlift.dataflow.processors import Processor, SinkSpec, SourceSpec, describe_policy
from boatlift.dataflow.rows import RowKind
from boatlift.runtime.graph import program_of
from boatlift.runtime.inspect.determinants import DeterminantRate, determinant_rates
from boatlift.runtime.inspect.failure_costs import costs_of, needless_policies

DAY = 86_400.0

MANY = 5_000  # readers of a folder take long to list a few days of so many files

_GATHER = "gather them with every='1 minute', one file a minute"
_CHANGES = "its rows are changes, which cannot be gathered: choose a sink that keeps the newest rows, such as bl.sqlite"


def many_files(plan: Plan) -> dict[str, str]:
    """Return, in words, why sinks will write more than `MANY` files a day, and what to do.

    A source that takes its whole backlog (Kafka, pushes) begins a step as soon as the step before is done. The rate of
    steps is unknown for a source whose input divides them (files).
    """
    found = {}
    for name, sink in plan.sinks.items():
        if not sink.sink.capabilities.leaves_files:
            continue
        unit = plan.unit_of_sink(name).name
        steps = _steps_a_day(plan, unit, counted=True)
        if steps is None or steps <= MANY:
            continue
        often = (
            "a file a step, and a step as soon as rows come: up to some hundred thousand files a day"
            if math.isinf(steps)
            else f"some {round(steps):,} files a day"
        )
        found[name] = f"{often}; {_GATHER if plan.rows_of(unit).kind is RowKind.APPEND else _CHANGES}"
    return found


def requests_a_day(plan: Plan) -> dict[str, int]:
    """Return the PUTs a day, if each source has at most a step a second, into buckets of object stores.

    Returns:
        `log`, and each unit with checkpoints, as if the store is in a bucket; each sink whose files are in one.
    """
    found = {"log": round(DAY)}
    for name, unit in plan.units.items():
        steps = _steps_a_day(plan, name, counted=True, most=DAY) or 0.0
        match unit.policy:
            case Lazy(every=every, seconds=seconds):
                found[name] = round(max(steps / every if every else 0.0, DAY / seconds if seconds else 0.0))
            case Ephemeral():
                pass
            case _:
                found[name] = round(steps)
    for name, sink in plan.sinks.items():
        if sink.sink.capabilities.leaves_files and sink.sink.capabilities.places[0].startswith("s3://"):
            found[name] = round(_steps_a_day(plan, plan.unit_of_sink(name).name, counted=True, most=DAY) or 0.0)
    return found


def _steps_a_day(plan: Plan, name: str, *, counted: bool, most: float = math.inf) -> float | None:
    """Return the steps a day of a source or a unit; infinite: without pause; None: unknown.

    Args:
        most: The most steps a day of a source; those of a source of an unknown rate.
        counted: Whether the reader counts the batch's own epochs. Other readers see the epochs of the batch's input,
            and have as many steps.
    """
    if name in plan.sources:
        capabilities = plan.sources[name].source.capabilities
        if capabilities.coalesces_backlog is not None:
            return most
        if capabilities.period is None:
            return None if math.isinf(most) else most
        return min(most, DAY / capabilities.period)
    unit = plan.units[name]
    counts = unit.timing is not Timing.EPOCHS
    known = [steps for read in unit.reads if (steps := _steps_a_day(plan, read, counted=counts, most=most)) is not None]
    steps = max(known, default=None)
    policy = next((batch_of(each.policy) for each in unit.operators if each.timing is Timing.BATCH), None)
    if not counted or policy is None or steps is None:
        return steps
    if policy.judges_rows or policy.is_bound_alone:
        return None
    return min(steps / (policy.epochs or 1), DAY / policy.seconds if policy.seconds else math.inf)


class JobReport(msgspec.Struct, frozen=True):
    """A unit: the processors that are executed together as one Spark job a step.

    Attributes:
        reads: The sources or units that its rows come from.
        looks_up: The units whose newest rows it looks up.
        stages_for: The sinks that its job stages rows for.
        keeps_output: True if its output is kept as runs, because other units read it.
        history: The units whose rows are durable for it until no recovery needs them (`History` without state).
        everything: True if each step takes all rows since the beginning.
        deterministic: False if a transform is declared nondeterministic; the rows of a batch are logged in any case.
        policy: Its policy, as it is written in Python.
        order: Its kind by Clonos, the last of its processors' (`boatlift.dataflow.order`).
        order_why: For a divergent one the processor, and why.
        approach: The approach to fault tolerance of its state, if its policy is `Lazy` (`Lazy.approach`); else empty.
    """

    reads: list[str]
    executes: list[str]
    looks_up: list[str]
    stages_for: list[str]
    keeps_output: bool
    history: list[str]
    everything: bool
    deterministic: bool
    policy: str
    order: str
    order_why: str
    approach: str = ""


class SinkGroup(msgspec.Struct, frozen=True):
    """Sinks that are shown together: a step of them is one transaction of their place, such as a database."""

    place: str
    sinks: Sequence[str]


class ProgramReport(msgspec.Struct, frozen=True):
    """A program.

    Attributes:
        executed_again: Each processor that fails (`everything`: all of them) to the steps that each processor then
            executes again, at the worst moment of a long run.
        needless_policies: Each processor to a cheaper policy under which every failure costs the same.
        at_least_once: The sources and sinks that are not exactly-once.
        program: The identity that a run records.
        recorded: Each source, and each unit with determinants, to its determinants, which are in the log before any
            effect of a step can be seen. `arrival order`: the order in which a unit's messages arrived; `epoch ends`:
            the ends of a batch's epochs; `rows`: the rows of a unit that cannot repeat them; `answers`: the answers of
            external systems.
        ordered: Each source and operator whose rows keep, within a step, the order of a part of the input, to the part
            in words, such as `file`.
        queries: Each view to the jobs of its steps, in words: the part of the query that each computes, how, and by
            which key.
        own_jobs: Each unit whose steps always have jobs of their own, to the reason; the small steps of others may
            share a long-running job.
        slots_left: How many slots of Spark's the long-running job leaves to others.
        forgets: Each source whose past no changed program can be computed from, to the reason, and what to do.
        many_files: Each sink that writes more than some thousands of files a day to the reason, and what to do.
        requests: As `requests_a_day`.
        held: Each source, unit and sink whose facts count once standbys hold them, to the number of these.
        together: The sinks that are shown together, by the place whose transactions they share.
        unawaited: Each sink whose receiver recognises rows by a key, to why it waits for the log; empty if for nothing.
        rates: Each unit to the determinants that it records for 1,000 messages.
    """

    dataflow: str
    executed_again: Mapping[str, Mapping[str, int]]
    needless_policies: Mapping[str, str]
    processors: Mapping[str, Mapping[str, Any]]
    units: Mapping[str, list[str]]
    at_least_once: list[str]
    program: Mapping[str, Any]
    jobs: Mapping[str, JobReport]
    recorded: Mapping[str, list[str]]
    ordered: Mapping[str, str]
    queries: Mapping[str, Sequence[str]]
    own_jobs: Mapping[str, str]
    slots_left: int
    many_files: Mapping[str, str]
    forgets: Mapping[str, str]
    requests: Mapping[str, int]
    held: Mapping[str, int]
    together: Sequence[SinkGroup]
    unawaited: Mapping[str, str]
    rates: Mapping[str, DeterminantRate]


def plan_of(
    planned: Plan,
    identity: Mapping[str, Any],
    queries: Mapping[str, Sequence[str]] = MappingProxyType({}),
    long_running: Mapping[str, str | None] = MappingProxyType({}),
    slots_left: int = 1,
    not_again: Callable[[str], str] = lambda _unit: "",
) -> ProgramReport:
    """Return the report of a program; `not_again` is as of `why_it_waits`."""
    jobs = {name: _job(unit, planned) for name, unit in planned.units.items()}
    policies = {name: unit.policy for name, unit in planned.units.items()}
    needless = needless_policies(partial(program_of, planned), policies)
    return ProgramReport(
        dataflow=planned.dataflow,
        executed_again=costs_of(program_of(planned)),
        needless_policies={name: describe_policy(policy) for name, policy in needless.items()},
        processors={name: describe(processor) for name, processor in planned.processors.items()},
        units={name: job.executes for name, job in jobs.items()},
        at_least_once=[name for name, each in planned.processors.items() if _delivery(each) is Delivery.AT_LEAST_ONCE],
        program=identity,
        jobs=jobs,
        recorded=_recorded(planned),
        ordered={name: rows.ordered_within for name, rows in planned.rows.items() if rows.ordered_within is not None},
        queries=queries,
        own_jobs={name: why for name, why in long_running.items() if why is not None},
        slots_left=slots_left,
        many_files=many_files(planned),
        held=planned.depths(),
        forgets=_forgets(planned),
        requests=requests_a_day(planned),
        together=list(_together(planned)),
        unawaited={
            name: why_it_waits(planned, name, not_again)
            for name, each in planned.sinks.items()
            if recognises_rows(each)
        },
        rates=determinant_rates(planned),
    )


def _together(plan: Plan) -> Iterator[SinkGroup]:
    for group in plan.groups:
        shares = plan.sinks[group[0]].sink.capabilities.shares_transaction
        assert shares is not None
        yield SinkGroup(shares.shared_place, group)


def _forgets(plan: Plan) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, each in plan.sources.items():
        able = each.source.capabilities
        if able.store_backed is not None and not able.store_backed.retains:
            found[name] = "its rows go once they are acknowledged: bl.push(…, retain=True) keeps them"
        elif able.rescannable is None and each.source.delivery is Delivery.EXACTLY_ONCE:
            found[name] = "it cannot be read again from its beginning"
    return found


def describe(processor: Processor) -> dict[str, Any]:
    """Return a processor's kind, its options, and as `reads` the processor that its rows come from."""
    match processor:
        case SourceSpec(source=connector):
            return {"kind": "source", "delivery": connector.delivery.value, **connector.describe()}
        case SinkSpec(sink=connector, upstream=upstream):
            about = {"kind": "sink", "delivery": connector.delivery.value, **connector.describe()}
            return {**about, "reads": upstream}
        case operator:
            about = {"kind": operator.kind, "policy": describe_policy(operator.policy), **operator.describe()}
            if not (operator.deterministic or operator.timing is Timing.BATCH):
                about["deterministic"] = False
            return {**about, "reads": operator.reads[0]}


def _job(unit: Unit, planned: Plan) -> JobReport:
    tables = {table for operator in unit.operators for table in operator.looks_up}
    logs = isinstance(unit.policy, History) and not (unit.keeps_state or unit.rereads_source)
    kinds = list(OrderKind)
    found = [(*order_of(each), each.name) for each in unit.operators] or [(OrderKind.INSENSITIVE, "", unit.name)]
    order, why, of = max(found, key=lambda each: kinds.index(each[0]))
    return JobReport(
        reads=[name for name in unit.reads if name not in tables],
        executes=[operator.name for operator in unit.operators] or [unit.name],
        looks_up=[name for name in unit.reads if name in tables],
        stages_for=[sink.name for sink in unit.sinks],
        keeps_output=unit.materialised,
        # A source is read again instead.
        history=[name for name in unit.reads if logs and name not in planned.sources],
        everything=unit.rereads_source,
        deterministic=_is_repeatable(unit),
        policy=describe_policy(unit.policy),
        order=order.value,
        order_why=f"{of} {why}" if why else "",
        approach=unit.policy.approach if isinstance(unit.policy, Lazy) else "",
    )


def _is_repeatable(unit: Unit) -> bool:
    """Return whether no function is declared nondeterministic, except a batch's."""
    return all(operator.deterministic or operator.timing is Timing.BATCH for operator in unit.operators)


def _recorded(planned: Plan) -> dict[str, list[str]]:
    sources = {
        name: ["keys", "clock", "seed"] if planned.keeps_no_rows(name) else ["position", "clock", "seed"]
        for name in planned.sources
    }
    units = {name: _determinants_of(unit) for name, unit in planned.units.items()}
    return sources | {name: determinants for name, determinants in units.items() if determinants}


def _determinants_of(unit: Unit) -> list[str]:
    of_times: dict[Timing, list[str]] = {
        Timing.EPOCHS: [],
        Timing.ARRIVAL: ["arrival order"],
        Timing.GATHERED: ["ends of inputs"],
        Timing.BATCH: ["epoch ends"],
    }
    rows = [] if _is_repeatable(unit) else ["rows"]
    return of_times[unit.timing] + rows + (["answers"] if unit.records_answers else [])


def _delivery(processor: Processor) -> Delivery:
    match processor:
        case SourceSpec(source=connector) | SinkSpec(sink=connector):
            return connector.delivery
        case _:
            return Delivery.EXACTLY_ONCE
