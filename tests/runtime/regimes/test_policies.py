"""What each policy makes durable."""

import pytest

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy
from boatlift.recovery import Kind
from boatlift.runtime.regimes import Program, Regime
from boatlift.runtime.regimes import acts as do
from boatlift.storage.facts import Chosen, Sent, State, Taken
from support.regimes import Driver, chain


def test_ephemeral_makes_nothing_durable():
    driver = Driver(chain(Regime(Ephemeral()), kind=Kind.STATELESS))
    driver.go()
    assert driver.machine.finished
    assert not driver.facts(State) + driver.facts(Sent)
    assert [fact.processor for fact in driver.facts(Chosen)] == ["in"] * 4


def test_lazy_makes_state_durable_at_intervals():
    driver = Driver(chain(Regime(Lazy(every=2))))
    driver.go()
    assert [fact.frontier for fact in driver.facts(State)] == [(1,), (3,)]
    assert not driver.facts(Sent)


def test_input_logging_makes_nothing_but_choices_durable():
    driver = Driver(chain(Regime(Lazy(every=None)), deterministic=False))
    driver.go()
    assert not driver.facts(State) + driver.facts(Sent)
    assert [fact.time for fact in driver.facts(Chosen) if fact.processor == "p"] == [0, 1, 2, 3]
    assert driver.of(do.Acknowledge) == [], "replay begins at the start, so that no input can be acknowledged"


def test_eager_makes_state_and_messages_durable_at_every_step():
    driver = Driver(chain(Regime(Eager())))
    driver.go()
    assert [fact.frontier for fact in driver.facts(State)] == [(0,), (1,), (2,), (3,)]
    assert [fact.time for fact in driver.facts(Sent)] == [0, 1, 2, 3]


def test_batch_makes_messages_durable():
    driver = Driver(chain(Regime(Batch()), kind=Kind.STATELESS))
    driver.go()
    assert [fact.time for fact in driver.facts(Sent)] == [0, 1, 2, 3]
    assert not driver.facts(State)


def test_history_keeps_inputs_and_rebuilds_its_state_from_them():
    driver = Driver(chain(Regime(History())), ended=False)
    driver.go()
    assert [fact.messages for fact in driver.facts(Taken)] == [(("in>p", t, {"end": t}),) for t in range(4)]
    assert not driver.facts(State)
    state = driver.machine.processors["p"].state
    sent = len(driver.facts(Sent)), len(driver.placed)
    driver.hear(do.Failed(frozenset({"p"})))
    again = driver.of(do.Run)[-1]
    assert (again.time, again.again, again.state) == (0, True, None)
    driver.go()
    assert driver.machine.processors["p"].state == state
    assert (len(driver.facts(Sent)), len(driver.placed)) == sent, "what it sent then counts for nothing"


@pytest.mark.parametrize("policy", [Lazy(every=1), Eager(), History()])
def test_what_keeps_no_state_has_none_to_save(policy):
    driver = Driver(chain(Regime(policy), kind=Kind.STATELESS))
    driver.go()
    assert driver.machine.finished
    assert not driver.facts(State) + driver.facts(Taken)


def test_positions_are_recorded_whatever_is_asked():
    program = chain()
    program = Program(program.graph, {**program.regimes, "in": Regime(recorded=False)})
    driver = Driver(program)
    driver.go()
    assert driver.machine.finished
    assert len(driver.facts(Chosen)) == 4
