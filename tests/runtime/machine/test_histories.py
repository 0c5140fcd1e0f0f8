"""`History` of processors without state: what they are sent is durable, until nobody can ask for what comes of it."""

import itertools

import pytest

import boatlift as bl
from boatlift.dataflow import Batch, History, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedInput, LoggedMessage
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.engine.machine_driver import Driver, chain, up_to

NO_CHECKPOINTS = Lazy(every=None)


def in_a_row(*, before=NO_CHECKPOINTS, policy=None, behind=None, coarse=False, keeps_rows=True):
    """Return source -> before -> p -> behind -> sink, all of which a test may choose; `p` keeps no state."""
    cuts = {"p": EpochBoundaries()} if coarse else {}
    kind = {True: Kind.STATEFUL, False: Kind.STATELESS}
    vertices = [
        Vertex("in", Kind.SOURCE, keeps_rows),
        Vertex("before", kind[before is not None]),
        Vertex("p", Kind.STATELESS, coarse=coarse),
        Vertex("behind", kind[behind is not None]),
        Vertex("out", Kind.SINK),
    ]
    into = {"projection": Coarse(cuts["p"])} if coarse else {}
    out_of = {"projection": Fine(cuts["p"])} if coarse else {}
    edges = [Edge("in>before", "in", "before"), Edge("before>p", "before", "p", **into)]
    edges += [Edge("p>behind", "p", "behind", **out_of), Edge("behind>out", "behind", "out")]
    durabilities = {
        "in": Durability(recorded=keeps_rows),
        "before": Durability(before) if before else Durability(),
        "p": Durability(policy or History(Batch(epochs=2) if coarse else None)),
        "behind": Durability(behind) if behind else Durability(),
    }
    return Program(RecoveryGraph(vertices, edges), durabilities, cuts=cuts)


def logged(driver, edge):
    return [fact.time for fact in driver.facts(LoggedMessage) if fact.edge == edge]


def executed(driver, processor):
    return [
        take.time for order in driver.of(instructions.Execute) if order.processor == processor for take in order.takes
    ]


def another_life(driver, program, **options):
    """Return a driver that knows what was durable, and what the sink holds."""
    facts = [fact for write in driver.of(instructions.AppendLog) for fact in write.facts]
    held = driver.placed[-1][1] if driver.placed else up_to(-1)
    return Driver(program, LiveRecords.of(facts), {"out": held}, **options)


@pytest.mark.parametrize("coarse", [False, True], ids=["transform", "batch"])
def test_what_it_is_sent_is_durable_and_what_it_sends_is_not(coarse):
    driver = Driver(in_a_row(coarse=coarse))
    driver.go()
    assert driver.machine.finished
    assert logged(driver, "before>p") == [0, 1, 2, 3]
    assert not logged(driver, "in>before") + logged(driver, "p>behind") + logged(driver, "behind>out")
    assert not [fact for fact in driver.facts(Checkpoint) + driver.facts(LoggedInput) if fact.processor == "p"]
    ends = [(fact.time, fact.taken) for fact in driver.facts(Determinant) if fact.processor == "p"]
    assert ends == ([(0, 1), (1, 3)] if coarse else [])


def test_a_source_sends_the_same_again_and_one_that_keeps_no_rows_has_its_rows_logged():
    driver = Driver(chain(Durability(History()), kind=Kind.STATELESS))
    driver.go()
    assert not driver.facts(LoggedMessage)
    forgets = RecoveryGraph(
        [Vertex("in", Kind.SOURCE, deterministic=False), Vertex("p", Kind.STATELESS), Vertex("out", Kind.SINK)],
        [Edge("in>p", "in", "p"), Edge("p>out", "p", "out")],
    )
    driver = Driver(Program(forgets, {"in": Durability(recorded=False), "p": Durability(History())}))
    driver.go()
    assert [(fact.time, fact.message) for fact in driver.facts(LoggedMessage)] == [(t, {"end": t}) for t in range(4)]


