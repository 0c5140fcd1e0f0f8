"""When the host tells the machine that an epoch has lasted long enough."""

import boatlift as bl
from boatlift.dataflow import Dataflow, plan
from boatlift.runtime.graph import program_of
from boatlift.runtime.host.batch_timers import BatchTimers
from boatlift.runtime.machine import events
from support.any_connector import ANY
from support.machine_driver import Driver


def driver_of(policy, epochs, **options):
    flow = Dataflow("flow")
    flow.source("rows", ANY).recompute("fit", lambda df: df, over="batch", policy=policy).sink("out", ANY)
    planned = plan(flow)
    driver = Driver(program_of(planned), epochs=epochs, ended=False, clock=lambda time: 1000 * time, **options)
    driver.go()
    return BatchTimers(planned), driver


def test_it_is_told_once_for_what_waits_and_when_it_will_have_lasted():
    epochs, driver = driver_of(bl.Batch(seconds=60), 3)
    processors = driver.machine.processors
    assert list(epochs.to_last(processors, 5_000)) == [("fit", 55.0)]
    assert list(epochs.to_last(processors, 6_000)) == [], "it is watched already"
    assert epochs.lasted("fit", processors, 60_000)
    driver.hear(events.TimerFired("fit", processors["fit"].incarnation))
    assert list(epochs.to_last(processors, 70_000)) == []


def test_what_has_lasted_and_waits_for_more_is_not_told_again():
    epochs, driver = driver_of(bl.Batch(seconds=60, epochs=9), 3)
    processors = driver.machine.processors
    list(epochs.to_last(processors, 5_000))
    assert epochs.lasted("fit", processors, 60_000)
    driver.hear(events.TimerFired("fit", processors["fit"].incarnation))
    driver.go()
    assert not processors["fit"].running, "nine are wanted"
    assert list(epochs.to_last(processors, 70_000)) == []
    driver.hear(events.ProcessorsFailed(frozenset({"fit"})))
    driver.go()
    assert list(epochs.to_last(processors, 70_000)) == [("fit", 0.0)], "it is forgotten with all else"


def test_nobody_waits_longer_than_an_hour_without_looking():
    epochs, driver = driver_of(bl.Batch(seconds=1e10), 1)
    assert list(epochs.to_last(driver.machine.processors, 0)) == [("fit", 3600.0)]


def test_rows_are_asked_in_turn_one_at_a_time():
    epochs, driver = driver_of(bl.Batch(when="any(x)"), 3)
    processors = driver.machine.processors
    asked = []
    while given := list(epochs.to_ask(processors)):
        ((batch, message),) = given
        asked.append(message.time)
        assert list(epochs.to_ask(processors)) == [], "it has not answered"
        assert epochs.still_asks(processors, "fit", message)
        driver.hear(events.RowsProbed("fit", batch.incarnation, message, {"period": None, "ends": message.time == 2}))
        driver.go()
        assert not epochs.still_asks(processors, "fit", message)
        epochs.asked("fit")
    assert asked == [0, 1, 2]


def test_a_time_that_was_anothers_ends_nothing():
    epochs, driver = driver_of(bl.Batch(seconds=60), 61)
    processors = driver.machine.processors
    assert list(epochs.to_last(processors, 0)) == [], "the clocks of its steps have ended it, and nothing waits"
    driver.epochs = 62
    driver.hear(events.SourceWoken("rows"))
    driver.go()
    assert list(epochs.to_last(processors, 61_000)) == [("fit", 60.0)]
    assert not epochs.lasted("fit", processors, 120_000), "a second too early"
    assert list(epochs.to_last(processors, 120_000)) == [("fit", 1.0)]


def test_without_seconds_nobody_watches():
    epochs, driver = driver_of(bl.Batch(epochs=9), 3)
    assert list(epochs.to_last(driver.machine.processors, 5_000)) == []


def test_what_is_being_executed_has_ended():
    epochs, driver = driver_of(bl.Batch(seconds=1), 3, slow={"fit"})
    assert driver.machine.processors["fit"].running
    assert list(epochs.to_last(driver.machine.processors, 99_000)) == []
