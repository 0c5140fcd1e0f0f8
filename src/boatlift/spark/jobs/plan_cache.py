"""Cached plans: made once for a unit, and run for each of its small steps.

Spark takes as long to plan a step as to run a small one. Small steps differ only in the job parameters if these can
name the input rows (`ToldRows`), and if the unit's functions use no value of a step.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame

from boatlift.dataflow import FrameOfTask
from boatlift.dataflow.columns import quoted
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.long_running import LONG_RUNNING_BYTES
from boatlift.spark.jobs.members import needs_own_jobs
from boatlift.spark.jobs.planner import ArrowTask, LastStage, StepPlan
from boatlift.spark.jobs.told_rows import Sent, ToldInputs, ToldRows
from boatlift.spark.plans.catalyst import has_one_stage

logger = logging.getLogger(__name__)

MOST_PLANS = 64
"""The number of cached plans of a unit; a unit that reads many others may take rows of other ones at each step."""


@dataclass(frozen=True, slots=True)
class SmallStep:
    """A small step, for the frame that a plan is made of.

    Attributes:
        rows: The rows of the sources and units that have some.
        channels: The channels of the step's earlier jobs that have rows; None: any may have some.
        frame_of: Returns the rows of a task, such as `ChannelTask`, with given columns.
    """

    rows: Mapping[str, DataFrame]
    channels: frozenset[str] | None
    frame_of: FrameOfTask


Small = Callable[[SmallStep, LastStage | None], DataFrame | None]
"""Makes the planned frame of a job of a small step; None if the job has no rows.

