"""The monitor along random executions: stable times remain stable, and the order of reports does not matter."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boatlift.errors import DataError, InternalError
from boatlift.recovery import Edge, Kind, Monitor, RecoveryGraph, Vertex, solve
from boatlift.recovery.monitor import largest
from boatlift.times import Frontier, last_of

up_to = Frontier.up_to

GRAPH = RecoveryGraph(
    [Vertex("input", Kind.SOURCE), Vertex("state", Kind.STATEFUL, False), Vertex("output", Kind.SINK)],
    [Edge("input->state", "input", "state"), Edge("state->output", "state", "output")],
)


class Execution:
    """A dataflow that runs, makes things durable in any order, releases, fails and recovers, as `seed` decides.

    It knows what is durable by itself (`facts`), and forgets nothing but what recovery truncates.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        kinds = [Kind.SOURCE]
        senders = {}
        for i in range(1, self.random.randint(3, 6)):
            kinds.append(self.random.choice([Kind.SOURCE, Kind.STATELESS, Kind.STATEFUL, Kind.STATEFUL, Kind.SINK]))
            above = [j for j in range(i) if kinds[j] is not Kind.SINK]
            if kinds[i] is not Kind.SOURCE:
                senders[i] = self.random.sample(above, min(len(above), self.random.randint(1, 2)))
        vertices = [Vertex(f"p{i}", kind, self.random.random() < 0.6) for i, kind in enumerate(kinds)]
        self.graph = RecoveryGraph(
            vertices, [Edge(f"p{j}-p{i}", f"p{j}", f"p{i}") for i, above in senders.items() for j in above]
        )
        self.records = {
            v.name for v in vertices if v.kind is Kind.SOURCE or (not v.deterministic and self.random.random() < 0.6)
        }
        self.monitor = Monitor(self.graph)
        self.completed = dict.fromkeys(self.graph.vertices, -1)
        self.stable = dict.fromkeys(self.graph.vertices, -1)
        self.released = dict.fromkeys(self.graph.vertices, -1)
        self.facts = []
        self.writing = []

    def one_thing(self):
        p = self.random.choice(self.graph.order)
        match self.random.choices(["step", "write", "release", "ask", "fail"], [50, 25, 20, 15, 2])[0]:
            case "step":
                self.step(p)
            case "write" if self.writing:
                self.report(self.writing.pop(self.random.randrange(len(self.writing))))
            case "release" if self.graph.vertices[p].kind is Kind.SINK:
                self.release(p)
            case "ask":
                self.ask()
            case "fail":
                self.fail({p for p in self.graph.order if self.random.random() < 0.5})

    def step(self, p):
        time = self.completed[p] + 1
        if time > 12 or any(self.completed[d.source] < time for d in self.graph.inputs[p]):
            return
        self.completed[p] = time
        self.monitor.completed(p, up_to(time))
        for edge in self.graph.outputs[p]:
            self.monitor.sent(edge.name, time)
        if p in self.records and ("choice", p, time) not in self.facts:
            self.writing.append(("choice", p, time))
        if self.graph.vertices[p].kind is Kind.STATEFUL and self.random.random() < 0.4:
            self.writing.append(("checkpoint", p, time))

    def report(self, fact):
        self.facts.append(fact)
        self.tell(self.monitor, fact)
        self.holds_against_the_whole()

    def holds_against_the_whole(self):
        """What the monitor keeps up to date is what the solver finds from scratch."""
        everyone = self.graph.vertices.keys()
        try:
            whole = solve(self.graph, self.monitor.knowledge(), everyone)
        except DataError:
            return
        for p in everyone:
            assert last_of(self.monitor.stable(p)) == max(
                self.stable[p], min(last_of(whole.frontier[p]), self.completed[p])
            )

    def tell(self, monitor, fact):
        kind, p, time = fact
        match kind:
            case "choice":
                monitor.durable_determinants(p, time)
            case "checkpoint":
                monitor.durable_checkpoint(p, up_to(time))
            case "commit":
                monitor.committed(p, up_to(time))

    def release(self, p):
        time = self.released[p] + 1
        if time <= self.completed[p] and self.monitor.releasable(p, [up_to(time)]):
            self.released[p] = time
            self.report(("commit", p, time))
            self.plan_of(self.graph.vertices.keys())  # whatever fails after it

    def ask(self):
        for p, before in self.stable.items():
            self.stable[p] = last_of(self.monitor.stable(p))
            assert before <= self.stable[p] <= self.completed[p], p

    def plan_of(self, failed):
        plan = self.monitor.plan(failed)
        for p, stable in self.stable.items():
            assert last_of(plan.frontier(p)) >= stable, "it rolls back beyond a stable frontier"
            if self.graph.vertices[p].kind is Kind.SINK:
                assert last_of(plan.frontier(p)) == self.released[p]
        return plan

    def fail(self, failed):
        plan = self.plan_of(failed)
        for p, part in plan.processors.items():
            fixed = last_of(plan.fixed(p))
            self.facts = [f for f in self.facts if f[1] != p or f[2] <= fixed]
            if not part.stays:
                self.completed[p] = last_of(plan.frontier(p))
                keeps = p not in failed
                self.writing = [
                    f
                    for f in self.writing
                    if f[1] != p or (keeps and f[0] != "choice" and f[2] <= last_of(plan.frontier(p)))
                ]
        self.monitor.recovered(plan)
        for p in plan.processors:
            for time in range(self.completed[p] + 1):
                if p in self.records and time > self.stable[p] and ("choice", p, time) not in self.facts + self.writing:
                    self.writing.append(("choice", p, time))


