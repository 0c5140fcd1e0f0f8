"""Batches, sequences, loops: what is recorded of them and comes again; and silence."""

from boatlift.dataflow import Batch, Ephemeral, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant, LoopEnd
from boatlift.storage.records.live import LiveRecords
from boatlift.times import (
    IDENTITY,
    ArrivalOrder,
    Coarse,
    Enter,
    EpochBoundaries,
    Feedback,
    Fine,
    FromSequence,
    Leave,
    Loop,
    Sequence,
    Then,
    ToSequence,
)
from support.engine.machine_driver import Driver, chain, up_to, with_batch


def with_order():
    """Two sources into one processor that takes them as they come."""
    order = ArrivalOrder(Sequence(("x>p", "y>p")))
    vertices = [Vertex(s, Kind.SOURCE) for s in "xy"]
    vertices += [Vertex("p", Kind.STATEFUL, domain=order.domain), Vertex("out", Kind.SINK)]
    edges = [Edge(f"{s}>p", s, "p", ToSequence(order.domain, f"{s}>p")) for s in "xy"]
    edges.append(Edge("p>out", "p", "out", FromSequence(order)))
    return Program(RecoveryGraph(vertices, edges), {"p": Durability(Lazy(every=None))}, {"p": order})


def test_the_order_of_inputs_is_recorded_and_repeated():
    driver = Driver(with_order(), epochs=2, ended=False)
    driver.go()
    taken = [fact.taken for fact in driver.facts(Determinant) if fact.processor == "p"]
    assert sorted(taken) == ["x>p", "x>p", "y>p", "y>p"]
    runs = [order.time for order in driver.of(instructions.Execute)]
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    assert [order.time for order in driver.of(instructions.Execute)] == runs * 2


def test_where_a_batch_ends_is_recorded_and_repeated():
    driver = Driver(with_batch(), epochs=5, slow={"p"})
    driver.go()
    cut = driver.kept.pop()
    assert [m.time for m in cut.takes[0].inputs] == [0, 1], "two are enough; it does not wait for more"
    driver.slow.clear()
    driver.run(cut)
    driver.go()
    assert driver.machine.finished
    ends = [fact.taken for fact in driver.facts(Determinant) if fact.processor == "p"]
    assert ends[0] == 1
    assert ends[-1] == 4, "what is left at the end is a batch too"
    times = [time for _, _, steps in driver.placed for time, _ in steps]
    assert times == ends
    again = Driver(with_batch(), LiveRecords.of(driver.machine.durable.records.facts()), {"out": up_to(4)}, epochs=5)
    assert again.machine.processors["p"].cuts.end(len(ends) - 1) == ends[-1], "of what is garbage, the last is known"


def test_a_batch_may_also_want_a_time_to_pass_by_the_recorded_clocks():
    driver = Driver(with_batch(policy=Batch(epochs=2, seconds=3.0)), epochs=9, clock=lambda time: 1000 * time)
    driver.go()
    ends = [fact.taken for fact in driver.facts(Determinant) if fact.processor == "p"]
    assert ends == [3, 7, 8]


def ends_of(driver, name="p"):
    return [fact.taken for fact in driver.facts(Determinant) if fact.processor == name]


def fired(timer):
    return events.TimerFired(timer.processor, timer.incarnation, timer.deadline)


def test_an_epoch_waits_for_more_while_more_may_come():
    driver = Driver(with_batch(epochs=3), epochs=2, ended=False)
    driver.go()
    assert not ends_of(driver), "nothing moves, but two are not three"
    driver.epochs = 3
    driver.hear(events.SourceWoken("in"))
    driver.go()
    assert ends_of(driver) == [2]


def test_an_epoch_that_has_lasted_long_enough_ends_though_nothing_comes():
    driver = Driver(with_batch(policy=Batch(epochs=2, seconds=60)), epochs=3, ended=False, clock=lambda time: time)
    driver.go()
    assert not ends_of(driver)
    (timer,) = driver.of(instructions.SetTimer)
    assert timer.deadline == 60_000
    driver.hear(fired(timer))
    driver.go()
    assert ends_of(driver) == [2]
    driver.epochs = 5
    driver.hear(events.SourceWoken("in"))
    driver.go()
    assert ends_of(driver) == [2], "that was of the epoch before"
    driver.hear(fired(driver.of(instructions.SetTimer)[-1]))
    driver.hear(events.ProcessorsFailed(frozenset({"in"})))  # what waited comes again, and the clock is asked again
    driver.go()
    assert ends_of(driver) == [2, 4]


