"""The hash of an operator as the user wrote it: equal under every version of Spark, Python and Boatlift.

The hash of its plan (`fingerprint.py`) and of its bytecode (`function_code.py`) may change with an upgrade, though
nobody has changed the program. This one is made of source text, column expressions, SQL text and options. It may also
change where nothing is changed, as with a comment: one of the two hashes is enough for a program to mean what it meant.

Text does not tell what code reaches at run time, such as a table, a file or the environment: then there is no hash.
"""

from __future__ import annotations

import dis
import inspect
import json
import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType
from typing import Any

import xxhash
from pyspark.sql import Column
from pyspark.sql.types import DataType

from boatlift.dataflow import Operator
from boatlift.spark.plans.function_code import FunctionDescriber, loaded

_NOT_ITS_MEANING = frozenset(("name", "reads", "policy"))

_ORIGIN = re.compile(r"Origin\((?:None,)*None\)")
_NOT_IN_TEXT = re.compile(r"ExpressionColumnNode|NamedLambdaVariable|Literal\(-?\d*\.\d|Literal\(-?[\d.]+E")
"""Parts of a column whose text does not say all: Python functions, numbered variables, fractions of either type."""


_PURE = frozenset(
    (
        *("boatlift", "pyspark", "pandas", "numpy", "pyarrow", "builtins", "types", "typing", "__future__"),
        *("abc", "base64", "bisect", "calendar", "collections", "dataclasses", "datetime", "decimal", "enum"),
        *("fractions", "functools", "hashlib", "heapq", "itertools", "json", "math", "numbers", "operator", "re"),
        *("statistics", "string", "struct", "textwrap", "unicodedata", "uuid", "zlib", "zoneinfo"),
        *("_operator", "_functools", "_collections_abc"),
    )
)
"""Modules whose functions depend on their arguments alone; the environment has the versions of those that matter."""

_REACH_OUT = frozenset(("sparkSession", "sql_ctx", "open", "eval", "exec", "globals", "__import__", "getattr", "input"))
"""Names by which code may reach what no text tells."""


class _NotInText(Exception):  # noqa: N818 - no error
    """A value whose text does not say all that it is."""


def as_written(operator: Operator, functions: Sequence[bytes] = ()) -> str:
    """Return the hash of an operator's functions, columns and options: 32 hexadecimal digits (xxh3-128).

    Args:
        functions: The pickled Python functions of its plan, which may be reached by a name.

    Returns:
        Empty if a part of it cannot be told by text alone, such as a frame in a closure.
    """
    describer = _AsWritten()
    try:
        described = [describer.own(operator, _NOT_ITS_MEANING), [describer.value(loaded(each)) for each in functions]]
    except _NotInText:
        return ""
    return xxhash.xxh3_128_hexdigest(json.dumps(described).encode())


class _AsWritten(FunctionDescriber):
    def value(self, value: Any) -> Any:
        if isinstance(value, Column):
            return ["column", _text_of(value)]
        if isinstance(value, DataType):
            return ["type", value.json()]
        return super().value(value)

    def own(self, value: Any, without: frozenset[str] = frozenset()) -> Any:
        """Describe an object of a class of Boatlift's by its fields."""
        kept = [each.name for each in fields(value) if each.name not in without]
        return [type(value).__qualname__, [[name, self.value(getattr(value, name))] for name in kept]]

    def function(self, function: FunctionType) -> Any:
        wrapped = getattr(function, "func", None)  # `udf` returns a function around its object
        if callable(wrapped) and hasattr(function, "returnType"):
            return ["udf", self.value(wrapped), self.value(function.returnType), getattr(function, "evalType", 0)]
        if not _is_pure(function.__module__) and self.is_library(function.__module__):
            raise _NotInText
        return super().function(function)

    def value_of_module(self, name: str) -> Any:
        if not _is_pure(name):
            raise _NotInText
        return super().value_of_module(name)

    def code(self, code: CodeType) -> Any:
        for each in _with_nested(code):
            if not _REACH_OUT.isdisjoint(each.co_names) or not all(map(_is_pure, _imports(each))):
                raise _NotInText
        return ["source", _source(code)]

    def object(self, value: Any) -> Any:
        kind = value if isinstance(value, type) else type(value)
        if not self.is_library(kind.__module__):
            return super().object(value)
        if isinstance(value, type):
            if not _is_pure(kind.__module__):
                raise _NotInText
            return super().object(value)
        if not kind.__module__.startswith("boatlift.") or not is_dataclass(value):
            raise _NotInText
        return self.own(value)


def _is_pure(module: str | None) -> bool:
    return module is not None and module.partition(".")[0] in _PURE


def _with_nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_nested(constant)


def _imports(code: CodeType) -> Iterator[str]:
    return (each.argval for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME")


def _source(code: CodeType) -> str:
    """Return the lines of a function: from its first one to the last that an instruction is of.

    `inspect.getsource` ends a lambda with its first line where the expression goes on by indentation.
    """
    ends = [end for each in _with_nested(code) for _, end, *_ in each.co_positions() if end is not None]
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 : max(ends, default=0)]
    if not lines:  # typed into an interpreter, or one without positions
        raise _NotInText
    return inspect.cleandoc("\n".join(line.rstrip() for line in lines if line.strip()))


def _text_of(column: Column) -> str:
    node: Any = column._jc  # noqa: SLF001
    if _NOT_IN_TEXT.search(text := _ORIGIN.sub("", str(node.node().normalized().toString()))):
        raise _NotInText
    return f"{column} {text}"  # the first tells numbers from text, the second options of functions
