"""Checkpoints by the clock: `Lazy(seconds=…)`."""

import pytest

from boatlift.dataflow import Lazy
from boatlift.errors import InvalidError
from boatlift.runtime.machine import Durability, events, instructions
from support.engine.machine_driver import Driver, chain


def driver_of(policy, epochs, **options):
    program = chain(Durability(policy))
    driver = Driver(program, epochs=epochs, ended=False, clock=lambda time: 1000 * time, **options)
    driver.go()
    return driver


def deadlines(driver):
    return [order.deadline for order in driver.of(instructions.SetTimer)]


def saved(driver):
    return sorted(frontier[0] for frontier in driver.machine.durable.records.states.get("p", {}))


def fire(driver, timer=None):
    timer = timer or driver.of(instructions.SetTimer)[-1]
    driver.hear(events.TimerFired(timer.processor, timer.incarnation, timer.deadline))
    driver.go()


def go_on(driver, epochs):
    driver.epochs = epochs
    driver.hear(events.SourceWoken("in"))
    driver.go()


def test_a_step_is_saved_by_the_clock_though_no_further_one_comes():
    driver = driver_of(Lazy(every=20, seconds=60), 3)
    assert deadlines(driver) == [60_000], "a minute after the first step that is in no checkpoint"
    assert saved(driver) == []
    fire(driver)
    assert saved(driver) == [2]
    go_on(driver, 5)
    assert deadlines(driver) == [60_000, 120_000], "a minute after the checkpoint, for a step that was closed before it"


def test_by_the_clock_alone():
    driver = driver_of(Lazy(every=None, seconds=60), 30)
    assert saved(driver) == []
    fire(driver)
    assert saved(driver) == [29]


def test_a_timer_of_steps_that_are_saved_by_now_saves_nothing():
    driver = driver_of(Lazy(every=4, seconds=60), 3)
    (timer,) = driver.of(instructions.SetTimer)
    go_on(driver, 6)
    assert saved(driver) == [3]
    fire(driver, timer)
    assert saved(driver) == [3], "what came since is due later"
    fire(driver)
    assert saved(driver)[-1] == 5


def test_a_processor_that_failed_is_asked_anew():
    driver = driver_of(Lazy(every=20, seconds=60), 3)
    (timer,) = driver.of(instructions.SetTimer)
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    assert deadlines(driver) == [60_000, 60_000]
    fire(driver, timer)
    assert saved(driver) == [], "that was of the incarnation before"
    fire(driver)
    assert saved(driver) == [2]


def test_a_replay_has_no_more_checkpoints_than_the_time_that_has_passed_asks_for():
    """Deadlines of steps of long ago have passed when their timers are set."""
    now, fired = 100_000, set()
    driver = driver_of(Lazy(every=None, seconds=10), 1)
    for epochs in range(2, 60):
        for timer in driver.of(instructions.SetTimer):
            if timer.deadline not in fired and timer.deadline <= now:
                fired.add(timer.deadline)
                fire(driver, timer)
        go_on(driver, epochs)
    assert len(fired) == 10, "not one a step"


def test_without_seconds_no_timer_is_set():
    assert deadlines(driver_of(Lazy(every=20), 3)) == []


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan"), "60"])
def test_seconds_that_are_none_are_refused(seconds):
    with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] Lazy\(seconds="):
        Lazy(seconds=seconds)
