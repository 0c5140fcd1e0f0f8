"""Who waits for whom; what is acknowledged and collected."""

import boatlift as bl
from boatlift.dataflow import Eager, Lazy, plan
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.graph import program_of
from boatlift.runtime.regimes import Program, Regime
from boatlift.runtime.regimes import acts as do
from boatlift.storage.facts import Chosen
from boatlift.storage.standing import Standing
from support.regimes import Driver, chain, up_to, with_batch


def test_sources_wait_when_much_waits_behind_them():
    driver = Driver(chain(), epochs=50, slow={"p"}, messages_ahead=5)
    driver.go()
    assert len(driver.of(do.Close)) == 5
    driver.run(driver.kept.pop())
    driver.go()
    assert len(driver.of(do.Close)) == 6


def test_a_batch_that_needs_more_than_may_wait_gets_it():
    """Otherwise nothing would ever move again."""
    driver = Driver(with_batch(epochs=10), epochs=20, messages_ahead=3)
    driver.go()
    assert driver.machine.finished
    assert [fact.taken for fact in driver.facts(Chosen) if fact.processor == "p"] == [9, 19]


def join():
    """Two sources that meet."""
    vertices = [
        Vertex("x", Kind.SOURCE),
        Vertex("y", Kind.SOURCE),
        Vertex("j", Kind.STATEFUL),
        Vertex("out", Kind.SINK),
    ]
    edges = [Edge("x>j", "x", "j"), Edge("y>j", "y", "j"), Edge("j>out", "j", "out")]
    return Program(RecoveryGraph(vertices, edges), {"j": Regime(Lazy(every=2))})


class OneRests(Driver):
    """Source x has nothing from a time on, but may have some day."""

    from_then_on = 0

    def carry_out(self, order):
        if isinstance(order, do.Close) and order.source == "x" and order.time >= self.from_then_on:
            self.hear(do.Idle("x", order.life, order.time))
        else:
            super().carry_out(order)


def test_a_source_that_rests_stops_nobody_else():
    """Nor does one that waits for another: whoever is waited for goes on."""
    vertices = [Vertex(s, Kind.SOURCE) for s in "xyz"] + [Vertex("j", Kind.STATEFUL), Vertex("k", Kind.STATEFUL)]
    vertices += [Vertex(s, Kind.SINK) for s in ("xs", "js", "ks")]
    pairs = [("x", "xs"), ("y", "j"), ("z", "j"), ("z", "k"), ("x", "k"), ("j", "js"), ("k", "ks")]
    graph = RecoveryGraph(vertices, [Edge(f"{p}>{q}", p, q) for p, q in pairs])
    program = Program(graph, {"j": Regime(Lazy(every=2)), "k": Regime(Lazy(every=2))})
    driver = OneRests(program, epochs=20, messages_ahead=5)
    driver.go()
    assert driver.machine.processors["js"].held == up_to(19), "though what z sends to k has to wait for x"


def test_a_source_waits_for_one_that_has_nothing_yet():
    driver = OneRests(join(), epochs=1000, messages_ahead=5)
    driver.go()
    assert len(driver.machine.processors["j"].waiting["y>j"]) == 5
    assert not driver.machine.finished


def test_what_a_source_closed_before_comes_back_no_faster_than_it_is_taken():
    first = Driver(chain(Regime(Lazy(every=None))), epochs=300)
    first.go()
    standing = Standing.of(first.machine.durable.standing.facts())
    second = Driver(
        chain(Regime(Lazy(every=None))), standing, {"out": up_to(299)}, epochs=300, slow={"p"}, messages_ahead=5
    )
    assert len(second.machine.processors["p"].waiting["in>p"]) == 5
    second.slow.clear()
    second.go(until=lambda order: order.time == 299 if isinstance(order, do.Run) else False)
    assert len(second.machine.processors["p"].waiting["in>p"]) <= 5


def test_a_wake_that_overtakes_the_answer_is_not_lost():
    driver = Driver(chain(), epochs=2, ended=False)
    close = driver.go(until=lambda order: isinstance(order, do.Close) and order.time == 1)
    driver.hear(do.Wake("in"))
    driver.hear(do.Idle("in", close.life, 1))
    assert driver.of(do.Close)[-1].time == 1
    assert len([order for order in driver.of(do.Close) if order.time == 1]) == 2, "it is asked again"
    driver.hear(do.Idle("in", close.life, 0))  # an answer that came before, once more
    assert driver.machine.processors["in"].closing


def test_an_acknowledgement_that_may_have_been_lost_is_given_again():
    first = Driver(chain(Regime(Eager())), epochs=6, collect_after=1)
    first.go()
    standing = Standing.of(first.machine.durable.standing.facts())
    second = Driver(chain(Regime(Eager())), standing, {"out": up_to(5)}, epochs=6, collect_after=1)
    assert second.of(do.Acknowledge) == [do.Acknowledge("in", up_to(5))]


def test_inputs_are_acknowledged_and_garbage_is_dropped():
    driver = Driver(chain(Regime(Eager())), epochs=10, collect_after=1)
    driver.go()
    assert driver.of(do.Acknowledge)[-1] == do.Acknowledge("in", up_to(9))
    standing = driver.machine.durable.standing
    assert list(standing.states["p"]) == [(9,)], "the last state stays"
    assert list(standing.chosen["in"]) == [9], "the last positions stay: what comes next begins after them"
    assert not any(standing.sent.values())
    assert all(not sent for p in driver.machine.processors.values() for sent in p.sent.values())


def test_a_batch_behind_a_union_holds_nobody_back_and_lifts_no_bound():
    """`x` has nothing more: what `y` gave waits at the union, and the batch behind it wants more; `y` is held up all the same."""
    flow = bl.Dataflow("flow")
    x, y = (flow.source(name, None) for name in "xy")
    y.union("both", x).gather("hours", policy=bl.Batch(epochs=100)).sink("out", None)
    driver = OneRests(program_of(plan(flow)), epochs=500, messages_ahead=3)
    driver.from_then_on = 1
    driver.go()
    assert len(driver.machine.processors["hours"].waiting["both->hours"]) == 1
    assert max(order.time for order in driver.of(do.Close) if order.source == "y") < 10
    assert not driver.machine.finished
