"""Who waits for whom; what is acknowledged and collected."""

import boatlift as bl
from boatlift.dataflow import Batch, Eager, Lazy, plan
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.graph import program_of
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.any_connector import ANY
from support.engine.machine_driver import Driver, chain, up_to, with_batch


def test_sources_wait_when_much_waits_behind_them():
    driver = Driver(chain(), epochs=50, slow={"p"}, messages_ahead=5)
    driver.go()
    assert len(driver.of(instructions.PollSource)) == 5
    driver.run(driver.kept.pop())
    driver.go()
    assert len(driver.of(instructions.PollSource)) == 6


def test_a_batch_that_needs_more_than_may_wait_gets_it():
    """Otherwise nothing would ever move again."""
    driver = Driver(with_batch(epochs=10), epochs=20, messages_ahead=3)
    driver.go()
    assert driver.machine.finished
    assert [fact.taken for fact in driver.facts(Determinant) if fact.processor == "p"] == [9, 19]


class Gathering(Driver):
    """Every source gives in its next epoch all that came meanwhile."""

    def carry_out(self, order):
        if isinstance(order, instructions.PollSource) and order.time < self.epochs:
            self.hear(
                events.EpochClosed(order.source, order.incarnation, order.time, {"end": order.time}, gathers=True)
            )
        else:
            super().carry_out(order)


def test_a_source_that_gathers_is_asked_when_it_is_its_turn():
    driver = Gathering(chain(), epochs=4, slow={"p"})
    for closed in (1, 2, 3, 4):
        driver.go()
        assert len(driver.of(instructions.PollSource)) == closed, (
            "closed ahead, a step would wait for the one before, and be smaller"
        )
        driver.run(driver.kept.pop())
    driver.go()
    assert driver.machine.finished


