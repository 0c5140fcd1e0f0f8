"""When the host tells the machine that an epoch has lasted long enough."""

import boatlift as bl
from boatlift.dataflow import Dataflow, plan
from boatlift.runtime.graph import program_of
from boatlift.runtime.lasting import LastingEpochs
from boatlift.runtime.regimes import acts as do
from support.regimes import Driver


def driver_of(policy, epochs, **options):
    flow = Dataflow("flow")
    flow.source("rows", None).recompute("fit", lambda df: df, over="batch", policy=policy).sink("out", None)
    planned = plan(flow)
    driver = Driver(program_of(planned), epochs=epochs, ended=False, clock=lambda time: 1000 * time, **options)
    driver.go()
    return LastingEpochs(planned), driver


def test_it_is_told_once_for_what_waits_and_when_it_will_have_lasted():
    epochs, driver = driver_of(bl.Batch(seconds=60), 3)
    processors = driver.machine.processors
    assert list(epochs.begun(processors, 5_000)) == [("fit", 55.0)]
    assert list(epochs.begun(processors, 6_000)) == [], "it is watched already"
    assert epochs.over("fit", processors, 60_000)
    assert list(epochs.begun(processors, 70_000)) == [("fit", 0.0)], "until it has ended"


def test_a_time_that_was_anothers_ends_nothing():
    epochs, driver = driver_of(bl.Batch(seconds=60), 61)
    processors = driver.machine.processors
    assert list(epochs.begun(processors, 0)) == [], "the clocks of its steps have ended it, and nothing waits"
    driver.epochs = 62
    driver.hear(do.Wake("rows"))
    driver.go()
    assert list(epochs.begun(processors, 61_000)) == [("fit", 60.0)]
    assert not epochs.over("fit", processors, 120_000), "a second too early"
    assert list(epochs.begun(processors, 120_000)) == [("fit", 1.0)]


def test_without_seconds_nobody_watches():
    epochs, driver = driver_of(bl.Batch(epochs=9), 3)
    assert list(epochs.begun(driver.machine.processors, 5_000)) == []


def test_what_is_being_executed_has_ended():
    epochs, driver = driver_of(bl.Batch(seconds=1), 3, slow={"fit"})
    assert driver.machine.processors["fit"].running
    assert list(epochs.begun(driver.machine.processors, 99_000)) == []
