"""The processors of a dataflow: how they are added, found, checked, and dropped again."""

from __future__ import annotations

import dis
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from boatlift.api.grouped import Grouped
from boatlift.api.options import checked_name
from boatlift.api.streams import Keyed, Stream
from boatlift.connectors.generator import TicksSource
from boatlift.dataflow.advice import used_as_frame
from boatlift.dataflow.contracts import Upserts
from boatlift.dataflow.groups import Groups
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.processors import Processor, SourceSpec
from boatlift.errors import InvalidError
from boatlift.operators.bad_rows.operator import DeadLetters, ValidRows

if TYPE_CHECKING:
    from boatlift.api.dataflow import Dataflow

logger = logging.getLogger(__name__)

TICK = "tick"  # the name of the source of ticks


class ProcessorGraph:
    """The processors of a dataflow by name, each after those that it reads.

    Args:
        name: Letters, digits, `-` and `_`; every store and sink of the dataflow has it.

    Raises:
        InvalidError: `[BAD_NAME]`.
    """

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)
        self._was: dict[str, str] = {}
        self._processors: dict[str, Processor] = {}
        self._upserted: dict[str, tuple[str, Upserts]] = {}
        self._added: dict[str, frozenset[str]] = {}  # the processors that `source` and `sink` have added, by name
        self._beside: dict[str, str] = {}  # a processor to the stream whose options it has without reading it
        self._warned: set[str] = set()
        self._groups: Groups = ()

    @property
    def groups(self) -> Groups:
        """The sinks that are shown together; see `Dataflow.together`."""
        return self._groups

    @property
    def processors(self) -> Mapping[str, Processor]:
        """All processors by name, each after those that it reads.

        Without the ticks that nothing reads, and without the changes of rows that replace one another if only their
        source is read, by a batch.
        """
        read = {name for each in self._processors.values() for name in each.reads}
        unread = {
            stream
            for stream, (source, _) in self._upserted.items()
            if stream not in read
            and any(source in each.reads for name, each in self._processors.items() if name != stream)
        }
        if self.has_ticks and TICK not in read:
            unread.add(TICK)
        return MappingProxyType({name: each for name, each in self._processors.items() if name not in unread})

    @property
    def unused(self) -> frozenset[str]:
        """The sources that nothing reads, each with the operators that `source` has put behind it; never ticks."""
        unused: set[str] = set()
        for name, parts in self._added.items():
            others = [each for own, each in self._processors.items() if own not in parts]
            has_source = any(isinstance(self._processors.get(part), SourceSpec) for part in parts)
            if has_source and name != TICK and all(parts.isdisjoint(each.reads) for each in others):
                unused |= parts
        return frozenset(unused)

    @property
    def was(self) -> dict[str, str]:
        """The processors that had another name in an earlier version of the program, each with that name.

        What `source` and `sink` have put beside such a processor had the beginning of its name.
        """
        parts = {new: [part for part in self._added.get(new, ()) if part.startswith(f"{new}_")] for new in self._was}
        beside = {part: f"{self._was[new]}{part[len(new) :]}" for new, named in parts.items() for part in named}
        return {**beside, **self._was}

    @property
    def ticks(self) -> SourceSpec | None:
        """The source of ticks; None if the dataflow has none."""
        ticks = self._processors.get(TICK)
        return ticks if isinstance(ticks, SourceSpec) and isinstance(ticks.source, TicksSource) else None

    @property
    def has_ticks(self) -> bool:
        return self.ticks is not None

    def check(self) -> None:
        """Refuse functions that use a stream as if it were a DataFrame, and bad rows without a reader.

        A warning names, once, each source that nothing reads.

        Raises:
            InvalidError: `[NOT_ON_A_STREAM]`, `[EMPTY_DATAFLOW]`; `[BAD_OPTION]` `was` names no processor.

        Examples:
            >>> flights.sink("copy", bl.parquet("copy"))
            >>> flow.check()
        """
        for operator in (each for each in self._processors.values() if isinstance(each, Operator)):
            for value in (value for function in operator.functions for value in _captured(function)):
                stream = value.stream if isinstance(value, Grouped | Keyed) else value
                if isinstance(stream, Stream):
                    raise used_as_frame(stream.name, operator.name, operator.upstream)
        if unknown := sorted(self._was.keys() - self._processors.keys()):
            there = ", ".join(self._processors)
            raise InvalidError("BAD_OPTION", f"was names {unknown[0]}, which {self.name} has not: it has {there}")
        unused = self.unused
        for name in (name for name, parts in self._added.items() if parts & unused and name not in self._warned):
            self._warned.add(name)
            logger.warning("nothing reads %s: %s runs without it", name, self.name)
        read = {each.upstream for each in self._processors.values() if isinstance(each, DeadLetters)}
        for name, valid in self._processors.items():
            if isinstance(valid, ValidRows) and name not in unused and valid.upstream not in read:
                raise InvalidError(
                    "EMPTY_DATAFLOW",
                    f"nothing reads the bad rows of {valid.upstream}: give them to a sink, as in "
                    f"{name}.bad_rows('bad').sink('bad_out', bl.parquet('bad'))",
                )

    def add(self, processor: Processor, beside: str | None = None) -> Stream:
        """Add a processor, and return the stream of its rows; the methods of streams call this.

        Args:
            processor: The processor.
            beside: The stream whose options the processor has without reading it: the processor is dropped with it.

        Raises:
            InvalidError: `[DUPLICATE_NAME]`; `[BAD_OPTION]` it reads a stream that was dropped.

        Examples:
            >>> from boatlift.operators.transform.operator import Transform
            >>> late = Transform("late", ("flights",), bl.Ephemeral(), lambda df: df.where("arr_delay > 60"))
            >>> flow.add(late).name
            'late'
        """
        name = processor.name
        if name in self._processors:
            raise InvalidError(
                "DUPLICATE_NAME",
                f"{self.name} has two processors named {name}: rename one, or write flow.drop({name!r}) before what "
                "replaces it",
            )
        for read in processor.reads:
            if read not in self._processors:
                raise InvalidError("BAD_OPTION", f"{name} reads {read}, which {self.name} has no more: define it again")
        self._processors[name] = processor
        if beside is not None:
            self._beside[name] = beside
        return Stream(cast("Dataflow", self), name)

    @contextmanager
    def adding(self, name: str) -> Iterator[None]:
        """Take the processors that are added in this block for one with a name; a refusal leaves none of them.

        Examples:
            >>> with flow.adding("late"):
            ...     rows = flights.transform("late_rows", lambda df: df.where("arr_delay > 60"))
            ...     late = rows.transform("late", lambda df: df.select("origin"))
            >>> flow.drop("late")
            ['late_rows', 'late']
        """
        before = self._processors.copy()
        try:
            yield
        except InvalidError:
            self._processors = before
            raise
        self._added[name] = frozenset(self._processors.keys() - before.keys())

    def drop(self, name: str) -> list[str]:
        """Drop a source, a processor or a sink, with all that reads it; for a cell of a notebook that may run again.

        Its late or bad rows go too: no stream continues with the rows or the options of an earlier version. So the
        cells that defined these run again too. An unknown name drops nothing, as in the first run of a cell.

        Returns:
            The names of all dropped processors, in their order.

        Examples:
            >>> flow.drop("clean")
            []
            >>> clean = flights.transform("clean", lambda df: df.where("arr_delay IS NOT NULL"))
        """
        parts = self._added.get(name, {name})
        gone: list[str] = []
        for each, processor in self._processors.items():  # each comes after those that it reads
            if each in parts or not {*processor.reads, self._beside.get(each)}.isdisjoint(gone):
                gone.append(each)
        for known in (self._processors, self._upserted, self._beside):
            for each in gone:
                known.pop(each, None)
        self._added = {each: parts for each, parts in self._added.items() if not parts.isdisjoint(self._processors)}
        self._warned -= {name, *gone}
        left = (tuple(each for each in group if each not in gone) for group in self._groups)
        self._groups = tuple(group for group in left if len(group) > 1)
        return gone

    def upserts_of(self, stream: str) -> tuple[str, Upserts] | None:
        """Return the source whose rows replace one another in a stream, and how; None of any other stream.

        Examples:
            >>> flow.upserts_of("flights") is None
            True
        """
        return self._upserted.get(stream)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self._processors)} processors)"


def _captured(function: Callable[..., Any]) -> Iterator[object]:
    """Yield the values in the closure of a Python function, and the globals that its code loads."""
    if not isinstance(function, FunctionType):
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    for name in _globals(function.__code__):
        yield function.__globals__.get(name)


def _globals(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
        elif isinstance(instruction.argval, CodeType):
            yield from _globals(instruction.argval)
