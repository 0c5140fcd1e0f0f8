"""A dataflow that is killed in each of its replays still advances."""

from itertools import pairwise

import pytest

from boatlift.dataflow import Batch, Lazy
from boatlift.recovery import Edge, Kind, RecoveryGraph, Vertex
from boatlift.runtime.machine import Durability, Program, instructions
from boatlift.storage.records.facts import Checkpoint
from boatlift.storage.records.live import LiveRecords
from boatlift.times import Coarse, EpochBoundaries, Fine
from support.engine.machine_driver import Driver, chain

EVERY = 20
WRITES = instructions.Persist | instructions.AppendLog


class Recorded(Driver):
    """A driver whose steps have digests in the log, so that a later life knows which steps were executed before."""

    def run(self, order, **options):
        return super().run(order, digest="digest", **options)


class Life:
    """One process: it goes on from what the one before it has left, and is killed in the middle of a step.

    What its earlier steps have to write is durable by then.
    """

    def __init__(self, before, policy, *, most, epochs=60, program=chain):
        facts, self.held, self.steps = ([], {}, 0) if before is None else (before.facts, before.held, 0)
        standing = LiveRecords.of(facts)
        driver = Recorded(program(Durability(policy)), standing, self.held, epochs=epochs, ended=False)
        self.restored = max(driver.machine.processors["p"].done.maximal, default=-1)

        def killed(order):
            self.steps += isinstance(order, instructions.Execute) and order.processor == "p"
            return self.steps > most

        driver.go(until=killed)
        while writes := [order for order in driver.later if isinstance(order, WRITES)]:
            driver.later = [order for order in driver.later if not isinstance(order, WRITES)]
            for order in writes:
                driver.carry_out(order)
        self.held = {**self.held, **{sink: frontier for sink, frontier, _ in driver.placed}}
        self.facts = [*facts, *(fact for write in driver.of(instructions.AppendLog) for fact in write.facts)]
        self.checkpoints = [max(fact.frontier) for fact in driver.facts(Checkpoint)]


@pytest.mark.parametrize("policy", [Lazy(every=EVERY), Lazy(every=None, seconds=3600)])
@pytest.mark.parametrize("steps", [1, 2, 3, 7, 19])
def test_a_life_that_is_killed_in_its_replay_leaves_a_newer_checkpoint(steps, policy):
    life = Life(None, Lazy(every=None), most=40)  # forty steps are executed, and no state is durable
    reached = [life.restored]
    for _ in range(12):
        life = Life(life, policy, most=steps)
        reached.append(life.restored)
    assert reached[0] == reached[1] == -1
    for before, after in pairwise(reached[1:]):
        assert after > before or after >= 39, f"lives of {steps} steps restored {reached}"


def before_a_batch(durability):
    """in -> p -> batch -> out: the batch's epoch stays open, so that it pins p."""
    cuts = EpochBoundaries()
    vertices = [Vertex("in", Kind.SOURCE), Vertex("p", Kind.STATEFUL)]
    vertices += [Vertex("batch", Kind.STATELESS, coarse=True), Vertex("out", Kind.SINK)]
    edges = [Edge("in>p", "in", "p"), Edge("p>batch", "p", "batch", Coarse(cuts))]
    edges.append(Edge("batch>out", "batch", "out", Fine(cuts)))
    durabilities = {"p": durability, "batch": Durability(Batch(epochs=1000))}
    return Program(RecoveryGraph(vertices, edges), durabilities, cuts={"batch": cuts})


@pytest.mark.parametrize("steps", [3, 7, 19, 23, 24])
def test_a_life_before_an_open_epoch_leaves_a_newer_checkpoint_too(steps):
    life = Life(None, Lazy(every=EVERY), most=45, program=before_a_batch)
    reached = [life.restored]
    for _ in range(8):
        life = Life(life, Lazy(every=EVERY), most=steps, program=before_a_batch, epochs=500)
        reached.append(life.restored)
    for before, after in zip(reached[1:], reached[3:], strict=False):
        assert after > before, f"lives of {steps} steps restored {reached}"


def test_a_replay_costs_few_checkpoints_more():
    life = Life(None, Lazy(every=None), most=40)
    again = Life(life, Lazy(every=EVERY), most=1000)
    assert again.checkpoints == [0, 1, 3, 7, 15, 31, 51], "after 1, 2, 4, 8, 16 and 32 steps, then every 20th"


def test_steps_that_are_executed_for_the_first_time_have_no_further_checkpoints():
    assert Life(None, Lazy(every=EVERY), most=1000).checkpoints == [19, 39, 59]


def test_a_policy_without_checkpoints_has_none_in_a_replay():
    life = Life(None, Lazy(every=None), most=40)
    assert Life(life, Lazy(every=None), most=1000).checkpoints == []
