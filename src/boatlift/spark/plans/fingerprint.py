"""A program's identity: what its plans compute, as a hash that another process comes to as well.

It does not depend on expression ids, on the session, on what a step reads, or on the literals of `bl.now()` and
`bl.rand()`; it changes with every expression, literal, column name and type, with the code of a UDF, and with the content of
a static table that the stream is joined with.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from itertools import takewhile
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import xxhash
from pyspark import StorageLevel

from boatlift.spark.plans.allowed import STATIC_LEAVES
from boatlift.spark.plans.catalyst import INPUT, Tree, analysed, analysed_text, is_input, python_functions, subplan
from boatlift.spark.plans.step_functions import MARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "calls_python",
    "canonical",
    "code_hash",
    "describe_function",
    "fingerprint",
    "libraries",
    "pin_static_tables",
    "shape",
]

# Differ from session to session and say nothing of what is computed.
_IGNORED_FIELDS = frozenset(
    {"jvmId", "qualifier", "nonInheritableMetadataKeys", "resultId", "session", "rdd", "__dataset_id", "__col_position"}
)
_TASK = "MapInArrow"
"""The node of a task of ours, which reads what was kept or looks something up."""

_STEP_LITERAL = re.compile(re.escape(MARK) + r"([^\s,()]*):-?\d+")
_LAMBDA_NAME = re.compile(r"lambda \w+#")
_EXPRESSION_ID = re.compile(r"#(\d+)")


def fingerprint(frame: DataFrame, *, content: bool = True) -> str:
    """Gives the canonical hash of a frame's analysed plan.

    Args:
        frame: Built from the input that `check_row_wise` marked; without such a mark every leaf counts by its schema.
        content: Whether static tables are read and count by their content (one Spark job each).

    Returns:
        32 hexadecimal digits (xxh3-128).
    """
    plan = analysed(frame)
    marked = any(is_input(node) for node in plan.walk())
    parts: list[Any] = [canonical(plan), _canonical_text(analysed_text(frame))]
    if calls_python(frame):
        parts.append([_describe_pickled(command) for command in python_functions(frame)])
    if content and marked:
        parts.append([_content(subplan(frame, path)) for path in _static_leaves(plan)])
    return xxhash.xxh3_128_hexdigest(json.dumps(parts, sort_keys=True).encode())


def calls_python(frame: DataFrame) -> bool:
    """Tells whether a plan has Python UDFs."""
    return any(expression.kind == "PythonUDF" for expression in _all_expressions(analysed(frame)))


def shape(frame: DataFrame, *, functions: bool) -> str:
    """Gives a hash that tells, at the price of one call into the JVM, whether a step's plan is built as it always was.

    Args:
        frame: Built from input with the mark; what lies below that does not count, nor do the literals of a step.
        functions: Whether the code of Python UDFs counts too, which takes many calls.

    Returns:
        32 hexadecimal digits (xxh3-128); comparable within one process.
    """
    parts: list[Any] = [_canonical_text(analysed_text(frame))]
    if functions:
        parts.append([_describe_pickled(command) for command in python_functions(frame)])
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


def pin_static_tables(frame: DataFrame) -> list[DataFrame]:
    """Lets the session keep the content of static tables, so that all steps of this process join with the same rows.

    Returns:
        What the caller unpersists in the end; tables that the user had cached are left alone.
    """
    plan = analysed(frame)
    tables = [subplan(frame, path) for path in _static_leaves(plan)] if any(map(is_input, plan.walk())) else []
    return [table.persist() for table in tables if table.storageLevel == StorageLevel.NONE]


def canonical(plan: Tree) -> Any:
    """Writes a plan so that equal plans are written equally: ids become numbers in order of appearance."""
    return _Canonical().node(plan)


class _Canonical:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def node(self, tree: Tree) -> Any:
        if _is_origin(tree):
            return ["input"]
        if not tree.children and "output" in tree.fields:
            # A leaf: where rows come from is another's business, here only their schema counts.
            return ["leaf", self.value(tree.fields["output"])]
        return [tree.kind, self.value(tree.fields), [self.node(child) for child in tree.children]]

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("product-class", "").endswith(".ExprId"):
                return self._numbers.setdefault(value["id"], len(self._numbers))
            ignored = _IGNORED_FIELDS
            if value.get("class", "").endswith(".NamedLambdaVariable"):
                ignored |= {"name"}  # numbered by a counter of the JVM
            return {k: self.value(v) for k, v in value.items() if k not in ignored}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            return _STEP_LITERAL.sub(r"step:\1", value)
        return value


def _is_origin(tree: Tree) -> bool:
    """Tells whether a node is the mark of the first transform's input: what lies below it is the source's, or a task's of ours."""
    if not is_input(tree):
        return False
    ours = tree.children[0].kind == _TASK
    return ours or not any(is_input(below) for child in tree.children for below in child.walk())


def _all_expressions(plan: Tree) -> Iterator[Tree]:
    return (expression for node in plan.walk() for root in node.expressions() for expression in root.walk())


