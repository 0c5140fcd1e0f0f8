"""Streams that a transform's function uses, where it can only use the rows of its own step and static tables."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from boatlift.dataflow.advice import used_as_frame
from boatlift.dataflow.builder import Dataflow, Grouped, Keyed, Stream
from boatlift.dataflow.processors import Recomputation, Transform

__all__ = ["refuse_captured_streams"]


def refuse_captured_streams(dataflow: Dataflow) -> None:
    """Refuse a function of the dataflow that reads a stream from around it.

    Raises:
        InvalidError: `[NOT_ON_A_STREAM]`.
    """
    for processor in dataflow.processors.values():
        if not isinstance(processor, Transform | Recomputation) or processor.function is None:
            continue
        for value in _values(processor.function):
            stream = value.stream if isinstance(value, Grouped | Keyed) else value
            if isinstance(stream, Stream):
                raise used_as_frame(stream.name, processor.name, processor.upstream)


def _values(function: Callable[..., Any]) -> Iterator[object]:
    """Iterate over what a function written in Python finds around it: its closure, and the globals that its code loads."""
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