def test_a_source_that_gathers_does_not_wait_for_a_batch():
    """Which takes its time, and what it needs."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("fast", Kind.STATEFUL), Vertex("fit", Kind.STATELESS, coarse=True)]
    vertices += [Vertex("out", Kind.SINK), Vertex("fits", Kind.SINK)]
    cuts = EpochBoundaries()
    edges = [Edge("in>fast", "in", "fast"), Edge("in>fit", "in", "fit", Coarse(cuts)), Edge("fast>out", "fast", "out")]
    edges += [Edge("fit>fits", "fit", "fits", Fine(cuts))]
    durabilities = {"fast": Durability(Lazy(every=2)), "fit": Durability(Batch(epochs=3))}
    program = Program(RecoveryGraph(vertices, edges), durabilities, cuts={"fit": cuts})
    driver = Gathering(program, epochs=10, slow={"fit"})
    driver.go()
    assert driver.machine.processors["fast"].done == up_to(9), "it is held up by what waits for a batch that runs"
    assert len(driver.kept) == 1


def test_two_sources_that_gather_and_meet_come_to_their_end():
    driver = Gathering(join(), epochs=5)
    driver.go()
    assert driver.machine.finished
    assert driver.machine.processors["out"].held == up_to(4)


def test_a_client_that_waits_for_stability_gets_it_when_nothing_moves():
    for awaited, acknowledged in ((False, up_to(-1)), (True, up_to(0))):
        driver = Driver(
            chain(Durability(Lazy(every=20))),
            epochs=1,
            ended=False,
            collect_after=64,
            awaited=lambda told=awaited: told,
        )
        driver.go()
        assert driver.machine.processors["in"].acknowledged == acknowledged
        assert not driver.machine.finished


def join():
    """Two sources that meet."""
    vertices = [
        Vertex("x", Kind.SOURCE),
        Vertex("y", Kind.SOURCE),
        Vertex("j", Kind.STATEFUL),
        Vertex("out", Kind.SINK),
    ]
    edges = [Edge("x>j", "x", "j"), Edge("y>j", "y", "j"), Edge("j>out", "j", "out")]
    return Program(RecoveryGraph(vertices, edges), {"j": Durability(Lazy(every=2))})


class OneRests(Driver):
    """Source x has nothing from a time on, but may have some day."""

    from_then_on = 0

    def carry_out(self, order):
        if isinstance(order, instructions.PollSource) and order.source == "x" and order.time >= self.from_then_on:
            self.hear(events.SourceIdle("x", order.incarnation, order.time))
        else:
            super().carry_out(order)


def test_a_source_that_rests_stops_no_other():
    """Nor does one that waits for another: whoever is waited for goes on."""
    vertices = [Vertex(s, Kind.SOURCE) for s in "xyz"] + [Vertex("j", Kind.STATEFUL), Vertex("k", Kind.STATEFUL)]
    vertices += [Vertex(s, Kind.SINK) for s in ("xs", "js", "ks")]
    pairs = [("x", "xs"), ("y", "j"), ("z", "j"), ("z", "k"), ("x", "k"), ("j", "js"), ("k", "ks")]
    graph = RecoveryGraph(vertices, [Edge(f"{p}>{q}", p, q) for p, q in pairs])
    program = Program(graph, {"j": Durability(Lazy(every=2)), "k": Durability(Lazy(every=2))})
    driver = OneRests(program, epochs=20, messages_ahead=5)
    driver.go()
    assert driver.machine.processors["js"].held == up_to(19), "though what z sends to k has to wait for x"


def test_a_source_that_has_nothing_closes_the_steps_of_its_partner_with_nothing():
    driver = OneRests(join(), epochs=20, messages_ahead=5)
    driver.go()
    assert driver.machine.processors["out"].held == up_to(19)
    assert [fact.outcome for fact in driver.facts(Determinant) if fact.processor == "x"] == [None] * 20
    assert len([order for order in driver.of(instructions.PollSource) if order.source == "x"]) == 1


def test_what_a_source_closed_before_comes_back_no_faster_than_it_is_taken():
    first = Driver(chain(Durability(Lazy(every=None))), epochs=300)
    first.go()
    standing = LiveRecords.of(first.machine.durable.records.facts())
    second = Driver(
        chain(Durability(Lazy(every=None))), standing, {"out": up_to(299)}, epochs=300, slow={"p"}, messages_ahead=5
    )
    assert len(second.machine.processors["p"].waiting["in>p"]) == 5
    second.slow.clear()
    second.go(until=lambda order: order.time == 299 if isinstance(order, instructions.Execute) else False)
    assert len(second.machine.processors["p"].waiting["in>p"]) <= 5


def test_a_wake_that_overtakes_the_answer_is_not_lost():
    driver = Driver(chain(), epochs=2, ended=False)
    close = driver.go(until=lambda order: isinstance(order, instructions.PollSource) and order.time == 1)
    driver.hear(events.SourceWoken("in"))
    driver.hear(events.SourceIdle("in", close.incarnation, 1))
    assert driver.of(instructions.PollSource)[-1].time == 1
    assert len([order for order in driver.of(instructions.PollSource) if order.time == 1]) == 2, "it is asked again"
    driver.hear(events.SourceIdle("in", close.incarnation, 0))  # an answer that came before, once more
    assert driver.machine.processors["in"].busy


def test_an_acknowledgement_that_may_have_been_lost_is_given_again():
    first = Driver(chain(Durability(Eager())), epochs=6, collect_after=1)
    first.go()
    standing = LiveRecords.of(first.machine.durable.records.facts())
    second = Driver(chain(Durability(Eager())), standing, {"out": up_to(5)}, epochs=6, collect_after=1)
    assert second.of(instructions.Acknowledge) == [instructions.Acknowledge("in", up_to(5))]


def test_inputs_are_acknowledged_and_garbage_is_dropped():
    driver = Driver(chain(Durability(Eager())), epochs=10, collect_after=1)
    driver.go()
    assert driver.of(instructions.Acknowledge)[-1] == instructions.Acknowledge("in", up_to(9))
    standing = driver.machine.durable.records
    assert list(standing.states["p"]) == [(9,)], "the last state stays"
    assert list(standing.determinants["in"]) == [9], "the last positions stay: what comes next begins after them"
    assert not any(standing.sent.values())
    assert all(not sent for p in driver.machine.processors.values() for sent in p.sent.values())


def test_a_batch_behind_a_union_counts_the_steps_that_one_source_has_alone():
    """`x` has nothing more: the rows of `y` go on to the batch, whose epochs end as ever."""
    flow = bl.Dataflow("flow")
    x, y = (flow.source(name, ANY) for name in "xy")
    y.union("both", x).gather("hours", policy=bl.Batch(epochs=100)).sink("out", ANY)
    driver = OneRests(program_of(plan(flow)), epochs=500, messages_ahead=3)
    driver.from_then_on = 1
    driver.go()
    assert [fact.taken for fact in driver.facts(Determinant) if fact.processor == "hours"] == [99, 199, 299, 399, 499]
    assert not driver.machine.finished, "x may have more some day"