def probe(driver, *of_steps):
    """Answers the probes of the messages that wait, in turn."""
    said = iter(of_steps)
    batch = driver.machine.processors["p"]
    for period, ends in said:
        message = next(iter(batch.unprobed.values()))
        driver.hear(events.RowsProbed("p", batch.incarnation, message, events.RowProbe(period, ends)))
        driver.go()


def test_an_epoch_ends_with_the_step_whose_rows_reach_another_period():
    days = [(None, False), (7, False), (7, False), (8, False), (8, False), (7, False), (9, False)]
    policy = Batch(event_time="at", every="1 day")
    driver = Driver(with_batch(policy=policy), epochs=4, ended=False)
    driver.go()
    assert not ends_of(driver)
    probe(driver, *days[:4])
    assert ends_of(driver) == [3]
    driver.epochs = 7
    driver.hear(events.SourceWoken("in"))
    driver.go()
    probe(driver, *days[4:6])
    assert ends_of(driver) == [3], "late rows of 7 end nothing"
    probe(driver, days[6])
    assert ends_of(driver) == [3, 6]


def test_in_a_backlog_too_an_epoch_ends_with_the_step_that_ends_it():
    """All has answered while the first is executed: what it said is not of one epoch for that."""
    driver = Driver(with_batch(policy=Batch(when="any(x)")), epochs=6, ended=False, slow={"p"})
    driver.go()
    probe(driver, *((None, n in {1, 3, 4}) for n in range(6)))
    driver.slow.clear()
    driver.run(driver.kept.pop())
    driver.go()
    assert ends_of(driver) == [1, 3, 4]


def test_an_answer_about_another_message_of_the_same_time_is_void():
    """Only who sends fails: the batch lives on, and what waits for it may be something else."""
    driver = Driver(with_batch(policy=Batch(when="any(x)")), epochs=1, ended=False)
    driver.go()
    batch = driver.machine.processors["p"]
    other = instructions.Message("in>p", 0, {"end": "another"})
    driver.hear(events.RowsProbed("p", batch.incarnation, other, events.RowProbe(None, True)))
    driver.go()
    assert batch.unprobed
    assert not ends_of(driver)


def test_a_batch_that_asks_delays_no_other_processor():
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("q", Kind.STATEFUL, deterministic=False), Vertex("other", Kind.SINK)]
    vertices += [Vertex("p", Kind.STATELESS, coarse=True), Vertex("out", Kind.SINK)]
    edges = [Edge("in>q", "in", "q"), Edge("q>other", "q", "other"), Edge("in>p", "in", "p", Coarse(cuts))]
    graph = RecoveryGraph(vertices, [*edges, Edge("p>out", "p", "out", Fine(cuts))])
    durabilities = {"p": Durability(Batch(when="any(x)")), "q": Durability(Lazy(every=1000), recorded=False)}
    driver = Driver(Program(graph, durabilities, cuts={"p": cuts}), epochs=5, ended=False)
    driver.go()
    assert driver.machine.processors["p"].unprobed
    assert driver.machine.processors["other"].held == up_to(4)


def test_what_rows_say_is_forgotten_with_what_waited():
    driver = Driver(with_batch(policy=Batch(when="any(x)")), epochs=3, ended=False)
    driver.go()
    batch = driver.machine.processors["p"]
    late = events.RowsProbed("p", batch.incarnation, batch.unprobed["in>p", 0], events.RowProbe(None, True))
    driver.hear(events.ProcessorsFailed(frozenset({"p"})))
    driver.go()
    assert [time for _, time in batch.unprobed] == [0, 1, 2], "they are asked again"
    driver.hear(late)
    driver.go()
    assert not ends_of(driver), "that was of another life"
    probe(driver, (None, False), (None, True))
    assert ends_of(driver) == [1], "with the step that says so"
    assert [time for _, time in batch.unprobed] == [2]


