"""Operators: one module or folder each; none knows another.

A folder has `operator.py` (without Spark), `spark.py` (with its `COMPILERS`), and often a `kernel.py`. A small operator
has all of it in one module, which imports Spark within its compiler. Elsewhere only the method of `Stream` or `Grouped`
names the operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.operator import Operator

if TYPE_CHECKING:
    from boatlift.spark.compile.operator import Compiler


def compilers() -> dict[type[Operator], Compiler]:
    """Return the compiler of each operator, by its class."""
    found: dict[type[Operator], Compiler] = {}
    for module in _modules("spark"):
        found |= module.COMPILERS
    return found


def operators_with_status() -> dict[str, type[Operator]]:
    """Return the operators with numbers of their own, by kind; imports no Spark."""
    classes = [each for module in _modules("operator") for each in vars(module).values() if isinstance(each, type)]
    return {each.kind: each for each in classes if issubclass(each, Operator) and each.status_key}


def _modules(part: str) -> Iterator[Any]:
    """Yield the module with a part of each operator: a file of its folder, or its only module."""
    for found in sorted(iter_modules(__path__), key=lambda each: each.name):
        yield import_module(f"{__name__}.{found.name}{f'.{part}' if found.ispkg else ''}")
