"""Key columns in which equal keys have equal bits."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from boatlift.dataflow.columns import quoted


def canonical_key(frame: DataFrame, name: str) -> Column:
    """Return a key column in which equal keys have equal bits: −0.0 becomes 0.0, every NaN the same one.

    Spark's own `groupBy` does this unseen; `repartition` and the hash of keys do not.
    """
    column = F.col(quoted(name))
    kind = frame.schema[name].dataType
    if not isinstance(kind, FloatType | DoubleType):
        return column
    zero, nan = F.lit(0.0).cast(kind), F.lit(float("nan")).cast(kind)
    return F.when(F.isnan(column), nan).otherwise(column + zero).alias(name)
