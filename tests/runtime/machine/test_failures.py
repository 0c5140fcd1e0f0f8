"""Who goes back after a failure, who goes on, and from what it begins again."""

import pytest

from boatlift.dataflow import Eager, History, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, GarbageCollection, Truncation
from boatlift.storage.records.live import LiveRecords
from support.engine.machine_driver import Driver, chain, up_to


def two_branches():
    """source -> left -> a; source -> right -> b."""
    vertices = [Vertex("in", Kind.SOURCE)]
    vertices += [Vertex(p, Kind.STATEFUL) for p in ("left", "right")] + [Vertex(s, Kind.SINK) for s in ("a", "b")]
    pairs = [("in", "left"), ("in", "right"), ("left", "a"), ("right", "b")]
    graph = RecoveryGraph(vertices, [Edge(f"{p}>{q}", p, q) for p, q in pairs])
    return Program(graph, {p: Durability(Lazy(every=2)) for p in ("left", "right")})


def test_a_processor_that_is_not_touched_goes_on():
    driver = Driver(two_branches(), slow={"right"})
    driver.go()
    waiting = driver.kept.pop()
    driver.hear(events.ProcessorsFailed(frozenset({"left"})))
    assert waiting.processor == "right"
    assert driver.machine.processors["right"].incarnation == waiting.incarnation, "it was not called off"
    driver.slow.clear()
    driver.run(waiting)
    driver.go()
    assert driver.machine.finished
    assert driver.machine.processors["right"].incarnation == waiting.incarnation
    assert sorted((sink, time) for sink, _, steps in driver.placed for time, _ in steps) == [
        (sink, time) for sink in "ab" for time in range(4)
    ]


def test_what_comes_out_differently_is_called_off():
    """A receiver is taking a message that its sender will not send again: the sender's choice is not recorded."""
    program = chain(Durability(Lazy(every=None)))
    vertices = [*program.graph.vertices.values(), Vertex("q", Kind.STATELESS, deterministic=False)]
    edges = [Edge("in>q", "in", "q"), Edge("q>p", "q", "p"), Edge("p>out", "p", "out")]
    program = Program(
        RecoveryGraph(vertices, edges), {"q": Durability(recorded=False), "p": Durability(Lazy(every=None))}
    )
    driver = Driver(program, slow={"p"}, epochs=1)
    driver.go()
    taking = driver.kept.pop()
    driver.hear(events.ProcessorsFailed(frozenset({"q"})))
    assert driver.of(instructions.Cancel) == [instructions.Cancel("p", taking.incarnation)]
    before = driver.machine.processors["p"].done
    driver.run(taking)
    assert driver.machine.processors["p"].done == before, "its answer is void"


def test_what_was_got_ready_and_comes_out_differently_is_dropped():
    """A source closes an epoch differently; a receiver that lives on was to take it with durable messages."""
    clocks = iter(range(100))
    program, steps_per_job = chain(Durability(Lazy(every=None))), (lambda _, takes: len(takes))
    driver = Driver(
        program, slow={"p"}, epochs=4, durable=False, clock=lambda _: next(clocks), steps_per_job=steps_per_job
    )
    driver.go()
    closed = {fact.time: write.number for write in driver.of(instructions.AppendLog) for fact in write.facts}
    driver.hear(events.LogDurable(closed[2]))
    driver.run(driver.kept.pop())
    driver.go()
    (under_way,) = driver.kept
    assert [take.time for take in driver.of(instructions.Prepare)[-1].takes] == [2, 3], "of which 3 is not durable"
    driver.hear(events.ProcessorsFailed(frozenset({"in"})))
    driver.go()
    assert driver.machine.processors["p"].incarnation == under_way.incarnation, "what it takes is durable"
    taken = {}
    while driver.kept:
        order = driver.kept.pop()
        taken |= {take.time: take.inputs[0].payload for take in order.takes}
        driver.run(order)
        driver.go()
    sent = driver.machine.processors["in"].sent["in>p"]
    assert taken == {time: sent[time] for time in (1, 2, 3)}


