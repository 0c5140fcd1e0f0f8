"""What a host reports to people and programs that watch it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from boatlift.dataflow import Plan
from boatlift.runtime.machine.progress import MachineProgress

__all__ = ["Progress", "beginnings", "left_behind"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One report.

    Attributes:
        what: `compile`, `recover`, `takeover`, `restore`, `replay`, `step`, `commit`, `checkpoint`, `failure`, `idle`,
            `listening`, `stopping`, `unreachable` or `reached` of a source; `take`: a source has closed an epoch; or
            `left`: the run was stopped, and steps wait at the processor for the next run.
        processor: The processor; of `compile`, `recover`, `stopping` and `takeover` the dataflow.
        time: The logical time; of a `replay` the last that is executed again.
        numInputRows, numOutputRows: Rows in and out of a step; of a `commit` the rows that the sink got, if known.
        durationMs: The duration of a step, in milliseconds.
        replay: The step repeats one that was executed before a crash.
        behind: How many closed times the processor has still to execute; of `idle`, how many steps some processor can
            execute without further input; of `replay`, how many steps are executed again; of `left`, how many wait.
        bytesBehind: The bytes of the rows that wait in scratch for the processor.
        newInputRows: The input rows that sources gave for the first time; each source counts at one of its readers.
        newInputOf: Those sources, as `orders` or `orders and returns`.
        said: Of a `takeover`: the process that owned the dataflow before, in words; of `unreachable`: the cause.
        where: Of `listening`: the URL.
    """

    what: str
    processor: str
    time: int
    numInputRows: int = 0  # noqa: N815 - Spark's own name
    numOutputRows: int = 0  # noqa: N815
    durationMs: float = 0.0  # noqa: N815
    replay: bool = False
    behind: int = 0
    bytesBehind: int = 0  # noqa: N815
    newInputRows: int = 0  # noqa: N815
    newInputOf: str = ""  # noqa: N815
    said: str = ""
    where: str = ""


def beginnings(plan: Plan, progress: MachineProgress, replayed: Mapping[str, int]) -> Iterator[Progress]:
    """Return a `restore` for each unit with a state, and a `replay` for each unit that is behind its recorded steps.

    Args:
        plan: The dataflow.
        progress: Where processors have recovered to.
        replayed: Unit to the last step that an earlier run executed; a unit that is left out replays nothing.
    """
    for name in plan.units:
        done = progress.done(name)
        if progress.has_state(name):
            yield Progress("restore", name, done)
        if (last := replayed.get(name, -1)) > done:
            yield Progress("replay", name, last, behind=last - done)


def left_behind(plan: Plan, progress: MachineProgress) -> Iterator[Progress]:
    """Return a `left` for each unit and sink at which steps wait when a run has ended.

    Only a stop leaves steps: a run that ends with its input executes them all, and ends the epochs of batches.

    Args:
        plan: The dataflow.
        progress: Where processors are.
    """
    for name in (*plan.units, *plan.sinks):
        if waiting := progress.behind(name):
            yield Progress("left", name, progress.done(name), behind=waiting, bytesBehind=progress.bytes_behind(name))
