"""Checks a plan against the lists of `allowed.py`, from its result down to its input.

Two nodes with more than one input are row-wise in some cases:

* A join with a static table, which matches every stream row on its own: inner, left outer, left semi and left anti with
  the stream on the left; inner and right outer with the stream on the right. The static side has no aggregates, and its
  rows are part of the program's identity (`fingerprint.py`).
* A union whose branches are all made from the input: the output of a row is the sum of the branches' outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

from boatlift.errors import InvalidError
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
from boatlift.spark.plans.catalyst import Tree, is_input

_SCALAR_UDF_TYPES = frozenset({100, 101, 200, 204, 250, 251})
"""Python UDFs with one value per row: plain, Arrow-optimised, pandas, pandas iterator, Arrow, Arrow iterator."""


@dataclass(frozen=True, slots=True)
class PlanCheck:
    """A check of one processor's plan.

    Attributes:
        deterministic: The user's declaration, as for `check_row_wise`.
        of_transform: Whether it is a transform, which may be declared nondeterministic.
    """

    name: str
    deterministic: bool | None
    of_transform: bool = False

    @property
    def _or_declare(self) -> str:
        declared = "; or declare transform(…, deterministic=False), so that its rows are recorded"
        return declared if self.of_transform else ""

    def check(self, plan: Tree) -> None:
        """Raise if a plan is not row-wise, or may differ on replay.

        Raises:
            InvalidError: `[NOT_ROW_WISE]`, `[NOT_DETERMINISTIC]`.
        """
        if not self._from_input(plan):
            raise self._not_row_wise("a result that is not made from its input", "the DataFrame that it is given")

    def _from_input(self, node: Tree) -> bool:
        """Check the plan below a node; return True if it is made from the input, False if from static tables only."""
        if is_input(node):
            return True
        if node.kind in NOT_ROW_WISE_NODES:
            what, instead = NOT_ROW_WISE_NODES[node.kind]
            if node.kind == "Aggregate":
                self.expressions(node)  # its error names the function, if one is to blame
            raise self._not_row_wise(f"{what} ({node.kind})", instead)
        if not node.children and node.kind in STATIC_LEAVES:
            if node.fields.get("isStreaming"):
                raise self._not_row_wise("a streaming DataFrame", "a source of the dataflow")
            return False
        if node.kind not in NODES:
            raise self._not_row_wise(f"{node.kind}, which is not known to be row-wise", "filters and projections")
        self.expressions(node)
        streamed = [self._from_input(child) for child in node.children]
        if node.kind == "Union" and len(set(streamed)) > 1:
            raise self._not_row_wise(
                "a union with a static table, whose rows would come again with every step", "a source of the dataflow"
            )
        if node.kind == "Join":
            self._check_join(node, streamed)
        return any(streamed)

    def _check_join(self, node: Tree, streamed: list[bool]) -> None:
        kind = node.fields["joinType"].get("object", "").rpartition(".")[2].rstrip("$") or "another kind of"
        left, right = streamed
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
        """Raise as `check` does, for the expressions of one node."""
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
            raise self._not_row_wise(f"the UDF {name}, which does not return one value a row", "a scalar UDF")
        if self.deterministic is False:
            return
        if expression.fields.get("udfDeterministic") is False:
            instead = f"bl.now(), bl.rand() and bl.uuid(){self._or_declare}"
            raise self._not_deterministic(f"the UDF {name} (asNondeterministic)", instead)
        if self.deterministic is None:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{self.name} calls the UDF {name}, and Spark does not know whether a replay gives the same: declare "
                "transform(…, deterministic=True) if it does",
            )

    def _not_row_wise(self, what: str, instead: str) -> InvalidError:
        return InvalidError("NOT_ROW_WISE", f"{self.name} holds {what}: use {instead}")

    def _not_deterministic(self, what: str, instead: str) -> InvalidError:
        return InvalidError(
            "NOT_DETERMINISTIC", f"{self.name} holds {what}, which differs from run to run: use {instead}"
        )


def _readable(kind: str) -> str:
    """Return the SQL name of an expression class: current_timestamp for `CurrentTimestamp`."""
    simple = kind.rpartition(".")[2]
    return "".join(
        f"_{letter.lower()}" if letter.isupper() and index and not simple[index - 1].isupper() else letter.lower()
        for index, letter in enumerate(simple)
    )
