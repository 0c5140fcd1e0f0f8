"""The examples of the design, section 4, and of Falkirk Wheel, and five tempting shortcuts that are wrong."""

import itertools

import pytest

from boatlift.errors import DataError, InternalError
from boatlift.recovery import Edge, Kind, Knowledge, Monitor, RecoveryGraph, Vertex, Xi, solve
from boatlift.times import Frontier, TimeSet, last_of

up_to = Frontier.up_to


def chain(*vertices):
    """Processors in a row: (name, kind) or (name, kind, deterministic)."""
    made = [Vertex(*v) for v in vertices]
    return RecoveryGraph(made, [Edge(f"{a.name}->{b.name}", a.name, b.name) for a, b in itertools.pairwise(made)])


def row(middle=Kind.STATEFUL, deterministic=True):
    return chain(("input", Kind.SOURCE), ("middle", middle, deterministic), ("output", Kind.SINK))


def frontiers(graph, known, failed=None):
    chosen = solve(graph, known, graph.vertices.keys() if failed is None else failed)
    return (
        {p: last_of(f) for p, f in chosen.frontier.items()},
        {p: last_of(f) for p, f in chosen.fixed.items()},
    )


def sink_at_107(deterministic, determinants=()):
    graph = row(deterministic=deterministic)
    return graph, {
        "input": Knowledge.of(graph, "input", determinants=TimeSet(range(111))),
        "middle": Knowledge.of(graph, "middle", checkpoints=[-1, 100], determinants=TimeSet(determinants)),
        "output": Knowledge.of(graph, "output", checkpoints=[107]),
    }


class TestASinkAheadOfItsCheckpoint:
    """Design, section 4: a sink at 107 while everything before it restarts from a checkpoint at 100 and replays."""

    def test_a_deterministic_processor_replays(self):
        frontier, fixed = frontiers(*sink_at_107(deterministic=True))
        assert frontier == {"input": 100, "middle": 100, "output": 107}
        assert fixed == {"input": 110, "middle": 110, "output": 110}

    def test_recorded_choices_replay(self):
        frontier, fixed = frontiers(*sink_at_107(deterministic=False, determinants=range(101, 109)))
        assert frontier == {"input": 100, "middle": 100, "output": 107}
        assert fixed["middle"] == 108

    @pytest.mark.parametrize(
        ("determinants", "limit"),
        [([], "0…100"), (range(101, 106), "0…105"), ([101, 102, 104, 105, 106, 107], "0…102")],
        ids=["none", "too few", "a gap"],
    )
    def test_choices_that_are_not_recorded_leave_nothing_consistent(self, determinants, limit):
        with pytest.raises(DataError) as raised:
            frontiers(*sink_at_107(deterministic=False, determinants=determinants))
        assert raised.value.condition == "NO_CONSISTENT_FRONTIER"
        assert raised.value.message == (
            f"sink output holds steps 0…107, but only steps {limit} can be reproduced from the store, because "
            f"middle is not deterministic and restarts from steps 0…100: restore the store that wrote this sink, or "
            f"take the sink back to steps {limit}"
        )

    def test_lost_positions_are_named(self):
        graph, known = sink_at_107(deterministic=True)
        known["input"] = Knowledge.of(graph, "input", determinants=TimeSet(range(106)))
        with pytest.raises(
            DataError, match=r"output holds steps 0…107.* only steps 0…105 .* source input has kept its"
        ):
            solve(graph, known, graph.vertices.keys())

    def test_an_older_sink_than_what_is_kept_is_refused(self):
        """Not one silently left with a hole."""
        graph = row()
        known = {
            "input": Knowledge.of(graph, "input", collected=100, determinants=TimeSet(range(101, 108))),
            "middle": Knowledge.of(graph, "middle", checkpoints=[100]),
            "output": Knowledge.of(graph, "output", checkpoints=[90]),
        }
        with pytest.raises(DataError) as raised:
            solve(graph, known, graph.vertices.keys())
        assert raised.value.message == (
            "sink output holds steps 0…90, but middle can only be restored to steps 0…100 or later, and those "
            "that the sink lacks cannot be reproduced: restore the sink as it was, with steps 0…100 or more, or "
            "an older copy of the store"
        )

    def test_inputs_gone_from_under_a_checkpoint_are_named(self):
        graph = row()
        known = {
            "input": Knowledge.of(graph, "input"),
            "middle": Knowledge.of(graph, "middle", checkpoints=[100]),
            "output": Knowledge.of(graph, "output", checkpoints=[100]),
        }
        with pytest.raises(
            DataError, match=r"middle can only be restored to steps 0…100 or later, but nothing of input is certain"
        ):
            solve(graph, known, graph.vertices.keys())

    def test_a_source_goes_on_only_from_where_its_positions_are_known(self):
        """Else the cursor after them would be unknown: rows would be taken twice, or never."""
        graph = row()
        known = {
            "input": Knowledge.of(graph, "input", determinants=TimeSet([0, 1, 3, 4, 5])),
            "middle": Knowledge.of(graph, "middle", checkpoints=[-1, 1, 5]),
            "output": Knowledge.of(graph, "output", checkpoints=[-1]),
        }
        assert frontiers(graph, known)[0]["input"] == -1
        known["output"] = Knowledge.of(graph, "output", checkpoints=[1])
        assert frontiers(graph, known)[0] == {"input": 1, "middle": 1, "output": 1}
        known["output"] = Knowledge.of(graph, "output", checkpoints=[5])
        with pytest.raises(DataError, match=r"source input has kept its positions of steps 0…1 only"):
            solve(graph, known, graph.vertices.keys())


