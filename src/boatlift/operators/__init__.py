"""Operators: one folder each; none knows another.

A folder has `operator.py` (without Spark), `spark.py` (with its `COMPILERS`), and often a `kernel.py`. Elsewhere only
the method of `Stream` or `Grouped` names the operator.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from boatlift.dataflow.operator import Operator

if TYPE_CHECKING:
    from boatlift.spark.compile.operator import Compiler

__all__ = ["compilers", "operators_with_status"]


def compilers() -> dict[type[Operator], Compiler]:
    """Return the compiler of each operator, by its class."""
    found: dict[type[Operator], Compiler] = {}
    for folder in _folders():
        found |= import_module(f"{__name__}.{folder}.spark").COMPILERS
    return found


def operators_with_status() -> dict[str, type[Operator]]:
    """Return the operators with numbers of their own, by kind; imports no Spark."""
    modules = [import_module(f"{__name__}.{folder}.operator") for folder in _folders()]
    classes = [each for module in modules for each in vars(module).values() if isinstance(each, type)]
    return {each.kind: each for each in classes if issubclass(each, Operator) and each.status_key}


def _folders() -> list[str]:
    return sorted(module.name for module in iter_modules(__path__) if module.ispkg)
