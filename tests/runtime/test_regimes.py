"""The state machine over any processors, one behaviour at a time. That it is right as a whole is for the simulation."""

import hashlib

import pytest

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy
from boatlift.errors import DataError, DivergedError, InternalError, InvalidError
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.regimes import Program, Regime, StateMachine
from boatlift.runtime.regimes import acts as do
from boatlift.storage.facts import Chosen, Collected, Cut, Ended, Result, Sent, State, Taken
from boatlift.storage.standing import Standing
from boatlift.times import (
    IDENTITY,
    Coarse,
    Cuts,
    Enter,
    Feedback,
    Fine,
    FromSequence,
    Frontier,
    Leave,
    Loop,
    Order,
    Sequence,
    Then,
    ToSequence,
)

up_to = Frontier.up_to


def chain(regime=None, *, kind=Kind.STATEFUL, deterministic=True):
    """source -> p -> sink."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", kind, deterministic), Vertex("out", Kind.SINK)]
    graph = RecoveryGraph(vertices, [Edge("in>p", "in", "p"), Edge("p>out", "p", "out")])
    return Program(graph, {"p": regime or Regime(Lazy(every=2))})


class Driver:
    """Carries instructions out in order, as they come: every answer at once, unless it is held back.

    Attributes:
        given: Every instruction, in order.
        epochs: How many epochs each source has.
        slow: Processors whose runs are kept for later.
        ended: Whether sources have ended after that, or may go on some day.
    """

    def __init__(self, program, standing=None, held=None, *, epochs=4, slow=(), durable=True, ended=True, **options):
        self.ended = ended
        self.given, self.later, self.kept = [], [], []
        self.epochs, self.slow, self.durable = epochs, set(slow), durable
        self.placed = []
        self.machine = StateMachine(program, standing or Standing(), held or {}, checked=True, **options)
        self.take(self.machine.start())

    def take(self, instructions):
        self.given += instructions
        self.later += instructions

    def hear(self, event):
        self.take(self.machine.handle(event))

    def go(self, *, until=lambda _: False):
        """Goes on until nothing is left, or something is given that is waited for."""
        while self.later:
            order = self.later.pop(0)
            if until(order):
                return order
            self.carry_out(order)
        return None

    def carry_out(self, order):
        match order:
            case do.Close(source, life, time):
                over = time >= self.epochs
                self.hear(
                    do.Idle(source, life, time, self.ended) if over else do.Closed(source, life, time, {"end": time})
                )
            case do.Run() if order.processor in self.slow:
                self.kept.append(order)
            case do.Run():
                self.run(order)
            case do.Write(number) if self.durable:
                self.hear(do.Durable(number))
            case do.Place(sink, life, frontier, steps):
                self.placed.append((sink, frontier, steps))
                self.hear(do.Placed(sink, life, frontier))
            case _:
                pass

    def run(self, order, *, outcome="chosen", digest=None, **sent):
        p = self.machine.processors[order.processor]
        chosen = order.outcome if order.outcome is not None else (None if p.vertex.deterministic else outcome)
        content = (
            *(m.content if isinstance(m.content, tuple) else m.time for m in order.inputs),
            order.time,
            order.state,
        )
        sent = sent or {edge.name: f"{order.processor}@{order.time}" for edge in p.outputs}
        state = hashlib.md5(repr(content).encode()).hexdigest()[:8]
        self.hear(do.Ran(order.processor, order.life, order.time, chosen, sent, state, digest))

    def of(self, kind):
        return [order for order in self.given if isinstance(order, kind)]

    def facts(self, kind):
        return [fact for write in self.of(do.Write) for fact in write.facts if isinstance(fact, kind)]


# -- what each policy makes durable ---------------------------------------------------------------------------------------


def test_ephemeral_makes_nothing_durable():
    driver = Driver(chain(Regime(Ephemeral()), kind=Kind.STATELESS))
    driver.go()
    assert driver.machine.finished
    assert not driver.facts(State) + driver.facts(Sent)
    assert [fact.processor for fact in driver.facts(Chosen)] == ["in"] * 4


def test_lazy_makes_state_durable_at_intervals():
    driver = Driver(chain(Regime(Lazy(every=2))))
    driver.go()
    assert [fact.frontier for fact in driver.facts(State)] == [(1,), (3,)]
    assert not driver.facts(Sent)


def test_input_logging_makes_nothing_but_choices_durable():
    driver = Driver(chain(Regime(Lazy(every=None)), deterministic=False))
    driver.go()
    assert not driver.facts(State) + driver.facts(Sent)
    assert [fact.time for fact in driver.facts(Chosen) if fact.processor == "p"] == [0, 1, 2, 3]
    assert driver.of(do.Acknowledge) == [], "replay begins at the start, so that no input can be acknowledged"


def test_eager_makes_state_and_messages_durable_at_every_step():
    driver = Driver(chain(Regime(Eager())))
    driver.go()
    assert [fact.frontier for fact in driver.facts(State)] == [(0,), (1,), (2,), (3,)]
    assert [fact.time for fact in driver.facts(Sent)] == [0, 1, 2, 3]


def test_batch_makes_messages_durable():
    driver = Driver(chain(Regime(Batch()), kind=Kind.STATELESS))
    driver.go()
    assert [fact.time for fact in driver.facts(Sent)] == [0, 1, 2, 3]
    assert not driver.facts(State)


def test_history_keeps_inputs_and_rebuilds_its_state_from_them():
    driver = Driver(chain(Regime(History())), ended=False)
    driver.go()
    assert [fact.messages for fact in driver.facts(Taken)] == [(("in>p", t, {"end": t}),) for t in range(4)]
    assert not driver.facts(State)
    state = driver.machine.processors["p"].state
    sent = len(driver.facts(Sent)), len(driver.placed)
    driver.hear(do.Failed(frozenset({"p"})))
    again = driver.of(do.Run)[-1]
    assert (again.time, again.again, again.state) == (0, True, None)
    driver.go()
    assert driver.machine.processors["p"].state == state
    assert (len(driver.facts(Sent)), len(driver.placed)) == sent, "what it sent then counts for nothing"


# -- release --------------------------------------------------------------------------------------------------------------


def test_a_deterministic_pipeline_releases_once_positions_are_durable():
    driver = Driver(chain(Regime(Lazy(every=None))), durable=False)
    driver.go()
    assert not driver.placed
    first = driver.of(do.Write)[0]
    driver.hear(do.Durable(first.number))
    assert driver.of(do.Place)[-1].frontier == up_to(0)


def test_what_is_chosen_and_not_recorded_waits_for_the_checkpoint():
    driver = Driver(chain(Regime(Lazy(every=3), recorded=False), deterministic=False), epochs=3)
    driver.go()
    assert [frontier for _, frontier, _ in driver.placed] == [up_to(2)], "all three in one act"


def test_everything_is_made_durable_when_nothing_else_moves():
    """A policy that never saves what it chose would never release it."""
    driver = Driver(chain(Regime(Lazy(every=None), recorded=False), deterministic=False), epochs=3)
    driver.go()
    assert driver.machine.finished
    assert [frontier for _, frontier, _ in driver.placed] == [up_to(2)]
    assert [fact.frontier for fact in driver.facts(State)] == [(2,)]


def test_a_sink_that_does_not_answer_is_asked_what_it_holds():
    driver = Driver(chain())
    place = driver.go(until=lambda order: isinstance(order, do.Place))
    driver.hear(do.Unsure(place.sink, place.life, place.frontier))
    ask = driver.of(do.Ask)[-1]
    assert ask.life > place.life
    driver.hear(do.Placed(place.sink, place.life, place.frontier))  # an answer of the earlier life: void
    assert driver.machine.processors["out"].held == up_to(-1)
    driver.hear(do.Holds(ask.sink, ask.life, place.frontier))
    assert driver.machine.processors["out"].held == place.frontier
    driver.go()
    assert driver.machine.finished
    assert [time for _, _, steps in driver.placed for time, _ in steps] == [1, 2, 3]


# -- failures -------------------------------------------------------------------------------------------------------------


def two_branches():
    """source -> left -> a; source -> right -> b."""
    vertices = [Vertex("in", Kind.SOURCE)]
    vertices += [Vertex(p, Kind.STATEFUL) for p in ("left", "right")] + [Vertex(s, Kind.SINK) for s in ("a", "b")]
    pairs = [("in", "left"), ("in", "right"), ("left", "a"), ("right", "b")]
    graph = RecoveryGraph(vertices, [Edge(f"{p}>{q}", p, q) for p, q in pairs])
    return Program(graph, {p: Regime(Lazy(every=2)) for p in ("left", "right")})


def test_who_is_not_touched_goes_on():
    driver = Driver(two_branches(), slow={"right"})
    driver.go()
    waiting = driver.kept.pop()
    driver.hear(do.Failed(frozenset({"left"})))
    assert waiting.processor == "right"
    assert driver.machine.processors["right"].life == waiting.life, "it was not called off"
    driver.slow.clear()
    driver.run(waiting)
    driver.go()
    assert driver.machine.finished
    assert driver.machine.processors["right"].life == waiting.life
    assert sorted((sink, time) for sink, _, steps in driver.placed for time, _ in steps) == [
        (sink, time) for sink in "ab" for time in range(4)
    ]


def test_what_comes_out_differently_is_called_off():
    """A receiver is taking a message that its sender, which chooses and does not record, will not send again as it was."""
    program = chain(Regime(Lazy(every=None)))
    vertices = [*program.graph.vertices.values(), Vertex("q", Kind.STATELESS, deterministic=False)]
    edges = [Edge("in>q", "in", "q"), Edge("q>p", "q", "p"), Edge("p>out", "p", "out")]
    program = Program(RecoveryGraph(vertices, edges), {"q": Regime(recorded=False), "p": Regime(Lazy(every=None))})
    driver = Driver(program, slow={"p"}, epochs=1)
    driver.go()
    taking = driver.kept.pop()
    driver.hear(do.Failed(frozenset({"q"})))
    assert driver.of(do.Cancel) == [do.Cancel("p", taking.life)]
    before = driver.machine.processors["p"].done
    driver.run(taking)
    assert driver.machine.processors["p"].done == before, "its answer is void"


def test_what_rests_on_silence_is_called_off_with_it():
    """A receiver runs a time at which one of its senders sent nothing; run again, that one may."""
    vertices = [Vertex("in", Kind.SOURCE), Vertex("q", Kind.STATELESS, deterministic=False)]
    vertices += [Vertex("p", Kind.STATEFUL), Vertex("out", Kind.SINK)]
    edges = [Edge("in>q", "in", "q"), Edge("q>p", "q", "p"), Edge("in>p", "in", "p"), Edge("p>out", "p", "out")]
    graph = RecoveryGraph(vertices, edges)
    program = Program(graph, {"q": Regime(recorded=False), "p": Regime(Lazy(every=None))})
    driver = Driver(program, slow={"p", "q"}, epochs=1)
    driver.go()
    driver.run(driver.kept.pop(), **{"q>nobody": ""})
    driver.go()
    taking = driver.kept.pop()
    assert [message.edge for message in taking.inputs] == ["in>p"]
    driver.hear(do.Failed(frozenset({"q"})))
    assert driver.of(do.Cancel) == [do.Cancel("p", taking.life)]
    driver.go()
    driver.run(driver.kept.pop())
    driver.go()
    assert [message.edge for message in driver.kept.pop().inputs] == ["in>p", "q>p"]


def test_failures_during_recovery_and_in_a_row():
    driver = Driver(two_branches(), epochs=6)
    for failed in ({"left"}, {"in"}, {"a", "right"}, {"left", "right", "in"}, {"b"}):
        driver.go(until=lambda order: isinstance(order, do.Run))
        driver.hear(do.Failed(frozenset(failed)))
        driver.hear(do.Failed(frozenset(failed)))
    driver.go()
    assert driver.machine.finished
    assert sorted((sink, time) for sink, _, steps in driver.placed for time, _ in steps) == [
        (sink, time) for sink in "ab" for time in range(6)
    ]


def test_a_failure_while_a_sink_places_waits_for_what_it_holds():
    driver = Driver(chain())
    place = driver.go(until=lambda order: isinstance(order, do.Place))
    driver.hear(do.Failed(frozenset({"p"})))
    assert not driver.facts(Cut)
    ask = driver.of(do.Ask)[-1]
    driver.hear(do.Holds(ask.sink, ask.life, place.frontier))
    assert driver.facts(Cut)
    driver.go()
    assert driver.machine.finished


def test_it_begins_again_from_what_is_durable():
    first = Driver(chain(), epochs=4)
    first.go()
    standing = Standing.of(first.machine.durable.standing.facts())
    held = {"out": first.machine.processors["out"].held}
    second = Driver(chain(), standing, held, epochs=6)
    assert second.machine.processors["p"].state == first.machine.processors["p"].state
    second.go()
    assert second.machine.finished
    assert [time for _, _, steps in second.placed for time, _ in steps] == [4, 5]


@pytest.mark.parametrize(
    ("before", "after"),
    [(Lazy(every=2), History()), (History(), Lazy(every=2)), (History(), Eager()), (Eager(), Lazy(every=None))],
)
def test_a_changed_policy_goes_on_with_the_state_there_is(before, after):
    whole = Driver(chain(Regime(before)), epochs=6)
    whole.go()
    first = Driver(chain(Regime(before)), epochs=4)
    first.go()
    held = {"out": first.machine.processors["out"].held}
    second = Driver(chain(Regime(after)), Standing.of(first.machine.durable.standing.facts()), held, epochs=6)
    second.go()
    assert second.machine.finished
    assert second.machine.processors["p"].state == whole.machine.processors["p"].state
    third = Driver(
        chain(Regime(before)), Standing.of(second.machine.durable.standing.facts()), {"out": up_to(5)}, epochs=6
    )
    third.go()
    assert third.machine.processors["p"].state == whole.machine.processors["p"].state


def test_a_state_that_comes_late_is_no_later_state():
    """After a recovery a smaller frontier may be saved after a larger one of the life before."""
    standing = Standing.of([State("p", (t,), f"state {t}") for t in (1, 3, 5, 7, 4)])
    garbage = Standing.of([*standing.facts(), Collected({"p": (5,)}, {}, {})])
    assert sorted(garbage.states["p"]) == [(5,), (7,)]


# -- domains --------------------------------------------------------------------------------------------------------------


def with_order():
    """Two sources into one processor that takes them as they come."""
    order = Order(Sequence(("x>p", "y>p")))
    vertices = [Vertex(s, Kind.SOURCE) for s in "xy"]
    vertices += [Vertex("p", Kind.STATEFUL, domain=order.domain), Vertex("out", Kind.SINK)]
    edges = [Edge(f"{s}>p", s, "p", ToSequence(order.domain, f"{s}>p")) for s in "xy"]
    edges.append(Edge("p>out", "p", "out", FromSequence(order)))
    return Program(RecoveryGraph(vertices, edges), {"p": Regime(Lazy(every=None))}, {"p": order})


def test_the_order_of_inputs_is_recorded_and_repeated():
    driver = Driver(with_order(), epochs=2, ended=False)
    driver.go()
    taken = [fact.taken for fact in driver.facts(Chosen) if fact.processor == "p"]
    assert sorted(taken) == ["x>p", "x>p", "y>p", "y>p"]
    runs = [order.time for order in driver.of(do.Run)]
    driver.hear(do.Failed(frozenset({"p"})))
    driver.go()
    assert [order.time for order in driver.of(do.Run)] == runs * 2


def with_batch(epochs=2):
    cuts = Cuts()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, coarse=True), Vertex("out", Kind.SINK)]
    edges = [Edge("in>p", "in", "p", Coarse(cuts)), Edge("p>out", "p", "out", Fine(cuts))]
    return Program(RecoveryGraph(vertices, edges), {"p": Regime(Batch(epochs=epochs))}, cuts={"p": cuts})


def test_where_a_batch_ends_is_recorded_and_repeated():
    driver = Driver(with_batch(), epochs=5, slow={"p"})
    driver.go()
    cut = driver.kept.pop()
    assert [m.time for m in cut.inputs] == [0, 1], "two are enough; it does not wait for more"
    driver.slow.clear()
    driver.run(cut)
    driver.go()
    assert driver.machine.finished
    ends = [fact.taken for fact in driver.facts(Chosen) if fact.processor == "p"]
    assert ends[0] == 1
    assert ends[-1] == 4, "what is left at the end is a batch too"
    times = [time for _, _, steps in driver.placed for time, _ in steps]
    assert times == ends
    again = Driver(with_batch(), Standing.of(driver.machine.durable.standing.facts()), {"out": up_to(4)}, epochs=5)
    assert again.machine.processors["p"].cuts.ends == ends


def test_a_loop_ends_when_nothing_goes_round():
    loop = Loop()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("h", Kind.STATELESS, domain=loop)]
    vertices += [Vertex("b", Kind.STATEFUL, domain=loop), Vertex("out", Kind.SINK)]
    edges = [Edge("in>h", "in", "h", Enter(loop)), Edge("h>b", "h", "b", IDENTITY)]
    edges += [Edge("b>h", "b", "h", Feedback(loop)), Edge("b>out", "b", "out", Leave(loop))]
    driver = Driver(Program(RecoveryGraph(vertices, edges), {"b": Regime(Lazy(every=1))}), epochs=2, slow={"b"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            order = driver.kept.pop(0)
            last = order.time[1] == order.time[0] + 1  # epoch 0: two rounds, epoch 1: three
            driver.run(order, **({"b>out": "x"} if last else {"b>h": "round", "b>out": "x"}))
    assert [order.time for order in driver.of(do.Run) if order.processor == "b"] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (1, 2)
    ]  # fmt: skip
    assert sorted((fact.processor, fact.time) for fact in driver.facts(Ended)) == [
        ("b", (0, 1)), ("b", (1, 2)), ("h", (0, 1)), ("h", (1, 2))
    ]  # fmt: skip
    assert [time for _, _, steps in driver.placed for time, _ in steps] == [0, 1]


def test_times_without_messages_are_over_in_silence():
    """A processor that sends nothing at some times does not stop those behind it."""
    driver = Driver(chain(Regime(Ephemeral()), kind=Kind.STATELESS), slow={"p"})
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
    driver = Driver(Program(graph, {"p": Regime(Lazy(every=None))}), epochs=8, slow={"a"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            order = driver.kept.pop(0)
            driver.run(order, **({"a>nobody": ""} if order.time == 1 else {"a>p": "m"}))
    assert not driver.facts(State), "nothing had to be saved to let anything go"
    assert [fact.time for fact in driver.facts(Chosen) if fact.processor == "p"] == list(range(8))


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
    driver = Driver(Program(graph, {"side": Regime(Batch()), "b": Regime(Lazy(every=1))}), epochs=3, slow={"h", "b"})
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
    order = Order(Sequence(("p>o",)))
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS), Vertex("o", Kind.STATEFUL, domain=order.domain)]
    edges = [Edge("in>p", "in", "p"), Edge("p>o", "p", "o", ToSequence(order.domain, "p>o"))]
    edges.append(Edge("o>out", "o", "out", FromSequence(order)))
    graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], edges)
    driver = Driver(Program(graph, {"o": Regime(Lazy(every=1))}, {"o": order}), epochs=5, slow={"p"})
    while not driver.machine.finished:
        driver.go()
        if driver.kept:
            run = driver.kept.pop(0)
            driver.run(run, **({"p>nobody": ""} if run.time == 1 else {"p>o": "m"}))
    assert [(run.time, run.inputs[0].content) for run in driver.of(do.Run) if run.processor == "o"] == [
        (("p>o", n), None if n == 1 else "m") for n in range(5)
    ]


# -- queues, acknowledgement, collection ------------------------------------------------------------------------------------


def test_sources_wait_when_much_waits_behind_them():
    driver = Driver(chain(), epochs=50, slow={"p"}, messages_ahead=5)
    driver.go()
    assert len(driver.of(do.Close)) == 5
    driver.run(driver.kept.pop())
    driver.go()
    assert len(driver.of(do.Close)) == 6


def test_a_batch_that_needs_more_than_may_wait_gets_it():
    """Otherwise nothing would ever move again."""
    driver = Driver(with_batch(epochs=10), epochs=20, messages_ahead=3)
    driver.go()
    assert driver.machine.finished
    assert [fact.taken for fact in driver.facts(Chosen) if fact.processor == "p"] == [9, 19]


def join():
    """Two sources that meet."""
    vertices = [
        Vertex("x", Kind.SOURCE),
        Vertex("y", Kind.SOURCE),
        Vertex("j", Kind.STATEFUL),
        Vertex("out", Kind.SINK),
    ]
    edges = [Edge("x>j", "x", "j"), Edge("y>j", "y", "j"), Edge("j>out", "j", "out")]
    return Program(RecoveryGraph(vertices, edges), {"j": Regime(Lazy(every=2))})


class OneRests(Driver):
    """Source x has nothing, but may have some day."""

    def carry_out(self, order):
        if isinstance(order, do.Close) and order.source == "x":
            self.hear(do.Idle("x", order.life, order.time))
        else:
            super().carry_out(order)


def test_a_source_that_rests_stops_nobody_else():
    """Nor does one that waits for another: whoever is waited for goes on."""
    vertices = [Vertex(s, Kind.SOURCE) for s in "xyz"] + [Vertex("j", Kind.STATEFUL), Vertex("k", Kind.STATEFUL)]
    vertices += [Vertex(s, Kind.SINK) for s in ("xs", "js", "ks")]
    pairs = [("x", "xs"), ("y", "j"), ("z", "j"), ("z", "k"), ("x", "k"), ("j", "js"), ("k", "ks")]
    graph = RecoveryGraph(vertices, [Edge(f"{p}>{q}", p, q) for p, q in pairs])
    program = Program(graph, {"j": Regime(Lazy(every=2)), "k": Regime(Lazy(every=2))})
    driver = OneRests(program, epochs=20, messages_ahead=5)
    driver.go()
    assert driver.machine.processors["js"].held == up_to(19), "though what z sends to k has to wait for x"


def test_a_source_waits_for_one_that_has_nothing_yet():
    driver = OneRests(join(), epochs=1000, messages_ahead=5)
    driver.go()
    assert len(driver.machine.processors["j"].waiting["y>j"]) == 5
    assert not driver.machine.finished


def test_what_a_source_closed_before_comes_back_no_faster_than_it_is_taken():
    first = Driver(chain(Regime(Lazy(every=None))), epochs=300)
    first.go()
    standing = Standing.of(first.machine.durable.standing.facts())
    second = Driver(
        chain(Regime(Lazy(every=None))), standing, {"out": up_to(299)}, epochs=300, slow={"p"}, messages_ahead=5
    )
    assert len(second.machine.processors["p"].waiting["in>p"]) == 5
    second.slow.clear()
    second.go(until=lambda order: order.time == 299 if isinstance(order, do.Run) else False)
    assert len(second.machine.processors["p"].waiting["in>p"]) <= 5


def test_a_wake_that_overtakes_the_answer_is_not_lost():
    driver = Driver(chain(), epochs=2, ended=False)
    close = driver.go(until=lambda order: isinstance(order, do.Close) and order.time == 1)
    driver.hear(do.Wake("in"))
    driver.hear(do.Idle("in", close.life, 1))
    assert driver.of(do.Close)[-1].time == 1
    assert len([order for order in driver.of(do.Close) if order.time == 1]) == 2, "it is asked again"
    driver.hear(do.Idle("in", close.life, 0))  # an answer that came before, once more
    assert driver.machine.processors["in"].closing


def test_an_acknowledgement_that_may_have_been_lost_is_given_again():
    first = Driver(chain(Regime(Eager())), epochs=6, collect_after=1)
    first.go()
    standing = Standing.of(first.machine.durable.standing.facts())
    second = Driver(chain(Regime(Eager())), standing, {"out": up_to(5)}, epochs=6, collect_after=1)
    assert second.of(do.Acknowledge) == [do.Acknowledge("in", up_to(5))]


def test_inputs_are_acknowledged_and_garbage_is_dropped():
    driver = Driver(chain(Regime(Eager())), epochs=10, collect_after=1)
    driver.go()
    assert driver.of(do.Acknowledge)[-1] == do.Acknowledge("in", up_to(9))
    standing = driver.machine.durable.standing
    assert list(standing.states["p"]) == [(9,)], "the last state stays"
    assert list(standing.chosen["in"]) == [9], "the last positions stay: what comes next begins after them"
    assert not any(standing.sent.values())
    assert all(not sent for p in driver.machine.processors.values() for sent in p.sent.values())


# -- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [Ephemeral(), Batch(epochs=2)])
def test_a_policy_that_keeps_no_state_is_refused_where_there_is_some(policy):
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p keeps state, which .* cannot"):
        chain(Regime(policy))


def test_history_is_refused_where_choices_are_not_recorded():
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] p makes choices that are not recorded"):
        chain(Regime(History(), recorded=False), deterministic=False)
    chain(Regime(History(), recorded=False), deterministic=True)


def test_a_batch_without_an_end_of_epoch_is_refused():
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] the coarse epochs of p never end"):
        with_batch(epochs=None)


def test_coarse_epochs_that_are_not_recorded_are_refused():
    cuts = Cuts()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, coarse=True)]
    graph = RecoveryGraph(vertices, [Edge("in>p", "in", "p", Coarse(cuts))])
    with pytest.raises(InvalidError, match=r"\[BAD_POLICY\] where the coarse epochs of p end is not recorded"):
        Program(graph, {"p": Regime(Batch(epochs=2), recorded=False)}, cuts={"p": cuts})


def test_a_batch_over_what_are_no_epochs_is_refused():
    first, second = Cuts(), Cuts()
    vertices = [Vertex("in", Kind.SOURCE), *(Vertex(p, Kind.STATELESS, coarse=True) for p in "ab")]
    edges = [Edge("in>a", "in", "a", Coarse(first)), Edge("a>b", "a", "b", Then(Fine(first), Coarse(second)))]
    regimes = {p: Regime(Batch(epochs=2)) for p in "ab"}
    with pytest.raises(InvalidError, match=r"\[BAD_PROJECTION\] b counts epochs, but a sends at other times"):
        Program(RecoveryGraph(vertices, edges), regimes, cuts={"a": first, "b": second})


def test_a_program_without_the_records_of_its_choices_is_refused():
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATELESS, coarse=True)]
    with pytest.raises(InternalError, match="p lacks the record of its choices"):
        Program(RecoveryGraph(vertices, [Edge("in>p", "in", "p", Coarse(Cuts()))]), {"p": Regime(Batch(epochs=2))})


def test_facts_of_another_graph_are_refused():
    strangers = [Chosen("other", 0, None, 1), Sent("p>other", 0, "x"), State("other", (0,), "x")]
    strangers += [Collected({"other": (3,)}, {}, {}), Collected({}, {}, {"p>other": (3,)})]
    for fact in strangers:
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].*other"):
            Driver(chain(), Standing.of([fact]))
    for fact in (State("p", ((0, 1),), "x"), Chosen("in", ("a", 0), None, 1), Sent("p>out", (0, 1), "x")):
        with pytest.raises(DataError, match=r"\[PROGRAM_CHANGED\].* with such times"):
            Driver(chain(), Standing.of([fact]))


def test_a_sink_that_holds_what_nobody_can_repeat_is_refused():
    with pytest.raises(DataError, match=r"\[NO_CONSISTENT_FRONTIER\] sink out holds times 0…5"):
        Driver(chain(), held={"out": up_to(5)})


def test_one_that_diverges_is_told_with_both_digests():
    driver = Driver(chain(Regime(Lazy(every=None))), epochs=3, slow={"p"}, ended=False)
    driver.go()
    for n in range(3):
        driver.run(driver.kept.pop(), digest=f"first {n}")
        driver.go()
    assert [fact.digest for fact in driver.facts(Result)] == ["first 0", "first 1", "first 2"]
    driver.hear(do.Failed(frozenset({"p"})))
    driver.go()
    driver.run(driver.kept.pop(), digest="first 0")
    driver.go()
    with pytest.raises(DivergedError, match=r"\[DIVERGED\] p at time 1 gave digest second 1 on replay, but first 1 is"):
        driver.run(driver.kept.pop(), digest="second 1")


def test_one_that_diverges_while_its_state_is_rebuilt_is_told():
    driver = Driver(chain(Regime(History())), epochs=1, ended=False, slow={"p"})
    driver.go()
    driver.run(driver.kept.pop(), digest="first")
    driver.go()
    driver.hear(do.Failed(frozenset({"p"})))
    driver.go()
    assert driver.kept[0].again
    with pytest.raises(DivergedError, match=r"\[DIVERGED\] p at time 0 gave digest second on replay, but first is"):
        driver.run(driver.kept.pop(), digest="second")


@pytest.mark.parametrize("policy", [Lazy(every=1), Eager(), History()])
def test_what_keeps_no_state_has_none_to_save(policy):
    driver = Driver(chain(Regime(policy), kind=Kind.STATELESS))
    driver.go()
    assert driver.machine.finished
    assert not driver.facts(State) + driver.facts(Taken)


def test_positions_are_recorded_whatever_is_asked():
    program = chain()
    program = Program(program.graph, {**program.regimes, "in": Regime(recorded=False)})
    driver = Driver(program)
    driver.go()
    assert driver.machine.finished
    assert len(driver.facts(Chosen)) == 4


def test_an_answer_that_comes_twice_counts_once():
    driver = Driver(chain())
    first = driver.go(until=lambda order: isinstance(order, do.Place))
    driver.hear(do.Placed(first.sink, first.life, first.frontier))
    second = driver.go(until=lambda order: isinstance(order, do.Place))
    assert second.life == first.life
    driver.hear(do.Placed(first.sink, first.life, first.frontier))
    assert driver.machine.processors["out"].held == first.frontier


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


def test_an_internal_error_tells_the_last_transitions():
    driver = Driver(chain())
    driver.go()
    with pytest.raises(InternalError, match=r"p has life 1, not 7; the last transitions were:\n") as raised:
        driver.hear(do.Ran("p", 7, 0))
    assert "Place(sink='out'" in str(raised.value)
    driver = Driver(chain(), durable=False)
    driver.go(until=lambda order: isinstance(order, do.Run))
    driver.machine.processors["p"].done = up_to(3)
    with pytest.raises(InternalError, match=r"p runs a time again that it has done"):
        driver.hear(do.Failed(frozenset({"out"})))


def test_a_write_that_was_never_given_cannot_be_durable():
    driver = Driver(chain(), durable=False)
    driver.go()
    with pytest.raises(InternalError, match=r"write 99 cannot be durable"):
        driver.hear(do.Durable(99))
