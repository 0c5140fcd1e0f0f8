"""A user's transform, applied and proved row-wise.

A step may be divided anyhow, run again, and handed changes; only what gives each row its output for itself comes out the same
(design.md, section 6). So the analysed plan is walked from the result down to the input against the lists of
`allowed.py`. Two nodes take more than one input, and are row-wise only as follows:

* a join with a static table, where every stream row is matched for itself: inner, left outer, left semi and left anti with
  the stream on the left, inner and right outer with it on the right. The static side has no aggregates either, and its
  content is part of the program's identity (`fingerprint.py`);
* a union whose branches are all made from the input: the output of a row is then the sum of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from boatlift.dataflow.advice import of_two
from boatlift.dataflow.columns import POSITION
from boatlift.errors import BoatliftError, InvalidError, UserCodeError
from boatlift.spark.plans.allowed import (
    AGGREGATE,
    NODES,
    NONDETERMINISTIC,
    NOT_ROW_WISE_EXPRESSIONS,
    NOT_ROW_WISE_NODES,
    ROW_WISE,
    STATIC_LEAVES,
    USER_FUNCTIONS,
)
from boatlift.spark.plans.catalyst import INPUT, Tree, analysed, is_input
from boatlift.spark.plans.fingerprint import fingerprint
from boatlift.spark.plans.step_functions import current_context
from boatlift.spark.plans.tracebacks import own_frames, place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["apply", "check_expressions", "check_row_wise"]

_OWN = f"{INPUT}own"
"""How the input is marked in a call that is made to see whether the function uses other frames."""

_SCALAR_UDF_TYPES = frozenset({100, 101, 200, 204, 250, 251})
"""Python UDFs that give one value a row: plain, Arrow-optimised, pandas, pandas iterator, Arrow, Arrow iterator."""


def apply(rows: DataFrame, function: Callable[[DataFrame], DataFrame], name: str) -> DataFrame:
    """Calls a user's transform.

    Args:
        rows: Its input.
        function: The user's function.
        name: The processor, for messages.

    Raises:
        UserCodeError: `[USER_CODE]` it raised, or gave no DataFrame; the cause is what it raised, with its own traceback.
        InvalidError: `[NO_ROW_POSITION]`, `[NOT_DETERMINISTIC]` from `bl.rand()` and the like.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import DataFrame

    context = current_context()
    if context is not None and context.positioned and POSITION not in rows.columns:
        context.positioned = False  # an earlier transform did not keep it
    try:
        result = function(rows)
    except BoatliftError:
        raise
    except Exception as error:
        if isinstance(error, AnalysisException) and f"with name `{POSITION}`" in str(error):
            raise InvalidError(
                "NO_ROW_POSITION",
                f"{name} draws from {POSITION}, which it did not keep: name the columns that tell rows apart, or draw before "
                "select(…)",
            ) from error
        own = own_frames(error.__traceback__)
        raise UserCodeError("USER_CODE", f"{name} raised {_summary(error)}{place(own)}") from error.with_traceback(own)
    if not isinstance(result, DataFrame):
        raise UserCodeError("USER_CODE", f"{name} gave a {type(result).__name__}: return the transformed DataFrame")
    return result


def check_row_wise(
    rows: DataFrame, function: Callable[[DataFrame], DataFrame], name: str, deterministic: bool | None = None
) -> DataFrame:
    """Applies a user's transform and proves that it is row-wise and gives the same rows on replay.

    Runs no job. The function is called twice, to see that it builds the same plan: so a Python clock in a literal is
    found as well.

    Args:
        rows: The input, empty or not.
        function: The user's function.
        name: The processor, for messages.
        deterministic: What the user declares. None: nothing, so UDFs are refused. True: the UDFs in it are deterministic.
            False: it is not deterministic; expressions whose value differs from run to run are let through.

    Returns:
        What the function gives.

    Raises:
        InvalidError: `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`, naming processor, offender, and what to use instead;
            `[NOT_ON_A_STREAM]` it uses the frame of another transform.
        UserCodeError: `[USER_CODE]` as `apply`.
    """
    marked = rows.alias(INPUT)
    context = current_context()
    calls = context.calls if context is not None else 0
    result = apply(marked, function, name)
    plan, own = analysed(result), analysed(marked)
    if any(
        node != own for node in _inputs(plan)
    ):  # a frame from elsewhere, or a union with itself, which Spark renumbers
        if context is not None:
            context.calls = calls
        _refuse_frames_from_elsewhere(analysed(apply(rows.alias(_OWN), function, name)), name)
    walk = _Walk(name, deterministic, of_transform=True)
    walk.check(plan)
    if deterministic is not False:
        if context is not None:
            context.calls = calls
        if fingerprint(apply(marked, function, name), content=False) != fingerprint(result, content=False):
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{name} builds another plan each time it is called, so a replay would differ: take clock and chance from "
                "bl.now(), bl.rand() and bl.uuid()",
            )
    return result


def _inputs(node: Tree) -> Iterator[Tree]:
    """Iterate over the topmost nodes that mark an input."""
    if is_input(node):
        yield node
    else:
        for child in node.children:
            yield from _inputs(child)


def _refuse_frames_from_elsewhere(node: Tree, name: str) -> None:
    """Refuse a plan in which an input is marked otherwise than that of its own call."""
    if is_input(node, _OWN):
        return
    if is_input(node):
        raise InvalidError(
            "NOT_ON_A_STREAM",
            f"{name} uses a DataFrame that another transform was handed, or the same one at another call, and can use the rows of its own "
            f"step and static tables alone: {of_two('stream', 'other')}",
        )
    for child in node.children:
        _refuse_frames_from_elsewhere(child, name)


