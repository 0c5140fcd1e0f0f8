"""What a processor chooses and does not record: what of it may become durable, and when."""

from boatlift.dataflow import Batch, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, StateMachine, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedMessage
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.engine.machine_driver import LIMITS, Driver, chain, up_to, with_order


def batch_before_two_sinks():
    """in -> p, a batch of one epoch that chooses -> a, b."""
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, deterministic=False, coarse=True)]
    vertices += [Vertex("a", Kind.SINK), Vertex("b", Kind.SINK)]
    edges = [Edge("in>p", "in", "p", Coarse(cuts)), *(Edge(f"p>{s}", "p", s, Fine(cuts)) for s in "ab")]
    graph = RecoveryGraph(vertices, edges)
    return Program(graph, {"p": Durability(Batch(epochs=1), recorded=False)}, cuts={"p": cuts})


def test_where_a_batch_ended_is_durable_no_earlier_than_what_it_sent():
    """Whenever a driver dies, no epoch counts as repeatable without the messages that it cannot repeat."""
    driver = Driver(batch_before_two_sinks(), epochs=1, durable=False)
    driver.go()
    facts = []
    for write in driver.of(instructions.AppendLog):
        facts += write.facts
        durable = {
            type(fact) for fact in facts if isinstance(fact, Determinant | LoggedMessage) and "in" not in fact_of(fact)
        }
        assert durable in (set(), {Determinant, LoggedMessage})
        machine = StateMachine(batch_before_two_sinks(), LiveRecords.of(facts), {}, checked=True, **LIMITS)
        placed = [order.sink for order in machine.start() if isinstance(order, instructions.CommitSink)]
        assert sorted(placed) == (["a", "b"] if durable else [])
    assert durable


def fact_of(fact):
    """Return the processor or the edge of a fact."""
    return fact.processor if isinstance(fact, Determinant) else fact.edge.split(">")[0]


def test_a_state_brings_no_message_that_a_failure_took():
    """A processor that chooses goes back.

    Its messages beyond that belong to an execution that is gone, and are made anew.
    """
    driver = Driver(chain(Durability(Lazy(every=1), recorded=False), deterministic=False), epochs=6)
    while driver.machine.processors["p"].done != up_to(5):
        order = driver.later.pop(0)
        if not (
            isinstance(order, instructions.Persist) and order.number > 4
        ):  # these are under way when it fails, and lost
            driver.carry_out(order)
    driver.given.clear()
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    for ask in driver.of(instructions.ReopenSink):
        driver.hear(events.SinkPosition(ask.sink, ask.incarnation, driver.machine.processors["out"].held))
    assert driver.machine.processors["p"].done == up_to(2)
    again = driver.go(until=lambda order: isinstance(order, instructions.Execute))
    driver.given.clear()
    driver.run(again, **{"p>out": "chosen anew"})
    (keep,) = driver.of(instructions.Persist)
    assert keep.payloads == ("chosen anew", driver.machine.processors["p"].state)


def test_a_state_brings_the_order_of_all_that_was_taken_since_the_one_before():
    """Also of what was taken before the processor went back to a state that it still held."""
    driver = Driver(with_order(Durability(Lazy(every=4), recorded=False)), epochs=4, durable=False)
    p, order = driver.machine.processors["p"], driver.machine.program.orders["p"]
    while p.count < 3:
        driver.carry_out(driver.later.pop(0))
    edge, n = order.at(2)
    for write in driver.of(instructions.AppendLog):  # everything but the third message
        if any(chosen_at(fact, edge[0], n) for fact in write.facts):
            break
        driver.machine.handle(events.LogDurable(write.number))
    driver.hear(events.ProcessorsFailed(frozenset({edge[0]})))
    assert p.count == 2
    assert p.state is not None, "the processor still holds that state"
    driver.durable = True
    driver.later = [*driver.of(instructions.AppendLog), *driver.later]
    driver.go()
    saved = driver.facts(Checkpoint)[0]
    written = next(write for write in driver.of(instructions.AppendLog) if saved in write.facts)
    known = [
        f.time
        for w in driver.of(instructions.AppendLog)
        if w.number <= written.number
        for f in w.facts
        if chosen_at(f, "p")
    ]
    assert known == list(range(sum(n + 1 for _, n in saved.frontier)))


def chosen_at(fact, processor, time=None):
    """Return whether a fact is a choice of a processor, at any time or at one."""
    return isinstance(fact, Determinant) and fact.processor == processor and time in (None, fact.time)
