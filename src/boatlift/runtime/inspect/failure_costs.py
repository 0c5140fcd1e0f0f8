"""The cost of each failure under a program's policies, before the program runs. Pure.

The solver is asked about a dataflow that has run for a while. Every processor has executed its input, and every sink
holds all that it may hold. It is the worst moment: each checkpoint is as old as its policy allows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from boatlift.dataflow import Batch, Eager, Ephemeral, History, Lazy, Policy, batch_of
from boatlift.recovery import Edge, Kind, Monitor
from boatlift.runtime.machine import Program
from boatlift.runtime.machine.steps import intervals_of
from boatlift.times import AnyFrontier, EpochBoundaries, Frontier, GatheredBoundaries

LONG = 3  # the dataflow has run for so many of the longest intervals between checkpoints
AT_LEAST = 24  # the dataflow has run for at least so many steps
STEPS_OF_EPOCH = 8  # the assumed steps of an epoch, or up to a checkpoint, by the clock or by a condition

Costs = Mapping[str, Mapping[str, int]]
"""The processor that fails (`everything`: all) to the number of steps that each processor executes again, if any."""


def costs_of(program: Program) -> Costs:
    """Return the cost of each failure."""
    aged = _AgedProgram(program)
    workers = [n for n, v in program.graph.vertices.items() if v.kind in (Kind.STATELESS, Kind.STATEFUL)]
    failures = {name: frozenset({name}) for name in workers} | {"everything": frozenset(program.graph.vertices)}
    return {name: aged.again(failed) for name, failed in failures.items()}


def needless_policies(
    program_with: Callable[[Mapping[str, Policy]], Program], policies: Mapping[str, Policy]
) -> dict[str, Policy]:
    """Return the policies that save nothing: under a cheaper one, every failure costs the same."""
    program = program_with(policies)
    costs, vertices = costs_of(program), program.graph.vertices
    needless: dict[str, Policy] = {}
    for name, policy in policies.items():
        cheaper: Policy = Lazy(every=None) if vertices[name].kind is Kind.STATEFUL else Ephemeral()
        if policy in (cheaper, Ephemeral()) or vertices[name].coarse:
            continue
        chooses = vertices[name].chooses and not isinstance(policy, History)
        if vertices[name].kind is Kind.STATELESS and chooses:
            continue  # no other policy is possible: its rows cannot be repeated
        other = program_with({**policies, name: cheaper})
        # A source may keep rows for this policy alone. Without them no processor executes more, but clients push again.
        if _keeping_no_rows(other) == _keeping_no_rows(program) and costs_of(other) == costs:
            needless[name] = cheaper
    return needless


def _keeping_no_rows(program: Program) -> set[str]:
    return {name for name, vertex in program.graph.vertices.items() if vertex.keeps_no_rows}


def _steps_of(policy: Batch) -> int:
    return max(policy.epochs or 1, STEPS_OF_EPOCH if policy.seconds > 0 or policy.asks_rows else 1)


def _interval_of(policy: Lazy) -> int | None:
    """Return the steps from one checkpoint to the next; an assumed number if no number of steps is given."""
    return STEPS_OF_EPOCH if policy.every is None and policy.has_checkpoints else policy.every


class _AgedProgram:
    """A monitor's knowledge of a program that has run for a while."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._monitor = Monitor(program.graph, program.orders)
        self._steps: dict[str, int] = {}
        self._intervals = intervals_of(program)
        policies = [durability.policy for durability in program.durabilities.values()]
        every = [interval for p in policies if isinstance(p, Lazy) and (interval := _interval_of(p)) is not None]
        every += [_steps_of(batch) for policy in policies if (batch := batch_of(policy))]
        self._length = max(AT_LEAST, LONG * max(every, default=0))
        for name in program.graph.order:
            self._grow(name)
        for name in program.graph.order:
            if program.graph.vertices[name].kind is Kind.SINK:  # commit all that it may hold by then
                prefixes = [Frontier.up_to(step) for step in range(self._steps[name])]
                if (held := self._monitor.releasable(name, prefixes)) is not None:
                    self._monitor.committed(name, held)
        for name in reversed(program.graph.order):  # readers first: what they need follows from their own messages
            self._keep_in_flight(name)

    def again(self, failed: frozenset[str]) -> dict[str, int]:
        """Return how many steps each processor executes again; those that execute none are left out."""
        plan = self._monitor.plan(failed)
        counts = {}
        for name, part in plan.processors.items():
            if part.kind in (Kind.STATELESS, Kind.STATEFUL) and not part.stays:
                counts[name] = self._steps[name] - self._reached(name, part.restore)
        return {name: count for name, count in counts.items() if count > 0}

    def _reached(self, name: str, frontier: AnyFrontier) -> int:
        order = self._program.orders.get(name)
        if order is not None:
            return order.within(frontier)
        return min(max((int(time) for time in frontier.maximal), default=-1) + 1, self._steps[name])

    def _grow(self, name: str) -> None:
        graph, monitor = self._program.graph, self._monitor
        vertex, durability = graph.vertices[name], self._program.durability(name)
        inputs = graph.inputs[name]
        if name in self._program.orders:
            self._grow_by_arrival(name, inputs)
        elif isinstance(cuts := self._program.cuts.get(name), GatheredBoundaries):
            self._grow_gathered(name, cuts, inputs)
        elif cuts is not None:
            self._grow_batch(name, cuts, self._steps[inputs[0].source])
        elif vertex.kind is Kind.SOURCE:
            self._steps[name] = self._length
        else:
            arrivals = ([edge.projection.arrives(time) for time in self._times(edge.source)] for edge in inputs)
            self._steps[name] = min(1 + max((int(t) for t in each if t is not None), default=-1) for each in arrivals)
        if vertex.kind is Kind.SINK:
            return
        monitor.completed(name, self._frontier(name, self._steps[name]))
        if vertex.chooses and (durability.recorded or vertex.divides):
            for number in range(self._steps[name]):
                monitor.durable_determinants(name, number)
        for edge in graph.outputs[name]:
            for time in self._times(name):
                monitor.sent(edge.name, time)
                if self._program.logs(edge):
                    monitor.durable_message(edge.name, time)
        for steps in self._checkpoints(durability.policy, self._steps[name]) if vertex.kind is Kind.STATEFUL else ():
            frontier = self._frontier(name, steps)
            monitor.durable_checkpoint(name, frontier)
            for edge in graph.outputs[name] if durability.with_state else ():
                for time in filter(frontier.contains, self._times(name)):
                    monitor.durable_message(edge.name, time)

    def _keep_in_flight(self, name: str) -> None:
        """Make durable the messages that the last checkpoint of a processor keeps, as `kept_in_flight` does."""
        durability = self._program.durability(name)
        checkpoints = self._checkpoints(durability.policy, self._steps[name]) if durability.in_flight else []
        for edge in self._program.graph.outputs[name] if checkpoints else ():
            last, needless = self._frontier(name, checkpoints[-1]), self._monitor.needless(edge.name)
            kept = [time for time in self._times(name) if last.contains(time) and not needless.contains(time)]
            interval = _interval_of(durability.policy) if isinstance(durability.policy, Lazy) else None
            pace = max(interval or 0, self._intervals[edge.name])
            for time in kept if durability.in_flight is True or len(kept) > pace else ():
                self._monitor.durable_message(edge.name, time)

    @staticmethod
    def _checkpoints(policy: Policy, steps: int) -> list[int]:
        """Return after how many steps there are checkpoints, the last one as old as possible."""
        match policy:
            case Lazy() if (every := _interval_of(policy)) is not None:
                return sorted(range(steps - every, 0, -every))
            case Eager() | History():
                return list(range(1, steps + 1))
            case _:
                return []

    def _grow_by_arrival(self, name: str, inputs: tuple[Edge, ...]) -> None:
        order = self._program.orders[name]
        left = {edge.name: self._steps[edge.source] for edge in inputs}
        total, longest = sum(left.values()), max(left.values())
        for turn in range(longest):
            for edge, count in left.items():
                # Each edge is taken as often as its sender sends, evenly.
                if (turn + 1) * count // longest > turn * count // longest:
                    order.take(edge)
        self._steps[name] = total

    def _grow_batch(self, name: str, cuts: EpochBoundaries, epochs: int) -> None:
        each = _steps_of(self._program.durability(name).batch or Batch())
        for end in range(each - 1, epochs, each):
            cuts.add(end)
        self._steps[name] = len(cuts)

    def _grow_gathered(self, name: str, cuts: GatheredBoundaries, inputs: tuple[Edge, ...]) -> None:
        """Let each epoch take one step of each input."""
        last = {edge.name: self._steps[edge.source] - 1 for edge in inputs}
        for turn in range(max(last.values()) + 1):
            cuts.add(tuple((edge, min(turn, end)) for edge, end in last.items()))
        self._steps[name] = len(cuts)

    def _times(self, name: str) -> list[object]:
        order = self._program.orders.get(name)
        return [number if order is None else order.at(number) for number in range(self._steps[name])]

    def _frontier(self, name: str, steps: int) -> AnyFrontier:
        order = self._program.orders.get(name)
        return Frontier.up_to(steps - 1) if order is None else order.prefix(steps)
