"""What a batch asks of its shell about the open epoch: a timer, and the rows of one message after the other."""

from boatlift.dataflow import Batch
from boatlift.runtime.machine import events, instructions
from support.engine.machine_driver import Driver, with_batch


def driver_of(policy, epochs, **options):
    driver = Driver(with_batch(policy=policy), epochs=epochs, ended=False, clock=lambda time: 1000 * time, **options)
    driver.go()
    return driver


def timers(driver):
    return [order.deadline for order in driver.of(instructions.SetTimer)]


def probes(driver):
    return driver.of(instructions.ProbeRows)


def fire(driver, *, again=None):
    timer = again or driver.of(instructions.SetTimer)[-1]
    driver.hear(events.TimerFired(timer.processor, timer.incarnation, timer.deadline))
    driver.go()


def go_on(driver, epochs):
    driver.epochs = epochs
    driver.hear(events.SourceWoken("in"))
    driver.go()


def ended(driver):
    return [order.takes[0].time for order in driver.of(instructions.Execute)]


def test_a_timer_is_set_once_for_the_first_step_of_an_epoch():
    driver = driver_of(Batch(seconds=60), 3)
    assert timers(driver) == [60_000], "a minute after the earliest clock, however many steps wait"
    fire(driver)
    assert ended(driver) == [0]
    assert timers(driver) == [60_000], "nothing waits"
    go_on(driver, 4)
    assert timers(driver) == [60_000, 63_000]


def test_an_epoch_that_has_lasted_and_waits_for_more_sets_no_timer():
    driver = driver_of(Batch(seconds=60, epochs=9), 3)
    fire(driver)
    assert not ended(driver), "nine are wanted"
    go_on(driver, 4)
    assert timers(driver) == [60_000]
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    assert timers(driver) == [60_000, 60_000], "it is forgotten with all else"


def test_a_timer_of_an_earlier_epoch_ends_nothing():
    driver = driver_of(Batch(seconds=60), 3)
    early = driver.of(instructions.SetTimer)[0]
    fire(driver)
    go_on(driver, 4)
    fire(driver, again=early)
    assert ended(driver) == [0], "late, and twice: the second epoch has another deadline"
    fire(driver)
    assert ended(driver) == [0, 1]


def test_a_timer_of_an_earlier_incarnation_ends_nothing():
    driver = driver_of(Batch(seconds=60), 3)
    early = driver.of(instructions.SetTimer)[0]
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    fire(driver, again=early)
    assert not ended(driver)
    fire(driver)
    assert ended(driver) == [0]


def test_an_epoch_that_is_executed_has_no_timer():
    driver = driver_of(Batch(seconds=1), 3, slow={"p"})
    assert driver.machine.processors["p"].running, "the clocks of its steps have ended it"
    before = timers(driver)
    fire(driver)
    assert timers(driver) == before
    assert not driver.machine.processors["p"].lasted, "that was the epoch before"


def test_without_seconds_there_is_no_timer():
    assert not timers(driver_of(Batch(epochs=9), 3))


def test_payloads_without_a_clock_set_no_timer():
    driver = Driver(with_batch(policy=Batch(seconds=60)), epochs=3, ended=False)
    driver.go()
    assert not timers(driver)


def test_rows_are_probed_one_message_at_a_time():
    driver = driver_of(Batch(when="any(x)"), 3)
    for time in range(3):
        assert [probe.message.time for probe in probes(driver)] == list(range(time + 1))
        probe = probes(driver)[-1]
        answer = events.RowsProbed(probe.processor, probe.incarnation, probe.message, events.RowProbe(None, time == 2))
        driver.hear(answer)
        driver.hear(answer)  # twice: nothing comes of it
        driver.go()
    assert ended(driver) == [0]
    assert len(probes(driver)) == 3