It takes the last stage of the frame; None: the usual one. If any channel may have rows, it returns a frame, or raises
`NotRowByRowError` if the job cannot share a plan with other units.
"""


class PlanCache:
    """The cached plans of one unit, for each job of a step, and for each set of senders and channels.

    Args:
        unit: A unit whose plan has no values of a step.
        small: Makes the frame of each job of a step.
        in_rounds: The same for the jobs of a step in the long-running job, if these are others.
    """

    def __init__(
        self, unit: CompiledUnit, jobs: Jobs, small: Sequence[Small], in_rounds: Sequence[Small] | None = None
    ) -> None:
        self._unit, self._inputs, self._planner, self._small = unit, jobs.inputs, jobs.planner, small
        self._background = jobs.background
        self._goes_round_alike = in_rounds is None
        self._told = ToldRows(unit, jobs.inputs)
        self._frames: dict[tuple[int, frozenset[str], frozenset[str], bool], DataFrame | None] = {}
        self._planned_anew: set[tuple[int, frozenset[str]]] = set()
        self._making = threading.Lock()
        self._begins = partial(jobs.group.join, unit.name)
        self._job = None if needs_own_jobs(unit, jobs.plan) else jobs.long_running
        self._in_round = [
            None if self._job is None else self._job.add(unit.name, partial(self._long_running_frame, each))
            for each in (small if in_rounds is None else in_rounds)
        ]

    def named(self, sent: Sent, weight: int) -> ToldInputs | None:
        """Return the input parameters that name the rows of a step, the same for all of its jobs.

        It is called once for each step.

        Args:
            sent: The step's messages.
            weight: The approximate bytes of its input.

        Returns:
            None if no cached plan serves the step, so that its plans hold the rows.
        """
        if not self.fits(weight):
            return None
        if all((job, frozenset(sent)) in self._planned_anew for job in range(len(self._small))):
            return None
        with self._making:  # a source makes its frame once
            told = self._told.of(sent)
        return None if told is None else replace(told, small=_goes_round(weight))

    def make_ahead(self, sent: Sent, weight: int, channels: Sequence[frozenset[str]]) -> None:
        """Make the plans of later steps while this one, which has plans of its own, runs; return at once.

        Later steps are expected to have rows of the same senders, and to be about as large. An error is raised where a
        later step makes the plan again.

        Args:
            sent: This step's messages.
            weight: The approximate bytes of its input.
            channels: The channels that earlier jobs of a step may leave, for each of its jobs.
        """
        if self._planner.fits_one_task(weight) and self._told.can_name(sent):
            for job, there in enumerate(channels):
                make = partial(self._kept, job, frozenset(sent), there, small=_goes_round(weight))
                self._background.submit(make).add_done_callback(_note_failure)

    def fits(self, weight: int) -> bool:
        """Return whether one task is enough for a step; for a larger one the long-running job makes room.

        Args:
            weight: The approximate bytes of its input.
        """
        fits = self._planner.fits_one_task(weight)
        if not fits and self._job is not None:
            self._job.make_room()
        return fits

    def frames(self, named: ToldInputs) -> Mapping[str, DataFrame]:
        """Return the frames of the rows that parameters name."""
        return self._told.frames(named.senders)

    def of(
        self,
        number: int,
        named: ToldInputs,
        *,
        job: int = 0,
        channels: frozenset[str] = frozenset(),
        state: bool,
    ) -> StepPlan | None:
        """Return the cached plan of a job of a step; None if Spark cannot run such a plan a second time.

        Args:
            number: The step's number.
            named: Its parameters.
            job: The number of the job within the step.
            channels: The channels of the step's earlier jobs that have rows.
            state: Whether the tasks read runs of the state, or channels.
        """
        if (job, named.senders) in self._planned_anew:
            return None
        frame = self._kept(job, named.senders, channels, small=named.small)
        if (job, named.senders) in self._planned_anew:
            return None
        parameters = self._planner.parameters(number, named.sources, state=state or bool(named.channels))
        in_round = self._in_round[job] if named.small and self._goes_round_alike else None
        return StepPlan(frame, parameters, channels=named.channels, long_running=in_round, begins=self._begins)

    def in_round(self, number: int, job: int, named: ToldInputs | None = None) -> StepPlan:
        """Return the plan of a job of a step that only a round of the long-running job executes.

        Args:
            number: The step's number.
            job: The job's number.
            named: The input of the step, if the job reads it.
        """
        sources, channels = (b"", {}) if named is None else (named.sources, named.channels)
        parameters = self._planner.parameters(number, sources, state=True)
        return StepPlan(None, parameters, channels=channels, long_running=self._in_round[job])

    def forget(self) -> None:
        """Drop all plans after a failed run, because Spark keeps some failures with a plan."""
        with self._making:
            self._frames.clear()

    def _kept(self, job: int, names: frozenset[str], channels: frozenset[str], *, small: bool) -> DataFrame | None:
        """Return the plan of a job for steps of these senders and channels; None if it has no rows.

        The plan of a step with many rows reads no column that the query leaves out.
        """
        key = (job, names, channels, small)
        with self._making:
            if key not in self._frames:
                if len(self._frames) == MOST_PLANS:
                    self._frames.clear()
                rows = self._told.frames(names)
                if not small:
                    unread = self._small[job](SmallStep(rows, channels, self._told.in_one_task), _its_columns)
                    rows = rows if unread is None else self._told.narrowed(names, unread)
                made = self._small[job](SmallStep(rows, channels, self._told.in_one_task), None)
                if made is not None and not has_one_stage(made):
                    self._planned_anew.add((job, names))
                    return None
                self._frames[key] = made
            return self._frames[key]

    def _long_running_frame(self, small: Small, frame_of: FrameOfTask, last_stage: LastStage) -> DataFrame:
        rows = {leaf: self._told.over(leaf, frame_of) for leaf in self._unit.leaves}
        frame = small(SmallStep(rows, None, frame_of), last_stage)
        assert frame is not None
        return frame


def _note_failure(made: Future[DataFrame | None]) -> None:
    if not made.cancelled() and (error := made.exception()) is not None:
        logger.debug("a plan could not be made ahead: %r", error)


def _goes_round(weight: int) -> bool:
    return weight <= LONG_RUNNING_BYTES


def _its_columns(frame: DataFrame, columns: Sequence[str], task: ArrowTask) -> DataFrame:
    """A last stage that is not planned: the rows that a job's task gets."""
    del task
    return frame.select(*map(quoted, columns))