@settings(max_examples=80)
@given(st.integers(0, 2**32))
def test_stable_frontiers_never_fall_and_no_plan_goes_behind_them(seed):
    run = Execution(seed)
    for _ in range(120):
        run.one_thing()
    run.ask()


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_one_rebuilt_from_all_facts_in_any_order_answers_the_same(seed):
    """So it forgets nothing that matters, and remembers nothing but facts."""
    run = Execution(seed)
    for _ in range(100):
        run.one_thing()
    run.ask()
    rebuilt = Monitor(run.graph)
    facts = run.facts * 2
    run.random.shuffle(facts)
    for fact in facts:
        run.tell(rebuilt, fact)
    for p, time in run.completed.items():
        rebuilt.completed(p, up_to(time))
    everyone = run.graph.vertices.keys()
    mine, its = run.monitor.plan(everyone), rebuilt.plan(everyone)
    assert {p: (last_of(mine.frontier(p)), last_of(mine.fixed(p))) for p in everyone} == {
        p: (last_of(its.frontier(p)), last_of(its.fixed(p))) for p in everyone
    }
    assert {p: last_of(rebuilt.stable(p)) for p in everyone} == run.stable
    for p, vertex in run.graph.vertices.items():
        if vertex.kind is Kind.SINK:
            for time in range(13):
                assert run.monitor.releasable(p, [up_to(time)]) == rebuilt.releasable(p, [up_to(time)])


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_what_may_leave_is_what_a_whole_solution_lets_a_sink_hold(seed):
    """Shortcuts to the answer, and the bound that spares asking, change nothing."""
    run = Execution(seed)
    sinks = [p for p, vertex in run.graph.vertices.items() if vertex.kind is Kind.SINK]
    for _ in range(80):
        run.one_thing()
        for sink in sinks:
            prefixes = [up_to(time) for time in range(run.released[sink], run.completed[sink] + 1)]
            if len(prefixes) > 1 and run.random.random() < 0.3:
                whole = largest(run.graph, run.monitor.knowledge(), sink, prefixes)
                assert run.monitor.releasable(sink, prefixes[1:]) == (whole if whole != prefixes[0] else None)


def ready():
    """Two times run, nothing durable."""
    monitor = Monitor(GRAPH)
    for name in GRAPH.vertices:
        monitor.completed(name, up_to(1))
    return monitor


class TestRelease:
    """Design, section 4, question 3."""

    def test_a_deterministic_pipeline_releases_as_soon_as_its_positions_are_durable(self):
        graph = RecoveryGraph([Vertex(p, v.kind) for p, v in GRAPH.vertices.items()], list(GRAPH.edges.values()))
        monitor = Monitor(graph)
        assert not monitor.releasable("output", [up_to(0)])
        monitor.durable_determinants("input", 1)
        assert not monitor.releasable("output", [up_to(0)])
        monitor.durable_determinants("input", 0)
        assert monitor.releasable("output", [up_to(0)])
        assert monitor.releasable("output", [up_to(1)])
        assert not monitor.releasable("output", [up_to(2)])

    def test_recorded_choices_release_as_soon_as_they_are_durable(self):
        monitor = ready()
        monitor.durable_determinants("input", 0)
        assert not monitor.releasable("output", [up_to(0)])
        monitor.durable_determinants("state", 0)
        assert monitor.releasable("output", [up_to(0)])

    def test_unrecorded_ones_wait_for_the_checkpoint_and_leave_together(self):
        monitor = ready()
        for time in (0, 1):
            monitor.durable_determinants("input", time)
        assert not monitor.releasable("output", [up_to(1)])
        monitor.durable_checkpoint("state", up_to(1))
        assert monitor.releasable("output", [up_to(1)])
        assert not monitor.releasable("output", [up_to(0)]), (
            "time 1 could not be sent again, and time 0 not be repeated"
        )

    def test_what_was_released_may_be(self):
        monitor = ready()
        for time in (0, 1):
            monitor.durable_determinants("input", time)
        monitor.durable_checkpoint("state", up_to(1))
        monitor.committed("output", up_to(1))
        assert monitor.releasable("output", [up_to(0)])


