"""When sinks are given what, and what happens when one does not answer."""

import boatlift as bl
from boatlift.dataflow import Eager, Lazy, plan
from boatlift.runtime.graph import program_of
from boatlift.runtime.machine import Durability, StateMachine, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant
from boatlift.storage.records.live import LiveRecords
from support.any_connector import ANY
from support.engine.machine_driver import LIMITS, Driver, chain, up_to


def test_a_deterministic_pipeline_releases_once_positions_are_durable():
    driver = Driver(chain(Durability(Lazy(every=None))), durable=False)
    driver.go()
    assert not driver.placed
    first = driver.of(instructions.AppendLog)[0]
    driver.hear(events.LogDurable(first.number))
    assert driver.of(instructions.CommitSink)[-1].frontier == up_to(0)


def test_what_is_eager_is_durable_before_anything_of_it_leaves():
    """Though it could be repeated: once it was seen it is never executed again."""
    driver = Driver(chain(Durability(Eager())), durable=False, epochs=1)
    driver.go()
    saves = next(
        write.number
        for write in driver.of(instructions.AppendLog)
        if any(isinstance(f, Checkpoint) for f in write.facts)
    )
    driver.hear(events.LogDurable(saves - 1))
    driver.go()
    assert not driver.placed
    driver.hear(events.LogDurable(saves))
    driver.go()
    assert [frontier for _, frontier, _ in driver.placed] == [up_to(0)]


def test_what_is_chosen_and_not_recorded_waits_for_the_checkpoint():
    driver = Driver(chain(Durability(Lazy(every=3), recorded=False), deterministic=False), epochs=3)
    driver.go()
    assert [frontier for _, frontier, _ in driver.placed] == [up_to(2)], "all three in one act"


def test_everything_is_made_durable_when_nothing_else_moves():
    """A policy that never saves what it chose would never release it."""
    driver = Driver(chain(Durability(Lazy(every=None), recorded=False), deterministic=False), epochs=3)
    driver.go()
    assert driver.machine.finished
    assert [frontier for _, frontier, _ in driver.placed] == [up_to(2)]
    assert [fact.frontier for fact in driver.facts(Checkpoint)] == [(2,)]


def test_a_sink_that_does_not_answer_is_asked_what_it_holds():
    driver = Driver(chain())
    place = driver.go(until=lambda order: isinstance(order, instructions.CommitSink))
    driver.hear(events.CommitUnknown(place.sink, place.incarnation, place.frontier))
    ask = driver.of(instructions.ReopenSink)[-1]
    assert ask.incarnation > place.incarnation
    driver.hear(
        events.SinkCommitted(place.sink, place.incarnation, place.frontier)
    )  # an answer of the earlier incarnation: void
    assert driver.machine.processors["out"].held == up_to(-1)
    driver.hear(events.SinkPosition(ask.sink, ask.incarnation, place.frontier))
    assert driver.machine.processors["out"].held == place.frontier
    driver.go()
    assert driver.machine.finished
    assert [time for _, _, steps in driver.placed for time, _ in steps] == [1, 2, 3]


def test_an_answer_that_comes_twice_counts_once():
    driver = Driver(chain())
    first = driver.go(until=lambda order: isinstance(order, instructions.CommitSink))
    driver.hear(events.SinkCommitted(first.sink, first.incarnation, first.frontier))
    second = driver.go(until=lambda order: isinstance(order, instructions.CommitSink))
    assert second.incarnation == first.incarnation
    driver.hear(events.SinkCommitted(first.sink, first.incarnation, first.frontier))
    assert driver.machine.processors["out"].held == first.frontier


def test_what_was_taken_as_it_came_leaves_once_its_order_is_durable():
    """A merge keeps no state, so that it could be anywhere.

    But what left in one order must not come again in another.
    """
    flow = bl.Dataflow("merged")
    one, other = flow.source("one", ANY), flow.source("other", ANY)
    one.merge("both", other).sink("out", ANY)
    made = program_of(plan(flow))
    machine = StateMachine(made, LiveRecords(), {"out": up_to(-1)}, checked=True, **LIMITS)
    todo, durable, placed = list(machine.start()), [], []

    def hear(event):
        for order in machine.handle(event):
            (placed if isinstance(order, instructions.CommitSink) else todo).append(order)

    def write():
        for order in [order for order in todo if isinstance(order, instructions.AppendLog)]:
            todo.remove(order)
            durable.extend(order.facts)
            hear(events.LogDurable(order.number))

    hear(events.EpochClosed("one", machine.processors["one"].incarnation, 0, {"n": 0}))
    write()
    run = next(order for order in todo if isinstance(order, instructions.Execute))
    hear(
        events.StepDone("both", run.incarnation, run.takes[0].time, None, {"both->out": "x"}, None, "d", False, 1, 1.0)
    )
    assert not placed
    write()
    assert any(isinstance(fact, Determinant) and fact.processor == "both" for fact in durable)
    assert [order.frontier for order in placed] == [up_to(0)]
    StateMachine(program_of(plan(flow)), LiveRecords.of(durable), {"out": up_to(0)}, **LIMITS).start()
