"""Descriptions of a user's function that are equal in every process and change with every edit.

Pickles would not do: they contain addresses, file names and line numbers.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property, partial
from pathlib import PurePath
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from uuid import UUID

import xxhash

_SLOTS = MemberDescriptorType
_SCALARS = (type(None), bool, int, float, complex, str, bytes)
_AS_THEY_PRINT = (date, time, timedelta, Decimal, UUID, PurePath, range)


def describe_function(function: Any) -> Any:
    """Describe a function as JSON values: bytecode, constants, names, closure, and the functions it calls."""
    return FunctionDescriber().value(function)


def describe_pickled(command: bytes) -> Any:
    """Describe a pickled function; see `describe_function`."""
    return describe_function(loaded(command))


def versions_of_libraries(commands: Iterable[bytes]) -> dict[str, str]:
    """Return the versions of the packages that pickled functions use, by name; they are part of no hash."""
    return libraries_of(*map(loaded, commands))


def libraries_of(*functions: Any) -> dict[str, str]:
    """Return the versions of the packages that functions use, by name; they are part of no hash."""
    describer = FunctionDescriber()
    for function in functions:
        describer.value(function)
    packages = {module.partition(".")[0] for module in describer.libraries}
    versions = {package: str(getattr(sys.modules.get(package), "__version__", "")) for package in packages}
    return {name: version for name, version in sorted(versions.items()) if version}


def loaded(command: bytes) -> Any:
    """Return the function that Spark has pickled."""
    from pyspark import Broadcast
    from pyspark.serializers import CPickleSerializer

    serializer: Any = CPickleSerializer()
    loaded = serializer.loads(command)
    if isinstance(loaded, Broadcast):  # PySpark broadcasts a command of more than 1 MB
        loaded = serializer.loads(loaded.value)
    return loaded[0]


def code_hash(function: Any) -> str:
    """Return the hash of a function's description: 32 hexadecimal digits (xxh3-128)."""
    return xxhash.xxh3_128_hexdigest(json.dumps(describe_function(function)).encode())


class FunctionDescriber:
    """One description; an object that appears again is described by its number."""

    def __init__(self) -> None:
        # The object itself is kept, because Python reuses the ids of deleted objects.
        self._seen: dict[int, tuple[int, Any]] = {}
        self._within: list[ModuleType] = []
        self.libraries: set[str] = set()

    def value(self, value: Any) -> Any:
        if isinstance(value, Enum):
            return ["enum", type(value).__qualname__, value.name, self.value(value.value)]
        if isinstance(value, (*_SCALARS, *_AS_THEY_PRINT)):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, re.Pattern):
            return ["pattern", self.value(value.pattern), value.flags]
        if isinstance(value, ModuleType):
            return self.value_of_module(value.__name__)
        if id(value) in self._seen:
            return ["again", self._seen[id(value)][0]]
        self._seen[id(value)] = (len(self._seen), value)
        if isinstance(value, list | tuple):
            return [type(value).__name__, *(self.value(item) for item in value)]
        if isinstance(value, set | frozenset):
            return [type(value).__name__, *sorted(repr(item) for item in value)]
        if isinstance(value, dict):
            return ["dict", *sorted(([str(key), self.value(item)] for key, item in value.items()), key=str)]
        if isinstance(value, FunctionType):
            return self.function(value)
        if isinstance(value, partial):
            return ["partial", self.value(value.func), self.value(value.args), self.value(value.keywords)]
        if isinstance(value, MethodType):
            return ["method", self.value(value.__func__), self.value(value.__self__)]
        if isinstance(value, CodeType):
            return self.code(value)
        return self.object(value)

    def value_of_module(self, name: str) -> Any:
        self.is_library(name)
        return ["module", name]

    def function(self, function: FunctionType) -> Any:
        if self.is_library(function.__module__):
            return ["library", function.__module__, function.__qualname__, self._closure(function)]
        code = function.__code__
        return [
            "function",
            self.code(code),
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            self._closure(function),
            self._used(_names(code), function.__globals__),
        ]

    def _used(self, names: set[str], of: Mapping[str, Any]) -> list[Any]:
        """Describe what code uses of a module: also what it uses of the user's other modules."""
        used = []
        for name in sorted(names.intersection(of)):
            value = of[name]
            if isinstance(value, ModuleType) and value not in self._within and not self.is_library(value.__name__):
                self._within.append(value)
                used.append([name, value.__name__, self._used(names, vars(value))])
                self._within.pop()
            else:
                used.append([name, self.value(value)])
        return used

    def is_library(self, module: str | None) -> bool:
        """Return whether a module is installed, and note it if so."""
        installed = _is_library(module)
        if installed and module is not None:
            self.libraries.add(module)
        return installed

    def _closure(self, function: FunctionType) -> Any:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.value(cell.cell_contents))
            except ValueError:  # the name is not bound yet
                cells.append("empty")
        return cells

    def code(self, code: CodeType) -> Any:
        return [
            "code",
            code.co_code.hex(),
            [self.value(constant) for constant in code.co_consts],
            list(code.co_names),
            list(code.co_varnames),
            list(code.co_freevars),
            [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags],
            code.co_exceptiontable.hex(),
        ]

    def object(self, value: Any) -> Any:
        kind = value if isinstance(value, type) else type(value)
        described: list[Any] = ["object", kind.__module__, kind.__qualname__]
        if self.is_library(kind.__module__):
            return described
        members = {name: _bare(member) for name, member in vars(kind).items()}
        members = {name: member for name, member in members.items() if _tells(name, member, kind)}
        described += [self.value(members), self.value([base for base in kind.__bases__ if base is not object])]
        if not isinstance(value, type):
            slots = [name for each in kind.__mro__ for name, member in vars(each).items() if isinstance(member, _SLOTS)]
            own = getattr(value, "__dict__", {})
            described.append(self.value(own | {name: getattr(value, name) for name in slots if hasattr(value, name)}))
        return described


def _bare(member: Any) -> Any:
    """Return the function of a member of a class."""
    if isinstance(member, property):
        return member.fget
    if isinstance(member, cached_property):
        return member.func
    return member.__func__ if isinstance(member, staticmethod | classmethod) else member


def _tells(name: str, member: Any, kind: type) -> bool:
    """Return whether a member of a class is one that the user wrote: a function, or a constant.

    Other objects may differ in every process: libraries keep caches and schemas in classes.
    """
    if isinstance(member, FunctionType):  # `dataclass` makes some of the fields
        return not (is_dataclass(kind) and member.__code__.co_filename == "<string>")
    return not name.startswith("_") and _is_constant(member)


def _is_constant(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_constant, value))
    if isinstance(value, dict):
        return all(map(_is_constant, (*value.keys(), *value.values())))
    return isinstance(value, (*_SCALARS, *_AS_THEY_PRINT, Enum, re.Pattern))


def _names(code: CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _is_library(module: str | None) -> bool:
    """Return whether a module is installed, so that the environment records its version; False for the user's own."""
    if module is None:
        return False
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if loaded is None or file is None:
        return module in sys.builtin_module_names or module in sys.stdlib_module_names
    return any(file.startswith(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
