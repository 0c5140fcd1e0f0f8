"""Examples of the papers, run: Falkirk Wheel §2.3, Figures 3 and 7, and the messages in flight of FLIP-76."""

from itertools import pairwise

import pytest

from boatlift.errors import DataError, InvalidError
from boatlift.recovery import Edge, Kind, Knowledge, Monitor, RecoveryGraph, Vertex, Xi, plan_recovery
from boatlift.testing import check_projection
from boatlift.times import EPOCH, IDENTITY, Enter, Feedback, Frontier, Leave, Loop, TimeSet

A, B = 0, 1
UP_TO_A = Frontier.up_to(A)
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4}


class SelectSumBuffer:
    """Figure 3: Select translates words into numbers; Sum adds them up time by time, and sends when a time is over.

    Buffer keeps its input. Messages of different times are taken in arrival order.
    """

    def __init__(self):
        self.sums = {}
        self.buffer = []
        self.history = []

    def word(self, time, word):
        self.sums[time] = self.sums.get(time, 0) + NUMBERS[word]
        self.history.append(self.state())

    def over(self, time):
        self.buffer.append((time, self.sums.pop(time)))
        self.history.append(self.state())

    def state(self):
        return dict(self.sums), list(self.buffer)

    def selected(self, frontier):
        """The state with all effects of the times within, and none of the others."""
        sums = {time: total for time, total in self.sums.items() if frontier.contains(time)}
        return sums, [(time, total) for time, total in self.buffer if frontier.contains(time)]

    def restore(self, state):
        self.sums, self.buffer = dict(state[0]), list(state[1])


class TestFigure3:
    GRAPH = RecoveryGraph(
        [
            Vertex("words", Kind.SOURCE),
            Vertex("select", Kind.STATELESS),
            Vertex("sum", Kind.STATELESS),  # it keeps nothing once a time is over
            Vertex("buffer", Kind.STATEFUL),
        ],
        [
            Edge("words->select", "words", "select"),
            Edge("select->sum", "select", "sum"),
            Edge("sum->buffer", "sum", "buffer"),
        ],
    )

    def test_selective_rollback(self):
        """Time A is over and B under way, taken in turns, when all fails: only the effects of B are undone."""
        dataflow = SelectSumBuffer()
        dataflow.word(B, "three")
        dataflow.word(A, "one")
        dataflow.word(B, "four")
        dataflow.word(A, "two")
        dataflow.over(A)
        monitor = Monitor(self.GRAPH)
        monitor.durable_determinants("words", A)
        for name in self.GRAPH.vertices:
            monitor.completed(name, UP_TO_A)
        checkpoint = dataflow.selected(UP_TO_A)
        monitor.durable_checkpoint("buffer", UP_TO_A)
        assert checkpoint == ({}, [(A, 3)]), "nothing of Sum need be saved"
        assert checkpoint not in dataflow.history, "no state that it ever had"

        plan = monitor.plan(self.GRAPH.vertices.keys())
        assert {plan.frontier(name) for name in self.GRAPH.vertices} == {UP_TO_A}
        before = dataflow.state()
        dataflow.restore(checkpoint)
        for word in ("three", "four"):
            dataflow.word(B, word)
        assert dataflow.state() == before
        dataflow.over(B)
        assert dataflow.buffer == [(A, 3), (B, 7)]


class TestMessagesInFlight:
    """FLIP-76: a checkpoint that keeps the messages on its way in lets their sender go on without them."""

    GRAPH = RecoveryGraph(
        [Vertex("in", Kind.SOURCE), Vertex("far", Kind.STATEFUL), Vertex("near", Kind.STATEFUL)],
        [Edge("in->far", "in", "far"), Edge("far->near", "far", "near")],
    )

    def plan(self, saved):
        three, five = Frontier.up_to(3), Frontier.up_to(5)
        near = Xi(three, three, {"far->near": five if saved else three}, {}, saved=saved)
        empty = Frontier.up_to(-1)
        known = {
            "in": Knowledge.of(self.GRAPH, "in", determinants=TimeSet(range(9))),
            "far": Knowledge.of(self.GRAPH, "far", checkpoints=[-1, 5]),
            "near": Knowledge(
                vertex=self.GRAPH.vertices["near"],
                inputs=self.GRAPH.inputs["near"],
                outputs=(),
                xis=[Xi(empty, empty, {"far->near": empty}, {}), near],
            ),
        }
        return plan_recovery(self.GRAPH, known, self.GRAPH.vertices.keys())

    def test_without_them_the_sender_goes_back(self):
        plan = self.plan({})
        assert [str(plan.frontier(p)) for p in ("far", "near")] == ["∅", "0…3"]

    def test_with_them_it_stays(self):
        plan = self.plan({"far->near": TimeSet([4, 5])})
        assert [str(plan.frontier(p)) for p in ("far", "near")] == ["0…5", "0…3"]

    def test_a_missing_state_is_none(self):
        plan = self.plan({"far->near": TimeSet([5])})
        assert [str(plan.frontier(p)) for p in ("far", "near")] == ["∅", "0…3"]


