"""Data in flight: the messages that a checkpoint keeps, so that a slow reader does not pin its sender (FLIP-76)."""

from itertools import pairwise

import pytest

from boatlift.dataflow import Batch, Lazy
from boatlift.errors import InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, LoggedMessage
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.engine.machine_driver import Driver, up_to

EVERY = 5
STALL = 7
AHEAD = 12


def program(in_flight="behind", *, reader=None, between=False):
    """in -> a -> b -> out; with a processor without state between a and b, if asked."""
    senders = ["in", "a", *(["t"] if between else []), "b", "out"]
    kinds = {"in": Kind.SOURCE, "t": Kind.STATELESS, "out": Kind.SINK}
    vertices = [Vertex(name, kinds.get(name, Kind.STATEFUL)) for name in senders]
    edges = [Edge(f"{s}>{t}", s, t) for s, t in pairwise(senders)]
    durabilities = {"a": Durability(Lazy(EVERY, in_flight=in_flight)), "b": Durability(reader or Lazy(EVERY))}
    return Program(RecoveryGraph(vertices, edges), durabilities)


def before_batch(in_flight="behind"):
    """in -> a -> batch -> out: the batch's epoch does not end."""
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("a", Kind.STATEFUL)]
    vertices += [Vertex("batch", Kind.STATELESS, coarse=True), Vertex("out", Kind.SINK)]
    edges = [Edge("in>a", "in", "a"), Edge("a>batch", "a", "batch", Coarse(cuts))]
    edges.append(Edge("batch>out", "batch", "out", Fine(cuts)))
    durabilities = {"a": Durability(Lazy(EVERY, in_flight=in_flight)), "batch": Durability(Batch(epochs=1000))}
    return Program(RecoveryGraph(vertices, edges), durabilities, cuts={"batch": cuts})


def stalled(program, reader="b", **options):
    """Return a driver whose reader has done the steps before STALL and stands there; its senders have gone on."""
    driver = Driver(program, epochs=60, ended=False, messages_ahead=AHEAD, **options)

    def stalls(order):
        return isinstance(order, instructions.Execute) and (order.processor, order.takes[0].time) == (reader, STALL)

    driver.slow.clear()
    driver.kept.append(driver.go(until=stalls))
    driver.slow.add(reader)
    driver.go()
    return driver


def restored(driver, failed):
    """Let processors fail, and return how far each was restored."""
    driver.kept.clear()
    driver.hear(events.ProcessorsFailed(frozenset(failed)))
    return {p.name: max(p.done.maximal, default=-1) for p in driver.machine.processors.values()}


def executed(driver, processor, given=0):
    """Return the times that a processor was told to execute, from an instruction on."""
    executes = [order for order in driver.given[given:] if isinstance(order, instructions.Execute)]
    return [take.time for order in executes if order.processor == processor for take in order.takes]


def logged(driver, edge):
    return sorted(driver.machine.durable.records.sent.get(edge, {}))


def test_without_data_in_flight_a_stalled_reader_pins_its_sender():
    driver = stalled(program(in_flight=False))
    assert max(driver.machine.processors["a"].done.maximal) == 18, "as far as the bound on messages ahead lets it go"
    assert logged(driver, "a>b") == []
    assert restored(driver, driver.machine.graph.order)["a"] == 4, "where the reader is restored, too"


@pytest.mark.parametrize("in_flight", ["behind", True])
def test_with_data_in_flight_a_stalled_reader_does_not_pin_its_sender(in_flight):
    driver = stalled(program(in_flight=in_flight))
    at = restored(driver, driver.machine.graph.order)
    assert (at["a"], at["b"]) == (14, 4)


def test_restored_messages_come_before_new_ones():
    driver = stalled(program())
    given = len(driver.given)
    restored(driver, driver.machine.graph.order)
    driver.slow.clear()
    driver.go()
    assert executed(driver, "b", given)[:40] == list(range(5, 45))
    assert executed(driver, "a", given)[0] == 15, (
        "the sender does not execute again what its checkpoint and its messages have"
    )


