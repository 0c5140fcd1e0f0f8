"""The hash of an operator as the user wrote it: equal under every version of Spark, Python and Boatlift.

The hash of its plan (`fingerprint.py`) and of its bytecode (`function_code.py`) may change with an upgrade, though
nobody has changed the program. This one is made of source text, column expressions, SQL text and options. It may also
change where nothing is changed, as with a comment: one of the two hashes is enough for a program to mean what it meant.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import fields, is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from types import CodeType, FunctionType
from typing import Any
from uuid import UUID

import xxhash
from pyspark.sql import Column
from pyspark.sql.types import DataType

from boatlift.dataflow import Operator
from boatlift.spark.plans.function_code import FunctionDescriber

_NOT_ITS_MEANING = frozenset(("name", "reads", "policy"))
_AS_THEY_PRINT = (date, time, timedelta, Decimal, UUID, PurePath, range, re.Pattern)

_ORIGIN = re.compile(r"Origin\((?:None,)*None\)")
_NOT_IN_TEXT = re.compile(r"ExpressionColumnNode|NamedLambdaVariable|Literal\(-?\d*\.\d|Literal\(-?[\d.]+E")
"""Parts of a column whose text does not say all: Python functions, numbered variables, fractions of either type."""


class _NotInText(Exception):  # noqa: N818 - no error
    """A value whose text does not say all that it is."""


def as_written(operator: Operator) -> str:
    """Return the hash of an operator's functions, columns and options: 32 hexadecimal digits (xxh3-128).

    Returns:
        Empty if a part of it cannot be told by text alone, such as a frame in a closure.
    """
    try:
        described = _AsWritten().own(operator, _NOT_ITS_MEANING)
    except _NotInText:
        return ""
    return xxhash.xxh3_128_hexdigest(json.dumps(described).encode())


class _AsWritten(FunctionDescriber):
    def value(self, value: Any) -> Any:
        if isinstance(value, Column):
            return ["column", _text_of(value)]
        if isinstance(value, DataType):
            return ["type", value.json()]
        if isinstance(value, Enum):
            return [type(value).__qualname__, value.name]
        if isinstance(value, _AS_THEY_PRINT):
            return [type(value).__name__, repr(value)]
        return super().value(value)

    def own(self, value: Any, without: frozenset[str] = frozenset()) -> Any:
        """Describe an object of a class of Boatlift's by its fields."""
        kept = [each.name for each in fields(value) if each.name not in without]
        return [type(value).__qualname__, [[name, self.value(getattr(value, name))] for name in kept]]

    def function(self, function: FunctionType) -> Any:
        wrapped = getattr(function, "func", None)  # `udf` returns a function around its object
        if callable(wrapped) and hasattr(function, "returnType"):
            return ["udf", self.value(wrapped), self.value(function.returnType), getattr(function, "evalType", 0)]
        return super().function(function)

    def code(self, code: CodeType) -> Any:
        try:
            lines = inspect.getsource(code).splitlines()
        except (OSError, TypeError):  # typed into an interpreter
            return super().code(code)
        return ["source", inspect.cleandoc("\n".join(line.rstrip() for line in lines if line.strip()))]

    def object(self, value: Any) -> Any:
        if self.is_library(type(value).__module__) and not isinstance(value, type):
            if not type(value).__module__.startswith("boatlift.") or not is_dataclass(value):
                raise _NotInText
            return self.own(value)
        return super().object(value)


def _text_of(column: Column) -> str:
    node: Any = column._jc  # noqa: SLF001
    if _NOT_IN_TEXT.search(text := _ORIGIN.sub("", str(node.node().normalized().toString()))):
        raise _NotInText
    return f"{column} {text}"  # the first tells numbers from text, the second options of functions
