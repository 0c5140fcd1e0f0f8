"""Inputs of `History` become durable in the order in which they were taken: a state is rebuilt in that order."""

from boatlift.dataflow import History
from boatlift.recovery import Kind, Monitor
from boatlift.runtime.machine import Durability
from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.storage.records.facts import Determinant, LoggedInput
from boatlift.storage.records.live import LiveRecords
from support.engine.machine_driver import chain
from support.worlds.facts import payload_with


def logged(time, payload):
    return LoggedInput("p", time, (time,), (("in>p", time, payload),), None)


def facts_of(program):
    return DurableFacts(program.graph, Monitor(program.graph, program.orders), LiveRecords())


def test_an_input_without_a_payload_waits_for_those_before_it():
    durable = facts_of(chain(Durability(History()), kind=Kind.STATEFUL))
    with_rows, without = logged(0, payload_with([])), logged(1, None)
    durable.add("p", [with_rows])
    choice = Determinant("p", 1, None, None)
    durable.add("p", [choice, without])
    assert durable.write().facts == (choice,), "a choice may be known before its input"
    (persist,) = durable.persist()
    durable.persisted(persist.number)
    assert durable.write().facts == (with_rows, without)


def test_an_input_without_a_payload_waits_for_nothing_else():
    durable = facts_of(chain(Durability(History()), kind=Kind.STATEFUL))
    durable.add("other", [LoggedInput("other", 0, (0,), (("in>p", 0, payload_with([])),), None)])
    durable.add("p", [logged(0, None)])
    assert durable.write().facts == (logged(0, None),)