class TestSurvivors:
    """A processor that did not fail has ⊤, and sends again what it holds in memory."""

    def known(self, graph, in_flight):
        kept = {e.name: TimeSet(in_flight) for e in graph.outputs["input"]}
        return {
            "input": Knowledge.of(graph, "input", determinants=TimeSet(range(8)), completed=7, in_flight=kept),
            "middle": Knowledge.of(graph, "middle", checkpoints=[-1, 3], completed=7),
            "output": Knowledge.of(graph, "output", checkpoints=[7], completed=7),
        }

    def test_they_stay_where_they_are(self):
        graph = row()
        assert frontiers(graph, self.known(graph, ()), failed=set())[0] == {"input": 7, "middle": 7, "output": 7}

    def test_a_sender_goes_back_to_send_again(self):
        graph = row()
        assert frontiers(graph, self.known(graph, ()), failed={"middle"})[0] == {"input": 3, "middle": 3, "output": 7}

    def test_unless_it_holds_the_messages(self):
        graph = row()
        known = self.known(graph, range(4, 8))
        assert frontiers(graph, known, failed={"middle"})[0] == {"input": 7, "middle": 3, "output": 7}

    def test_it_goes_back_as_far_as_the_first_message_that_it_lacks(self):
        graph = row()
        assert frontiers(graph, self.known(graph, [4, 6, 7]), failed={"middle"})[0]["input"] == 4
        assert frontiers(graph, self.known(graph, [5, 6, 7]), failed={"middle"})[0]["input"] == 3

    def test_in_memory_counts_for_nothing_where_it_failed(self):
        graph = row()
        known = self.known(graph, range(4, 8))
        assert frontiers(graph, known, failed={"input", "middle"})[0] == {"input": 3, "middle": 3, "output": 7}


