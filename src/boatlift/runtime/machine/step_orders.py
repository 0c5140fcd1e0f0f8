"""Orders of steps: to execute, to prepare, or to rebuild a state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from typing import Any

from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.instructions import Execute, Message, Prepare, StepInput
from boatlift.runtime.machine.kinds.ordered import ArrivalOrdered
from boatlift.runtime.machine.kinds.processor import MachineProcessor, Step
from boatlift.runtime.machine.step_facts import messages_known
from boatlift.storage.records.facts import Determinant

AT_ONCE = 16
"""The most steps of one `Execute`: this limits the duration of a stop, and the cost of a failure."""


class StepOrders:
    """Forms `Execute` and `Prepare` out of steps.

    Args:
        durable: The recorded determinants and messages.
        steps_per_job: Returns how many of a processor's next steps, from the first on, are better executed as one job:
            1 or more.
    """

    def __init__(self, durable: DurableFacts, steps_per_job: Callable[[str, Sequence[StepInput]], int]) -> None:
        self._durable, self._steps_per_job = durable, steps_per_job

    def determinants(self, p: MachineProcessor) -> Mapping[Any, Determinant]:
        """Return a processor's recorded determinants."""
        return self._durable.records.determinants.get(p.name, {})

    def known(self, p: MachineProcessor, step: Step) -> dict[str, Any] | None:
        """Return the messages of a step, as `messages_known` does."""
        return messages_known(p, step, self._durable.records)

    def execute(self, p: MachineProcessor, step: Step, upcoming: Iterator[Step]) -> Execute:
        """Order a step, with some of the steps after it if that is better."""
        prepared, p.prepared = p.prepared, ()
        steps = prepared if prepared and prepared[0] == step else self._run_of(p, chain([step], upcoming))
        p.running.extend(steps)
        return Execute(p.name, p.incarnation, self._inputs(p, steps), p.state)

    def prepare(self, p: MachineProcessor) -> Prepare | None:
        """Announce the steps after those under way; None if none is known."""
        upcoming = p.upcoming(self.determinants(p), hasten=False)
        p.prepared = self._run_of(p, islice(upcoming, len(p.running), None))
        return Prepare(p.name, p.incarnation, self._inputs(p, p.prepared)) if p.prepared else None

    def rebuild(self, p: MachineProcessor) -> Execute:
        """Order the next step that rebuilds a state from logged inputs."""
        logged = p.rebuild[0]
        time: Any = logged.time
        place = p.order.event(time) if isinstance(p, ArrivalOrdered) else None
        p.running.append(Step(logged.time, (), time if place is None else place))
        inputs = tuple(Message(*message) for message in logged.messages)
        step = StepInput(logged.time, inputs, logged.outcome, place)
        return Execute(p.name, p.incarnation, (step,), p.state, again=True)

    def _run_of(self, p: MachineProcessor, upcoming: Iterator[Step]) -> tuple[Step, ...]:
        """Return the first of some steps, with the steps that are better executed with it."""
        steps = tuple(islice(takewhile(lambda step: self.known(p, step) is None, upcoming), AT_ONCE))
        return steps[: self._steps_per_job(p.name, self._inputs(p, steps))] if len(steps) > 1 else steps

    def _inputs(self, p: MachineProcessor, steps: Iterable[Step]) -> tuple[StepInput, ...]:
        return tuple(self._input(p, step) for step in steps)

    def _input(self, p: MachineProcessor, step: Step) -> StepInput:
        determinants = self.determinants(p).get(step.key)
        place = step.key if isinstance(p, ArrivalOrdered) else None
        return StepInput(step.time, step.inputs, None if determinants is None else determinants.outcome, place)
