"""The hash of a plan: part of a program's identity, and equal in every process.

It is a hash of the analysed plan: what the user wrote, resolved, in the user's order. It ignores expression ids, the
session, hashes of the JVM, the input rows, the names of streams and subqueries, and the literals of `bl.now()` and
`bl.rand()`. It changes with every expression, literal, column name and type, with the code of a UDF, and with the rows
of a joined static table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import xxhash
from pyspark import StorageLevel

from boatlift.spark.plans.allowed import STATIC_LEAVES
from boatlift.spark.plans.catalyst import (
    INPUT,
    Tree,
    analysed,
    analysed_text,
    is_input,
    literals,
    python_functions,
    subplan,
)
from boatlift.spark.plans.function_code import describe_pickled, versions_of_libraries
from boatlift.spark.plans.step_functions import MARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_IGNORED_FIELDS = frozenset(
    {
        "jvmId",
        "qualifier",
        "nonInheritableMetadataKeys",
        "resultId",
        "session",
        "rdd",
        "desc",  # of a view, whose plan is below it
        "__dataset_id",
        "__col_position",
    }
)
"""Fields that differ between sessions and do not affect the result."""

_COUNTED = {"CTERelationDef": "id", "CTERelationRef": "cteId", "UnionLoop": "id", "UnionLoopRef": "loopId"}
"""Node to its field with a number of a common table expression, which a counter of the JVM sets."""

_TASK = "MapInArrow"
"""The node of Boatlift's own tasks, which read runs or look rows up."""

_STEP_LITERAL = re.compile(re.escape(MARK) + r"(?:(draw):[^\s,():]*)?([^\s,()]*):-?\d+")  # a processor may be renamed
_NODE = re.compile(r"[ :]*[:+]- ")
_RESOLVED_NAME = re.compile(r"^(SubqueryAlias|View \() ?(?:`[^`]*`|[^,]*)")
"""A name of a stream or subquery in the user's text; nothing above refers to it by name."""

_LAMBDA_NAME = re.compile(r"lambda \w+#")
_EXPRESSION_ID = re.compile(r"#(\d+)")
_COUNTED_IN_TEXT = re.compile(r"\b(CTERelationDef|CTERelationRef|UnionLoop|UnionLoopRef) (\d+)")
_ARRAY = re.compile(r"\[[BCDFIJSZ]@[0-9a-f]+")
"""A Java array, printed by its identity."""
_BYTES = "[bytes]"


@dataclass(slots=True)
class Reached:
    """What plans that were hashed reach beside the text of their operator.

    Attributes:
        tables: Whether they have static rows.
        functions: Their Python functions, pickled.
    """

    tables: bool = False
    functions: list[bytes] = field(default_factory=list)


_reached: ContextVar[Reached] = ContextVar("_reached")


@contextmanager
def reaching() -> Iterator[Reached]:
    """Note what the plans that are hashed meanwhile reach."""
    reset = _reached.set(Reached())
    try:
        yield _reached.get()
    finally:
        _reached.reset(reset)


def note_tables(contents: list[Any]) -> None:
    """Note the digests of static tables that a plan has, if there are any."""
    if contents and (reached := _reached.get(None)) is not None:
        reached.tables = True


def fingerprint(frame: DataFrame, *, content: bool = True) -> str:
    """Return the canonical hash of a frame's analysed plan: 32 hexadecimal digits (xxh3-128).

    Args:
        frame: Built from the input that `check_row_wise` marked. Without a mark every leaf counts by its schema.
        content: Whether static tables count by their rows, which one Spark job each reads.
    """
    plan = analysed(frame)
    marked = any(is_input(node) for node in plan.walk())
    parts = written(frame, plan)
    if content and marked:
        parts.append([content_of(subplan(frame, path)) for path in _static_leaves(plan)])
        note_tables(parts[-1])
    return xxhash.xxh3_128_hexdigest(json.dumps(parts, sort_keys=True).encode())


def written(frame: DataFrame, plan: Tree, more: str = "") -> list[Any]:
    """Return a frame's computation as JSON values that are equal in every process.

    Args:
        more: A text with expression ids, which get the same numbers as in the plan.
    """
    text = analysed_text(frame)
    parts: list[Any] = [canonical(plan), canonical_text(text, more)]
    if calls_python(frame):
        functions = python_functions(frame)
        parts.append(list(map(describe_pickled, functions)))
        if (reached := _reached.get(None)) is not None:
            reached.functions += functions
    if _BYTES in json.dumps(parts):
        parts.append(literals(frame))
    return parts


def libraries(frame: DataFrame) -> dict[str, str]:
    """Return the versions of the packages that a plan's Python UDFs use; the hash ignores them."""
    return versions_of_libraries(python_functions(frame) if calls_python(frame) else ())


def calls_python(frame: DataFrame) -> bool:
    """Return whether a plan has Python UDFs."""
    return any(part.kind == "PythonUDF" for part in analysed(frame).parts())


def shape(frame: DataFrame, *, functions: bool) -> str:
    """Return a hash that differs if a step's plan is built differently from the last step's; one call into the JVM.

    Args:
        frame: Built from input with the mark. Nodes below the mark and a step's literals are ignored.
        functions: Whether the code of Python UDFs counts, which takes many calls.

    Returns:
        32 hexadecimal digits (xxh3-128); comparable within one process.
    """
    parts: list[Any] = [canonical_text(analysed_text(frame))]
    if functions:
        parts.append([describe_pickled(command) for command in python_functions(frame)])
    return xxhash.xxh3_128_hexdigest(json.dumps(parts).encode())


