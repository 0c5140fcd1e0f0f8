"""Input rows named by job parameters, so that one cached plan serves many steps."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from boatlift.dataflow import FrameOfTask
from boatlift.dataflow.columns import POSITION, quoted
from boatlift.runtime.machine.instructions import Message
from boatlift.spark.compile.unit import CompiledUnit
from boatlift.spark.jobs.inputs import Inputs
from boatlift.spark.jobs.planner import ArrowTask
from boatlift.spark.plans.catalyst import needed_columns, one_row, plan_of
from boatlift.tasks.channels import ChannelTask
from boatlift.tasks.parameters import ReadsToldSource, told_sources

MOST_PARAMETERS = 1 << 16
"""The largest size of parameters in bytes; they reach the task in the driver's messages."""

Sent = Mapping[str, Sequence[Message]]
"""The messages of a step's input, by sender: a source or a unit."""


@dataclass(frozen=True, slots=True)
class ToldInputs:
    """The input rows of a step, as job parameters name them.

    Attributes:
        senders: The sources and units with a message.
        sources: The positions of the sources (`told_sources`), in the job parameters.
        channels: The files of each unit that is read, by channel, in the job's input file.
        small: Whether the step is small enough for the long-running job.
    """

    senders: frozenset[str]
    sources: bytes
    channels: Mapping[str, Sequence[str]]
    small: bool = False


class ToldRows:
    """Names the input rows of small steps by job parameters."""

    def __init__(self, unit: CompiledUnit, inputs: Inputs) -> None:
        self._unit, self._inputs = unit, inputs
        self._narrowable: set[str] = set()
        self._frames: dict[str, DataFrame] = {}

    def frames(self, names: Iterable[str]) -> Mapping[str, DataFrame]:
        """Return one frame for the rows of each sender; its task reads the rows that the parameters name."""
        return {name: self._frame(name) for name in names}

    def narrowed(self, names: Iterable[str], job: DataFrame) -> Mapping[str, DataFrame]:
        """Return the frames of these senders for a job; their tasks read no column that it does not need, if they can.

        Args:
            job: The job's rows, made of `frames(names)`.
        """
        every = dict(self.frames(names))
        reader = ReadsToldSource.__name__
        if reader not in str(plan_of(job).toString()):
            return every  # such as a later job of a step
        for name in self._narrowable & every.keys():
            columns = needed_columns(job, reader, every[name].columns)
            if columns == {POSITION}:  # a task has no rows without a column of the source's own
                columns |= {*every[name].columns[:1]}
            every[name] = self.over(name, self.in_one_task, columns)
        return every

    def of(self, sent: Sent) -> ToldInputs | None:
        """Return the parameters that name these rows; None if the plan must hold some of them.

        It is called once for each step, because a source may choose a folder for its readings.
        """
        if not self.can_name(sent):
            return None
        positions: dict[str, bytes] = {}
        for name in filter(self._inputs.is_source, sent):
            self._frame(name)  # law of `ParameterizedRead`
            position = self._inputs.parameters_for(self._unit.name, name, sent[name][0])
            if position is None:
                return None
            positions[name] = position
        sources = told_sources(positions)
        if len(sources) > MOST_PARAMETERS:
            return None
        units = (name for name in sent if name not in positions)
        channels = {_channel_of(unit): self._inputs.files_of(sent[unit]) for unit in units}
        return ToldInputs(frozenset(sent), sources, channels)

    def can_name(self, sent: Sent) -> bool:
        """Return whether parameters can name rows like these; those of a step may still be too many."""
        sources = filter(self._inputs.is_source, sent)
        return all(self._inputs.parameterized(name) is not None and len(sent[name]) == 1 for name in sources)

    def over(self, name: str, frame_of: FrameOfTask, needed: Collection[str] | None = None) -> DataFrame:
        """Return the frame of the rows of a unit, or of a source with a parameterized read.

        Args:
            frame_of: Makes the frame of the task that reads; see `ParameterizedRead`.
            needed: The columns to read; None: all.
        """
        if not self._inputs.is_source(name):
            task = ChannelTask(self._unit.name, _channel_of(name), None)
            return frame_of(task, self._unit.leaves[name].weighted_schema)
        read = self._inputs.parameterized(name)
        assert read is not None

        def frame(task: ArrowTask, columns: StructType) -> DataFrame:
            narrowed: Callable[[Collection[str]], ArrowTask] | None = getattr(task, "narrowed", None)
            if narrowed is not None:
                self._narrowable.add(name)  # see `LeavesOutColumns`
            if needed is None or narrowed is None:
                return frame_of(ReadsToldSource(name, task), columns)
            kept = StructType([each for each in columns if each.name in needed])
            rows = frame_of(ReadsToldSource(name, narrowed(needed)), kept)
            return rows.select(*(_read_or_null(each, needed) for each in columns))

        return read.load_parameterized(self._inputs.spark, frame)

    def _frame(self, name: str) -> DataFrame:
        if name not in self._frames:
            self._frames[name] = self.over(name, self.in_one_task)
        return self._frames[name]

    def in_one_task(self, task: ArrowTask, columns: StructType) -> DataFrame:
        """Return the rows of a task, as one partition."""
        return one_row(self._inputs.spark).mapInArrow(task, columns).coalesce(1)


def _read_or_null(field: StructField, needed: Collection[str]) -> Column:
    read = F.col(quoted(field.name)) if field.name in needed else F.lit(None).cast(field.dataType)
    return read.alias(field.name)


def _channel_of(unit: str) -> str:
    """Return the channel of a unit, which is not the name of a channel of any stage of a view."""
    return f"of {unit}"
