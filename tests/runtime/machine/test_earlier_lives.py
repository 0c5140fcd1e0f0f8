"""Answers to an earlier incarnation of a processor, which come while the present incarnation does the same.

Nothing changes.
"""

import pytest

from boatlift.dataflow import Lazy
from boatlift.recovery import Edge, Kind, Monitor, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Determinant, Truncation
from boatlift.times import Frontier
from support.engine.machine_driver import Driver, chain, up_to, with_order


def unchanged(driver, event):
    """Hand the machine an event and return whether it gave nothing for it, and knows nothing new."""
    machine = driver.machine
    before = {name: (p.done, p.state, list(p.running), p.incarnation) for name, p in machine.processors.items()}
    given = machine.handle(event)
    return not given and before == {
        name: (p.done, p.state, list(p.running), p.incarnation) for name, p in machine.processors.items()
    }


def test_a_run_of_an_earlier_life_that_answers_late_changes_nothing():
    driver = Driver(chain(deterministic=False), slow={"p"})
    driver.go()
    earlier = driver.kept.pop()
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    (present,) = driver.kept
    assert (present.time, present.incarnation > earlier.incarnation) == (earlier.time, True)
    assert unchanged(
        driver, events.StepDone("p", earlier.incarnation, earlier.time, "another choice", {"p>out": "other"}, "other")
    )
    driver.slow.clear()
    driver.run(driver.kept.pop())
    driver.go()
    assert driver.machine.finished
    assert [message.payload for *_, steps in driver.placed for _, came in steps for message in came] == [
        f"p@{time}" for time in range(4)
    ]


def test_a_source_that_answers_an_earlier_life_late_changes_nothing():
    driver = Driver(chain())
    earlier = driver.go(until=lambda order: isinstance(order, instructions.PollSource) and order.time == 1)
    driver.hear(events.ProcessorsFailed(frozenset({"in"})))
    present = driver.go(until=lambda order: isinstance(order, instructions.PollSource) and order.time == 1)
    assert present.incarnation > earlier.incarnation
    assert unchanged(driver, events.EpochClosed("in", earlier.incarnation, earlier.time, {"end": "elsewhere"}))
    driver.carry_out(present)
    driver.go()
    assert [fact.outcome for fact in driver.facts(Determinant)] == [{"end": time} for time in range(4)]


@pytest.mark.parametrize("failed", ["p", "in"])
def test_steps_that_were_prepared_in_an_earlier_life_are_not_run_in_the_present_one(failed):
    """They name messages of an execution that is gone: the source closes otherwise this time."""
    clocks = iter(range(100))
    steps_per_job = lambda _, takes: len(takes)  # noqa: E731
    driver = Driver(
        chain(Durability(Lazy(every=None))),
        slow={"p"},
        durable=False,
        clock=lambda _: next(clocks),
        steps_per_job=steps_per_job,
    )
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    assert [take.time for take in driver.of(instructions.Prepare)[-1].takes] == [2, 3]
    driver.given.clear()
    driver.hear(events.ProcessorsFailed(frozenset({failed})))
    driver.go()
    while driver.kept:
        driver.run(driver.kept.pop())
        driver.go()
    sent = driver.machine.processors["in"].sent["in>p"]
    taken = [message for run in driver.of(instructions.Execute) for take in run.takes for message in take.inputs]
    assert all(message.payload == sent[message.time] for message in taken)
    assert driver.machine.processors["p"].done == up_to(3)


