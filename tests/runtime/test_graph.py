"""No program that the planner makes is refused by the machine: above all none with a source that keeps no rows."""

from itertools import combinations

import pytest

import boatlift as bl
from boatlift.dataflow import plan
from boatlift.recovery import Kind
from boatlift.runtime.graph import division_of, program_of
from support.engine.memory_engine import identity_in_memory
from support.engine.memory_flows import ANY, Forgets

READERS = {
    "transform": lambda flow, rows, n: rows.transform(n, ANY),
    "outside": lambda flow, rows, n: rows.transform(n, ANY, deterministic=False),
    "eager": lambda flow, rows, n: rows.transform(n, ANY, policy=bl.Eager()),
    "lazy sums": lambda flow, rows, n: rows.group_by("k").agg(n, ANY, policy=bl.Lazy(every=2)),
    "sums of inputs": lambda flow, rows, n: rows.group_by("k").agg(n, ANY, policy=bl.Lazy(every=None)),
    "history": lambda flow, rows, n: rows.group_by("k").agg(n, ANY, policy=bl.History()),
    "history of a transform": lambda flow, rows, n: rows.transform(f"{n}-t", ANY).transform(
        n, ANY, policy=bl.History()
    ),
    "lookup": lambda flow, rows, n: rows.lookup(n, live=_sums(flow, n).by("k"), policy=bl.Lazy(every=2)),
    "table": lambda flow, rows, n: flow.source(f"{n}-q", ANY).lookup(n, live=_of(rows, n).by("k")),
    "merge": lambda flow, rows, n: rows.merge(n, flow.source(f"{n}-others", ANY)),
    "merged transform": lambda flow, rows, n: rows.transform(f"{n}-t", ANY).merge(n, flow.source(f"{n}-others", ANY)),
    "union": lambda flow, rows, n: rows.union(n, flow.source(f"{n}-others", ANY)),
    "recompute": lambda flow, rows, n: rows.recompute(n, ANY, policy=bl.Batch(epochs=2)),
    "recompute a batch": lambda flow, rows, n: rows.recompute(n, ANY, over="batch", policy=bl.Batch(epochs=2)),
    "gather": lambda flow, rows, n: rows.transform(f"{n}-t", ANY).gather(n, policy=bl.Batch(epochs=2)),
    "history of a batch": lambda flow, rows, n: rows.transform(f"{n}-t", ANY).gather(
        n, policy=bl.History(bl.Batch(epochs=2))
    ),
    "history of a recomputation": lambda flow, rows, n: rows.recompute(
        n, ANY, policy=bl.History(bl.Batch(epochs=2)), deterministic=True
    ),
    "gather a merge": lambda flow, rows, n: rows.merge(f"{n}-m", flow.source(f"{n}-others", ANY)).gather(
        n, policy=bl.Batch(epochs=2)
    ),
}


def _sums(flow, n):
    return _of(flow.source(f"{n}-rows", ANY), n)


def _of(rows, n):
    return rows.group_by("k").agg(f"{n}-sums", ANY, policy=bl.Lazy(every=2))


@pytest.mark.parametrize("readers", [*combinations(READERS, 1), *combinations(READERS, 2)], ids=" and ".join)
def test_whatever_reads_a_source_that_may_forget_is_a_program(readers):
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", Forgets())
    for number, reader in enumerate(readers):
        READERS[reader](flow, rows, f"p{number}").sink(f"out{number}", ANY)
    planned = plan(flow)
    graph = program_of(planned).graph
    assert graph.vertices["rows"].keeps_no_rows == planned.keeps_no_rows("rows")
    assert {name for name, vertex in graph.vertices.items() if vertex.kind is Kind.SOURCE} == set(planned.sources)


def test_a_sink_counts_the_epochs_of_a_batch_and_other_readers_those_of_its_input():
    flow = bl.Dataflow("flow")
    gathered = flow.source("rows", ANY).gather("minutes", policy=bl.Batch(seconds=60))
    gathered.sink("out", ANY)
    gathered.transform("clean", ANY).sink("cleaned", ANY)
    identity = identity_in_memory(plan(flow))
    assert identity["sink out"]["counts"] == "epochs of the batch", "a store that counts otherwise is another program's"
    assert "counts" not in identity["sink cleaned"]
    program = program_of(plan(flow))
    program.cuts["minutes"].add(4)
    edges = program.graph.edges
    assert [edges["minutes->out"].projection.arrives(0), edges["minutes->clean"].projection.arrives(0)] == [0, 4]


def test_a_rule_and_logged_readers_are_no_part_of_the_program_and_readers_are_named_by_any_operator():
    def flow_with(**options):
        flow = bl.Dataflow("flow")
        sums = _sums_by(flow.source("rows", ANY), bl.Lazy(every=None, **options))
        sums.transform("shown", ANY).transform("kept", ANY).sink("out", ANY)
        return plan(flow)

    plain, local = flow_with(), flow_with(when=lambda _step, _since: True, log_messages={"shown": True})
    assert identity_in_memory(plain) == identity_in_memory(local)
    assert division_of(plain) == division_of(local)
    program = program_of(local)
    assert [edge.name for edge in program.graph.edges.values() if program.logs(edge)] == ["sums->kept"]


def _sums_by(rows, policy):
    return rows.group_by("k").agg("sums", ANY, policy=policy)


def test_some_of_these_programs_have_a_source_that_forgets():
    forgetful = []
    for reader, make in READERS.items():
        flow = bl.Dataflow("flow")
        make(flow, flow.source("rows", Forgets()), "p").sink("out", ANY)
        forgetful += [reader] if plan(flow).keeps_no_rows("rows") else []
    assert forgetful == [
        "transform", "outside", "eager", "lazy sums", "sums of inputs", "history of a transform", "lookup", "table",
    ]  # fmt: skip


def test_a_sink_whose_user_vouches_for_its_key_is_another_program():
    flow = bl.Dataflow("flow")
    rows = flow.source("rows", ANY)
    for name, unique in (("vouched", True), ("plain", False)):
        rows.sink(name, bl.sqlite("out.db", table=name, key=["k"], unique=unique))
    identity = identity_in_memory(plan(flow))
    assert identity["sink vouched"] == {**identity["sink plain"], "unique": True}
