"""The steps of a view: the jobs of its query, over the arrangements of earlier steps."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import pyarrow as pa

from boatlift.dataflow import OperatorTree
from boatlift.kernels.loop.node import LoopNode
from boatlift.kernels.network.network import part_name
from boatlift.operators.view.frames import TriedInputs
from boatlift.operators.view.plans import ViewPlans, ViewStep
from boatlift.operators.view.unfinished import UnfinishedIterations, history_of
from boatlift.runtime.engine import StepResult
from boatlift.runtime.machine.instructions import StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.diagnosis import is_of_an_expression
from boatlift.spark.jobs.jobs import Jobs, clock_of
from boatlift.spark.jobs.state_parts import StateParts, drop_expired
from boatlift.spark.jobs.steps import Steps
from boatlift.spark.jobs.watermarks import InputWatermarks
from boatlift.state.expiry import ExpiryColumn
from boatlift.storage.records.payloads import NO_WATERMARK, RunsPayload, payload_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import removed
from boatlift.tasks.stage import TaskReceipt
from boatlift.views.catalyst_plan import CatalystPlan
from boatlift.views.query import Query
from boatlift.views.view_job import PlacedNode, ViewJob


class ViewTimes:
    """The event time of a view: the watermarks of the streams that it reads, by which rows of its state expire.

    Args:
        unit: The unit.
        placed: Its kernel nodes.
        watermarks: Those of the unit's input.

    Attributes:
        columns: Part to the column by which its rows expire.
    """

    def __init__(self, unit: CompiledUnit, placed: Sequence[PlacedNode], watermarks: InputWatermarks) -> None:
        expiries = {part_name(str(each.stage), part): found for each in placed for part, found in each.expiries.items()}
        self.columns: dict[str, ExpiryColumn] = {part: column for part, (column, _) in expiries.items()}
        self._bounds = {part: bound for part, (_, bound) in expiries.items()}
        body = unit.unit.body
        assert isinstance(body, OperatorTree)
        self._watermarks = watermarks
        self._paths = {
            each.operator.name if isinstance(each, OperatorTree) else each: watermarks.behind(
                set(each.leaves()) if isinstance(each, OperatorTree) else {each}
            )
            for each in body.inputs
        }

    @staticmethod
    def watermarks_before(state: Any) -> dict[str, int]:
        """Return the newest watermark of each path that a state records; none before the first step."""
        before = None if state is None else payload_of(state)
        assert before is None or isinstance(before, RunsPayload)
        heard = (None if before is None else before.heard) or {}
        return {path: watermark for path, watermark in heard.items() if watermark != NO_WATERMARK}

    def input_watermarks(self, take: StepInput, state: Any) -> dict[str, int]:
        """Return the newest watermark of each path up to a step; none if no row expires.

        Args:
            take: The step.
            state: The payload of the state before it.
        """
        if not self._bounds:
            return {}
        heard = self._watermarks.heard(self.watermarks_before(state), self._watermarks.of(take.inputs))
        return {path: watermark for path, watermark in heard.items() if watermark != NO_WATERMARK}

    def recorded(self, watermarks: Mapping[str, int]) -> dict[str, int] | None:
        """Return the newest watermark of each path as a state records it; None if no row expires."""
        paths = self._watermarks.paths if self._bounds else ()
        return {path: watermarks.get(path, NO_WATERMARK) for path in paths} or None

    def passed(self, watermarks: Mapping[str, int]) -> dict[str, int]:
        """Return the time that has passed for each part whose rows expire, if any has.

        Args:
            watermarks: The newest watermark of each path.
        """
        streams = {
            stream: min(watermarks[path] for path in paths)
            for stream, paths in self._paths.items()
            if paths and all(path in watermarks for path in paths)
        }
        passed = {part: bound.at(streams) for part, bound in self._bounds.items()}
        return {part: time for part, time in passed.items() if time is not None}


class ViewSteps(Steps):
    """Steps of a view, each over the arrangements of the step before.

    Args:
        unit: The unit.
        jobs: The dataflow's jobs.
        query: The stages.
        view_jobs: The jobs of a step that is one task's work.
        nodes: Makes Catalyst nodes.
        result: The schema of the view's rows.
    """

    def __init__(
        self,
        unit: CompiledUnit,
        jobs: Jobs,
        query: Query,
        view_jobs: Sequence[ViewJob],
        nodes: CatalystPlan,
        result: pa.Schema,
    ) -> None:
        self._unit, self._jobs = unit, jobs
        self._plans = ViewPlans(unit, jobs, query, view_jobs, nodes, result)
        self._together = list(view_jobs)
        self._apart = [each for job in view_jobs for each in job.apart()]
        placed = [each for job in view_jobs for each in job.nodes]
        codecs = {part_name(str(each.stage), part): codec for each in placed for part, codec in each.node.parts.items()}
        self._times = ViewTimes(unit, placed, jobs.watermarks[unit.name])
        self._state = StateParts(unit.name, jobs, codecs, self._times.columns, jobs.planner.memory_of(unit))
        self._loops = any(isinstance(each.node, LoopNode) for each in placed)
        versions = [version(each) for each in ("boatlift", "pyspark", "pyarrow", "numpy")]
        fingerprint = None if unit.top is None else unit.top.fingerprint
        self._program = json.dumps([fingerprint, *versions])
        self._unfinished = UnfinishedIterations(jobs.planner.scratch, unit.name, jobs.planner.token)

    def run(self, take: StepInput, state: Any) -> StepResult:
        return self._jobs.explained(self._unit, take, partial(self._run, take, state))

    def _run(self, take: StepInput, state: Any) -> StepResult:
        began, jobs, unit = time.perf_counter(), self._jobs, self._unit
        jobs.check(unit.name, take)
        jobs.inputs.verify_recorded((take,))
        sent = jobs.inputs.sent(take)
        weight = jobs.inputs.weight(sent)
        rows = cache(lambda reader=None: jobs.inputs.rows(jobs.spark, unit, take, reader)[0])
        first = state is None
        named = self._plans.named(sent, weight, first=first)
        divided = named is None and not jobs.planner.fits_one_task(weight)  # slots come and go: asked once
        step = ViewStep(take.number, weight, divided, clock_of(take), self._state.held(state), first, rows, named)
        step.passed = self._times.passed(self._times.watermarks_before(state))
        if self._loops:
            step.history = history_of(take, None if state is None else state.get("history"), sent, self._program)
            step.iterations = str(self._unfinished.of(take.number, step.history))
        receipts: list[TaskReceipt] = []
        rows_in = 0
        try:
            for job in self._apart if divided else self._together:
                receipts = self._job(job, step)
                rows_in += sum(receipt.rows_in for receipt in receipts) if job.reads_streams else 0
            jobs.inputs.verify(unit.name, (take,))
        except BaseException:
            self._plans.forget()
            raise
        finally:
            removed(jobs.inputs.path(run) for runs in step.channels.values() for run in runs)
        watermarks = self._times.input_watermarks(take, state)
        passed = self._times.passed(watermarks)
        drop_expired(step.held, passed)
        kept = self._state.payload(step.held, history=step.history, heard=self._times.recorded(watermarks))
        made = jobs.result(unit, take, receipts, kept, time.perf_counter() - began)
        if step.history is not None:
            self._unfinished.done(take.number, step.history)
        self._state.grown(step.held, take.number, passed)
        return replace(made, rows_in=rows_in)

    def _job(self, job: ViewJob, step: ViewStep) -> list[TaskReceipt]:
        """Run a job of a step, and record its runs and channel files in the step; return its receipts.

        An expression may fail for a row that comes and goes within the step, or for a pair of joined rows of which one
        goes as the other comes: no result has such a row. So a failed job runs again without them. If it fails again,
        columns of rows beside an empty side of a join are NULL where they fail.
        """
        try:
            return self._executed(job, step)
        except Exception as error:
            if not is_of_an_expression(error):
                raise
        self._plans.forget()
        try:
            return self._executed(job, step, net=True)
        except Exception as error:
            tried = self._plans.tried(job, step) if is_of_an_expression(error) else None
            if not tried:
                raise
        return self._executed(job, step, net=True, tried=tried)

    def _executed(
        self, job: ViewJob, step: ViewStep, *, net: bool = False, tried: TriedInputs | None = None
    ) -> list[TaskReceipt]:
        plan = self._plans.of(job, step, net=net, tried=tried or {})
        stages = {str(each.stage) for each in job.nodes}
        held = self._state.located({name: runs for name, runs in step.held.items() if name.partition("/")[0] in stages})
        channels = {name: list(self._plans.files(runs)) for name, runs in step.channels.items()}
        (receipts,) = plan.run(held, channels, first=step.first, iterations=step.iterations, passed=step.passed)
        step.left(receipts)
        return receipts

    def saved(self, runs: Iterable[RunRef]) -> None:
        self._state.saved(runs)

    def holds(self) -> AbstractSet[str]:
        return self._state.holds()

    def forget(self, live: Collection[str]) -> None:
        self._state.forget(live)

    def close(self) -> None:
        self._state.close()