def test_a_probe_that_failed_is_given_again_if_it_is_still_wanted():
    driver = driver_of(Batch(when="any(x)"), 2)
    probe = probes(driver)[0]
    driver.hear(events.ProbeFailed(probe.processor, probe.incarnation, probe.message))
    assert probes(driver) == [probe, probe]
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    assert len(probes(driver)) == 3, "another incarnation asks anew"
    driver.hear(events.ProbeFailed(probe.processor, probe.incarnation, probe.message))
    driver.go()
    assert len(probes(driver)) == 3, "that was of the one before"


def test_a_message_that_comes_again_is_probed_again():
    """Only its sender fails: the batch keeps its incarnation, but nothing that it knew of the message."""
    driver = driver_of(Batch(when="any(x)"), 1)
    probe = probes(driver)[0]
    driver.hear(events.RowsProbed(probe.processor, probe.incarnation, probe.message, events.RowProbe(None, False)))
    driver.go()
    driver.hear(events.ProcessorsFailed(frozenset({"in"})))
    driver.go()
    assert probes(driver) == [probe, probe]


def test_messages_that_come_again_in_another_order_are_probed_up_to_the_earliest():
    """As behind a merge, whose messages a recovery puts back edge by edge."""
    driver = driver_of(Batch(when="count(*) > 5"), 4)
    batch = driver.machine.processors["p"]
    probed = batch.unprobed.pop(("in>p", 2))
    batch._probes["in>p", 2] = events.RowProbe(None, True)
    batch.unprobed = dict(reversed(batch.unprobed.items()))
    assert probed.time == 2
    assert batch._probed_up_to(3) == -1


def count(driver, *of_steps):
    """Answers the probes of the messages that wait, in turn, by the number of rows."""
    for rows in of_steps:
        probe = probes(driver)[-1]
        answer = events.RowsProbed(
            probe.processor, probe.incarnation, probe.message, events.RowProbe(None, ends=False, rows=rows)
        )
        driver.hear(answer)
        driver.go()


def sizes(driver):
    """Return how many messages each epoch has taken."""
    return [len(take.inputs) for order in driver.of(instructions.Execute) for take in order.takes]


def test_an_epoch_ends_with_the_step_that_brings_it_to_the_bound_of_rows():
    driver = driver_of(Batch(seconds=60, rows=10), 5)
    count(driver, 4, 5)
    assert not ended(driver)
    count(driver, 1)
    assert sizes(driver) == [3], "long before the minute is over"
    count(driver, 30)
    assert sizes(driver) == [3, 1], "one step may bring more"
    count(driver, 2)
    assert len(ended(driver)) == 2


def test_an_epoch_of_few_rows_ends_by_the_clock_with_all_that_waits():
    driver = driver_of(Batch(seconds=60, rows=10), 3)
    count(driver, 1, 2, 3)
    fire(driver)
    assert sizes(driver) == [3]


def test_in_a_backlog_no_epoch_takes_more_steps_than_fill_it():
    driver = driver_of(Batch(seconds=60, rows=10), 7, slow={"p"})
    count(driver, 10, 6, 6, 6, 3, 1, 1)
    assert sizes(driver) == [1]
    driver.slow.clear()
    driver.run(driver.kept.pop())
    driver.go()
    assert sizes(driver) == [1, 2, 3], "one row is left"
    fire(driver)
    assert sizes(driver) == [1, 2, 3, 1]


def test_without_another_condition_the_number_of_rows_alone_ends_an_epoch():
    driver = driver_of(Batch(rows=10), 4)
    assert not timers(driver)
    count(driver, 4, 5)
    assert not ended(driver)
    count(driver, 1, 3)
    assert sizes(driver) == [3]


def test_rows_are_counted_anew_after_a_failure():
    driver = driver_of(Batch(seconds=60, rows=10), 3)
    count(driver, 9)
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    count(driver, 9)
    assert not ended(driver), "the same rows, counted once"
    count(driver, 1)
    assert sizes(driver) == [2]
