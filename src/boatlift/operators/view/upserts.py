"""The query of upserts: of each key the row that is last in an order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE = "_place"


def newest_rows(key: tuple[str, ...], order: str, deletes: str | None) -> Callable[[DataFrame], DataFrame]:
    """Return a query of the latest row of each key, unless that row deletes the key.

    Args:
        key: The columns of the key.
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
    """Return a query of the rows that hold, without the columns of order and deletion.

    Args:
        key: The columns of the key.
        order, deletes: The columns with the order, and with whether a row deletes its key.
    """
    newest = newest_rows(key, order, deletes)
    return lambda rows: newest(rows).drop(order, deletes)
