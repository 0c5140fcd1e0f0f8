"""Sinks that are shown together: what the machine hands to them, and when."""

from __future__ import annotations

from typing import Any

import pytest

from boatlift.dataflow import Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events
from boatlift.runtime.machine.instructions import AppendLog, CommitSink, CommitTogether, Execute, ReopenSink
from support.engine.machine_driver import Driver, up_to


class JointDriver(Driver):
    """Answers joint commits at once, unless a test holds them back."""

    def __init__(self, program: Program, *args: Any, answers: bool = True, **options: Any) -> None:
        self.answers, self.acts = answers, list[tuple[str, ...]]()
        super().__init__(program, *args, **options)

    def carry_out(self, order: Any) -> None:
        if isinstance(order, CommitTogether) and self.answers:
            self.acts.append(tuple(each.sink for each in order.orders))
            for each in order.orders:
                super().carry_out(each)
        elif isinstance(order, CommitSink):
            self.acts.append((order.sink,))
            super().carry_out(order)
        else:
            super().carry_out(order)


def two_sinks(*, recorded: bool = True) -> Program:
    """in -> p -> one, and in -> q -> other."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS), Vertex("q", Kind.STATEFUL, recorded)]
    vertices += [Vertex("one", Kind.SINK), Vertex("other", Kind.SINK)]
    wires = [("in", "p"), ("in", "q"), ("p", "one"), ("q", "other")]
    graph = RecoveryGraph(vertices, [Edge(f"{a}>{b}", a, b) for a, b in wires])
    return Program(graph, {"q": Durability(Lazy(every=3), recorded=recorded)}, groups=(("one", "other"),))


def test_each_time_is_handed_to_all_in_one_instruction() -> None:
    driver = JointDriver(two_sinks())
    driver.go()
    assert driver.machine.finished
    assert set(driver.acts) == {("one", "other")}
    handed = {sink: [time for name, _, steps in driver.placed if name == sink for time, _ in steps] for sink in
              ("one", "other")}  # fmt: skip
    assert handed == {"one": [0, 1, 2, 3], "other": [0, 1, 2, 3]}


def test_a_time_waits_for_the_slowest_member() -> None:
    driver = JointDriver(two_sinks(), slow=["q"])
    driver.go()
    assert driver.placed == [], "q has executed nothing"
    while driver.kept:
        driver.run(driver.kept.pop(0))
        driver.go()
    assert driver.machine.finished
    assert set(driver.acts) == {("one", "other")}


def test_a_time_waits_until_it_may_be_released_to_each() -> None:
    """What q has chosen is not recorded, so that its sink waits for the checkpoint."""
    driver = JointDriver(two_sinks(recorded=False), epochs=3)
    driver.go()
    assert [frontier for _, frontier, _ in driver.placed] == [up_to(2), up_to(2)]


def test_an_act_without_an_answer_asks_every_member_and_goes_on_once_all_have_answered() -> None:
    driver = JointDriver(two_sinks(), answers=False, epochs=1)
    act = driver.go(until=lambda order: isinstance(order, CommitTogether))
    for each in act.orders:
        driver.hear(events.CommitUnknown(each.sink, each.incarnation, each.frontier))
    asked = driver.of(ReopenSink)
    assert [order.sink for order in asked] == ["one", "other"]
    driver.hear(events.SinkPosition("one", asked[0].incarnation, up_to(-1)))
    assert len(driver.of(CommitTogether)) == 1, "the other has not answered"
    driver.hear(events.SinkPosition("other", asked[1].incarnation, up_to(-1)))
    assert len(driver.of(CommitTogether)) == 2, "nothing was visible: all is handed over again"


@pytest.mark.parametrize("behind", ["one", "other"])
def test_a_member_behind_gets_times_by_itself_up_to_where_the_others_are(behind: str) -> None:
    held = {"one": up_to(1), "other": up_to(1), behind: up_to(-1)}
    first = JointDriver(two_sinks(), ended=False)  # it has collected nothing
    first.go()
    records = first.machine.durable.records
    driver = JointDriver(two_sinks(), records, held, epochs=6)
    driver.go()
    assert driver.machine.finished
    alone = [frontier for name, frontier, _ in driver.placed if name == behind and not frontier <= up_to(1)]
    assert driver.acts[0] == (behind,)
    assert set(driver.acts[1:]) <= {(behind,), ("one", "other")}
    ends = [frontier for (name, frontier, _), act in zip(driver.placed, driver.acts, strict=False) if act == (name,)]
    assert all(frontier <= up_to(1) for frontier in ends), "no further than the others"
    assert alone[-1] == up_to(5)


def test_a_failure_of_a_part_leaves_the_members_in_step() -> None:
    driver = JointDriver(two_sinks(), answers=False)
    act = driver.go(until=lambda order: isinstance(order, CommitTogether))
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    asked = {order.sink: order for order in driver.of(ReopenSink)}
    assert asked.keys() == {"one", "other"}
    for each in act.orders:  # of the incarnation before: void
        driver.hear(events.SinkCommitted(each.sink, each.incarnation, each.frontier))
    for sink, order in asked.items():
        driver.hear(events.SinkPosition(sink, order.incarnation, act.orders[0].frontier))
    driver.answers = True
    driver.go()
    assert driver.machine.finished
    assert set(driver.acts) == {("one", "other")}
    assert driver.of(Execute)
    assert driver.of(AppendLog)