class TestFirewall:
    """A stateless processor whose messages are durable does not run again (policy `Batch`)."""

    def known(self, graph, positions, logged, held):
        (edge,) = graph.outputs["middle"]
        return {
            "input": Knowledge.of(graph, "input", determinants=TimeSet(positions)),
            "middle": Knowledge.of(graph, "middle", checkpoints=[-1], logged={edge.name: TimeSet(logged)}),
            "output": Knowledge.of(graph, "output", checkpoints=[held]),
        }

    def test_what_is_logged_goes_to_the_sink_again(self):
        graph = row(Kind.STATELESS, deterministic=False)
        known = self.known(graph, range(6), range(3, 6), held=2)
        assert frontiers(graph, known)[0] == {"input": 5, "middle": 5, "output": 2}

    def test_only_if_they_are_logged_for_every_receiver(self):
        vertices = [
            Vertex("input", Kind.SOURCE),
            Vertex("middle", Kind.STATELESS, deterministic=False),
            Vertex("a", Kind.SINK),
            Vertex("b", Kind.SINK),
        ]
        graph = RecoveryGraph(
            vertices, [Edge("1", "input", "middle"), Edge("2", "middle", "a"), Edge("3", "middle", "b")]
        )
        known = {
            "input": Knowledge.of(graph, "input", determinants=TimeSet([0])),
            "a": Knowledge.of(graph, "a", checkpoints=[0]),
            "b": Knowledge.of(graph, "b", checkpoints=[-1]),
        }
        known["middle"] = Knowledge.of(graph, "middle", logged={"2": TimeSet([0]), "3": TimeSet([0])})
        assert frontiers(graph, known)[0]["middle"] == 0
        for edge in ("2", "3"):
            known["middle"] = Knowledge.of(graph, "middle", logged={edge: TimeSet([0])})
            if edge == "3":  # what it kept for b is all that is needed: it does not run again
                assert frontiers(graph, known)[0]["middle"] == 0
            else:
                with pytest.raises(DataError, match="sink a holds"):
                    solve(graph, known, graph.vertices.keys())


class TestShortcuts:
    """Design, section 4: each of these looks right, and leaves an execution that never was."""

    def test_1_a_logged_message_of_a_stateful_nondeterministic_sender_is_not_fixed(self):
        """Run again from an older state it makes other choices, and its state no longer fits the message that left."""
        graph = row(deterministic=False)
        (edge,) = graph.outputs["middle"]
        known = {
            "input": Knowledge.of(graph, "input", determinants=TimeSet([0, 1])),
            "middle": Knowledge.of(graph, "middle", checkpoints=[-1, 0], logged={edge.name: TimeSet([0, 1])}),
            "output": Knowledge.of(graph, "output", checkpoints=[1]),
        }
        with pytest.raises(DataError, match="NO_CONSISTENT_FRONTIER"):
            solve(graph, known, graph.vertices.keys())

    def test_2_a_logged_message_whose_inputs_may_come_out_differently_is_not_fixed(self):
        graph = row(Kind.STATELESS, deterministic=False)
        firewall = TestFirewall()
        with pytest.raises(DataError, match="NO_CONSISTENT_FRONTIER"):
            solve(graph, firewall.known(graph, [0], [0, 1], held=1), graph.vertices.keys())
        assert frontiers(graph, firewall.known(graph, [0, 1], [0, 1], held=1))[0]["output"] == 1

    def test_3_a_time_kept_by_a_checkpoint_is_fixed_though_its_determinants_are_collected(self):
        graph = row(deterministic=False)
        known = {
            "input": Knowledge.of(graph, "input", collected=5, determinants=TimeSet([6, 7])),
            "middle": Knowledge.of(graph, "middle", checkpoints=[5], determinants=TimeSet([6, 7])),
            "output": Knowledge.of(graph, "output", checkpoints=[7]),
        }
        assert frontiers(graph, known) == (
            {"input": 5, "middle": 5, "output": 7},
            {"input": 7, "middle": 7, "output": 7},
        )

    def test_4_recovery_truncates_the_logs_of_survivors_too(self):
        """The input of time 1 is lost and read again, differently: the determinant of `middle` for it is void."""
        graph = row(deterministic=False)
        monitor = Monitor(graph)
        monitor.durable_determinants("input", 0)
        monitor.completed("input", up_to(1))
        for time in (0, 1):
            monitor.durable_determinants("middle", time)
            monitor.completed("middle", up_to(time))
        failure = monitor.plan({"input"})
        assert not failure.frontier("middle")
        assert failure.fixed("middle") == up_to(0)
        monitor.recovered(failure)
        monitor.durable_determinants("input", 1)
        monitor.completed("input", up_to(1))
        assert monitor.releasable("output", [up_to(0)])
        assert not monitor.releasable("output", [up_to(1)])

    def test_4_also_of_a_processor_that_stays_where_it_is(self):
        graph = row(deterministic=False)
        monitor = Monitor(graph)
        monitor.durable_determinants("input", 0)
        monitor.completed("input", up_to(1))
        monitor.completed("middle", up_to(0))
        for time in (0, 1):  # time 1 is being executed
            monitor.durable_determinants("middle", time)
        monitor.committed("output", up_to(0))
        failure = monitor.plan({"input"})
        assert failure.processors["middle"].stays
        assert failure.processors["middle"].fixed == Frontier.up_to(0)
        monitor.recovered(failure)
        monitor.durable_determinants("input", 1)
        assert not monitor.releasable("output", [up_to(1)])

    def test_5_nothing_is_stable_that_its_processor_has_not_completed(self):
        graph = row(Kind.STATELESS)
        monitor = Monitor(graph)
        for time in range(6):
            monitor.durable_determinants("input", time)
        monitor.committed("output", up_to(5))
        monitor.completed("middle", up_to(2))
        assert (
            last_of(monitor.stable("input")),
            last_of(monitor.stable("middle")),
            last_of(monitor.stable("output")),
        ) == (-1, 2, 5)
        monitor.completed("input", up_to(4))
        monitor.completed("middle", up_to(9))
        assert (last_of(monitor.stable("input")), last_of(monitor.stable("middle"))) == (4, 5)