def check_expressions(frame: DataFrame, name: str, deterministic: bool | None = None) -> None:
    """Checks the expressions of a frame's topmost node alone.

    Raises:
        InvalidError: as `check_row_wise`.
    """
    _Walk(name, deterministic).expressions(analysed(frame))


@dataclass(frozen=True, slots=True)
class _Walk:
    """One walk down a plan.

    Attributes:
        of_transform: Whether it is a transform's, which may be declared not to be deterministic.
    """

    name: str
    deterministic: bool | None
    of_transform: bool = False

    @property
    def _or_declare(self) -> str:
        declared = "; or declare transform(…, deterministic=False), so that its rows are recorded"
        return declared if self.of_transform else ""

    def check(self, plan: Tree) -> None:
        if not self._from_input(plan):
            raise self._not_row_wise("a result that is not made from its input", "the DataFrame that it is given")

    def _from_input(self, node: Tree) -> bool:
        """Checks the plan below a node; tells whether it is made from the input, or from static tables alone."""
        if is_input(node):
            return True
        if node.kind in NOT_ROW_WISE_NODES:
            what, instead = NOT_ROW_WISE_NODES[node.kind]
            if node.kind == "Aggregate":
                self.expressions(node)  # names the function, if there is one
            raise self._not_row_wise(f"{what} ({node.kind})", instead)
        if not node.children and node.kind in STATIC_LEAVES:
            if node.fields.get("isStreaming"):
                raise self._not_row_wise("a streaming DataFrame", "a source of the dataflow")
            return False
        if node.kind not in NODES:
            raise self._not_row_wise(f"{node.kind}, which is not known to be row-wise", "filters and projections")
        self.expressions(node)
        made = [self._from_input(child) for child in node.children]
        if node.kind == "Union" and len(set(made)) > 1:
            raise self._not_row_wise(
                "a union with a static table, whose rows would come again with every step", "a source of the dataflow"
            )
        if node.kind == "Join":
            self._check_join(node, made)
        return any(made)

    def _check_join(self, node: Tree, made: list[bool]) -> None:
        kind = node.fields["joinType"].get("object", "").rpartition(".")[2].rstrip("$") or "another kind of"
        left, right = made
        if left and right:
            raise self._not_row_wise(
                "a join of the stream with itself", "group_by(…).agg(…), or one pass over each row"
            )
        possible = ["Inner", "Cross"]
        possible += ["LeftOuter", "LeftSemi", "LeftAnti"] if left else ["RightOuter"]
        if (left or right) and kind not in possible:
            raise self._not_row_wise(
                f"a {kind} join that keeps rows of the static side (Join)",
                "an inner join, or an outer join that keeps the rows of the stream",
            )

    def expressions(self, node: Tree) -> None:
        for root in node.expressions():
            for expression in root.walk():
                self._check_expression(expression)

    def _check_expression(self, expression: Tree) -> None:
        kind = expression.kind
        if kind in ROW_WISE:
            if kind == "AttributeReference" and "__metadata_col" in (expression.fields.get("metadata") or {}):
                raise self._not_deterministic("_metadata", "a column that the source adds")
        elif kind in NONDETERMINISTIC:
            if self.deterministic is not False:
                raise self._not_deterministic(_readable(kind), NONDETERMINISTIC[kind] + self._or_declare)
        elif kind in USER_FUNCTIONS:
            self._check_user_function(expression)
        elif kind.startswith("aggregate.") or kind == "PythonUDAF":
            if kind != "aggregate.AggregateExpression":
                raise self._not_row_wise(f"the aggregate {_readable(kind)}", AGGREGATE)
        elif kind in NOT_ROW_WISE_EXPRESSIONS:
            raise self._not_row_wise(_readable(kind), NOT_ROW_WISE_EXPRESSIONS[kind])
        else:
            raise self._not_row_wise(f"{kind}, which is not known to be row-wise", "another expression")

    def _check_user_function(self, expression: Tree) -> None:
        name = expression.fields.get("name") or expression.fields.get("udfName") or _readable(expression.kind)
        name = name if isinstance(name, str) else _readable(expression.kind)
        if expression.kind == "PythonUDF" and expression.fields.get("evalType") not in _SCALAR_UDF_TYPES:
            raise self._not_row_wise(f"the UDF {name}, which does not give one value a row", "a scalar UDF")
        if self.deterministic is False:
            return
        if expression.fields.get("udfDeterministic") is False:
            instead = f"bl.now(), bl.rand() and bl.uuid(){self._or_declare}"
            raise self._not_deterministic(f"the UDF {name} (asNondeterministic)", instead)
        if self.deterministic is None:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{self.name} calls the UDF {name}, and Spark cannot tell whether it gives the same on replay: declare "
                "transform(…, deterministic=True) if it does",
            )

    def _not_row_wise(self, what: str, instead: str) -> InvalidError:
        return InvalidError("NOT_ROW_WISE", f"{self.name} holds {what}: use {instead}")

    def _not_deterministic(self, what: str, instead: str) -> InvalidError:
        return InvalidError(
            "NOT_DETERMINISTIC", f"{self.name} holds {what}, which differs from run to run: use {instead}"
        )


def _readable(kind: str) -> str:
    """Writes a class as the function a user knows: `CurrentTimestamp` as current_timestamp."""
    simple = kind.rpartition(".")[2]
    return "".join(
        f"_{letter.lower()}" if letter.isupper() and index and not simple[index - 1].isupper() else letter.lower()
        for index, letter in enumerate(simple)
    )


def _summary(error: Exception) -> str:
    first = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
