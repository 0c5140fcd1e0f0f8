"""The user's modules whose functions go to tasks by value."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from boatlift.api.dataflow import Dataflow
from boatlift.connectors.deliver import DeliveringSink
from boatlift.dataflow.operator import Operator
from boatlift.dataflow.processors import SinkSpec, SourceSpec


def pickle_by_value(flow: Dataflow) -> None:
    """Pickle the functions of a dataflow by value where tasks could not import the module.

    Such a module has a function, an operator or a connector of the dataflow, and an object of a Spark session: a
    dataflow, a Column, a DataFrame. Tasks import all other modules, so that each loads its data once.
    """
    from pyspark import cloudpickle
    from pyspark.sql import Column, DataFrame, SparkSession

    for module in {sys.modules.get(_module_of(each)) for each in _given(flow)}:
        if module is None or module.__name__.partition(".")[0] in ("boatlift", "pyspark"):
            continue
        if any(isinstance(each, Dataflow | Column | DataFrame | SparkSession) for each in vars(module).values()):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _given(flow: Dataflow) -> Iterator[Any]:
    """Yield the user's functions and objects that tasks may call."""
    for processor in flow.processors.values():
        match processor:
            case SourceSpec():
                yield processor.source
            case SinkSpec(sink=DeliveringSink() as sink):
                yield from sink.functions
            case SinkSpec():
                yield processor.sink
            case Operator():
                yield from processor.functions


def _module_of(value: Any) -> str:
    """Return the name of the module in which a function or the class of an object is defined."""
    match value:
        case partial():
            return _module_of(value.func)
        case MethodType():
            return _module_of(value.__self__)
        case FunctionType() | type():
            return value.__module__
        case _:
            return type(value).__module__
