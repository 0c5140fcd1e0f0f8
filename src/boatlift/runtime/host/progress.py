"""Progress of a run, for the people and programs that watch it, and the steps that earlier runs recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from boatlift.dataflow import Plan, Reading, Timing
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import StepInput
from boatlift.runtime.machine.progress import MachineProgress
from boatlift.storage.records.history import LogHistory
from boatlift.times import last_epoch

MOST_READ = 64


@dataclass(frozen=True, slots=True)
class Progress:
    """One report.

    Attributes:
        what: `compile`, `recover`, `standby`, `suspect`, `takeover`, `evolve`; `kept`: a restore point was;
            `corrected`: a sink has the step that a changed program gives it; `adopt`, `restore` or `replay`: where a
            unit begins; `step`, `commit`, `checkpoint`, `failure`, `stuck`, `beat` and `over` of the event loop;
            `idle`, `listening`, `stopping`, `unreachable` or `reached` of a source; `take`: a source has closed an
            epoch; or `left`: the run was stopped, and steps wait at the processor for the next run.
        processor: The processor; of `compile`, `evolve`, `kept`, `recover`, `standby`, `stopping`, `suspect` and
            `takeover` the dataflow.
        time: The logical time; of a `replay` the last that is executed again.
        numInputRows, numOutputRows: Rows in and out of a step; of a `commit` the rows that the sink got, if known.
        durationMs: The duration of a step or a commit, in milliseconds; of `stuck` the time without progress.
        replay: The step repeats one that was executed before a failure, of the process or of the unit alone.
        behind: How many closed times the processor has still to execute; of `idle`, how many steps some processor can
            execute without further input; of `replay`, how many steps are executed again; of `left`, how many wait.
        bytesBehind: The bytes of the rows that wait in scratch for the processor.
        newInputRows: The rows that the step took from sources for the first time; each source counts at one reader.
        newInputOf: Those sources, as `orders` or `orders and returns`.
        reads: Of a step: the steps whose messages it took, each as sender and number, the newest `MOST_READ` of them. A
            message of a sender whose steps have no number of their own is left out.
        tasks: Of a step: the tasks that executed it; 0 if the engine needed none.
        said: In words. Of a `standby`: what it does; of a `suspect`: why the owner is taken for dead; of a `takeover`:
            the process that owned the dataflow before; of `evolve` and `corrected`: what is done; of `unreachable` and
            `failure`: the cause; of `stuck`: the tasks that make no progress, each with job and machine.
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
    reads: tuple[tuple[str, int], ...] = ()
    tasks: int = 0
    said: str = ""
    where: str = ""


def beginnings(
    plan: Plan, progress: MachineProgress, replayed: Mapping[str, int], adopted: Collection[str]
) -> Iterator[Progress]:
    """Return where each unit begins.

    That is an `adopt` or a `restore` for each unit with a state, and a `replay` for each unit that is behind its
    recorded steps.

    Args:
        replayed: Unit to the last step that an earlier run executed; a unit that is left out replays nothing.
        adopted: The units whose memory was adopted.
    """
    for name in plan.units:
        done = progress.done(name)
        if name in adopted and done >= 0:
            yield Progress("adopt", name, done)
        elif progress.has_state(name):
            yield Progress("restore", name, done)
        if (last := replayed.get(name, -1)) > done:
            yield Progress("replay", name, last, behind=last - done)


def left_behind(plan: Plan, progress: MachineProgress) -> Iterator[Progress]:
    """Return a `left` for each unit and sink at which steps wait when a run has ended.

    Only a stop leaves steps: a run that ends with its input executes them all, and ends the epochs of batches.
    """
    for name in (*plan.units, *plan.sinks):
        if waiting := progress.behind(name):
            yield Progress("left", name, progress.done(name), behind=waiting, bytesBehind=progress.bytes_behind(name))


def recorded_steps(plan: Plan, closed: Mapping[str, int], history: LogHistory) -> dict[str, int]:
    """Return, for each source and unit, the last of its steps that was recorded, -1 for none."""
    recorded = dict(closed)
    sent = dict(closed)  # in the times of the receivers: of a batch, the input epochs with which its epochs ended
    for name, unit in plan.units.items():
        if unit.chooses_inputs:
            determinants = history.live_records.determinants.get(name, {})
            recorded[name] = sent[name] = last_epoch(determinants)
            if unit.timing is Timing.BATCH and determinants:
                end = determinants[recorded[name]].taken
                sent[name] = end if isinstance(end, int) else 0
        else:
            recorded[name] = sent[name] = min(sent[root] for root in unit.reads)
    return recorded


def readings(plan: Plan, history: LogHistory) -> dict[tuple[str, int], Reading]:
    """Return the number and the digest of the rows of sources' steps, where they are recorded."""
    results = history.live_records.results
    return {
        (name, time): Reading(result.rows, result.digest)
        for name in plan.sources
        for time, result in results.get(name, {}).items()
        if isinstance(time, int)
    }


class RecordedSteps:
    """The steps that were recorded before this run, and a count of the rows that sources give for the first time.

    Each source counts at one of its readers, at that reader's new steps: not at a second reader, nor after a failure.

    Attributes:
        replayed: Unit to the last step that an earlier run executed; empty after a clean stop, which leaves no step
            executed beyond a checkpoint.
    """

    def __init__(self, plan: Plan, recorded: Mapping[str, int], history: LogHistory) -> None:
        executed = {name: min(last, history.last_executed(name)) for name, last in recorded.items()}
        self.replayed = {} if history.resumed else executed
        self._furthest = dict(self.replayed)
        self._counted = {name: recorded[name] for name in plan.units}
        self._sources: dict[str, str] = {}  # by the edge at which each counts
        for source in plan.sources:
            # Steps of such a reader have rows of sources alone, or one message, and it takes no row twice. A gathered
            # step that has others, too, does not count.
            readers = [
                unit
                for unit in plan.units.values()
                if source in unit.reads and not unit.rereads_source
                if unit.timing in (Timing.ARRIVAL, Timing.GATHERED) or all(name in plan.sources for name in unit.reads)
            ]
            if readers:  # a union of sources before others: of its input only the sum is known
                self._sources[edge_name(source, max(readers, key=lambda unit: len(unit.reads)).name)] = source

    def executed(self, unit: str, number: int) -> bool:
        """Note that a unit has executed a step; return whether it repeats one, of an earlier run or of this one."""
        again = number <= self._furthest.get(unit, -1)
        if not again:
            self._furthest[unit] = number
        return again

    def new_rows(self, unit: str, step: StepInput, rows: int) -> tuple[int, str]:
        """Return how many input rows of a step are of sources, and new; and the names of these sources.

        Args:
            rows: The number of its input rows. They count as a source's if all messages of the step are.
        """
        if step.number <= self._counted[unit]:
            return 0, ""
        self._counted[unit] = step.number
        sources = {message.edge: self._sources.get(message.edge) for message in step.inputs}.values()
        named = [source for source in sources if source is not None]
        return (rows, " and ".join(named)) if named and len(named) == len(sources) else (0, "")
