"""Several times as one run; facts that name what is not durable yet."""

import pytest

from boatlift.dataflow import Batch, Eager, Ephemeral, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, events, instructions
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedMessage
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.engine.machine_driver import Driver, chain, up_to


def all_of_them(_processor, takes):
    return len(takes)


class TestTogether:
    def test_times_that_wait_are_one_run_and_each_has_its_answer(self):
        driver = Driver(chain(Durability(Lazy(every=2))), slow={"p"}, steps_per_job=all_of_them)
        driver.go()
        first = driver.kept.pop()
        assert [take.time for take in first.takes] == [0], "there was only one when it began"
        (prepared,) = driver.of(instructions.Prepare)
        assert [take.time for take in prepared.takes] == [1], "what came while it ran was got ready at once"
        driver.run(first)
        driver.go()
        driver.run(driver.kept.pop())
        driver.go()
        assert [take.time for take in driver.kept[0].takes] == [2, 3]
        assert driver.of(instructions.Prepare)[-1].takes == driver.kept[0].takes
        driver.slow.clear()
        driver.run(driver.kept.pop())
        driver.go()
        assert driver.machine.finished
        assert [time for _, _, steps in driver.placed for time, _ in steps] == [0, 1, 2, 3]
        assert [state.frontier for state in driver.facts(Checkpoint)] == [(1,), (3,)], (
            "checkpoints are where they would be"
        )

    def test_what_a_run_did_not_come_to_is_ordered_again(self):
        driver = Driver(chain(Durability(Lazy(every=2))), slow={"p"}, steps_per_job=all_of_them)
        driver.go()
        driver.run(driver.kept.pop())
        driver.go()
        driver.run(driver.kept.pop())
        driver.go()
        order = driver.kept.pop()
        driver.hear(events.StepDone("p", order.incarnation, 2, None, {"p>out": "p@2"}, "state", over=True))
        driver.go()
        assert [take.time for take in driver.kept[0].takes] == [3]
        assert driver.kept[0].state == "state"

    def test_a_processor_that_fails_within_a_run_keeps_its_answers_only_if_they_are_durable(self):
        driver = Driver(chain(Durability(Lazy(every=None))), slow={"p"}, steps_per_job=all_of_them)
        driver.go()
        driver.run(driver.kept.pop())
        driver.go()
        driver.run(driver.kept.pop())
        driver.go()
        (order,) = driver.kept
        driver.hear(events.StepDone("p", order.incarnation, 2, None, {"p>out": "p@2"}, "state"))
        driver.go()
        driver.hear(events.ProcessorsFailed(frozenset({"p"})))
        assert driver.machine.processors["p"].done == up_to(-1)
        driver.hear(events.StepDone("p", order.incarnation, 3, None, {"p>out": "p@3"}, "state"))
        assert driver.machine.processors["p"].done == up_to(-1), "answers to an earlier incarnation are void"


class TestKeep:
    def driver(self, durability, **options):
        driver = Driver(chain(durability, **options), ended=False)
        self.keeps = []
        carry_out = driver.carry_out
        driver.carry_out = lambda order: (
            self.keeps.append(order) if isinstance(order, instructions.Persist) else carry_out(order)
        )
        driver.go()
        return driver

    def test_a_state_is_named_only_once_it_is_durable(self):
        driver = self.driver(Durability(Lazy(every=2)))
        assert not driver.facts(Checkpoint)
        assert [frontier.last for _, frontier, _ in driver.placed][-1] == 3, "nobody's determinants wait for it"
        driver.hear(events.Persisted(self.keeps[0].number))
        assert [state.frontier for state in driver.facts(Checkpoint)] == [(1,)]

    def test_what_a_processor_names_becomes_durable_in_order(self):
        driver = self.driver(Durability(Lazy(every=2)))
        first, second = self.keeps
        driver.hear(events.Persisted(second.number))
        assert not driver.facts(Checkpoint), "the one before it is not durable yet"
        driver.hear(events.Persisted(first.number))
        assert [state.frontier for state in driver.facts(Checkpoint)] == [(1,), (3,)]

    def test_what_was_being_kept_is_lost_with_its_processor(self):
        driver = self.driver(Durability(Lazy(every=2)))
        lost = [keep.number for keep in self.keeps]
        driver.hear(events.ProcessorsFailed(frozenset({"p"})))
        for number in lost:
            driver.hear(events.Persisted(number))
        assert not driver.facts(Checkpoint)

    def test_messages_too(self):
        driver = self.driver(Durability(Eager(), recorded=False), kind=Kind.STATELESS, deterministic=False)
        assert self.keeps[0].payloads == ("p@0",)
        assert not driver.facts(LoggedMessage)
        driver.hear(events.Persisted(self.keeps[0].number))
        assert [(sent.time, sent.message) for sent in driver.facts(LoggedMessage)] == [(0, "p@0")]

    def test_a_run_that_makes_nothing_durable_keeps_nothing(self):
        self.driver(Durability(Ephemeral()), kind=Kind.STATELESS)
        assert not self.keeps