class TestCollection:
    """Design, section 4, question 2."""

    def test_inputs_are_acknowledged_once_no_processor_reads_them_again(self):
        monitor = ready()
        for time in (0, 1):
            monitor.durable_determinants("input", time)
        monitor.durable_checkpoint("state", up_to(0))
        assert last_of(monitor.settled("input")) == -1
        monitor.committed("output", up_to(0))
        assert last_of(monitor.settled("input")) == 0
        assert (last_of(monitor.stable("state")), last_of(monitor.stable("output"))) == (0, 0)

    def test_what_is_collected_cannot_be_gone_back_to(self):
        monitor = Monitor(GRAPH)
        monitor.durable_input_below("input", up_to(4))
        for time in range(8):
            monitor.durable_determinants("input", time)
        with pytest.raises(
            DataError, match=r"input can only be restored to steps 0…4 or later, but state needs all rows again"
        ):
            monitor.plan(GRAPH.vertices.keys())
        monitor.durable_checkpoint("state", up_to(5))
        with pytest.raises(DataError, match=r"sink output holds nothing, but input can only be restored to steps 0…4"):
            monitor.plan(GRAPH.vertices.keys())
        monitor.committed("output", up_to(5))
        assert last_of(monitor.plan(GRAPH.vertices.keys()).frontier("input")) == 5

    def test_messages_are_dropped_when_their_receiver_is_stable(self):
        monitor = ready()
        for time in (0, 1):
            monitor.durable_determinants("input", time)
            monitor.sent("input->state", time)
        monitor.durable_checkpoint("state", up_to(0))
        monitor.committed("output", up_to(0))
        assert last_of(monitor.stable("state")) == 0
        assert list(monitor.knowledge()["input"].in_flight["input->state"]) == [1]
        monitor.sent("input->state", 0)
        assert list(monitor.knowledge()["input"].in_flight["input->state"]) == [1]


def test_a_sink_that_was_given_too_much_is_named():
    monitor = ready()
    monitor.committed("output", up_to(1))
    with pytest.raises(
        DataError, match=r"sink output holds steps 0…1, but nothing can be reproduced .* or empty the sink"
    ):
        monitor.stable("output")


def test_reports_of_the_wrong_kind_are_refused():
    monitor = Monitor(GRAPH)
    for report in (monitor.durable_checkpoint, monitor.durable_input_below):
        with pytest.raises(InternalError):
            report("output", 0)
    with pytest.raises(InternalError):
        monitor.committed("state", up_to(0))


def test_the_only_message_of_a_time_stays_while_another_of_that_time_is_needed():
    """Time 0 is repeated from its choice; time 1 need not run again, for both of its messages are durable.

    One receiver has passed time 1.
    """
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, deterministic=False), Vertex("q", Kind.STATEFUL)]
    vertices += [Vertex("a", Kind.SINK), Vertex("b", Kind.SINK)]
    pairs = [("in", "p"), ("p", "a"), ("p", "q"), ("q", "b")]
    monitor = Monitor(RecoveryGraph(vertices, [Edge(f"{p}-{q}", p, q) for p, q in pairs]))
    for time in (0, 1):
        monitor.durable_determinants("in", time)
        for name in ("in", "p", "a"):
            monitor.completed(name, up_to(time))
    monitor.durable_determinants("p", 0)
    for edge in ("p-a", "p-q"):
        monitor.durable_message(edge, 1)
    assert monitor.releasable("a", [up_to(1)])
    monitor.committed("a", up_to(1))
    assert monitor.stable("a") == up_to(1)
    assert monitor.needless("p-a") == up_to(-1)
    assert monitor.plan(frozenset({"in", "p", "q", "a", "b"})).frontier("a") == up_to(1)
    monitor.completed("q", up_to(1))
    monitor.durable_checkpoint("q", up_to(1))
    monitor.committed("b", up_to(1))
    assert monitor.stable("p") == up_to(1)
    assert monitor.needless("p-a") == up_to(1)


@pytest.mark.parametrize("ledger", [True, False])
def test_a_sink_without_an_account_is_shown_only_what_comes_again_while_it_holds_nothing(ledger):
    """A step of a processor that chooses: a sink that has the step needs no repetition, and one that forgets does."""
    vertices = [
        Vertex("input", Kind.SOURCE),
        Vertex("asks", Kind.STATELESS, deterministic=False),
        Vertex("output", Kind.SINK, ledger=ledger),
    ]
    edges = [Edge("input->asks", "input", "asks"), Edge("asks->output", "asks", "output")]
    monitor = Monitor(RecoveryGraph(vertices, edges))
    monitor.durable_determinants("input", 0)
    for p in ("input", "asks"):
        monitor.completed(p, up_to(0))
    monitor.sent("input->asks", 0)
    monitor.sent("asks->output", 0)
    assert (monitor.releasable("output", [up_to(0)]) is not None) == ledger
    monitor.durable_determinants("asks", 0)
    assert monitor.releasable("output", [up_to(0)])