def test_what_rests_on_silence_is_called_off_with_it():
    """A receiver runs a time at which one of its senders sent nothing; run again, that one may."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("q", Kind.STATELESS, deterministic=False)]
    vertices += [Vertex("p", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    edges = [Edge("in>q", "in", "q"), Edge("q>p", "q", "p"), Edge("in>p", "in", "p"), Edge("p>out", "p", "out")]
    graph = RecoveryGraph(vertices, edges)
    program = Program(graph, {"q": Durability(recorded=False), "p": Durability(Lazy(every=None))})
    driver = Driver(program, slow={"p", "q"}, epochs=1)
    driver.go()
    driver.run(driver.kept.pop(), **{"q>nobody": ""})
    driver.go()
    taking = driver.kept.pop()
    assert [message.edge for message in taking.takes[0].inputs] == ["in>p"]
    driver.hear(events.ProcessorsFailed(frozenset({"q"})))
    assert driver.of(instructions.Cancel) == [instructions.Cancel("p", taking.incarnation)]
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    assert [message.edge for message in driver.kept.pop().takes[0].inputs] == ["in>p", "q>p"]


def test_failures_during_recovery_and_in_a_row():
    driver = Driver(two_branches(), epochs=6)
    for failed in ({"left"}, {"in"}, {"a", "right"}, {"left", "right", "in"}, {"b"}):
        driver.go(until=lambda order: isinstance(order, instructions.Execute))
        driver.hear(events.ProcessorsFailed(frozenset(failed)))
        driver.hear(events.ProcessorsFailed(frozenset(failed)))
    driver.go()
    assert driver.machine.finished
    assert sorted((sink, time) for sink, _, steps in driver.placed for time, _ in steps) == [
        (sink, time) for sink in "ab" for time in range(6)
    ]


def test_a_failure_while_a_sink_places_waits_for_what_it_holds():
    driver = Driver(chain())
    place = driver.go(until=lambda order: isinstance(order, instructions.CommitSink))
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    assert not driver.facts(Truncation)
    ask = driver.of(instructions.ReopenSink)[-1]
    driver.hear(events.SinkPosition(ask.sink, ask.incarnation, place.frontier))
    assert driver.facts(Truncation)
    driver.go()
    assert driver.machine.finished


def test_it_begins_again_from_what_is_durable():
    first = Driver(chain(), epochs=4)
    first.go()
    standing = LiveRecords.of(first.machine.durable.records.facts())
    held = {"out": first.machine.processors["out"].held}
    second = Driver(chain(), standing, held, epochs=6)
    assert second.machine.processors["p"].state == first.machine.processors["p"].state
    second.go()
    assert second.machine.finished
    assert [time for _, _, steps in second.placed for time, _ in steps] == [4, 5]


@pytest.mark.parametrize(
    ("before", "after"),
    [(Lazy(every=2), History()), (History(), Lazy(every=2)), (History(), Eager()), (Eager(), Lazy(every=None))],
)
def test_a_changed_policy_goes_on_with_the_state_there_is(before, after):
    whole = Driver(chain(Durability(before)), epochs=6)
    whole.go()
    first = Driver(chain(Durability(before)), epochs=4)
    first.go()
    held = {"out": first.machine.processors["out"].held}
    second = Driver(chain(Durability(after)), LiveRecords.of(first.machine.durable.records.facts()), held, epochs=6)
    second.go()
    assert second.machine.finished
    assert second.machine.processors["p"].state == whole.machine.processors["p"].state
    third = Driver(
        chain(Durability(before)), LiveRecords.of(second.machine.durable.records.facts()), {"out": up_to(5)}, epochs=6
    )
    third.go()
    assert third.machine.processors["p"].state == whole.machine.processors["p"].state


def test_a_state_that_comes_late_is_no_later_state():
    """After a recovery a smaller frontier may be saved after a larger one of the life before."""
    standing = LiveRecords.of([Checkpoint("p", (t,), f"state {t}") for t in (1, 3, 5, 7, 4)])
    garbage = LiveRecords.of([*standing.facts(), GarbageCollection({"p": (5,)}, {}, {})])
    assert sorted(garbage.states["p"]) == [(5,), (7,)]


def test_a_processor_that_did_not_fail_goes_back_by_dropping_later_steps():
    """It has no checkpoint at all, and yet executes nothing again that stays fixed."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("q", Kind.STATEFUL, deterministic=False)]
    vertices += [Vertex("p", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    edges = [Edge("in>q", "in", "q"), Edge("q>p", "q", "p"), Edge("p>out", "p", "out")]
    durabilities = {"q": Durability(Lazy(every=2), recorded=False), "p": Durability(Lazy(every=None))}
    driver = Driver(Program(RecoveryGraph(vertices, edges), durabilities), epochs=3, ended=False)
    third = driver.go(
        until=lambda order: isinstance(order, instructions.Execute) and order.processor == "p" and order.time == 2
    )
    driver.run(third)
    for order in [order for order in driver.later if isinstance(order, instructions.CommitSink)]:
        driver.carry_out(order)
    assert driver.machine.processors["p"].done == up_to(2)
    driver.given.clear()
    driver.hear(events.ProcessorsFailed(frozenset({"q"})))
    assert driver.machine.processors["p"].done == up_to(1), "q had saved no more, and chooses anew"
    driver.go()
    again = [order for order in driver.of(instructions.Execute) if order.processor == "p"]
    assert (again[0].time, again[0].state) == (2, third.state)