def pin_static_tables(frame: DataFrame) -> list[DataFrame]:
    """Persist static tables, so that all steps of this process join with the same rows.

    Returns:
        The frames to unpersist at the end, which exclude tables that the user had cached.
    """
    plan = analysed(frame)
    tables = [subplan(frame, path) for path in _static_leaves(plan)] if any(map(is_input, plan.walk())) else []
    return [table.persist() for table in tables if table.storageLevel == StorageLevel.NONE]


def canonical(plan: Tree) -> Any:
    """Return a plan as JSON values that are equal for equal plans: ids are numbered in order of appearance."""
    return _Canonical().node(plan)


class _Canonical:
    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._counted: dict[int, int] = {}

    def node(self, tree: Tree) -> Any:
        if _is_origin(tree):
            return ["input"]
        if not tree.children and "output" in tree.fields:
            # Only the schema of a leaf counts: a source has an identity of its own.
            return ["leaf", self.value(tree.fields["output"])]
        fields = self._without_counts(tree.kind, tree.fields)
        if tree.kind == "SubqueryAlias":
            fields = {}  # all names are resolved
        return [tree.kind, self.value(fields), [self.node(child) for child in tree.children]]

    def value(self, value: Any) -> Any:
        if isinstance(value, dict):
            if value.get("product-class", "").endswith(".ExprId"):
                return self._numbers.setdefault(value["id"], len(self._numbers))
            kind = value.get("class", "").rpartition(".")[2]
            ignored = _IGNORED_FIELDS
            if kind == "NamedLambdaVariable":
                ignored |= {"name"}  # numbered by a counter of the JVM
            elif kind == "SubqueryAlias":  # of a plan in an expression; all names are resolved
                ignored |= {"identifier"}
            fields = self._without_counts(kind, value)
            return {k: self.value(v) for k, v in fields.items() if k not in ignored}
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, str):
            return _ARRAY.sub(_BYTES, _STEP_LITERAL.sub(r"step:\1\2", value))
        return value

    def _without_counts(self, kind: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a node, with common table expressions numbered in order of appearance."""
        name = _COUNTED.get(kind)
        if name not in fields:
            return fields
        return {**fields, name: self._counted.setdefault(fields[name], len(self._counted))}


def _is_origin(tree: Tree) -> bool:
    """Return whether a node marks the first transform's input: below it are nodes of a source or of Boatlift."""
    if not is_input(tree):
        return False
    own_task = tree.children[0].kind == _TASK
    return own_task or not any(is_input(below) for child in tree.children for below in child.walk())


def canonical_text(text: str, more: str = "") -> str:
    """Return a printed plan with its options, and more text, without parts that differ from run to run."""
    mark = f"SubqueryAlias {INPUT}"
    printed = [*_printed(text), *_printed(more, nodes=False)]
    lines: list[str] = []
    numbers: dict[str, int] = {}
    counted: dict[str, int] = {}
    origin: int | None = None
    for index, (depth, indent, content) in enumerate(printed):
        if origin is not None and depth > origin:
            continue
        origin = None
        if content.startswith(mark):
            below = [line for *_, line in takewhile(lambda line: line[0] > depth, printed[index + 1 :])]  # noqa: B023 used at once
            own_task = bool(below) and below[0].startswith(_TASK)
            if own_task or not any(line.startswith(mark) for line in below):
                origin, content = depth, "input"
        elif content.startswith((*STATIC_LEAVES, "Relation")):
            content = "leaf"
        content = _RESOLVED_NAME.sub(r"\1", content)
        content = _STEP_LITERAL.sub(r"step:\1\2", content)
        content = _LAMBDA_NAME.sub("lambda #", content)
        content = _EXPRESSION_ID.sub(lambda found: f"#{numbers.setdefault(found[1], len(numbers))}", content)
        content = _COUNTED_IN_TEXT.sub(
            lambda found: f"{found[1]} {counted.setdefault(found[2], len(counted))}", _ARRAY.sub(_BYTES, content)
        )
        lines.append(f"{indent} {content}")
    return "\n".join(lines)


def _printed(text: str, *, nodes: bool = True) -> Iterator[tuple[int, int, str]]:
    """Yield the lines of a text: the depth of its node, the line's own indent, and the rest.

    Args:
        text: A printed plan. A literal with line ends spreads one node over several lines.
        nodes: Whether lines are nodes; else each has depth 0.
    """
    depth = 0
    for line in text.splitlines():
        content = line.lstrip(" :+-")
        indent = len(line) - len(content)
        if nodes and _NODE.match(line):
            depth = indent
        yield depth, indent, content


def _static_leaves(plan: Tree) -> Iterator[tuple[int, ...]]:
    if _is_origin(plan):
        return
    if not plan.children and plan.kind in STATIC_LEAVES:
        yield ()
    for index, child in enumerate(plan.children):
        for path in _static_leaves(child):
            yield (index, *path)


def content_of(table: DataFrame) -> list[str]:
    """Return a digest of a static table's rows that ignores their order: their number, and the sum of their hashes."""
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