@pytest.mark.parametrize("coarse", [False, True], ids=["transform", "batch"])
def test_after_a_failure_of_everything_it_runs_again_and_its_sender_does_not(coarse):
    """The sender keeps no state: without the history it would be executed again for its reader."""
    program = in_a_row(before=None, behind=Lazy(every=None), coarse=coarse)
    driver = Driver(program, ended=False)
    driver.go()
    assert executed(driver, "before") == [0, 1, 2, 3]
    again = another_life(driver, in_a_row(before=None, behind=Lazy(every=None), coarse=coarse), epochs=6)
    again.go()
    assert again.machine.finished
    assert executed(again, "before") == [4, 5]
    assert executed(again, "p") == ([0, 1, 2] if coarse else list(range(6)))
    messages = [m.payload for each in (driver, again) for *_, steps in each.placed for _, came in steps for m in came]
    assert messages == [f"behind@{time}" for time in ((1, 3, 5) if coarse else range(6))]


class SendsNothingAt1(Driver):
    """The first processor sends nothing at time 1."""

    def run(self, order, **options):
        if (order.processor, order.time) == ("before", 1):
            self.hear(events.StepDone("before", order.incarnation, 1, None, {}, None, None))
        else:
            super().run(order, **options)


def test_a_time_without_a_message_is_part_of_a_history():
    """Else the history had a gap, and the senders would be executed again for what comes after it."""

    def program():
        names = ["in", "before", "p", "q", "sums", "out"]
        kinds = [Kind.SOURCE, *[Kind.STATELESS] * 3, Kind.STATEFUL, Kind.SINK]
        edges = [Edge(f"{a}>{b}", a, b) for a, b in itertools.pairwise(names)]
        kept = {"p": Durability(History()), "q": Durability(History()), "sums": Durability(NO_CHECKPOINTS)}
        return Program(RecoveryGraph(list(map(Vertex, names, kinds)), edges), kept)

    driver = SendsNothingAt1(program(), ended=False)
    driver.go()
    assert sorted(logged(driver, "p>q")) == [0, 1, 2, 3]
    again = another_life(driver, program(), epochs=4)
    again.go()
    assert (executed(again, "before"), executed(again, "p")) == ([], [])
    assert executed(again, "q") == executed(again, "sums") == [0, 2, 3]


def test_a_sender_with_state_stays_at_its_checkpoint_though_the_reader_goes_back_to_the_start():
    def program(policy):
        return in_a_row(before=Lazy(every=1, in_flight=False), policy=policy, behind=Lazy(every=None))

    for policy, back in ((History(), up_to(3)), (bl.Ephemeral(), up_to(-1))):
        driver = Driver(program(policy), ended=False)
        driver.go()
        again = another_life(driver, program(policy))
        before = again.machine.processors["before"]
        restored = [order.frontier for order in again.of(instructions.Restore) if order.processor == "before"]
        assert restored == ([back] if back else []), policy
        assert before.done == back


@pytest.mark.parametrize("coarse", [False, True], ids=["transform", "batch"])
@pytest.mark.parametrize("before", [None, Lazy(every=3)], ids=["behind a transform", "behind an aggregate"])
def test_history_without_a_reader_is_collected_as_it_comes(coarse, before):
    """What is kept does not grow with the run."""
    kept = []
    for epochs in (100, 400):
        driver = Driver(in_a_row(before=before, behind=Lazy(every=4), coarse=coarse), epochs=epochs, collect_after=8)
        driver.go()
        assert len(logged(driver, "before>p")) == epochs
        kept.append(len(list(driver.machine.durable.records.facts())))
    assert kept[1] <= kept[0] < 60


def test_epochs_belong_to_batches_and_a_batch_has_them():
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] p has no epochs of its own that could end"):
        in_a_row(policy=History(Batch(epochs=2)))
    with pytest.raises(bl.InvalidError, match=r"\[BAD_POLICY\] the coarse epochs of p never end"):
        in_a_row(policy=History(), coarse=True)
