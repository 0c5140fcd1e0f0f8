"""The keyed state of a unit as the driver knows it: part by part, runs that are merged in the background."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from boatlift.decoders import packed_decoder
from boatlift.kernels.step_state import STATE
from boatlift.spark.jobs.diagnosis import explain
from boatlift.spark.jobs.jobs import Jobs
from boatlift.spark.jobs.passed_times import PassedTimes
from boatlift.spark.jobs.planner import RECEIPTS, power_of_two
from boatlift.spark.jobs.step_times import TimeOfStep
from boatlift.spark.tasks.keyed_task import LocatedRun, MergeTask
from boatlift.spark.tasks.sealed_errors import unsealing
from boatlift.state.codec import ValueCodec
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.table import StateTable
from boatlift.storage.records.payloads import RunsPayload, payload_of, to_json
from boatlift.storage.records.records import RunRef

MERGE_HERE_ROWS = 100_000
"""Runs with fewer rows than this in all are merged on the driver: a job would cost more than the merge."""

_MERGED = packed_decoder(RunRef | None)

HeldRuns = dict[str, list[RunRef]]
"""Part to its runs."""


def drop_expired(held: HeldRuns, passed: Mapping[str, int]) -> None:
    """Drop the runs of which no step needs a row any more: nothing is read for it.

    A state of before, to which a rollback may lead, still names them.

    Args:
        passed: Part to the time that has passed for it, if its rows expire.
    """
    for part, now in passed.items():
        held[part] = [run for run in held[part] if run.expires is None or run.expires > now]


class StateParts:
    """The states of one unit, part by part.

    Args:
        codecs: Part to the form of its rows.
        expiries: Part to the column by which its rows expire.
    """

    def __init__(
        self,
        name: str,
        jobs: Jobs,
        codecs: Mapping[str, ValueCodec[Any, Any]],
        expiries: Mapping[str, ExpiryColumn],
    ) -> None:
        self._name, self._jobs, self._expiries = name, jobs, expiries
        self._passed = PassedTimes()
        self._tables = {part: StateTable(partial(self._merged, part, codec)) for part, codec in codecs.items()}

    def held(self, state: Any) -> HeldRuns:
        """Return the runs of a state, with merged runs in the place of those that they replace.

        Args:
            state: The payload of the state; None before the first step.

        Raises:
            BoatliftError: the last merge of a part failed.
        """
        parts: Mapping[str, Sequence[RunRef]] = {}
        if state is not None:
            payload = payload_of(state)
            assert isinstance(payload, RunsPayload)
            runs = {run.name: run for run in payload.runs}
            tables = {STATE: (tuple(runs),)} if payload.tables is None else payload.tables
            parts = {part: [runs[name] for name in names] for part, (names,) in tables.items()}
        return {part: table.resolve(parts.get(part, ())) for part, table in self._tables.items()}

    def located(self, held: HeldRuns) -> dict[str, list[LocatedRun]]:
        """Return runs with the places of their files."""
        return {part: [(run, str(self._jobs.inputs.path(run))) for run in runs] for part, runs in held.items()}

    def payload(
        self,
        held: HeldRuns,
        passed: TimeOfStep | None = None,
        *,
        history: str | None = None,
        heard: dict[str, int] | None = None,
    ) -> Any:
        """Return the payload of a state.

        Args:
            passed: The time of its last step; None for a unit that sees no time.
            history: What identifies the input that it follows from; None if nobody asks.
            heard: The newest bound of event time of each unit; None if no row expires by it.
        """
        runs = tuple(run for part in held.values() for run in part)
        if set(held) <= {STATE} and passed is None:
            return to_json(RunsPayload(runs))
        tables: dict[str, tuple[tuple[str, ...], ...]]
        tables = {part: (tuple(run.name for run in runs),) for part, runs in held.items()}
        clock, bounds = (None, None) if passed is None else (passed.clock, passed.bounds)
        return to_json(RunsPayload(runs, clock=clock, tables=tables, bounds=bounds, history=history, heard=heard))

    def grown(self, held: HeldRuns, step: int, passed: Mapping[str, int]) -> None:
        """Record the newest state, and begin to merge where that pays.

        Args:
            passed: Part to the time that has passed for it after that step, if its rows expire.
        """
        if self._expiries:
            self._passed.record(step, passed)
        for part, runs in held.items():
            self._jobs.files.made(run.name for run in runs)  # a merged run is the state's once a step takes it up
            self._tables[part].grown(runs)

    def saved(self, runs: Iterable[RunRef]) -> None:
        """Take note that runs are durable: they may be merged freely."""
        saved = [run for run in runs if run.modulus]
        for table in self._tables.values():
            table.saved(saved)

    def holds(self) -> AbstractSet[str]:
        """Return the names of the runs of merges."""
        return frozenset().union(*(table.holds() for table in self._tables.values()))

    def forget(self, live: Collection[str]) -> None:
        """Forget merges in the place of runs that no state has any more."""
        for table in self._tables.values():
            table.forget(live)

    def close(self) -> None:
        """End merges."""
        for table in self._tables.values():
            table.close()

    def _merged(self, part: str, codec: ValueCodec[Any, Any], runs: Sequence[RunRef], *, oldest: bool) -> list[RunRef]:
        """Merge runs of one part: few rows here, many in tasks.

        Args:
            oldest: Whether no other run of the part is older.

        Raises:
            BoatliftError: a run cannot be read or written.
        """
        jobs, name = self._jobs, self._name
        here = sum(run.rows for run in runs) <= MERGE_HERE_ROWS
        tasks = 1 if here else power_of_two(jobs.spark.sparkContext.defaultParallelism)
        held = tuple((run, str(jobs.inputs.path(run))) for run in runs)
        expiry, last = self._expiries.get(part), max(run.last for run in runs)
        now = None if expiry is None else self._passed.after(last, part)
        scratch = str(jobs.planner.scratch)
        task = MergeTask(name, codec, jobs.planner.token, tasks, held, scratch, oldest, expiry, now)
        if tasks == 1:
            made = [task.run(0)]
        else:
            jobs.group.join(name)
            try:
                with unsealing(jobs.spark.sparkContext):
                    rows = jobs.spark.range(0, tasks, 1, tasks).mapInArrow(task, RECEIPTS).collect()
            except Exception as error:
                raise explain(error, name, last) from error
            made = [_MERGED.decode(bytes(row[0])) for row in rows]
        return [run for run in made if run is not None]
