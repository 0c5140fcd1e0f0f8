"""The input rows of steps: rows of a source's positions, and runs that another unit has logged for its readers."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from boatlift.dataflow import DigestsOnRead, Json, ParameterizedRead, Plan, Reading, Rescannable, Source
from boatlift.dataflow.columns import ORDINAL
from boatlift.errors import DataError, InvalidError
from boatlift.runtime.graph import edge_name
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.set_aside import SetAside, fitting
from boatlift.storage.records.payloads import SourcePayload, payload_of, runs_of
from boatlift.storage.records.records import RunRef
from boatlift.storage.remote_files import fetched, removed
from boatlift.storage.store import Store
from boatlift.tasks.parameters import guarded
from boatlift.tasks.state_memory import StateMemory


class Inputs:
    """Reads the input rows of steps.

    Args:
        scratch: The folder of the tasks' files.
        slots: Returns the number of tasks that run at the same time now.
        recorded: Source to the last time that was closed before this process began: its input must be proved unchanged.
        set_aside: The bad rows, which no step takes.
        memory: The states in memory; None if there are none.
    """

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        units: Mapping[str, CompiledUnit],
        store: Store,
        scratch: Path,
        slots: Callable[[], int],
        recorded: Mapping[str, int],
        readings: Readings,
        set_aside: SetAside,
        memory: StateMemory | None = None,
    ) -> None:
        self.spark, self._plan, self._units = spark, plan, units
        self._store, self._scratch, self._recorded = store, scratch, recorded
        self._senders = {edge_name(sender, name): sender for name, unit in plan.units.items() for sender in unit.reads}
        self._slots = slots
        self._readings = readings
        self._set_aside, self._memory = set_aside, memory

    def path(self, run: RunRef) -> Path:
        """Return the file of a run: the one that a task left in memory or in scratch, else the object in the store."""
        if self._memory is not None and (held := self._memory.file(run)).exists():
            return held
        here = os.path.join(self._scratch, run.name.rpartition("/")[2])  # noqa: PTH118 - for each run at each step
        if os.path.exists(here):  # noqa: PTH110
            return Path(here)
        kept = self._store.local_path(run.name)
        if kept is None:
            raise InvalidError("BAD_OPTION", "runs are mapped into memory: use a store whose objects are local files")
        return kept

    def source_of(self, unit: CompiledUnit) -> Source | None:
        """Return the source of a unit whose only input is one source; else None."""
        (first, *others) = unit.leaves
        return None if others or first not in self._plan.sources else self._plan.sources[first].source

    def position_of(self, take: StepInput) -> Json:
        """Return the position of a step whose input is one message of a source."""
        (message,) = take.inputs
        return _position(message)

    def taken(self, take: StepInput) -> list[tuple[str, int, Json]]:
        """Return source, step and position of each message of a source in a step's input."""
        return [(source, message.time, _position(message)) for source, message in self._from_sources((take,))]

    def positions(self, take: StepInput) -> list[tuple[Source, Json]]:
        """Return the source positions that a step reads."""
        return [
            (self._plan.sources[source].source, _position(message)) for source, message in self._from_sources((take,))
        ]

    def rows(
        self, spark: SparkSession, unit: CompiledUnit, take: StepInput, reader: str | None = None
    ) -> tuple[dict[str, DataFrame], int]:
        """Return the input rows of a step by source or unit, and their approximate size in bytes.

        Args:
            reader: The name under which `verify` compares the readings; by default the unit's.
        """
        sent = self.sent(take)
        frames = {name: self._rows_of(spark, name, messages, reader or unit.name) for name, messages in sent.items()}
        return frames, self.weight(sent)

    def sent(self, take: StepInput) -> dict[str, list[Message]]:
        """Return the messages of a step's input by sender, which is a source or a unit."""
        sent: dict[str, list[Message]] = {}
        for message in take.inputs:
            sent.setdefault(self.sender(message), []).append(message)
        return sent

    def weight(self, sent: Mapping[str, Sequence[Message]]) -> int:
        """Return the approximate size of messages in bytes."""
        return sum(self._size_of(sender, message) for sender, messages in sent.items() for message in messages)

    def _size_of(self, sender: str, message: Message) -> int:
        if sender in self._plan.sources:
            return self._plan.sources[sender].source.size_bytes(_position(message))
        return sum(run.size for run in runs_of(message.payload))

    def _rows_of(self, spark: SparkSession, sender: str, messages: Sequence[Message], reader: str) -> DataFrame:
        if sender in self._plan.sources:
            return self._rows_of_source(spark, sender, messages, reader)
        files = self.files_of(messages)
        slots = spark.range(0, max(1, len(files)), 1, max(1, min(len(files), self._slots())))
        return slots.mapInArrow(ReadTask(reader, files), self._units[sender].columns.weighted_schema)

    def files_of(self, messages: Iterable[Message]) -> tuple[str, ...]:
        """Return the files that hold the rows of a unit's messages."""
        return tuple(str(self.path(run)) for message in messages for run in runs_of(message.payload))

    def _rows_of_source(self, spark: SparkSession, name: str, messages: Sequence[Message], reader: str) -> DataFrame:
        source, made = self._reader(name, messages)
        if source.capabilities.digests_on_read is not None:
            return self._digested(spark, name, messages, reader, ordinals=False)
        positions = [_position(message) for message in messages]
        if len(positions) > 1 and (many := source.capabilities.reads_many_steps) is not None:
            return made(many.load_together(spark, positions).drop(ORDINAL))
        return made(reduce(DataFrame.unionAll, [source.load(spark, position) for position in positions]))

    def _reader(self, name: str, messages: Sequence[Message]) -> tuple[Source, Callable[[DataFrame], DataFrame]]:
        """Return the source that reads messages, and the function that turns its rows into input rows."""
        sorting = self._set_aside.reader(name, (message.time for message in messages))
        return (self._plan.sources[name].source, lambda rows: rows) if sorting is None else (sorting, fitting)

    def rows_together(self, spark: SparkSession, unit: CompiledUnit, takes: Sequence[StepInput]) -> DataFrame:
        """Return the input rows of several steps of a unit that reads one source, with `_ordinal`."""
        (leaf,) = unit.leaves
        messages = [message for take in takes for message in take.inputs]
        source, made = self._reader(leaf, messages)
        if source.capabilities.digests_on_read is not None:
            return self._digested(spark, leaf, messages, unit.name, ordinals=True)
        many = source.capabilities.reads_many_steps
        assert many is not None
        return made(many.load_together(spark, [self.position_of(take) for take in takes]))

    def _digested(
        self, spark: SparkSession, name: str, messages: Sequence[Message], reader: str, *, ordinals: bool
    ) -> DataFrame:
        source, made = self._reader(name, messages)
        digests = source.capabilities.digests_on_read
        assert digests is not None
        positions = [_position(message) for message in messages]
        folders = [self._readings.folder(reader, name, message.time) for message in messages]
        return made(digests.load_digested(spark, positions, folders, ordinals=ordinals))

    def is_source(self, sender: str) -> bool:
        """Return whether a sender is a source rather than a unit."""
        return sender in self._plan.sources

    def parameterized(self, source: str) -> ParameterizedRead | None:
        """Return how job parameters name the rows of a source; None if they cannot."""
        return self._plan.sources[source].source.capabilities.parameterized_read

    def parameters_for(self, reader: str, source: str, message: Message) -> bytes | None:
        """Return the parameters of the one task that reads a message; None if more tasks should read it.

        A message with bad rows that are set aside has no parameters, because a cached plan reads all rows.

        Args:
            reader: As for `verify`.
        """
        if self._set_aside.reader(source, (message.time,)) is not None:
            return None
        capabilities = self._plan.sources[source].source.capabilities
        assert capabilities.parameterized_read is not None
        digested = capabilities.digests_on_read is not None
        folder = self._readings.folder(reader, source, message.time) if digested else ""
        return capabilities.parameterized_read.parameters_for(_position(message), folder)

    def everything(self, spark: SparkSession, unit: CompiledUnit, cursor: Json) -> dict[str, DataFrame]:
        """Return all rows of a unit's source up to a cursor.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        (leaf,) = unit.leaves
        source = self._rescannable(unit)
        source.verify_everything(cursor)
        return {leaf: source.load_everything(spark, cursor)}

    def verify_everything(self, unit: CompiledUnit, cursor: Json) -> None:
        """Prove, after a job, that the job read all rows up to a cursor.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        self._rescannable(unit).verify_everything(cursor)

    def _rescannable(self, unit: CompiledUnit) -> Rescannable:
        source = self.source_of(unit)
        assert source is not None
        assert source.capabilities.rescannable is not None
        return source.capabilities.rescannable

    def verify_recorded(self, takes: Sequence[StepInput]) -> None:
        """Prove that the input of recorded steps has not changed.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        for source, message in self._from_sources(takes):
            if message.time <= self._recorded[source]:
                self._plan.sources[source].source.verify(_position(message))

    def verify(self, reader: str, takes: Sequence[StepInput]) -> None:
        """Prove, after a job, that the job read the rows of the recorded positions.

        A file that is unchanged after the job had its recorded bytes while Spark read it.

        Raises:
            DataError: `[INPUT_CHANGED]`, `[INPUT_MISSING]`.
        """
        for name, message in self._from_sources(takes):
            source = self._plan.sources[name].source
            source.verify(_position(message))
            if (digests := source.capabilities.digests_on_read) is not None:
                self._readings.compare(reader, name, message.time, digests)

    def _from_sources(self, takes: Sequence[StepInput]) -> Iterator[tuple[str, Message]]:
        for message in (message for take in takes for message in take.inputs):
            if (sender := self.sender(message)) in self._plan.sources:
                yield sender, message

    def sender(self, message: Message) -> str:
        """Return the source or unit that sent a message."""
        return self._senders[message.edge]


def _position(message: Message) -> dict[str, Any]:
    payload = payload_of(message.payload)
    assert isinstance(payload, SourcePayload)
    return payload.position


EDGE = ""
"""The outlet for the units that read a unit; no sink has this name."""


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Reads files of `staging.ArrowStager`: each number in the task's input stands for the file of that number.

    The number of the task's partition has no meaning, because Spark may merge or prepend partitions.

    Attributes:
        unit: The unit that reads, for messages.
    """

    unit: str
    files: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from guarded(self.unit, partial(self.run, number))

    def run(self, number: int) -> list[pa.RecordBatch]:
        """Return the rows of a file; none if there is no file of this number."""
        if number >= len(self.files):
            return []
        reader = pa.ipc.open_file(pa.memory_map(fetched(self.files[number])))
        return [reader.get_batch(each) for each in range(reader.num_record_batches)]


