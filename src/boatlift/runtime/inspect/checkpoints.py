"""The checkpoints that a rollback can choose from."""

from __future__ import annotations

import msgspec

from boatlift.storage.log import Log
from boatlift.storage.records.payloads import runs_of
from boatlift.storage.records.records import RunRef
from boatlift.times import Maximal, last_number

__all__ = ["CheckpointReport", "checkpoints_of"]


class CheckpointReport(msgspec.Struct, frozen=True):
    """A checkpoint: the state of a processor at a frontier.

    Attributes:
        processor: The processor.
        frontier: The frontier, by its maximal times.
        runs: The runs that hold the state.
        step: The last step of the frontier, -1 for none.
        files: The number of different files that hold them.
        rows: The rows of all runs.
        bytes: The bytes of all runs.
        new_bytes: The bytes of the runs that the processor's checkpoint before it does not name.
    """

    processor: str
    frontier: Maximal
    runs: list[RunRef]
    step: int
    files: int
    rows: int
    bytes: int
    new_bytes: int


def checkpoints_of(log: Log) -> list[CheckpointReport]:
    """Return the live checkpoints, by processor, oldest first."""
    reports = []
    for states in log.history.live_records.states.values():
        before: frozenset[str] = frozenset()
        for state in states.values():
            runs = list(runs_of(state.payload))
            sizes = {run.name: run.size for run in runs}
            report = CheckpointReport(
                processor=state.processor,
                frontier=state.frontier,
                runs=runs,
                step=last_number(state.frontier),
                files=len(sizes),
                rows=sum(run.rows for run in runs),
                bytes=sum(sizes.values()),
                new_bytes=sum(size for name, size in sizes.items() if name not in before),
            )
            reports.append(report)
            before = frozenset(sizes)
    return reports