def test_a_run_does_not_end_while_rows_are_asked_unless_it_is_stopped():
    driver = Driver(with_batch(policy=Batch(when="any(x)")), epochs=2)
    driver.go()
    assert not driver.machine.finished
    probe(driver, (None, False), (None, False))
    assert ends_of(driver) == [1], "nothing more comes"
    assert driver.machine.finished
    driver = Driver(with_batch(policy=Batch(when="any(x)")), epochs=2)
    driver.go()
    driver.hear(events.StopRequested())
    driver.go()
    assert driver.machine.finished
    assert not ends_of(driver)


def test_an_epoch_ends_with_the_step_whose_rows_say_so_once_all_else_holds():
    driver = Driver(with_batch(policy=Batch(epochs=2, when="any(x)")), epochs=1, ended=False)
    driver.go()
    probe(driver, (None, True))
    assert not ends_of(driver), "it said so, but two are wanted"
    driver.epochs = 2
    driver.hear(events.SourceWoken("in"))
    driver.go()
    probe(driver, (None, False))
    assert ends_of(driver) == [1]


def over_sequence():
    """Two sources into one processor that takes them as they come, a batch over that, and a batch over the batch."""
    order, cuts, again = ArrivalOrder(Sequence(("x>p", "y>p"))), EpochBoundaries(), EpochBoundaries()
    vertices = [Vertex(s, Kind.SOURCE) for s in "xy"] + [Vertex("p", Kind.STATELESS, domain=order.domain)]
    vertices += [Vertex(name, Kind.STATELESS, False, coarse=True) for name in "bc"] + [Vertex("out", Kind.SINK)]
    edges = [Edge(f"{s}>p", s, "p", ToSequence(order.domain, f"{s}>p")) for s in "xy"]
    edges += [Edge("p>b", "p", "b", Then(FromSequence(order), Coarse(cuts))), Edge("b>c", "b", "c", Coarse(again))]
    edges.append(Edge("c>out", "c", "out", Fine(again)))
    durabilities = {"b": Durability(Batch(epochs=3), recorded=False), "c": Durability(Batch(epochs=2), recorded=False)}
    return Program(RecoveryGraph(vertices, edges), durabilities, {"p": order}, {"b": cuts, "c": again})


def test_a_batch_takes_what_came_as_it_came():
    driver = Driver(over_sequence(), epochs=6, ended=False)
    driver.go()
    takes = {
        name: [t for o in driver.of(instructions.Execute) if o.processor == name for t in o.takes] for name in "pbc"
    }
    taken = {name: [[message.time for message in take.inputs] for take in takes[name]] for name in "bc"}
    assert [len(times) for times in taken["b"]] == [3, 3, 3, 3]
    assert [time for times in taken["b"] for time in times] == [take.time for take in takes["p"]]
    assert taken["c"] == [[0, 1], [2, 3]], "of a batch it counts the epochs"
    before = len(driver.of(instructions.Execute))
    driver.hear(events.ProcessorsFailed(frozenset({"p", "b", "c"})))
    driver.go()
    assert [o.processor for o in driver.of(instructions.Execute)[before:]] == [], "what it sent is durable"


def test_a_source_that_fails_ends_no_epoch():
    driver = Driver(with_batch(policy=Batch(seconds=60)), epochs=3, ended=False, clock=lambda time: time)
    close = driver.go(until=lambda order: isinstance(order, instructions.PollSource) and order.time == 3)
    driver.hear(events.StopRequested(drain=True))
    driver.hear(events.SourceIdle("in", close.incarnation, 3, ended=True))
    driver.go()
    assert driver.machine.finished
    assert not ends_of(driver)