def test_steps_are_not_run_as_prepared_while_their_sender_has_to_make_the_messages_anew():
    """What is prepared stands, as the sender repeats it; but a failure took the message, and it is not there yet."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("q", Kind.STATELESS), Vertex("p", Kind.STATEFUL)]
    edges = [Edge("in>q", "in", "q"), Edge("q>p", "q", "p"), Edge("p>out", "p", "out")]
    graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], edges)
    durabilities = {"q": Durability(messages=True), "p": Durability(Lazy(every=None))}
    driver = Driver(Program(graph, durabilities), slow={"p"}, steps_per_job=lambda _, takes: len(takes))
    under_way = driver.go(until=lambda order: isinstance(order, instructions.Persist) and order.payloads == ("q@3",))
    assert under_way is not None, "the message of time 3 is lost with q, those before are durable"
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    for ask in driver.of(instructions.ReopenSink):
        driver.hear(events.SinkPosition(ask.sink, ask.incarnation, driver.machine.processors["out"].held))
    assert [take.time for take in driver.of(instructions.Prepare)[-1].takes] == [2, 3]
    driver.slow = {"p", "q"}
    driver.hear(events.ProcessorsFailed(frozenset({"q"})))
    driver.go()
    (first,) = [order for order in driver.kept if order.processor == "p"]
    assert driver.machine.processors["p"].incarnation == first.incarnation, "what it takes comes out the same"
    driver.given.clear()
    driver.run(first)
    (run,) = [order for order in driver.of(instructions.Execute) if order.processor == "p"]
    assert [take.time for take in run.takes] == [2], "q has not sent the message of time 3 again"


def test_what_a_failed_source_had_under_way_is_cut_before_it_closes_anew():
    """None of it is durable yet, but it may become so: a store that is read again must not have both executions."""
    driver = Driver(chain(), durable=False)
    driver.go(until=lambda order: isinstance(order, instructions.Execute))
    assert {type(fact) for write in driver.of(instructions.AppendLog) for fact in write.facts} == {Determinant}
    driver.given.clear()
    driver.hear(events.ProcessorsFailed(frozenset({"in"})))
    driver.go(until=lambda order: isinstance(order, instructions.Execute))
    facts = [fact for write in driver.of(instructions.AppendLog) for fact in write.facts]
    assert [type(fact) for fact in facts[:2]] == [Truncation, Determinant]
    assert facts[0].processors["in"] == ()


def test_a_merge_that_keeps_nothing_goes_back_to_what_it_had_taken_at_some_moment():
    """It took a0, b0, a1; b fails before its choice is durable.

    Without b0 the place of a1 among its messages is another.
    """
    driver = Driver(with_order(Durability(), kind=Kind.STATELESS), epochs=2, durable=False)
    p = driver.machine.processors["p"]
    taken = []
    while p.count < 3:
        order = driver.later.pop(0)
        if isinstance(order, instructions.Execute):
            taken += [take.time for take in order.takes]
        driver.carry_out(order)
    order = driver.machine.program.orders["p"]
    assert {edge for edge, _ in taken[:2]} == {"a>p", "b>p"}
    second = taken[1][0].split(">")[0]
    first = next(s for s in "ab" if s != second)
    for write in driver.of(instructions.AppendLog):  # everything but what the second source closed is durable
        if any(fact.processor == second for fact in write.facts if isinstance(fact, Determinant)):
            break
        driver.machine.handle(events.LogDurable(write.number))
    driver.hear(events.ProcessorsFailed(frozenset({second})))
    assert p.done in [order.prefix(n) for n in range(4)]
    assert p.done == order.prefix(p.count)
    assert p.done <= Frontier(order.domain, [(f"{first}>p", 0)])


def test_a_message_that_a_failure_cut_from_the_log_does_not_count_as_there():
    """The sender lives and stays where it is; an earlier incarnation had logged messages beyond what is fixed now."""
    program = chain(Durability(Lazy(every=2)), deterministic=False)
    monitor = Monitor(program.graph)
    for time in range(4):
        monitor.durable_determinants("in", time)
        monitor.durable_determinants("p", time)
    monitor.durable_checkpoint("p", up_to(3))
    for time in range(6):
        monitor.durable_message("p>out", time)
    monitor.completed("p", up_to(3))
    monitor.completed("in", up_to(3))
    plan = monitor.plan(frozenset({"in"}))
    assert plan.processors["p"].stays
    assert plan.fixed("p") == up_to(3)
    monitor.recovered(plan)
    logged = monitor.knowledge()["p"].logged["p>out"]
    assert list(logged) == [0, 1, 2, 3]
