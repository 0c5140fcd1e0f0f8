"""`bl.now()`, `bl.rand()` and `bl.uuid()`, which replay with equal values; `bl.call()`, whose answers are recorded.

The first three use the step's determinants (docs/design.md, section 6): its recorded clock and seed. A seed does not
determine the value of a row, because another number of partitions would draw other values. So a value is a hash of the
seed, the number of the call, and the row's position at the source or columns that the user names.

A literal that changes from step to step is a string with the prefix `boatlift:step:`, which `fingerprint` recognises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boatlift.dataflow.columns import POSITION
from boatlift.errors import InvalidError

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

MARK = "boatlift:step:"
"""The prefix of a literal that changes from step to step; the text up to the last colon does not change."""


@dataclass(slots=True)
class StepContext:
    """The determinants of the step whose plan is being built, and the draws in it.

    Attributes:
        clock_ms: The step's clock reading, in milliseconds since 1970.
        processor: The processor whose plan is being built; two processors draw different values.
        positioned: Whether the frame has the column `_position`.
        changes: Whether rows are changes, so that a later row must be able to retract an earlier one.
        durable: Whether the rows are durable before they are visible, so that another execution may give other rows.
        calls: The number of draws so far; each draw has values of its own.
    """

    clock_ms: int
    seed: int
    processor: str
    positioned: bool
    changes: bool = False
    durable: bool = False
    calls: int = field(default=0, compare=False)


_CURRENT: ContextVar[StepContext | None] = ContextVar("boatlift_step", default=None)


@contextmanager
def step_context(context: StepContext) -> Iterator[StepContext]:
    """Let `now`, `rand` and `uuid` use a step's determinants in plans that are built in this block."""
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


def current_context() -> StepContext | None:
    """Return the context of the plan that is being built; None if none is."""
    return _CURRENT.get()


def now() -> Column:
    """Return the time at which the step was recorded, a timestamp: equal for all its rows and on replay.

    Raises:
        InvalidError: `[OUTSIDE_STEP]` outside a transform; `[NOT_DETERMINISTIC]` over changes.

    Examples:
        >>> seen = flights.transform("seen", lambda df: df.withColumn("seen_at", bl.now()))
    """
    from pyspark.sql import functions as F

    context = _require("bl.now()")
    # The analysed plan shows the string. The optimiser makes a plain timestamp of it in the generated code, which is
    # compiled again for each step (20 to 40 ms for a small one).
    marked = F.lit(f"{MARK}now:{context.clock_ms}")
    return F.timestamp_millis(F.substring_index(marked, ":", -1).cast("long"))


def rand(*columns: Column | str) -> Column:
    """Return a random number for each row, a double: uniform in [0, 1), and equal on replay.

    Args:
        columns: The columns that identify a row, needed if the rows have no position: rows that are equal in all of
            them get the same number.

    Raises:
        InvalidError: `[OUTSIDE_STEP]` outside a transform; `[NO_ROW_POSITION]` the rows have no position, and no column
            is named; `[NOT_DETERMINISTIC]` over changes.

    Examples:
        >>> sample = flights.transform("sample", lambda df: df.where(bl.rand("origin", "at") < 0.1))
    """
    from pyspark.sql import functions as F

    (bits,) = _draw("bl.rand()", columns, 1)
    # A double holds 53 bits, and a division by a power of two is exact.
    return F.shiftrightunsigned(bits, 11).cast("double") / F.lit(float(1 << 53))


def uuid(*columns: Column | str) -> Column:
    """Return a random UUID (version 4) for each row, a string: equal on replay.

    Raises:
        InvalidError: as for `rand`.

    Examples:
        >>> named = flights.transform("named", lambda df: df.withColumn("id", bl.uuid("origin", "at")))
    """
    from pyspark.sql import functions as F

    high, low = _draw("bl.uuid()", columns, 2)
    high_hex, low_hex = (F.lpad(F.lower(F.hex(bits)), 16, "0") for bits in (high, low))
    variant = F.substring(F.lit("89ab"), F.shiftrightunsigned(low, 62).cast("int") + 1, F.lit(1))
    return F.concat_ws(
        "-",
        F.substring(high_hex, 1, 8),
        F.substring(high_hex, 9, 4),
        F.concat(F.lit("4"), F.substring(high_hex, 14, 3)),
        F.concat(variant, F.substring(low_hex, 2, 3)),
        F.substring(low_hex, 5, 12),
    )


def call(function: Callable[..., Any], *columns: Column | str, returns: DataType | str = "string") -> Column:
    """Ask an external system about each row, and record the answer.

    The function may be called more than once for a row, if a task or a process dies before the answer is durable. But
    only the recorded answer ever has effects. Once an answer is recorded, the function is not called for it again.

    Args:
        function: A function of the values of the columns of a row, as a plain Python UDF; it runs in the tasks.
        columns: Its arguments.
        returns: The type of the answers, as Spark writes it.

    Raises:
        InvalidError: `[OUTSIDE_STEP]` outside a transform; `[NOT_DETERMINISTIC]` over changes, or in a transform
            without `deterministic=False`. A recomputation needs no such declaration, because its rows are always
            durable before they are visible.

    Examples:
        >>> def ask(df):
        ...     return df.withColumn("letters", bl.call(len, "origin", returns="INT"))
        >>> asked = flights.transform("asked", ask, deterministic=False)
    """
    from pyspark.sql import functions as F

    called = getattr(function, "__name__", type(function).__name__)
    context = _require(f"bl.call({called})")
    if not context.durable:
        raise InvalidError(
            "NOT_DETERMINISTIC",
            f"{context.processor} calls {called}, whose answer may be another one at the next call: declare "
            "transform(…, deterministic=False), so that answers are recorded",
        )
    return F.udf(function, returns, useArrow=False).asNondeterministic()(*columns)


def _draw(what: str, columns: tuple[Column | str, ...], words: int) -> list[Column]:
    """Return independent 64-bit hashes of the seed, this draw and the row."""
    from pyspark.sql import functions as F

    context = _require(what)
    if not columns and not context.positioned:
        raise InvalidError(
            "NO_ROW_POSITION",
            f"{what} in {context.processor}: these rows carry no {POSITION}, so nothing identifies them: name columns "
            f"that do, such as {what[:-1]}'order_id')",
        )
    row = [F.col(c) if isinstance(c, str) else c for c in columns] or [F.col(POSITION)]
    # NULL does not change a hash: without a flag, (NULL, 1) and (1, NULL) would draw the same value.
    parts = [part for column in row for part in (column.isNull(), column)]
    call = context.calls
    context.calls += 1
    # Generated code holds a reference to the string, so the code is the same for all steps.
    return [
        F.xxhash64(F.lit(f"{MARK}draw:{context.processor}:{call}:{word}:{context.seed}"), *parts)
        for word in range(words)
    ]


def _require(what: str) -> StepContext:
    context = _CURRENT.get()
    if context is None:
        raise InvalidError("OUTSIDE_STEP", f"{what} is known only while a step is built: call it inside a transform")
    if context.changes:
        raise InvalidError(
            "NOT_DETERMINISTIC",
            f"{what} in {context.processor}, whose rows are changes: call it before the aggregate, or a row would be "
            "taken back with another value than it had",
        )
    return context
