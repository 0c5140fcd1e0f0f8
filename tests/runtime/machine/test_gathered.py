"""Merges that gather: one determinant for all that has come, and the same epochs in a replay."""

import pytest

from boatlift.errors import DataError, InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.runtime.machine.kinds.gathered import MOST_GATHERED
from boatlift.storage.records.facts import Determinant
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Coarse, GatheredBoundaries
from support.engine.machine_driver import Driver, up_to


def merging(durability=None):
    ends = GatheredBoundaries(("x>p", "y>p"))
    vertices = [Vertex("x", Kind.SOURCE), Vertex("y", Kind.SOURCE), Vertex("out", Kind.SINK)]
    vertices.append(Vertex("p", Kind.STATELESS, coarse=True, gathered=True))
    edges = [Edge(name, name[0], "p", Coarse(ends.of[name])) for name in ends.of]
    graph = RecoveryGraph(vertices, [*edges, Edge("p>out", "p", "out")])
    return Program(graph, {"p": durability or Durability()}, cuts={"p": ends})


def ends_of(driver):
    return [fact.taken for fact in driver.facts(Determinant) if fact.processor == "p"]


def steps_of(driver):
    orders = [order for order in driver.of(instructions.Execute) if order.processor == "p"]
    return [[(message.edge, message.time) for message in step.inputs] for order in orders for step in order.takes]


def test_while_an_epoch_is_executed_what_comes_is_gathered_for_the_next():
    driver = Driver(merging(), epochs=20, slow={"p"}, ended=False)
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    ends = [dict(each) for each in ends_of(driver)]
    assert len(ends) == 2, "one record an epoch"
    assert ends[-1] == {"x>p": 19, "y>p": 19}
    taken = [message for step in steps_of(driver) for message in step]
    assert sorted(taken) == [(edge, time) for edge in ("x>p", "y>p") for time in range(20)]
    assert driver.machine.processors["out"].held == up_to(1)


def test_an_epoch_has_no_more_than_the_most_messages_of_an_edge():
    driver = Driver(merging(), epochs=MOST_GATHERED + 9, slow={"p"}, ended=False, messages_ahead=1000)
    driver.go()
    while driver.kept:
        driver.run(driver.kept.pop())
        driver.go()
    lengths = [sum(edge == "x>p" for edge, _ in step) for step in steps_of(driver)]
    assert max(lengths) == MOST_GATHERED
    assert sum(lengths) == MOST_GATHERED + 9


def test_a_replay_has_the_epochs_of_the_record_though_more_has_come():
    recorded = [
        *(Determinant(name, time, None, {"end": time}) for name in "xy" for time in range(5)),
        Determinant("p", 0, (("x>p", 0), ("y>p", -1)), None),
        Determinant("p", 1, (("x>p", 0), ("y>p", 3)), None),
    ]
    driver = Driver(merging(), LiveRecords.of(recorded), epochs=5)
    driver.go()
    assert steps_of(driver)[:2] == [[("x>p", 0)], [("y>p", time) for time in range(4)]]
    assert driver.machine.finished
    assert sorted(message for step in steps_of(driver) for message in step) == [
        (edge, time) for edge in ("x>p", "y>p") for time in range(5)
    ]


def test_a_source_that_fails_alone_takes_back_the_epochs_with_its_steps_and_no_others():
    driver = Driver(merging(), epochs=3, slow={"p"}, durable=False, ended=False)
    driver.go()
    driver.run(driver.kept.pop())
    driver.hear(events.ProcessorsFailed(frozenset({"y"})))
    driver.durable = True
    driver.go()
    while driver.kept:
        driver.run(driver.kept.pop())
        driver.go()
    assert driver.machine.processors["p"].cuts.end(len(driver.machine.processors["p"].cuts) - 1) == (
        ("x>p", 2),
        ("y>p", 2),
    )


def test_a_step_that_fails_again_is_taken_message_by_message():
    driver = Driver(merging(), epochs=4, slow={"p"}, ended=False)
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    failing = driver.kept.pop()
    assert len(failing.takes[0].inputs) > 2
    failed = frozenset({"p"})
    driver.hear(events.ProcessorsFailed(failed, failed))
    driver.go()
    narrow = []
    while driver.kept:
        narrow.append(driver.kept.pop())
        driver.run(narrow[-1])
        driver.go()
    assert [len(order.takes[0].inputs) for order in narrow] == [1] * len(failing.takes[0].inputs)
    taken = [(message.edge, message.time) for order in narrow for message in order.takes[0].inputs]
    assert sorted(taken) == sorted((message.edge, message.time) for message in failing.takes[0].inputs)
    assert driver.machine.processors["out"].held == up_to(len(narrow))


@pytest.mark.parametrize(
    "taken", [(("x>p", -1), ("y>p", -1)), (("x>p", 1),), (("x>p", 1), ("z>p", 1)), 3, "x>p", None], ids=str
)
def test_ends_that_no_execution_has_are_no_log(taken):
    recorded = [*(Determinant("x", time, None, {"end": time}) for time in range(2)), Determinant("p", 0, taken, None)]
    with pytest.raises(DataError, match=r"\[CORRUPT\]"):
        Driver(merging(), LiveRecords.of(recorded))


def test_what_gathers_keeps_no_state_and_records_its_ends():
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p gathers its inputs"):
        merging(Durability(recorded=False))