class TestNotificationFrontiers:
    """Falkirk Wheel §3.5, Figure 5, put into epochs: only f_n sees that a notification may prove wrong."""

    def figure_5(self, r_notified):
        """`r` was told that nothing comes at time 0; `q`, which sent nothing then, restarts before it."""
        graph = chain(("p", Kind.SOURCE), ("q", Kind.STATEFUL, False), ("s", Kind.STATEFUL), ("r", Kind.STATEFUL))
        none, zero = Frontier.up_to(-1), Frontier.up_to(0)

        def xi(name, f, notified):
            inputs = {d.name: none for d in graph.inputs[name]}
            return Xi(f, notified, inputs, {e.name: none for e in graph.outputs[name]})

        known = {"p": Knowledge.of(graph, "p", determinants=TimeSet([0]))}
        for name, xis in {
            "q": [xi("q", none, none)],
            "s": [xi("s", none, none), xi("s", zero, none)],
            "r": [xi("r", none, none), xi("r", zero, r_notified)],
        }.items():
            known[name] = Knowledge(
                vertex=graph.vertices[name],
                inputs=graph.inputs[name],
                outputs=graph.outputs[name],
                xis=xis,
            )
        return graph, known

    def test_a_notification_that_may_prove_wrong_is_undone(self):
        graph, known = self.figure_5(Frontier.up_to(0))
        chosen = solve(graph, known, graph.vertices.keys())
        assert {p: last_of(f) for p, f in chosen.frontier.items()} == {"p": -1, "q": -1, "s": 0, "r": -1}
        why = chosen.why("r")
        assert why is not None
        assert (why.constraint, why.neighbour) == ("notified", "s")
        assert last_of(chosen.notified["s"]) == -1

    def test_so_is_one_behind_a_sender_that_must_go_back_for_another_receiver(self):
        """`q` has a checkpoint at time 0, but the sink `k` needs its messages again: f_n(q) ⊆ f(q)."""
        _, known = self.figure_5(Frontier.up_to(0))
        vertices = [*(k.vertex for k in known.values()), Vertex("k", Kind.SINK)]
        edges = [*(d for k in known.values() for d in k.inputs), Edge("q->k", "q", "k")]
        graph = RecoveryGraph(vertices, edges)
        none, zero = Frontier.up_to(-1), Frontier.up_to(0)
        known["q"] = Knowledge(
            vertex=graph.vertices["q"],
            inputs=graph.inputs["q"],
            outputs=graph.outputs["q"],
            xis=[
                Xi(none, none, {"p->q": none}, {"q->s": none, "q->k": none}),
                Xi(zero, zero, {"p->q": none}, {"q->s": none, "q->k": zero}),
            ],
        )
        known["k"] = Knowledge.of(graph, "k", checkpoints=[-1])
        assert frontiers(graph, known)[0] == {"p": -1, "q": -1, "s": 0, "r": -1, "k": -1}
        known["k"] = Knowledge.of(graph, "k", checkpoints=[0])
        assert frontiers(graph, known)[0] == {"p": 0, "q": 0, "s": 0, "r": 0, "k": 0}

    def test_without_one_nothing_is(self):
        graph, known = self.figure_5(Frontier.up_to(-1))
        assert frontiers(graph, known)[0] == {"p": -1, "q": -1, "s": 0, "r": 0}


