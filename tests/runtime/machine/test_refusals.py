"""What is refused, and how it is told."""

import pytest

from boatlift.dataflow import Batch, Ephemeral, History, Lazy
from boatlift.errors import DataError, DivergedError, InternalError, InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant, GarbageCollection, LoggedMessage, StepDigest
from boatlift.storage.records.live import LiveRecords
from boatlift.times import ArrivalOrder, Coarse, EpochBoundaries, Fine, Sequence, ToSequence
from support.engine.machine_driver import Driver, chain, up_to, with_batch


@pytest.mark.parametrize("policy", [Ephemeral(), Batch(epochs=2)])
def test_a_policy_that_keeps_no_state_is_refused_where_there_is_some(policy):
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p keeps state, which .* cannot"):
        chain(Durability(policy))


def test_history_is_refused_where_choices_are_not_recorded():
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p has determinants that are not recorded"):
        chain(Durability(History(), recorded=False), deterministic=False)
    chain(Durability(History(), recorded=False), deterministic=True)


def test_a_batch_without_an_end_of_epoch_is_refused():
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] the coarse epochs of p never end"):
        with_batch(policy=Ephemeral())


def test_a_batch_over_what_are_no_epochs_is_refused():
    first, second = EpochBoundaries(), EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), *(Vertex(p, Kind.STATELESS, coarse=True) for p in "ab")]
    edges = [Edge("in>a", "in", "a", Coarse(first)), Edge("a>b", "a", "b", Fine(first))]
    durabilities = {p: Durability(Batch(epochs=2)) for p in "ab"}
    with pytest.raises(InvalidError, match=r"\[BAD_PROJECTION\] b counts epochs, but a sends at other times"):
        Program(RecoveryGraph(vertices, edges), durabilities, cuts={"a": first, "b": second})


def test_a_program_without_the_records_of_its_choices_is_refused():
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, coarse=True)]
    with pytest.raises(InternalError, match="p lacks its arrival order or its epoch boundaries"):
        Program(
            RecoveryGraph(vertices, [Edge("in>p", "in", "p", Coarse(EpochBoundaries()))]),
            {"p": Durability(Batch(epochs=2))},
        )


def test_facts_of_another_graph_are_refused():
    strangers = [Determinant("other", 0, None, 1), LoggedMessage("p>other", 0, "x"), Checkpoint("other", (0,), "x")]
    strangers += [GarbageCollection({"other": (3,)}, {}, {}), GarbageCollection({}, {}, {"p>other": (3,)})]
    for fact in strangers:
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].*other"):
            Driver(chain(), LiveRecords.of([fact]))
    for fact in (
        Checkpoint("p", ((0, 1),), "x"),
        Determinant("in", ("a", 0), None, 1),
        LoggedMessage("p>out", (0, 1), "x"),
    ):
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].* with such times"):
            Driver(chain(), LiveRecords.of([fact]))


def test_a_sink_with_steps_that_cannot_be_repeated_is_refused():
    with pytest.raises(DataError, match=r"\[NO_CONSISTENT_FRONTIER\] sink out holds steps 0…5"):
        Driver(chain(), held={"out": up_to(5)})


def test_a_step_that_diverges_is_reported_with_both_digests():
    driver = Driver(chain(Durability(Lazy(every=None))), epochs=3, slow={"p"}, ended=False)
    driver.go()
    for n in range(3):
        driver.run(driver.kept.pop(), digest=f"first {n}")
        driver.go()
    assert [fact.digest for fact in driver.facts(StepDigest)] == ["first 0", "first 1", "first 2"]
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    driver.run(driver.kept.pop(), digest="first 0")
    driver.go()
    with pytest.raises(DivergedError, match=r"\[DIVERGED\] p at time 1 gave digest second 1 on replay, but first 1 is"):
        driver.run(driver.kept.pop(), digest="second 1")


def test_a_step_that_diverges_while_its_state_is_rebuilt_is_reported():
    driver = Driver(chain(Durability(History())), epochs=1, ended=False, slow={"p"})
    driver.go()
    driver.run(driver.kept.pop(), digest="first")
    driver.go()
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    assert driver.kept[0].again
    with pytest.raises(DivergedError, match=r"\[DIVERGED\] p at time 0 gave digest second on replay, but first is"):
        driver.run(driver.kept.pop(), digest="second")


def test_a_projection_that_contradicts_what_happens_is_refused():
    class Hasty:
        """Promises one epoch more than it may."""

        def __call__(self, frontier):
            return up_to(frontier.last + 1) if frontier else frontier

        def arrives(self, time):
            return time

        def sent(self, frontier):
            return frontier

        def within(self, frontier):
            return frontier

    vertices = [Vertex("in", Kind.SOURCE), Vertex("out", Kind.SINK)]
    program = Program(RecoveryGraph(vertices, [Edge("in>out", "in", "out", Hasty())]))
    with pytest.raises(InvalidError, match=r"\[BAD_PROJECTION\]"):
        Driver(program).go()


def test_an_internal_error_names_the_last_transitions():
    driver = Driver(chain())
    driver.go()
    with pytest.raises(InternalError, match=r"p has incarnation 1, not 7; the last transitions were:\n") as raised:
        driver.hear(events.StepDone("p", 7, 0))
    assert "CommitSink(sink='out'" in str(raised.value)
    driver = Driver(chain(), durable=False)
    driver.go(until=lambda order: isinstance(order, instructions.Execute))
    driver.machine.processors["p"].done = up_to(3)
    with pytest.raises(InternalError, match=r"p runs a time again that it has done"):
        driver.hear(events.ProcessorsFailed(frozenset({"out"})))


def test_a_write_that_was_never_given_cannot_be_durable():
    driver = Driver(chain(), durable=False)
    driver.go()
    with pytest.raises(InternalError, match=r"write 99 cannot be durable"):
        driver.hear(events.LogDurable(99))


def test_an_order_that_is_not_recorded_is_refused_where_no_state_keeps_it():
    order = ArrivalOrder(Sequence(("a>p", "b>p")))
    vertices = [Vertex("a", Kind.SOURCE), Vertex("b", Kind.SOURCE), Vertex("p", Kind.STATELESS, domain=order.domain)]
    edges = [Edge(f"{s}>p", s, "p", ToSequence(order.domain, f"{s}>p")) for s in "ab"]
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p keeps no state, so the order .* must be recorded"):
        Program(RecoveryGraph(vertices, edges), {"p": Durability(recorded=False)}, {"p": order})
