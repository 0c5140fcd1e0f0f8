"""The view: the result of a query, as changes; and the query of upserts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.contracts import Json
from boatlift.dataflow.operator import KeyedOperator, Operator
from boatlift.dataflow.policies import Ephemeral
from boatlift.dataflow.rows import RowKind, Rows
from boatlift.errors import InvalidError
from boatlift.operators.view.meeting import Meeting, OfMeeting, meeting_of
from boatlift.operators.view.mutual import MutualBodies

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class LoopRows:
    """The rows that a loop iterates over.

    Attributes:
        outputs: Stream to the columns of its rows, as Spark writes a schema, such as `a LONG, b LONG`; the one stream
            of a loop with one body is named "".
        most_iterations: A step with more iterations fails.
        keep_every: The seconds between the loop checkpoints of a step: a killed step continues from its last one.
    """

    outputs: tuple[tuple[str, str], ...]
    most_iterations: int
    keep_every: float = 10.0


@dataclass(frozen=True, slots=True)
class View(KeyedOperator):
    """Keeps the result of a query over streams up to date, as changes.

        flow.sql("late", "SELECT origin, count(*) AS n FROM flights WHERE arr_delay > 60 GROUP BY origin")

    Its inputs are the streams that the query reads.

    Law: after every step, the sum of the view's changes is Spark's result of the same query over the sum of the changes
    of its inputs, as a bag of rows.

    Attributes:
        query: SQL over streams as tables; or a function of a DataFrame for each stream, in order.
        deterministic_code: True: the Python functions that the query calls give the same value for the same arguments.
            None: they are refused.
        now: The period of `now()` in microseconds: it is the time of the newest tick, rounded down to the period. None:
            a query may have `now()` only in conditions such as `at > now() - INTERVAL 1 HOUR`.
        loop: The rows of a loop, if the view is one. The query is then a function of a DataFrame of the rows of an
            iteration, and those of the streams; it returns the rows of the next iteration. The view is the least fixed
            point: the rows of the iteration, counted from one without rows, after which none changes any.
    """

    kind = "view"
    of_steps = ""
    query: str | Callable[..., DataFrame]
    deterministic_code: bool | None = None
    loop: LoopRows | None = None
    now: int | None = None

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        if isinstance(self.query, MutualBodies):
            return tuple(self.query.bodies.values())
        return () if isinstance(self.query, str) else (self.query,)

    def rows(self, inputs: Sequence[Rows]) -> Rows:
        for taken in inputs:
            if taken.kind is RowKind.TABLE:
                raise InvalidError(
                    "BAD_VIEW",
                    f"{self.name} reads {taken.origin}, which gives {taken.kind.value}: a view takes rows and changes",
                )
        return Rows(self.name, RowKind.CHANGES, source_times=all(each.source_times for each in inputs))

    def after_meeting(self, inputs: Sequence[Rows], taken: Collection[str]) -> tuple[Operator, ...]:
        if len(inputs) == 1 or all(each.source_times for each in inputs):
            return (self,)
        names = (f"{meeting_of(self.name)}{number}" for number in ("", *range(2, len(taken) + 3)))
        met = Meeting(next(each for each in names if each not in taken), self.reads, Ephemeral(), self.name)
        return met, replace(self, reads=(met.name,), query=OfMeeting(self.name, self.query, self.reads))

    def fuses(self, read: int) -> bool:
        del read
        return True  # an operator that the view alone reads is a part of the plans of its jobs

    def describe(self) -> Json:
        query = self.query.query if isinstance(self.query, OfMeeting) else self.query
        written: Json = {"written": "sql" if isinstance(query, str) else "function"}
        if self.loop is None:
            return written
        return {**written, "loop": dict(self.loop.outputs)}  # more iterations give the same rows


_PLACE = "_place"


def newest_rows(key: tuple[str, ...], order: str, deletes: str | None) -> Callable[[DataFrame], DataFrame]:
    """Return a query of the latest row of each key, unless that row deletes the key.

    Args:
        order: The order, in SQL; a row without a place in it (NULL) comes first.
        deletes: In SQL, whether a row deletes its key; None: no row does.
    """

    def newest(rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F
        from pyspark.sql.window import Window

        from boatlift.dataflow.columns import quoted

        columns = [F.col(quoted(column)) for column in key]
        place = F.row_number().over(Window.partitionBy(*columns).orderBy(F.expr(order).desc_nulls_last()))
        last = rows.withColumn(_PLACE, place).where(f"{_PLACE} = 1").drop(_PLACE)
        return last if deletes is None else last.where(~F.coalesce(F.expr(deletes), F.lit(False)))

    return newest


def held_rows(key: tuple[str, ...], order: str, deletes: str) -> Callable[[DataFrame], DataFrame]:
    """Return a query of the rows that hold, without the columns of order and deletion."""
    newest = newest_rows(key, order, deletes)
    return lambda rows: newest(rows).drop(order, deletes)
