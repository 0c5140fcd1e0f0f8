"""What a log means now: a pure fold over its records.

A `History` is to the log what a balance is to a bank statement. It knows no store: the log feeds it records in order,
recovery reads it, and `snapshot` turns it into the one record that can stand for all before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from boatlift.storage.records import (
    Checkpoint,
    Claim,
    Committed,
    Input,
    Output,
    Record,
    Snapshot,
    Stable,
    Stopped,
    Truncate,
)
from boatlift.storage.standing import Standing

__all__ = ["Advance", "History"]

Advance = Callable[[str, dict[str, Any] | None, dict[str, Any]], dict[str, Any]]
"""(source, cursor or None before the first, position) -> the cursor after that position."""

_T = TypeVar("_T")


@dataclass(slots=True)
class History:
    """The meaning of all records applied so far.

    Attributes:
        dataflow: The dataflow's name.
        program: The program's identity as the last claim had it; {} before the first.
        environment: The environment under which the recorded work was done. An owner's becomes this one with its
            first record after the claim (a claim alone does no work, and its owner may yet be refused), or at once if
            nothing was recorded before or the owner before it stopped in good order.
        cursors: Source to (time, cursor): what positions up to and including that time have taken.
        inputs: Source to time to determinants, after those cursors.
        outputs: Processor to time to what it made.
        checkpoints: Processor to time to durable state.
        stable: Processor to the last time that no failure can take back.
        committed: Sink to the last time it is known to hold.
        standing: The facts of processors in any time domain.
        stopped: Nothing was recorded since an owner stopped in good order.
        resumed: Nothing was but one claim: the claimant begins where all that was executed is kept.
    """

    dataflow: str = ""
    program: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    cursors: dict[str, tuple[int, dict[str, Any]]] = field(default_factory=dict)
    inputs: dict[str, dict[int, Input]] = field(default_factory=dict)
    outputs: dict[str, dict[int, Output]] = field(default_factory=dict)
    checkpoints: dict[str, dict[int, Checkpoint]] = field(default_factory=dict)
    stable: dict[str, int] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    standing: Standing = field(default_factory=Standing)
    stopped: bool = False
    resumed: bool = False
    _claimed: dict[str, Any] | None = None

    @classmethod
    def of(cls, records: Iterable[Record], dataflow: str = "") -> History:
        """Folds records in order."""
        history = cls(dataflow)
        for record in records:
            history.apply(record)
        return history

    def apply(self, record: Record) -> None:
        """Takes the next record in."""
        if isinstance(record, Claim):
            self._apply_claim(record)
            return
        if self._claimed is not None:
            self.environment, self._claimed = self._claimed, None
        self.stopped, self.resumed = isinstance(record, Stopped), False
        match record:
            case Input(source, time):
                self.inputs.setdefault(source, {})[time] = record
            case Output(processor, time):
                self.outputs.setdefault(processor, {})[time] = record
            case Checkpoint(processor, time):
                self.checkpoints.setdefault(processor, {})[time] = record
            case Committed(sink, time):
                self.committed[sink] = max(time, self.committed.get(sink, time))
            case Stable(frontiers):
                for processor, time in frontiers.items():
                    self.stable[processor] = max(time, self.stable.get(processor, time))
            case Truncate(frontiers):
                for processor, time in frontiers.items():
                    self._forget_after(processor, time)
            case Snapshot():
                self._become(record)
            case Stopped():
                pass
            case _:
                self.standing.apply(record)

    def snapshot(self, advance: Advance) -> Snapshot:
        """Gives the record that can stand for all before it, without what stable frontiers have made garbage.

        Inputs up to a source's stable frontier are folded into its cursor; outputs up to it are dropped; of the
        checkpoints up to it, only the last is kept, since no failure can reach below it (design, section 4,
        question 2).

        Args:
            advance: Gives a source's cursor after a position; pure.
        """
        cursors = dict(self.cursors)
        for source, inputs in self.inputs.items():
            time, cursor = cursors.get(source, (-1, None))
            for taken in sorted(t for t in inputs if t <= self._stable_at(source)):
                time, cursor = taken, advance(source, cursor, inputs[taken].position)
            if cursor is not None:
                cursors[source] = (time, cursor)
        return Snapshot(
            dataflow=self.dataflow,
            program=self.program,
            environment=self.environment if self._claimed is None else self._claimed,
            cursors=cursors,
            inputs=tuple(self._after_stable(self.inputs)),
            outputs=tuple(self._after_stable(self.outputs)),
            checkpoints=tuple(self._kept_checkpoints()),
            stable=dict(self.stable),
            committed=dict(self.committed),
            facts=tuple(self.standing.facts()),
        )

    def last_input(self, source: str) -> int:
        """Gives the last time that a source has closed, -1 if it has closed none."""
        return max(self.inputs.get(source, {}), default=self.cursors.get(source, (-1, {}))[0])

    def live_runs(self) -> set[str]:
        """Names all runs that a checkpoint which a rollback may still choose is made of.

        May be called while another thread applies records: it then gives what was live at some moment of the call.
        """
        return {
            run.name
            for checkpoints in list(self.checkpoints.values())
            for checkpoint in list(checkpoints.values())
            for run in checkpoint.runs
        }

    # -- parts --------------------------------------------------------------------------------------------------------

    def _apply_claim(self, claim: Claim) -> None:
        if not self.program or self.stopped:
            self.environment = claim.environment
            self._claimed = None
        else:
            self._claimed = claim.environment
        self.program = claim.program
        self.stopped, self.resumed = False, self.stopped

    def _become(self, snapshot: Snapshot) -> None:
        self.dataflow = snapshot.dataflow
        self.program, self.environment = snapshot.program, snapshot.environment
        self.cursors, self.stable = dict(snapshot.cursors), dict(snapshot.stable)
        self.committed = dict(snapshot.committed)
        self.standing = Standing.of(snapshot.facts)
        inputs: dict[str, dict[int, Input]] = {}
        for made in snapshot.inputs:
            inputs.setdefault(made.source, {})[made.time] = made
        outputs: dict[str, dict[int, Output]] = {}
        for output in snapshot.outputs:
            outputs.setdefault(output.processor, {})[output.time] = output
        checkpoints: dict[str, dict[int, Checkpoint]] = {}
        for checkpoint in snapshot.checkpoints:
            checkpoints.setdefault(checkpoint.processor, {})[checkpoint.time] = checkpoint
        self.inputs, self.outputs, self.checkpoints = inputs, outputs, checkpoints

    def _forget_after(self, processor: str, last: int) -> None:
        parts: tuple[dict[str, dict[int, Any]], ...] = (self.inputs, self.outputs, self.checkpoints)
        for part in parts:
            if processor in part:
                part[processor] = {time: fact for time, fact in part[processor].items() if time <= last}

    def _stable_at(self, processor: str) -> int:
        return self.stable.get(processor, -1)

    def _after_stable(self, part: dict[str, dict[int, _T]]) -> Iterable[_T]:
        for processor in sorted(part):
            for time in sorted(t for t in part[processor] if t > self._stable_at(processor)):
                yield part[processor][time]

    def _kept_checkpoints(self) -> Iterable[Checkpoint]:
        for processor in sorted(self.checkpoints):
            times = sorted(self.checkpoints[processor])
            passed = [time for time in times if time <= self._stable_at(processor)]
            for time in times:
                if not passed or time >= passed[-1]:
                    yield self.checkpoints[processor][time]