def test_what_readers_are_given_is_the_same_with_and_without():
    def outcome(in_flight):
        driver = stalled(program(in_flight=in_flight))
        restored(driver, driver.machine.graph.order)
        driver.slow.clear()
        driver.go()
        return {(sink, time): step for sink, _, steps in driver.placed for time, step in steps}

    assert outcome(True) == outcome("behind") == outcome(False)


def test_in_steady_running_a_checkpoint_keeps_no_messages():
    driver = Driver(program(), epochs=60, ended=False)
    driver.go()
    assert len(driver.facts(Checkpoint)) == 24
    assert driver.facts(LoggedMessage) == []


def test_a_reader_with_longer_intervals_keeps_pace():
    driver = Driver(program(reader=Lazy(every=20)), epochs=60, ended=False)
    driver.go()
    assert driver.facts(LoggedMessage) == []
    through = Driver(program(reader=Lazy(every=20), between=True), epochs=60, ended=False)
    through.go()
    assert through.facts(LoggedMessage) == [], "also through a processor without state"


def test_a_reader_of_which_nothing_becomes_durable_does_not_count():
    driver = Driver(program(reader=Lazy(every=None)), epochs=60, ended=False)
    driver.go()
    assert driver.facts(LoggedMessage) == [], "else they would be kept for ever"
    kept = Driver(program(in_flight=True, reader=Lazy(every=None)), epochs=60, ended=False)
    kept.go()
    assert [fact.time for fact in kept.facts(LoggedMessage)] == list(range(60)), "unless they are asked for"


def pipeline(*policies):
    """in -> p0 -> p1 -> … -> out."""
    names = ["in", *(f"p{n}" for n in range(len(policies))), "out"]
    kinds = {"in": Kind.SOURCE, "out": Kind.SINK}
    vertices = [Vertex(name, kinds.get(name, Kind.STATEFUL)) for name in names]
    edges = [Edge(f"{s}>{t}", s, t) for s, t in pairwise(names)]
    return Program(RecoveryGraph(vertices, edges), {f"p{n}": Durability(each) for n, each in enumerate(policies)})


@pytest.mark.parametrize("every", [(5, 5, 20), (20, 20, 100), (20, 20, 30), (20, 15, 20), (5, 5, 5, 5), (5, 5, None)])
def test_readers_behind_a_reader_count_too(every):
    driver = Driver(pipeline(*map(Lazy, every)), epochs=200, ended=False, messages_ahead=AHEAD)
    driver.go()
    assert driver.facts(LoggedMessage) == [], "nothing is stalled"


def test_each_message_is_written_once_though_the_log_is_slow():
    driver = Driver(before_batch(), epochs=60, ended=False, durable=False)
    driver.go()
    assert [fact.time for fact in driver.facts(LoggedMessage)] == list(range(60))


def test_a_stalled_reader_behind_a_processor_without_state():
    driver = stalled(program(between=True))
    assert logged(driver, "a>t"), "what the processor between would need to send the messages again"
    assert restored(driver, driver.machine.graph.order)["a"] > 4


def test_what_waits_for_a_batch_is_kept_once():
    driver = Driver(before_batch(), epochs=60, ended=False)
    driver.go()
    assert [fact.time for fact in driver.facts(LoggedMessage)] == list(range(60)), "each message once"
    assert restored(driver, driver.machine.graph.order)["a"] == 59
    pinned = Driver(before_batch(in_flight=False), epochs=60, ended=False)
    pinned.go()
    assert restored(pinned, pinned.machine.graph.order)["a"] == -1


def test_messages_go_once_their_reader_is_durable():
    driver = stalled(program())
    assert logged(driver, "a>b") == list(range(5, 15))
    driver.slow.clear()
    kept, driver.kept = driver.kept, []
    for order in kept:
        driver.carry_out(order)
    driver.go()
    assert min(logged(driver, "a>b"), default=60) >= 15


def test_a_sender_without_a_lagging_reader_is_restored_as_before():
    driver = Driver(program(), epochs=60, ended=False)
    driver.go()
    assert driver.machine.monitor.stable("a") == up_to(59)


@pytest.mark.parametrize("wrong", ["aligned", 1, None])
def test_what_is_none_of_the_three_is_refused(wrong):
    with pytest.raises(InvalidError, match=r'BAD_OPTION.*"behind", True or False'):
        Lazy(in_flight=wrong)
