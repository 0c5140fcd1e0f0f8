"""Descriptions of a user's function that are equal in every process and change with every edit.

Pickles would not do: they contain addresses, file names and line numbers.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterable
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import xxhash


def describe_function(function: Any) -> Any:
    """Describe a function as JSON values: bytecode, constants, names, closure, and the functions it calls."""
    return _Describer().value(function)


def describe_pickled(command: bytes) -> Any:
    """Describe a pickled function; see `describe_function`."""
    return describe_function(_loaded(command))


def versions_of_libraries(commands: Iterable[bytes]) -> dict[str, str]:
    """Return the versions of the packages that pickled functions use, by name; they are part of no hash."""
    return libraries_of(*map(_loaded, commands))


def libraries_of(*functions: Any) -> dict[str, str]:
    """Return the versions of the packages that functions use, by name; they are part of no hash."""
    describer = _Describer()
    for function in functions:
        describer.value(function)
    packages = {module.partition(".")[0] for module in describer.libraries}
    versions = {package: str(getattr(sys.modules.get(package), "__version__", "")) for package in packages}
    return {name: version for name, version in sorted(versions.items()) if version}


def _loaded(command: bytes) -> Any:
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


class _Describer:
    """One description; an object that appears again is described by its number."""

    def __init__(self) -> None:
        # The object itself is kept, because Python reuses the ids of deleted objects.
        self._seen: dict[int, tuple[int, Any]] = {}
        self.libraries: set[str] = set()

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str | bytes | complex):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, ModuleType):
            self._note_library(value.__name__)
            return ["module", value.__name__]
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
            return self._function(value)
        if isinstance(value, partial):
            return ["partial", self.value(value.func), self.value(value.args), self.value(value.keywords)]
        if isinstance(value, MethodType):
            return ["method", self.value(value.__func__), self.value(value.__self__)]
        if isinstance(value, CodeType):
            return self._code(value)
        return self._object(value)

    def _function(self, function: FunctionType) -> Any:
        if self._note_library(function.__module__):
            return ["library", function.__module__, function.__qualname__, self._closure(function)]
        code = function.__code__
        return [
            "function",
            self._code(code),
            self.value(function.__defaults__),
            self.value(function.__kwdefaults__),
            self._closure(function),
            [[n, self.value(function.__globals__[n])] for n in sorted(_names(code)) if n in function.__globals__],
        ]

    def _note_library(self, module: str | None) -> bool:
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

    def _code(self, code: CodeType) -> Any:
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

    def _object(self, value: Any) -> Any:
        kind = value if isinstance(value, type) else type(value)
        described = ["object", kind.__module__, kind.__qualname__]
        if self._note_library(kind.__module__):
            return described
        methods = {name: member for name, member in vars(kind).items() if isinstance(member, FunctionType)}
        described.append(self.value(methods))
        if not isinstance(value, type) and hasattr(value, "__dict__"):
            described.append(self.value(vars(value)))
        return described


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
