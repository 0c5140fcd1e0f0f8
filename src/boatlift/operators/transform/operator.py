"""The transform: a row-wise function of the user, `DataFrame -> DataFrame`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from boatlift.dataflow.operator import Operator
from boatlift.dataflow.policies import Policy
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Transform"]


@dataclass(frozen=True, slots=True)
class Transform(Operator):
    """A row-wise function.

    Attributes:
        vouched: True if the user vouches for the Python functions in it; None if there is nothing to vouch for; False
            if the same rows may give others when it is executed again.
    """

    kind: ClassVar[str] = "transform"

    name: str
    upstream: str
    function: Callable[[DataFrame], DataFrame]
    vouched: bool | None
    policy: Policy

    @property
    def reads(self) -> tuple[str, ...]:
        """The one processor whose rows it transforms."""
        return (self.upstream,)

    @property
    def deterministic(self) -> bool:
        """True if executing it again gives the same rows; if False, the transform is eager."""
        return self.vouched is not False

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's function."""
        return (self.function,)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        """Return rows of the same kind; which columns tell them apart is not known any more.

        Raises:
            InvalidError: `[BAD_RECOMPUTATION]` of whole tables; `[NOT_DETERMINISTIC]` a function that may give other
                rows, of changes.
        """
        (taken,) = inputs
        if taken.kind is RowKind.TABLE:
            raise InvalidError(
                "BAD_RECOMPUTATION",
                f"{self.name} takes from {self.upstream}, which gives a whole table every time: put what {self.name} "
                f"does into the function of {self.upstream}; a sink can take the table, and a lookup",
            )
        if taken.kind is RowKind.CHANGES and not self.deterministic:
            raise InvalidError(
                "NOT_DETERMINISTIC",
                f"{self.name} is not deterministic, and takes changes of rows from {self.upstream}: a row would be "
                "taken back with another value than it had: do it before the aggregate",
            )
        return replace(taken, origin=self.name, rereadable=taken.rereadable and self.deterministic, unique=None)