def test_what_a_processor_has_seen_must_be_fixed_at_its_sender_though_it_asked_for_no_notification():
    graph = chain(("input", Kind.SOURCE), ("choice", Kind.STATELESS, False), ("state", Kind.STATEFUL))
    none, zero = Frontier.up_to(-1), Frontier.up_to(0)

    def known(determinants, delivered):
        return {
            "input": Knowledge.of(graph, "input", determinants=TimeSet([0])),
            "choice": Knowledge.of(graph, "choice", determinants=TimeSet(determinants)),
            "state": Knowledge(
                vertex=graph.vertices["state"],
                inputs=graph.inputs["state"],
                outputs=(),
                xis=[
                    Xi(none, none, {"choice->state": none}, {}),
                    Xi(zero, none, {"choice->state": delivered}, {}),
                ],
            ),
        }

    def state(*arguments):
        """Where `state` restarts if the source has lost the position of time 0, so that `choice` cannot be there."""
        given = known(*arguments)
        given["input"] = Knowledge.of(graph, "input")
        return frontiers(graph, given)[0]["state"]

    assert state([0], zero) == -1
    assert state([0], none) == 0, "it has seen nothing of time 0"
    assert frontiers(graph, known([], zero))[0] == {"input": 0, "choice": 0, "state": 0}


def test_no_checkpoint_is_restored_while_a_message_of_its_times_waits():
    graph = row()
    known = {
        "input": Knowledge.of(graph, "input", determinants=TimeSet(range(4)), completed=3),
        "middle": Knowledge(
            vertex=graph.vertices["middle"],
            inputs=graph.inputs["middle"],
            outputs=graph.outputs["middle"],
            checkpoints=[Frontier.up_to(-1), Frontier.up_to(1)],
            waiting={"input->middle": TimeSet([2])},
            completed=Frontier.up_to(3),
        ),
        "output": Knowledge.of(graph, "output", checkpoints=[3]),
    }
    assert frontiers(graph, known, failed=set())[0]["middle"] == 1


@pytest.mark.parametrize(
    ("vertices", "edges", "fault"),
    [
        ([Vertex("a", Kind.SOURCE), Vertex("a", Kind.SOURCE)], [], "two processors"),
        ([Vertex("a", Kind.SOURCE)], [Edge("e", "a", "b")], "lacks an end"),
        ([Vertex("a", Kind.STATELESS)], [], "stateless a's inputs"),
        (
            [Vertex("a", Kind.SOURCE), Vertex("b", Kind.SINK), Vertex("c", Kind.SINK)],
            [Edge("e", "a", "b"), Edge("f", "b", "c")],
            "sink b has outputs",
        ),
        ([Vertex("a", Kind.SOURCE), Vertex("b", Kind.SINK)], [Edge("e", "a", "b"), Edge("e", "a", "b")], "two edges"),
    ],
)
def test_what_is_no_graph_is_refused(vertices, edges, fault):
    with pytest.raises(InternalError, match=fault):
        RecoveryGraph(vertices, edges)


def test_senders_come_before_receivers():
    edges = [Edge("1", "d", "b"), Edge("2", "a", "d"), Edge("3", "a", "b"), Edge("4", "b", "c")]
    vertices = [
        Vertex("c", Kind.SINK),
        Vertex("b", Kind.STATELESS),
        Vertex("a", Kind.SOURCE),
        Vertex("d", Kind.STATEFUL),
    ]
    assert RecoveryGraph(vertices, edges).order == ("a", "d", "b", "c")