class TestStop:
    def test_what_was_taken_is_finished_and_nothing_new_is(self):
        driver = Driver(chain(Durability(Lazy(every=100))), epochs=1000, slow={"p"}, ended=False, messages_ahead=3)
        driver.go()
        driver.hear(events.StopRequested())
        closed = len(driver.of(instructions.PollSource))
        driver.slow.clear()
        driver.run(driver.kept.pop())
        driver.go()
        assert driver.machine.finished
        assert len(driver.of(instructions.PollSource)) == closed
        last = driver.placed[-1][1]
        assert [state.frontier for state in driver.facts(Checkpoint)] == [(last.last,)], (
            "nothing is left to be executed again"
        )
        again = Driver(
            chain(Durability(Lazy(every=100))), LiveRecords.of(driver.machine.durable.records.facts()), {"out": last}
        )
        closed = max(fact.time for fact in driver.facts(Determinant) if fact.processor == "in")
        assert again.machine.processors["in"].done == up_to(closed), "what was closed and not taken is there"
        assert again.of(instructions.Execute)[0].time == last.last + 1, "and nothing is executed again"

    def test_messages_that_wait_for_their_reader_are_not_executed_again(self):
        """`a` is ahead of `b`, and `p` needs both."""
        vertices = [Vertex("in", Kind.SOURCE), *(Vertex(name, Kind.STATELESS) for name in "abp")]
        edges = [Edge(f"in>{name}", "in", name) for name in "ab"] + [Edge(f"{name}>p", name, "p") for name in "ab"]
        graph = RecoveryGraph([*vertices, Vertex("out", Kind.SINK)], [*edges, Edge("p>out", "p", "out")])
        driver = Driver(Program(graph), epochs=1000, slow={"b"}, ended=False, messages_ahead=9)
        driver.go()
        driver.hear(events.StopRequested())
        driver.slow.clear()
        driver.run(driver.kept.pop())
        driver.go()
        assert driver.machine.finished
        ahead = [order.time for order in driver.of(instructions.Execute) if order.processor == "a"]
        assert ahead[-1] > 1
        held = {"out": driver.placed[-1][1]}
        again = Driver(Program(graph), LiveRecords.of(driver.machine.durable.records.facts()), held, epochs=1000)
        again.go(until=lambda order: isinstance(order, instructions.PollSource) and order.time > ahead[-1] + 1)
        assert {order.time for order in again.of(instructions.Execute) if order.processor == "a"}.isdisjoint(ahead)
        assert next(order.time for order in again.of(instructions.Execute) if order.processor == "b") == 1

    @pytest.mark.parametrize("kind", [Kind.STATELESS, Kind.STATEFUL])
    def test_messages_that_wait_for_a_batch_are_not_executed_again_whatever_sent_them(self, kind):
        first, second = EpochBoundaries(), EpochBoundaries()
        vertices = [Vertex("in", Kind.SOURCE), Vertex("g", Kind.STATELESS, False, coarse=True), Vertex("t", kind)]
        vertices += [
            Vertex("p", Kind.STATELESS, False, coarse=True),
            Vertex("seen", Kind.SINK),
            Vertex("out", Kind.SINK),
        ]
        edges = [Edge("in>g", "in", "g", Coarse(first)), Edge("g>t", "g", "t", Fine(first))]
        edges += [
            Edge("t>p", "t", "p", Coarse(second)),
            Edge("t>seen", "t", "seen"),
            Edge("p>out", "p", "out", Fine(second)),
        ]
        waits = Durability(Batch(epochs=1000), recorded=False)
        durabilities = {"g": Durability(Batch(epochs=2), recorded=False), "p": waits}
        durabilities |= {"t": Durability(Lazy(every=100))} if kind is Kind.STATEFUL else {}

        def program():
            first.cut(0)
            second.cut(0)
            return Program(RecoveryGraph(vertices, edges), durabilities, cuts={"g": first, "p": second})

        driver = Driver(program(), epochs=8, ended=False)
        driver.go()
        driver.hear(events.StopRequested())
        driver.go()
        assert driver.machine.finished
        assert len(driver.machine.processors["p"].waiting["t>p"]) == 4
        held = {"seen": driver.machine.processors["seen"].held, "out": up_to(-1)}
        again = Driver(program(), LiveRecords.of(driver.machine.durable.records.facts()), held, epochs=8, ended=False)
        again.go()
        assert not again.of(instructions.Execute)
        assert len(again.machine.processors["p"].waiting["t>p"]) == 4

    def test_what_was_closed_is_taken_too_if_it_is_to_be(self):
        driver = Driver(chain(Durability(Lazy(every=100))), epochs=1000, slow={"p"}, ended=False, messages_ahead=3)
        driver.go()
        driver.hear(events.StopRequested(drain=True))
        driver.slow.clear()
        driver.run(driver.kept.pop())
        driver.go()
        assert driver.machine.finished
        closed = max(fact.time for fact in driver.facts(Determinant) if fact.processor == "in")
        assert driver.placed[-1][1] == up_to(closed)

    def test_what_is_not_deterministic_leaves_before_the_end(self):
        program = chain(Durability(Lazy(every=100), recorded=False), deterministic=False)
        driver = Driver(program, epochs=3, ended=False)
        driver.go(until=lambda order: isinstance(order, instructions.Execute) and order.time == 1)
        driver.hear(events.StopRequested())
        driver.later.insert(0, driver.of(instructions.Execute)[-1])
        driver.go()
        assert driver.machine.finished
        assert driver.placed[-1][1] == driver.machine.processors["p"].done

    def test_a_stop_that_finds_nothing_to_do_finishes_at_once(self):
        driver = Driver(chain(Durability(Lazy(every=2))), ended=False)
        driver.go()
        assert not driver.machine.finished
        driver.hear(events.StopRequested())
        driver.go()
        assert driver.machine.finished