class Readings:
    """Compares the rows that tasks read at a position with those that were first read there.

    Sources that digest on read write their readings to folders in scratch.

    Args:
        known: Source and step to the reading that was recorded before this process began.
    """

    def __init__(self, scratch: Path, known: Mapping[tuple[str, int], Reading]) -> None:
        self._scratch = scratch
        self._known = dict(known)
        self._folders: dict[tuple[str, str, int], Path] = {}
        self._new: list[tuple[str, int, Reading]] = []
        self._changing = threading.Lock()

    def folder(self, reader: str, source: str, time: int) -> str:
        """Return a new folder for a plan; the readings of the reader's earlier plan are ignored from now on."""
        folder = self._scratch / f"read-{uuid.uuid4().hex}"
        with self._changing:
            self._folders[reader, source, time] = folder
        return str(folder)

    def compare(self, reader: str, source: str, time: int, counts: DigestsOnRead) -> None:
        """Compare the reading of a plan's tasks, after its job.

        Raises:
            DataError: `[INPUT_CHANGED]` an earlier reading had other rows.
        """
        with self._changing:
            folder = self._folders.pop((reader, source, time), None)
        if folder is None:
            return
        found = counts.reading(str(folder))
        removed(list(folder.iterdir()) if folder.exists() else ())
        shutil.rmtree(folder, ignore_errors=True)  # scratch is deleted with its owner
        if found is None:
            return
        with self._changing:
            known = self._known.setdefault((source, time), found)
            if known is found:
                self._new.append((source, time, found))
        if known != found:
            raise DataError(
                "INPUT_CHANGED",
                f"step {time} of {source} had {known.rows} rows with digest {known.digest} when it was first read, "
                f"and has {found.rows} with digest {found.digest} now: rows were deleted or compacted meanwhile; "
                "restore them, or keep them longer than a recovery may need",
            )

    def take_new(self) -> list[tuple[str, int, Reading]]:
        """Return the first readings since the last call."""
        with self._changing:
            new, self._new = self._new, []
        return new

    def forget(self, source: str, time: int) -> None:
        """Forget the reading of a step that no recovery reads again."""
        with self._changing:
            self._known.pop((source, time), None)
