"""The bound on the bytes of data in flight: it presses on sources, and stops no dataflow."""

import pytest

from boatlift.dataflow import Batch, Lazy
from boatlift.errors import InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.host.context import RunOptions
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.runtime.machine.kinds.processor import MessageQueue
from boatlift.storage.records.facts import Determinant
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.engine.machine_driver import Driver

SIZE = 100


def size_of(payload):
    """Return 100 bytes for each message that a processor has sent; what a source sends is no run in scratch."""
    return SIZE if isinstance(payload, str) else 0


def pipeline(policy=None):
    """in -> t -> b -> out: b keeps state, or is a batch."""
    cuts = EpochBoundaries()
    coarse = isinstance(policy, Batch)
    vertices = [Vertex("in", Kind.SOURCE), Vertex("t", Kind.STATELESS)]
    vertices += [Vertex("b", Kind.STATELESS if coarse else Kind.STATEFUL, coarse=coarse), Vertex("out", Kind.SINK)]
    edges = [Edge("in>t", "in", "t")]
    edges.append(Edge("t>b", "t", "b", Coarse(cuts)) if coarse else Edge("t>b", "t", "b"))
    edges.append(Edge("b>out", "b", "out", Fine(cuts)) if coarse else Edge("b>out", "b", "out"))
    durabilities = {"b": Durability(policy or Lazy(every=2))}
    return Program(RecoveryGraph(vertices, edges), durabilities, cuts={"b": cuts} if coarse else {})


def driver_of(program, steps, **options):
    """Return a driver of a dataflow that has come to rest; messages of some steps may wait behind its source."""
    options = {"epochs": 50, "ended": False, "messages_ahead": 32, **options}
    driver = Driver(program, bytes_ahead=steps * SIZE, size_of=size_of, **options)
    driver.go()
    return driver


def polls(driver):
    return len(driver.of(instructions.PollSource))


def bounded(driver, steps):
    """Return whether a source was held back by the bytes of some steps, and of those that had no bytes yet."""
    return steps <= polls(driver) <= steps + 2


def test_a_source_waits_while_too_many_bytes_wait_behind_it():
    driver = driver_of(pipeline(), 5, slow={"b"})
    assert bounded(driver, 5)
    assert driver.machine.progress.held_by("in") == "bytes"
    before = polls(driver)
    while polls(driver) == before:
        driver.run(driver.kept.pop(0))
        driver.go()
    assert driver.machine.backpressure.bytes_behind("in") <= 7 * SIZE, "a step that is taken makes place for another"


def test_small_steps_are_bounded_by_their_number():
    driver = driver_of(pipeline(), 1000, slow={"b"})
    assert polls(driver) == 32
    assert driver.machine.progress.held_by("in") == "steps"


def test_a_source_whose_input_is_taken_is_not_held():
    assert driver_of(pipeline(), 1000, epochs=3).machine.progress.held_by("in") == ""


def test_what_waits_for_a_batch_counts():
    driver = driver_of(pipeline(Batch(epochs=3)), 5, slow={"b"})
    assert bounded(driver, 5), "three that the batch takes, and two"
    driver.slow.clear()
    driver.run(driver.kept.pop(0))
    driver.go()
    assert driver.machine.processors["t"].done.last == 49


def test_an_epoch_that_needs_more_than_may_wait_gets_it():
    driver = driver_of(pipeline(Batch(epochs=10)), 3)
    assert [fact.taken for fact in driver.facts(Determinant) if fact.processor == "b"] == [9, 19, 29, 39, 49]


def test_an_epoch_that_waits_for_the_clock_alone_lets_the_source_wait():
    clock = {"clock": lambda time: 1000 + time, "clock_of": lambda payload: 1000 if isinstance(payload, str) else None}
    driver = driver_of(pipeline(Batch(seconds=60)), 5, **clock)
    assert bounded(driver, 5)
    (timer,) = driver.of(instructions.SetTimer)
    driver.hear(events.TimerFired(timer.processor, timer.incarnation, timer.deadline))
    driver.go()
    assert 10 <= polls(driver) <= 14, "the epoch has ended, and as many steps wait for the end of the next"
    assert not driver.machine.finished


def test_an_epoch_whose_rows_are_being_probed_lets_the_source_wait():
    driver = driver_of(pipeline(Batch(when="x")), 5)
    assert len(driver.of(instructions.ProbeRows)) == 1, "not answered"
    assert bounded(driver, 5)


def test_messages_without_a_clock_end_no_run():
    driver = driver_of(pipeline(Batch(seconds=60)), 5)
    assert polls(driver) > 5, "the clock of the epoch has not begun"


def test_a_queue_knows_the_bytes_of_its_messages():
    queue = MessageQueue(len)
    queue.add(0, "four")
    queue.add(0, "not taken, as one of its time is there")
    queue.add(1, "seventy")
    assert (dict(queue), queue.size) == ({0: "four", 1: "seventy"}, 11)
    queue.remove(0)
    queue.remove(0)
    assert queue.size == 7
    queue.clear()
    assert (len(queue), queue.size) == (0, 0)


@pytest.mark.parametrize("wrong", [0, -1, "1 GB", 1.5])
def test_no_number_of_bytes_is_refused(wrong):
    with pytest.raises(InvalidError, match=r"BAD_OPTION.*number of bytes"):
        RunOptions(bytes_in_flight=wrong)