def test_a_batch_begins_no_epoch_of_nothing():
    """What it takes has a message now and then: it counts those."""
    first, second = EpochBoundaries(), EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), *(Vertex(name, Kind.STATELESS, False, coarse=True) for name in "bc")]
    vertices += [Vertex("t", Kind.STATELESS), Vertex("out", Kind.SINK)]
    edges = [Edge("in>b", "in", "b", Coarse(first)), Edge("b>t", "b", "t", Fine(first))]
    edges += [Edge("t>c", "t", "c", Coarse(second)), Edge("c>out", "c", "out", Fine(second))]
    durabilities = {"b": Durability(Batch(epochs=4), recorded=False), "c": Durability(Batch(epochs=2), recorded=False)}
    program = Program(RecoveryGraph(vertices, edges), durabilities, cuts={"b": first, "c": second})
    driver = Driver(program, epochs=16, ended=False)
    driver.go()
    taken = [
        [m.time for m in take.inputs] for o in driver.of(instructions.Execute) if o.processor == "c" for take in o.takes
    ]
    assert taken == [[3, 7], [11, 15]]


def test_a_batch_begins_nothing_once_a_stop_was_asked_for():
    driver = Driver(over_sequence(), epochs=4, ended=False, slow={"b"})
    driver.go()
    assert len(driver.machine.processors["b"].waiting["p>b"]) == 8, "three that it takes, and five"
    driver.hear(events.StopRequested())
    driver.slow.clear()
    driver.run(driver.kept.pop())
    driver.go()
    assert driver.machine.finished
    again = Driver(
        over_sequence(), LiveRecords.of(driver.machine.durable.records.facts()), {"out": up_to(-1)}, epochs=4
    )
    again.go()
    runs = {name: [order for order in again.of(instructions.Execute) if order.processor == name] for name in "pb"}
    assert not runs["p"], "what it sent was kept"
    assert [len(take.inputs) for order in runs["b"] for take in order.takes] == [5]


def test_a_stop_leaves_what_waits_for_a_batch_though_the_source_has_ended():
    """The sink of another reader waits until the batch has taken the rows, which the source cannot repeat."""
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE, deterministic=False), Vertex("b", Kind.STATELESS, False, coarse=True)]
    vertices += [Vertex("p", Kind.STATEFUL), Vertex("of-b", Kind.SINK), Vertex("of-p", Kind.SINK)]
    edges = [Edge("in>b", "in", "b", Coarse(cuts)), Edge("b>of-b", "b", "of-b", Fine(cuts))]
    edges += [Edge("in>p", "in", "p"), Edge("p>of-p", "p", "of-p")]
    durabilities = {"in": Durability(recorded=False), "b": Durability(Batch(epochs=3), recorded=False)}
    durabilities["p"] = Durability(Lazy(every=1))
    program = Program(RecoveryGraph(vertices, edges), durabilities, cuts={"b": cuts})
    driver = Driver(program, epochs=4, slow={"b"})
    driver.go()
    driver.hear(events.StopRequested())
    driver.slow.clear()
    driver.run(driver.kept.pop())
    driver.go()
    assert driver.machine.finished
    assert driver.machine.processors["b"].waiting["in>b"], "what its next epoch will take"


def test_what_a_batch_lets_wait_holds_no_source_back():
    driver = Driver(with_batch(epochs=15), epochs=15, messages_ahead=3, slow={"p"})
    driver.go()
    (batch,) = driver.kept
    assert len(batch.takes[0].inputs) == 15


def test_a_loop_ends_when_nothing_goes_round():
    loop = Loop()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("h", Kind.STATELESS, domain=loop)]
    vertices += [Vertex("b", Kind.STATEFUL, domain=loop), Vertex("out", Kind.SINK)]
    edges = [Edge("in>h", "in", "h", Enter(loop)), Edge("h>b", "h", "b", IDENTITY)]
    edges += [Edge("b>h", "b", "h", Feedback(loop)), Edge("b>out", "b", "out", Leave(loop))]
    driver = Driver(Program(RecoveryGraph(vertices, edges), {"b": Durability(Lazy(every=1))}), epochs=2, slow={"b"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            order = driver.kept.pop(0)
            last = order.time[1] == order.time[0] + 1  # epoch 0: two rounds, epoch 1: three
            driver.run(order, **({"b>out": "x"} if last else {"b>h": "round", "b>out": "x"}))
    assert [order.time for order in driver.of(instructions.Execute) if order.processor == "b"] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2)
    ]  # fmt: skip
    assert sorted((fact.processor, fact.time) for fact in driver.facts(LoopEnd)) == [
        ("b", (0, 1)), ("b", (1, 2)), ("h", (0, 1)), ("h", (1, 2))
    ]  # fmt: skip
    assert [time for _, _, steps in driver.placed for time, _ in steps] == [0, 1]


