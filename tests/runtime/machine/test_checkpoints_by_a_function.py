"""Checkpoints by a function of the user's, `Lazy(when=…)`, and messages logged for some readers, `log_messages=`."""

import pytest

from boatlift.dataflow import Lazy
from boatlift.errors import InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program
from boatlift.storage.records.facts import Checkpoint, LoggedMessage
from support.engine.machine_driver import Driver, chain


def driver_of(policy, epochs, **options):
    driver = Driver(chain(Durability(policy)), epochs=epochs, clock=lambda time: 1000 * time, **options)
    driver.go()
    return driver


def saved(driver):
    return [fact.frontier[0] for fact in driver.facts(Checkpoint) if fact.processor == "p"]


def test_the_function_is_asked_after_each_step_and_chooses():
    asked = []

    def when(step, since):
        asked.append((step, since.steps, since.seconds))
        return step in (1, 4)

    driver = driver_of(Lazy(every=None, when=when), 6, ended=False)
    assert saved(driver) == [1, 4]
    assert asked == [(0, 1, 0), (1, 2, 1), (2, 1, 0), (3, 2, 1), (4, 3, 2), (5, 1, 0)]


def test_it_is_told_the_bytes_by_which_the_state_grew():
    sizes = []
    driver_of(
        Lazy(every=None, when=lambda step, since: sizes.append(since.bytes) or step == 2),
        5,
        size_of=lambda payload: 0 if payload is None else 10 * (1 + str(payload).count("end")),
    )
    assert sizes[0] > 0
    assert sizes == sorted(sizes[:3]) + sorted(sizes[3:]), "it grows up to a checkpoint, and begins anew behind it"


def test_steps_seconds_and_a_function_go_together():
    driver = driver_of(Lazy(every=4, when=lambda step, _since: step == 1), 10, ended=False)
    assert saved(driver) == [1, 5, 9]


def test_a_function_that_raises_or_gives_no_answer_is_told_with_its_processor():
    def broken(step, since):
        return step / (3 - since.steps) < 0

    driver = Driver(chain(Durability(Lazy(every=None, when=broken))), epochs=6)
    with pytest.raises(
        InvalidError, match=r"\[WHEN_FAILED\] Lazy\(when=…\) of p raised ZeroDivisionError.* step 2: "
    ) as at:
        driver.go()
    assert isinstance(at.value.__cause__, ZeroDivisionError)
    for answer in (None, 1, "yes"):
        driver = Driver(chain(Durability(Lazy(when=lambda _step, _since, answer=answer: answer))), epochs=1)
        with pytest.raises(InvalidError, match=rf"\[WHEN_FAILED\] .* of p gave {answer!r}, and not True or False"):
            driver.go()


def test_a_state_in_memory_has_what_was_done_since_with_it():
    driver = driver_of(Lazy(every=None, when=lambda step, _since: step == 1), 6, ended=False)
    p = driver.machine.processors["p"]
    held = p.states[4]
    p.roll_back(held.frontier)
    assert p.unsaved.steps == 0
    assert p.restore_from_memory(held.frontier)
    assert (p.unsaved.steps, p.unsaved.summary().seconds) == (3, 2.0), "steps 2 to 4"


def two_readers(policy, fast=None, slow=None):
    """source -> p -> fast -> a sink, and p -> slow -> a sink."""
    ends = {"fast": Durability(fast or Lazy(every=2)), "slow": Durability(slow or Lazy(every=2))}
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATEFUL)]
    edges = [Edge("in>p", "in", "p")]
    for name in ends:
        vertices += [Vertex(name, Kind.STATEFUL), Vertex(f"{name}s", Kind.SINK)]
        edges += [Edge(f"p>{name}", "p", name), Edge(f"{name}>{name}s", name, f"{name}s")]
    return Program(RecoveryGraph(vertices, edges), {"p": Durability(policy), **ends})


def test_messages_are_logged_for_the_readers_that_are_named():
    driver = Driver(two_readers(Lazy(every=None, log_messages={"slow": True, "fast": False})), epochs=6)
    driver.go()
    assert {fact.edge for fact in driver.facts(LoggedMessage)} == {"p>slow"}
    assert [fact.time for fact in driver.facts(LoggedMessage)] == list(range(6))


@pytest.mark.parametrize(("logged", "rolls_back"), [({"slow": True}, False), ({}, True)])
def test_a_failure_of_everything_but_the_sender_rolls_it_back_unless_messages_are_logged(logged, rolls_back):
    policy = Lazy(every=2, in_flight=False, log_messages=logged)
    driver = Driver(two_readers(policy, slow=Lazy(every=None)), epochs=20, ended=False)
    driver.go()
    plan = driver.machine.monitor.plan(frozenset(driver.machine.graph.order))
    restored = max(plan.processors["p"].restore.maximal, default=-1)
    assert (restored < 0) == rolls_back, "slow begins at the start, and needs every message"


def test_readers_that_do_not_read_are_refused_with_those_that_do():
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p logs messages to late: name readers of p, .* fast, slow"):
        two_readers(Lazy(log_messages={"late": True}))
