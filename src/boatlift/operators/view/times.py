"""The event time of a view: the bounds of the units that it reads, by which rows of its state expire."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from boatlift.dataflow import Part
from boatlift.kernels.network.network import part_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.inputs import Inputs
from boatlift.state.expiry import ExpiryColumn
from boatlift.storage.records.payloads import RunsPayload, payload_of
from boatlift.views.view_job import PlacedNode

__all__ = ["ViewTimes"]


class ViewTimes:
    """The times that pass for the parts of a view's state.

    Args:
        unit: The unit.
        placed: Its nodes.

    Attributes:
        columns: Part to the column by which its rows expire.
    """

    def __init__(self, unit: CompiledUnit, placed: Sequence[PlacedNode]) -> None:
        expiries = {part_name(str(each.stage), part): found for each in placed for part, found in each.expiries.items()}
        self.columns: dict[str, ExpiryColumn] = {part: column for part, (column, _) in expiries.items()}
        self._bounds = {part: bound for part, (_, bound) in expiries.items()}
        body = unit.unit.body
        assert isinstance(body, Part)
        self._units = {
            each.operator.name if isinstance(each, Part) else each: (
                tuple(each.leaves()) if isinstance(each, Part) else (each,)
            )
            for each in body.inputs
        }

    @staticmethod
    def heard_before(state: Any) -> dict[str, int]:
        """Return the newest bound of each unit that a state records; none before the first step."""
        before = None if state is None else payload_of(state)
        assert before is None or isinstance(before, RunsPayload)
        return dict((None if before is None else before.heard) or {})

    def heard(self, take: StepInput, state: Any, inputs: Inputs) -> dict[str, int]:
        """Return the newest bound of each unit that was heard of up to a step; none if no row expires.

        Args:
            take: The step.
            state: The payload of the state before it.
            inputs: Knows the senders of messages.
        """
        if not self._bounds:
            return {}
        heard = self.heard_before(state)
        for message in take.inputs:
            sent = None if message.payload is None else payload_of(message.payload)
            if isinstance(sent, RunsPayload) and sent.bounds is not None:
                heard[inputs.sender(message)] = sent.bounds[1]
        return heard

    def passed(self, heard: Mapping[str, int]) -> dict[str, int]:
        """Return the time that has passed for each part whose rows expire; without those for which none has.

        Args:
            heard: The newest bound of each unit.
        """
        streams = {
            stream: min(heard[unit] for unit in units)
            for stream, units in self._units.items()
            if all(unit in heard for unit in units)
        }
        passed = {part: bound.at(streams) for part, bound in self._bounds.items()}
        return {part: time for part, time in passed.items() if time is not None}