def test_times_without_messages_are_over_in_silence():
    """A processor that sends nothing at some times does not stop those behind it."""
    driver = Driver(chain(Durability(Ephemeral()), kind=Kind.STATELESS), slow={"p"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            order = driver.kept.pop(0)
            driver.run(order, **({"p>out": "x"} if order.time == 2 else {"p>nobody": ""}))
    assert driver.machine.processors["out"].held == up_to(3)
    assert [time for _, _, steps in driver.placed for time, _ in steps] == [2]


def test_silence_at_an_epoch_does_not_delay_what_comes_after():
    """Where nothing is chosen that, too, is recorded: else what follows could not be repeated without a gap."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("a", Kind.STATELESS), Vertex("p", Kind.STATEFUL, deterministic=False)]
    edges = [Edge("in>a", "in", "a"), Edge("a>p", "a", "p"), Edge("p>out", "p", "out")]
    graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], edges)
    driver = Driver(Program(graph, {"p": Durability(Lazy(every=None))}), epochs=8, slow={"a"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            order = driver.kept.pop(0)
            driver.run(order, **({"a>nobody": ""} if order.time == 1 else {"a>p": "m"}))
    assert not driver.facts(Checkpoint), "nothing had to be saved to let anything go"
    assert [fact.time for fact in driver.facts(Determinant) if fact.processor == "p"] == list(range(8))


def test_silence_in_a_round_does_not_delay_what_comes_after():
    """A side path of a loop that gets something in the first round only, and chooses; what it sends is durable."""
    loop = Loop()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("h", Kind.STATELESS, domain=loop)]
    vertices += [
        Vertex("side", Kind.STATELESS, deterministic=False, domain=loop),
        Vertex("b", Kind.STATEFUL, domain=loop),
    ]
    edges = [Edge("in>h", "in", "h", Enter(loop)), Edge("h>b", "h", "b"), Edge("h>side", "h", "side")]
    edges += [
        Edge("side>b", "side", "b"),
        Edge("b>h", "b", "h", Feedback(loop)),
        Edge("b>out", "b", "out", Leave(loop)),
    ]
    graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], edges)
    driver = Driver(
        Program(graph, {"side": Durability(Batch()), "b": Durability(Lazy(every=1))}), epochs=3, slow={"h", "b"}
    )
    released = []
    while not driver.machine.finished:
        driver.go()
        released.append(driver.machine.processors["out"].held.last)
        if driver.kept:
            order = driver.kept.pop(0)
            round_ = order.time[1]
            sent = {"h>b": "x"} if order.processor == "h" else {"b>out": "x"}
            if order.processor == "h" and round_ == 0:
                sent["h>side"] = "x"
            if order.processor == "b" and round_ < 2:
                sent["b>h"] = "x"
            driver.run(order, **sent)
    assert sorted(set(released)) == [-1, 0, 1, 2], "each epoch left when it was over"


def test_in_a_sequence_nothing_has_its_place_too():
    order = ArrivalOrder(Sequence(("p>o",)))
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS), Vertex("o", Kind.STATEFUL, domain=order.domain)]
    edges = [Edge("in>p", "in", "p"), Edge("p>o", "p", "o", ToSequence(order.domain, "p>o"))]
    edges.append(Edge("o>out", "o", "out", FromSequence(order)))
    graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], edges)
    driver = Driver(Program(graph, {"o": Durability(Lazy(every=1))}, {"o": order}), epochs=5, slow={"p"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            run = driver.kept.pop(0)
            driver.run(run, **({"p>nobody": ""} if run.time == 1 else {"p>o": "m"}))
    assert [
        (run.time, run.takes[0].inputs[0].payload) for run in driver.of(instructions.Execute) if run.processor == "o"
    ] == [(("p>o", n), None if n == 1 else "m") for n in range(5)]
