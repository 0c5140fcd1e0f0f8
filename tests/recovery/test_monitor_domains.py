"""The monitor over sequences, loops and coarse epochs: its frontiers are those that the solver finds from scratch."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError, InternalError
from boatlift.recovery import Edge, Kind, Monitor, RecoveryGraph, Vertex, solve
from boatlift.times import LAST, Enter, Feedback, Frontier, Leave, Loop, LoopFrontier, Sequence
from recovery.test_solver_domains import with_a_loop, with_a_sequence, with_coarse_epochs


def facts_of(world):
    """All that a store would tell, as (name of the report, its arguments)."""
    for p, facts in world.facts.items():
        for time in facts.determinants:
            if isinstance(facts.domain, Sequence):
                yield "durable_determinants", p, facts.times.index(time)
            elif isinstance(facts.domain, Loop) and time[-1] == LAST:
                yield "durable_end", p, max(t for t in facts.times if t[0] == time[0] and t[-1] != LAST)
            else:
                yield "durable_determinants", p, time
        for number in facts.candidates or ():
            report = "committed" if facts.kind is Kind.SINK else "durable_checkpoint"
            yield report, p, world.frontier(p, number)
        for edge, times in facts.logged.items():
            for time in times:
                if not (isinstance(facts.domain, Loop) and time[-1] == LAST):
                    yield "durable_message", edge, time


def monitor_of(world):
    monitor = Monitor(world.graph(), {p: facts.order for p, facts in world.facts.items() if facts.order is not None})
    for p, facts in world.facts.items():
        monitor.completed(p, world.frontier(p, len(facts.times)))
    return monitor


def told(monitor, facts):
    for report, *arguments in facts:
        getattr(monitor, report)(*arguments)
    return monitor


def chosen(graph, knowledge):
    try:
        return solve(graph, knowledge, graph.vertices.keys())
    except DataError:
        return None


@settings(max_examples=150)
@given(st.one_of(with_a_sequence(), with_a_loop(), with_coarse_epochs()), st.randoms(use_true_random=False))
def test_after_every_record_it_knows_what_the_solver_finds(world, random):
    facts = [*facts_of(world)] * 2
    random.shuffle(facts)
    monitor = monitor_of(world)
    graph = world.graph()
    before = {}
    for fact in facts:
        told(monitor, [fact])
        whole = chosen(graph, monitor.knowledge())
        for p in graph.order:
            if whole is None:
                with pytest.raises(DataError):
                    monitor.stable(p)
            else:
                stable = monitor.stable(p)
                assert stable == whole.frontier[p] & world.frontier(p, len(world.facts[p].times))
                assert before.get(p, stable) <= stable
                before[p] = stable


@settings(max_examples=100)
@given(st.one_of(with_a_sequence(), with_a_loop(), with_coarse_epochs()), st.randoms(use_true_random=False))
def test_it_forgets_nothing_that_a_plan_could_need(world, random):
    """One that was asked after every record, and dropped what it could, plans as one that kept all."""
    facts = [*facts_of(world)]
    random.shuffle(facts)
    asked, kept = monitor_of(world), monitor_of(world)
    graph = world.graph()
    for fact in facts:
        told(asked, [fact])
        told(kept, [fact])
        if chosen(graph, asked.knowledge()) is not None:
            for p in graph.order:
                asked.stable(p)
    if chosen(graph, kept.knowledge()) is None:
        return
    everyone = graph.vertices.keys()
    mine, its = asked.plan(everyone), kept.plan(everyone)
    for p in everyone:
        assert (mine.frontier(p), mine.fixed(p)) == (its.frontier(p), its.fixed(p)), p


class TestRounds:
    """A loop whose head keeps state."""

    LOOP = Loop(1)

    def monitor(self):
        graph = RecoveryGraph(
            [
                Vertex("in", Kind.SOURCE),
                Vertex("head", Kind.STATEFUL, deterministic=False, domain=self.LOOP),
                Vertex("out", Kind.SINK),
            ],
            [
                Edge("in->head", "in", "head", Enter(self.LOOP)),
                Edge("head->head", "head", "head", Feedback(self.LOOP)),
                Edge("head->out", "head", "out", Leave(self.LOOP)),
            ],
        )
        monitor = Monitor(graph)
        monitor.durable_determinants("in", 0)
        monitor.completed("head", LoopFrontier(self.LOOP, (0, 2)))
        for time in ((0, 0), (0, 1), (0, 2)):
            monitor.durable_determinants("head", time)
        return monitor

    def test_an_epoch_leaves_the_loop_when_its_last_round_is_known(self):
        monitor = self.monitor()
        assert not monitor.releasable("out", [Frontier.up_to(0)])
        monitor.durable_end("head", (0, 2))
        assert monitor.releasable("out", [Frontier.up_to(0)])

    def test_a_loop_without_rounds_has_no_last_round(self):
        with pytest.raises(InternalError, match="in has no iterations"):
            self.monitor().durable_end("in", (0, 0))