def _canonical_text(text: str) -> str:
    """Writes a printed plan so that it shows options, and nothing that differs from run to run."""
    mark = f"SubqueryAlias {INPUT}"
    printed = [(len(line) - len(line.lstrip(" :+-")), line.lstrip(" :+-")) for line in text.splitlines()]
    lines: list[str] = []
    numbers: dict[str, int] = {}
    origin: int | None = None
    for index, (indent, content) in enumerate(printed):
        if origin is not None and indent > origin:
            continue
        origin = None
        if content.startswith(mark):
            below = [line for _, line in takewhile(lambda line: line[0] > indent, printed[index + 1 :])]  # noqa: B023 used at once
            ours = bool(below) and below[0].startswith(_TASK)
            if ours or not any(line.startswith(mark) for line in below):
                origin, content = indent, "input"
        elif content.startswith((*STATIC_LEAVES, "Relation")):
            content = "leaf"
        content = _STEP_LITERAL.sub(r"step:\1", content)
        content = _LAMBDA_NAME.sub("lambda #", content)
        content = _EXPRESSION_ID.sub(lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", content)
        lines.append(f"{indent} {content}")
    return "\n".join(lines)


def _static_leaves(plan: Tree) -> Iterator[tuple[int, ...]]:
    if _is_origin(plan):
        return
    if not plan.children and plan.kind in STATIC_LEAVES:
        yield ()
    for index, child in enumerate(plan.children):
        for path in _static_leaves(child):
            yield (index, *path)


def _content(table: DataFrame) -> list[str]:
    """Digests a static table's rows, whatever their order: how many, and the exact sum of their hashes."""
    from pyspark.sql import functions as F

    columns = [F.col(f"`{name}`") for name in table.columns]
    if not columns:
        return [str(table.count())]
    plain = [
        F.to_json(F.struct(column)) if "map<" in field.dataType.simpleString() else column
        for column, field in zip(columns, table.schema.fields, strict=True)
    ]
    hashed = F.xxhash64(*[part for column in plain for part in (column.isNull(), column)])
    row = table.agg(F.count(F.lit(1)), F.sum(hashed.cast("decimal(20,0)"))).first()
    assert row is not None
    return [str(row[0]), str(row[1])]


def libraries(frame: DataFrame) -> dict[str, str]:
    """Tells the versions of installed packages that a plan's Python UDFs reach, by name; they are not part of its hash."""
    describer = _Describer()
    if calls_python(frame):
        for command in python_functions(frame):
            describer.value(_loaded(command))
    tops = {module.partition(".")[0] for module in describer.libraries}
    versions = {top: str(getattr(sys.modules.get(top), "__version__", "")) for top in tops}
    return {name: version for name, version in sorted(versions.items()) if version}


def _describe_pickled(command: bytes) -> Any:
    return describe_function(_loaded(command))


def _loaded(command: bytes) -> Any:
    from pyspark import Broadcast
    from pyspark.serializers import CPickleSerializer

    serializer: Any = CPickleSerializer()
    loaded = serializer.loads(command)
    if isinstance(loaded, Broadcast):  # how PySpark sends a command of more than 1 MB
        loaded = serializer.loads(loaded.value)
    return loaded[0]


def describe_function(function: Any) -> Any:
    """Tells what a function does, so that an edit shows: bytecode, constants, names, what it closes over and calls.

    Pickles are no good for this: they hold addresses, file names and line numbers.
    """
    return _Describer().value(function)


def code_hash(function: Any) -> str:
    """Gives the hash of what a function does (`describe_function`): 32 hexadecimal digits (xxh3-128)."""
    return xxhash.xxh3_128_hexdigest(json.dumps(describe_function(function)).encode())


class _Describer:
    def __init__(self) -> None:
        # With the object itself: an id is given again once its object is gone.
        self._seen: dict[int, tuple[int, Any]] = {}
        self.libraries: set[str] = set()

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | str | bytes | complex):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, ModuleType):
            self._is_library(value.__name__)
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
        if self._is_library(function.__module__):
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

    def _is_library(self, module: str | None) -> bool:
        found = _is_library(module)
        if found and module is not None:
            self.libraries.add(module)
        return found

    def _closure(self, function: FunctionType) -> Any:
        cells = []
        for cell in function.__closure__ or ():
            try:
                cells.append(self.value(cell.cell_contents))
            except ValueError:  # a name that is bound later
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
        if self._is_library(kind.__module__):
            return described
        methods = {name: member for name, member in vars(kind).items() if isinstance(member, FunctionType)}
        described.append(self.value(methods))
        if not isinstance(value, type) and hasattr(value, "__dict__"):
            described.append(self.value(vars(value)))
        return described


def _names(code: CodeType) -> set[str]:
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _is_library(module: str | None) -> bool:
    """Tells whether a module is installed, and so of a version that the environment records, or the user's own."""
    if module is None:
        return False
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if loaded is None or file is None:
        return module in sys.builtin_module_names or module in sys.stdlib_module_names
    return any(file.startswith(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
