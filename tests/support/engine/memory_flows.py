"""Any dataflow on the engine in memory: a step is a hash of its messages, its determinants and its state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import boatlift as bl
from boatlift.dataflow import Outcome, Plan, SourceCapabilities, StoreBacked, plan
from boatlift.runtime.engine import StepResult
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.payloads import runs_of
from support.any_connector import ANY
from support.engine.memory_engine import MemoryEngine, World, identity_in_memory, mix
from support.worlds.facts import payload_with


class Forgets(StoreBacked):
    """A source that keeps no rows, as `bl.push(…, ack="stable")`."""

    answers_when_stable = True

    def describe(self) -> dict[str, Any]:
        return {}

    @property
    def capabilities(self) -> SourceCapabilities:
        return SourceCapabilities(store_backed=self)


def stateless() -> Plan:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).transform("clean", ANY).sink("all", ANY)
    return plan(flow)


def lazy() -> Plan:
    return _counted(bl.Lazy(every=2))


def inputs_only() -> Plan:
    return _counted(bl.Lazy(every=None))


def eager() -> Plan:
    return _counted(bl.Eager())


def history() -> Plan:
    return _counted(bl.History())


def two_sinks() -> Plan:
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", ANY)
    clean.sink("all", ANY)
    clean.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2)).sink("totals", ANY)
    return plan(flow)


def asks_outside() -> Plan:
    """What an aggregate takes cannot be made again."""
    flow = bl.Dataflow("flow")
    priced = flow.source("rows", ANY).transform("priced", ANY, deterministic=False)
    priced.sink("prices", ANY)
    priced.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2)).sink("totals", ANY)
    return plan(flow)


def batch() -> Plan:
    flow = bl.Dataflow("flow")
    clean = flow.source("rows", ANY).transform("clean", ANY)
    clean.sink("all", ANY)
    clean.recompute("fit", ANY, over="batch", policy=bl.Batch(epochs=2)).sink("fits", ANY)
    return plan(flow)


def lookup() -> Plan:
    flow = bl.Dataflow("flow")
    sums = flow.source("rows", ANY).group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2))
    sums.sink("totals", ANY)
    flow.source("queries", ANY).lookup("asked", live=sums.by("k"), policy=bl.Lazy(every=2)).sink("answers", ANY)
    return plan(flow)


def merge() -> Plan:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).merge("both", flow.source("others", ANY)).sink("all", ANY)
    return plan(flow)


def union() -> Plan:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    rows.transform("early", ANY).sink("all", ANY)
    rows.union("both", flow.source("others", ANY)).sink("united", ANY)
    return plan(flow)


def forgets() -> Plan:
    flow = bl.Dataflow("flow")
    flow.source("rows", Forgets()).group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2)).sink("totals", ANY)
    return plan(flow)


def forgets_with_two_sinks() -> Plan:
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", Forgets())
    rows.transform("clean", ANY).sink("all", ANY)
    rows.group_by("k").agg("sums", ANY, policy=bl.Lazy(every=2)).sink("totals", ANY)
    return plan(flow)


FLOWS = (
    stateless, lazy, inputs_only, eager, history, two_sinks, asks_outside, batch, lookup, merge, union, forgets,
    forgets_with_two_sinks,
)  # fmt: skip


def _counted(policy: bl.Lazy | bl.Eager | bl.History) -> Plan:
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).group_by("k").agg("sums", ANY, policy=policy).sink("totals", ANY)
    return plan(flow)


class FlowEngine(MemoryEngine):
    """An engine in memory for any dataflow."""

    def __init__(self, world: World, planned: Plan) -> None:
        super().__init__(world)
        self.plan = planned

    def program(self) -> dict[str, Any]:
        return identity_in_memory(self.plan)

    def steps_per_job(self, unit: str, takes: Sequence[StepInput]) -> int:
        return 1 + (takes[0].number + len(unit)) % len(takes)

    def _step(self, unit: str, take: StepInput, state: Any) -> StepResult:
        taken = [(message.edge, message.time, self._what_came(message.payload)) for message in take.inputs]
        digest = mix(unit, taken, "" if state is None else self._read(state))
        parts = self.plan.units[unit]
        kept = payload_with([self._write(unit, take.number, digest, modulus=1)]) if parts.keeps_state else None
        receivers = [sink.name for sink in parts.sinks] + [u.name for u in self.plan.units.values() if unit in u.reads]
        sent = {
            edge_name(unit, name): payload_with([self._write(unit, take.number, {})], rows=1, digest=digest)
            for name in receivers
        }
        return StepResult(1, digest, sent, kept, len(taken))

    @staticmethod
    def _what_came(content: Any) -> object:
        return content["digest"] if "digest" in content else sorted(content.items())

    def commit(self, sink: str, time: int, content: Any) -> Outcome:
        if any(runs_of(content)):
            return super().commit(sink, time, content)
        nothing = payload_with([self._write(sink, time, {})], rows=0, digest=content["digest"])
        return super().commit(sink, time, nothing)