class TestFigure7:
    """In the manner of Figure 7: dataflows of different regimes, and the frontiers chosen if all of it fails."""

    STEPS = 9

    def frontiers(self, kinds, known):
        """Of a pipeline, with what is durable of each processor but the source, whose positions all are."""
        vertices = [Vertex("in", Kind.SOURCE), *(Vertex(name, kind) for name, kind in kinds.items())]
        names = [vertex.name for vertex in vertices]
        edges = [Edge(f"{a}->{b}", a, b) for a, b in pairwise(names)]
        graph = RecoveryGraph(vertices, edges)
        durable = {"in": {"determinants": TimeSet(range(self.STEPS))}, **known}
        knowledge = {name: Knowledge.of(graph, name, **durable.get(name, {})) for name in names}
        plan = plan_recovery(graph, knowledge, graph.vertices.keys())
        return {name: str(plan.frontier(name)) for name in names}

    def test_without_state_all_are_where_the_output_is(self):
        """Rows are acknowledged at the input once they are consumed at the output."""
        found = self.frontiers(
            {"a": Kind.STATELESS, "b": Kind.STATELESS, "out": Kind.SINK}, {"out": {"checkpoints": [5]}}
        )
        assert found == {"in": "0…5", "a": "0…5", "b": "0…5", "out": "0…5"}

    def test_a_processor_that_logs_its_messages_keeps_a_failure_from_those_before_it(self):
        """A firewall: nothing before it is executed again, though state behind it goes back to the beginning."""
        kinds = {"a": Kind.STATELESS, "wall": Kind.STATELESS, "late": Kind.STATEFUL}
        logged = {"wall": {"logged": {"wall->late": TimeSet(range(self.STEPS))}}, "late": {"checkpoints": [-1, 2]}}
        assert self.frontiers(kinds, logged) == {"in": "0…8", "a": "0…8", "wall": "0…8", "late": "0…2"}
        unlogged = {"late": {"checkpoints": [-1, 2]}}
        assert self.frontiers(kinds, unlogged) == {"in": "0…2", "a": "0…2", "wall": "0…2", "late": "0…2"}

    def test_a_lazy_checkpoint_takes_back_an_eager_one_that_it_feeds_but_not_the_other_way(self):
        kinds = {"eager": Kind.STATEFUL, "lazy": Kind.STATEFUL}
        every = {"eager": {"checkpoints": range(-1, self.STEPS)}, "lazy": {"checkpoints": [-1, 2, 5]}}
        assert self.frontiers(kinds, every) == {"in": "0…5", "eager": "0…5", "lazy": "0…5"}
        kinds = {"lazy": Kind.STATEFUL, "eager": Kind.STATEFUL}
        assert self.frontiers(kinds, every) == {"in": "0…5", "lazy": "0…5", "eager": "0…8"}


class TestCycles:
    VERTICES = (Vertex("in", Kind.SOURCE), Vertex("a", Kind.STATEFUL), Vertex("b", Kind.STATEFUL))

    def test_one_on_which_no_time_grows_is_refused(self):
        with pytest.raises(InvalidError, match=r"\[CYCLE_WITHOUT_LOOP\] b -> a -> b is a cycle"):
            RecoveryGraph(self.VERTICES, [Edge("1", "in", "a"), Edge("2", "a", "b"), Edge("3", "b", "a")])

    def test_also_of_one_processor(self):
        with pytest.raises(InvalidError, match="a -> a is a cycle"):
            RecoveryGraph(self.VERTICES[:2], [Edge("1", "in", "a"), Edge("2", "a", "a")])

    def test_also_beside_a_loop_that_counts_its_rounds(self):
        loop = Loop(1)
        vertices = [Vertex("in", Kind.SOURCE), *(Vertex(p, Kind.STATEFUL, domain=loop) for p in "ab")]
        edges = [Edge("1", "in", "a", Enter(loop)), Edge("2", "a", "b"), Edge("3", "b", "a", Feedback(loop))]
        assert RecoveryGraph(vertices, edges).cyclic
        with pytest.raises(InvalidError, match="b -> a -> b is a cycle"):
            RecoveryGraph(vertices, [*edges, Edge("4", "b", "a")])


class Promising:
    """Says that two more epochs are there than are."""

    def __call__(self, frontier):
        return Frontier.up_to(frontier.last + 2)

    def arrives(self, time):
        return time

    def sent(self, frontier):
        return frontier

    def within(self, frontier):
        return frontier

    def __repr__(self):
        return "Promising"


class TestAProjectionThatBreaksItsLaws:
    def test_the_checker_finds_it(self):
        with pytest.raises(InvalidError, match="BAD_PROJECTION"):
            check_projection(Promising(), EPOCH, range(5))

    def test_so_does_the_run_that_it_contradicts(self):
        graph = RecoveryGraph(TestCycles.VERTICES[:2], [Edge("in->a", "in", "a", Promising())])
        monitor = Monitor(graph)
        monitor.completed("in", Frontier.up_to(0))
        with pytest.raises(
            InvalidError, match=r"Promising of edge in->a sends 1 at 1, but promised, for 0…0, that 0…2"
        ):
            monitor.sent("in->a", 1)

    def test_built_in_ones_are_not_contradicted(self):
        loop = Loop(1)
        graph = RecoveryGraph(
            [Vertex("in", Kind.SOURCE), Vertex("a", Kind.STATEFUL, domain=loop), Vertex("out", Kind.SINK)],
            [
                Edge("in->a", "in", "a", Enter(loop)),
                Edge("a->a", "a", "a", Feedback(loop)),
                Edge("a->out", "a", "out", Leave(loop)),
            ],
        )
        monitor = Monitor(graph)
        monitor.sent("in->a", 0)
        for time in ((0, 0), (0, 1)):
            monitor.sent("a->a", time)
            monitor.sent("a->out", time)
            monitor.completed("a", graph.edges["in->a"].projection.sent(Frontier.up_to(-1)))
        assert graph.edges["a->a"].projection is not IDENTITY


def test_records_of_another_graph_are_refused():
    monitor = Monitor(TestFigure3.GRAPH)
    with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\] .* with clean, which this one lacks"):
        monitor.durable_determinants("clean", 0)
