"""Streams that a transform's function uses, where it can only use the rows of its own step and static tables."""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from boatlift.dataflow.advice import used_as_frame
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.processors import Processor

__all__ = ["refuse_captured_streams"]


def refuse_captured_streams(processors: Iterable[Processor], stream_of: Callable[[object], str | None]) -> None:
    """Refuse a function that reads a stream from around it.

    Args:
        processors: The processors of a dataflow.
        stream_of: Returns the processor whose rows a value stands for; None if the value is no stream.

    Raises:
        InvalidError: `[NOT_ON_A_STREAM]`.
    """
    for operator in (each for each in processors if isinstance(each, Operator)):
        for value in (value for function in operator.functions for value in _values(function)):
            if (stream := stream_of(value)) is not None:
                raise used_as_frame(stream, operator.name, operator.reads[0])


def _values(function: Callable[..., Any]) -> Iterator[object]:
    """Iterate over the values around a function written in Python: its closure, and the globals that its code loads."""
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
