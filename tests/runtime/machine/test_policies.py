"""What each policy makes durable."""

import pytest

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy
from boatlift.recovery import Kind
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedInput, LoggedMessage
from support.engine.machine_driver import Driver, chain


def test_ephemeral_makes_nothing_durable():
    driver = Driver(chain(Durability(Ephemeral()), kind=Kind.STATELESS))
    driver.go()
    assert driver.machine.finished
    assert not driver.facts(Checkpoint) + driver.facts(LoggedMessage)
    assert [fact.processor for fact in driver.facts(Determinant)] == ["in"] * 4


def test_lazy_makes_state_durable_at_intervals():
    driver = Driver(chain(Durability(Lazy(every=2))))
    driver.go()
    assert [fact.frontier for fact in driver.facts(Checkpoint)] == [(1,), (3,)]
    assert not driver.facts(LoggedMessage)


def test_input_logging_makes_nothing_but_choices_durable():
    driver = Driver(chain(Durability(Lazy(every=None)), deterministic=False))
    driver.go()
    assert not driver.facts(Checkpoint) + driver.facts(LoggedMessage)
    assert [fact.time for fact in driver.facts(Determinant) if fact.processor == "p"] == [0, 1, 2, 3]
    assert driver.of(instructions.Acknowledge) == [], "replay begins at the start, so that no input can be acknowledged"


def test_eager_makes_state_and_messages_durable_at_every_step():
    driver = Driver(chain(Durability(Eager())))
    driver.go()
    assert [fact.frontier for fact in driver.facts(Checkpoint)] == [(0,), (1,), (2,), (3,)]
    assert [fact.time for fact in driver.facts(LoggedMessage)] == [0, 1, 2, 3]


def test_batch_makes_messages_durable():
    driver = Driver(chain(Durability(Batch()), kind=Kind.STATELESS))
    driver.go()
    assert [fact.time for fact in driver.facts(LoggedMessage)] == [0, 1, 2, 3]
    assert not driver.facts(Checkpoint)


def test_history_keeps_inputs_and_rebuilds_its_state_from_them():
    driver = Driver(chain(Durability(History())), ended=False)
    driver.go()
    assert [fact.messages for fact in driver.facts(LoggedInput)] == [(("in>p", t, {"end": t}),) for t in range(4)]
    assert not driver.facts(Checkpoint)
    state = driver.machine.processors["p"].state
    sent = len(driver.facts(LoggedMessage)), len(driver.placed)
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    again = driver.of(instructions.Execute)[-1]
    assert (again.time, again.again, again.state) == (0, True, None)
    driver.go()
    assert driver.machine.processors["p"].state == state
    assert (len(driver.facts(LoggedMessage)), len(driver.placed)) == sent, "what it sent then counts for nothing"


@pytest.mark.parametrize("policy", [Lazy(every=1), Eager(), History()])
def test_what_keeps_no_state_has_none_to_save(policy):
    driver = Driver(chain(Durability(policy), kind=Kind.STATELESS))
    driver.go()
    assert driver.machine.finished
    assert not driver.facts(Checkpoint) + driver.facts(LoggedInput)


def test_positions_are_recorded_whatever_is_asked():
    program = chain()
    program = Program(program.graph, {**program.durabilities, "in": Durability(recorded=False)})
    driver = Driver(program)
    driver.go()
    assert driver.machine.finished
    assert len(driver.facts(Determinant)) == 4
