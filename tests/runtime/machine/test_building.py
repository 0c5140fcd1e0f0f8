"""What is filled in of choices when a machine is made.

Only what is not collected, and nothing that no execution gives.
"""

import tracemalloc

import pytest

from boatlift.dataflow import Lazy
from boatlift.errors import DataError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, monitor_of
from boatlift.storage.records.facts import Checkpoint, Determinant, GarbageCollection
from boatlift.storage.records.live import LiveRecords
from boatlift.times import ArrivalOrder, FromSequence, Sequence, ToSequence
from support.engine.machine_driver import Driver, up_to, with_batch

FAR = 10**12
MOST_BYTES = 1 << 20


def with_order():
    """Two sources into one processor that keeps state and takes them as they come."""
    order = ArrivalOrder(Sequence(("x>p", "y>p")))
    vertices = [*(Vertex(s, Kind.SOURCE) for s in "xy"), Vertex("p", Kind.STATEFUL, domain=order.domain)]
    edges = [Edge(f"{s}>p", s, "p", ToSequence(order.domain, f"{s}>p")) for s in "xy"]
    edges.append(Edge("p>out", "p", "out", FromSequence(order)))
    graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], edges)
    return Program(graph, {"p": Durability(Lazy(every=2))}, {"p": order})


def far_batch():
    """A batch that has had very many epochs, of two each, and two more since anything was collected."""
    ends = [Determinant("p", FAR + n, 2 * (FAR + n) + 1, None) for n in range(3)]
    last = Determinant("in", 2 * FAR + 1, None, {"end": 2 * FAR + 1})
    collected = {"in": (2 * FAR + 1,), "p": (FAR,)}
    return [last, *ends, GarbageCollection(collected, collected, {"in>p": (2 * FAR + 1,), "p>out": (FAR,)})]


def far_order():
    """Very many events, most of them collected."""
    before = (("x>p", FAR), ("y>p", FAR))
    events = [Determinant("p", 2 * FAR + 2 + n, edge, None) for n, edge in enumerate(("x>p", "y>p", "x>p"))]
    events += [Determinant(source, FAR, None, {"end": FAR}) for source in "xy"]
    state = Checkpoint("p", (("x>p", FAR + 1), ("y>p", FAR + 1)), None)
    choices = {"x": (FAR,), "y": (FAR,), "p": before}
    messages = {"x>p": (FAR,), "y>p": (FAR,), "p>out": before}
    return [*events, Checkpoint("p", before, None), state, GarbageCollection(choices, choices, messages)]


def test_a_start_costs_no_memory_for_epochs_that_are_collected():
    for program, facts, held in (
        (with_batch(), far_batch(), 2 * FAR + 1),
        (with_order(), far_order(), 2 * FAR + 1),
    ):
        tracemalloc.start()
        try:
            monitor_of(program, LiveRecords.of(facts), {"out": up_to(held)})
            assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
        finally:
            tracemalloc.stop()
        assert [len(cuts.ends) for cuts in program.cuts.values()] in ([], [2])
        assert [len(order) for order in program.orders.values()] in ([], [2 * FAR + 5])


def test_a_machine_goes_on_from_where_very_many_epochs_ended():
    driver = Driver(with_batch(), LiveRecords.of(far_batch()), {"out": up_to(2 * FAR + 1)}, epochs=2 * FAR + 10)
    driver.go()
    assert driver.machine.finished
    ends = [time for _, _, steps in driver.placed for time, _ in steps]
    assert ends == [2 * FAR + 3, 2 * FAR + 5, 2 * FAR + 7, 2 * FAR + 9]


def test_what_is_held_of_choices_does_not_grow_with_the_run():
    held = []
    for epochs in (100, 400):
        driver = Driver(with_batch(), epochs=epochs)
        driver.go()
        (cuts,) = driver.machine.program.cuts.values()
        assert len(cuts) == epochs // 2
        held.append(len(cuts.ends))
    assert held[1] <= held[0] < 50


@pytest.mark.parametrize(
    "facts",
    [
        [Determinant("p", 0, 3, None), Determinant("p", 2, 5, None)],
        [Determinant("p", 0, 3, None), Determinant("p", 1, 3, None)],
        [Determinant("p", 0, 3, None), Determinant("p", 1, "in>p", None)],
        [Determinant("p", 0, None, None)],
        [Determinant("p", 5, 9, None)],
        [GarbageCollection({}, {"p": (FAR,)}, {})],
        [
            Determinant("p", 3, 9, None),
            GarbageCollection({}, {"p": (FAR,)}, {}),
            Determinant("p", FAR + 3, FAR + 4, None),
        ],
    ],
    ids=["a gap", "no later", "an edge", "no end", "a late beginning", "no last", "another last"],
)
def test_ends_of_epochs_that_no_execution_gives_are_refused(facts):
    with pytest.raises(DataError, match=r"\[CORRUPT\] no execution writes what the log says of p"):
        Driver(with_batch(), LiveRecords.of(facts))


@pytest.mark.parametrize(
    "facts",
    [
        [Determinant("p", 0, "z>p", None)],
        [Determinant("p", 0, 7, None)],
        [Determinant("p", 0, "x>p", None), Checkpoint("p", (("x>p", FAR),), None)],
        [Determinant("p", 0, "x>p", None), Checkpoint("p", (("y>p", 0),), None)],
        [Checkpoint("p", (("x>p", FAR), ("y>p", FAR)), None), GarbageCollection({}, {"p": (("x>p", FAR),)}, {})],
    ],
    ids=["another edge", "a number", "a state too far", "another state", "beyond what is collected"],
)
def test_orders_that_no_execution_gives_are_refused(facts):
    with pytest.raises(DataError, match=r"\[CORRUPT\] no execution writes what the log says of p"):
        Driver(with_order(), LiveRecords.of(facts))
