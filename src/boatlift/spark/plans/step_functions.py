"""`bl.now()`, `bl.rand()`, `bl.uuid()`: what replays the same way where Spark's own functions do not; `bl.call()`: what is recorded.

The first three read the step's determinants (design.md, section 6): the recorded clock and seed. A seed alone does not fix rows,
since another partition count would give other values: so each row's value is a hash of the seed, of which call it is,
and of the row's position at the source, or of columns that the user names.

Every literal that changes from step to step is a string that begins with `boatlift:step:`, so that `fingerprint` can
tell it apart.
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

__all__ = ["MARK", "StepContext", "call", "now", "rand", "step_context", "uuid"]

MARK = "boatlift:step:"
"""How a literal that changes from step to step begins; what follows up to the last colon does not change."""


@dataclass(slots=True)
class StepContext:
    """What is recorded of the step whose plan is being built.

    Attributes:
        clock_ms: The step's clock reading, in milliseconds since 1970.
        seed: The step's seed.
        processor: Whose plan is being built; two processors draw different values.
        positioned: Whether the frame at hand has the column `_position`.
        changes: Whether rows are changes, of which one must be able to take back another.
        durable: Whether what it gives is made durable before it is seen, and so may be another each time that it is executed.
        calls: How many values were drawn so far; each call is a stream of values of its own.
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
    """Lets `now`, `rand` and `uuid` see a step's determinants while its plan is built."""
    token = _CURRENT.set(context)
    try:
        yield context
    finally:
        _CURRENT.reset(token)


def current_context() -> StepContext | None:
    """Gives the context of the plan being built, if one is."""
    return _CURRENT.get()


def now() -> Column:
    """Gives the time at which the step was recorded, the same for all its rows and on replay (a timestamp).

    Raises:
        InvalidError: `[OUTSIDE_STEP]` called outside a transform; `[NOT_DETERMINISTIC]` over changes.
    """
    from pyspark.sql import functions as F

    context = _require("bl.now()")
    # As a string: the analysed plan then shows which literal it is. The optimiser makes a plain timestamp of it, which
    # stands in the generated code: this code is compiled anew for each step (20 to 40 ms for a small one).
    marked = F.lit(f"{MARK}now:{context.clock_ms}")
    return F.timestamp_millis(F.substring_index(marked, ":", -1).cast("long"))


def rand(*columns: Column | str) -> Column:
    """Gives a random number for each row, uniform in [0, 1), the same on replay (a double).

    Args:
        columns: What tells rows apart, where the source's rows have no position or the position was not kept: rows
            that are equal in all of them get the same number.

    Raises:
        InvalidError: `[OUTSIDE_STEP]`, `[NO_ROW_POSITION]`; `[NOT_DETERMINISTIC]` over changes.
    """
    from pyspark.sql import functions as F

    (bits,) = _draw("bl.rand()", columns, 1)
    # 53 bits are what a double holds; dividing by a power of two is exact.
    return F.shiftrightunsigned(bits, 11).cast("double") / F.lit(float(1 << 53))


def uuid(*columns: Column | str) -> Column:
    """Gives a random UUID (version 4) for each row, the same on replay (a string).

    Args:
        columns: As for `rand`.

    Raises:
        InvalidError: `[OUTSIDE_STEP]`, `[NO_ROW_POSITION]`; `[NOT_DETERMINISTIC]` over changes.
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
    """Asks the outside world for each row, and records its answer (seed 004's external call).

    It may be asked more than once: again, if a task or a process dies before its answer is durable. But whatever was seen of an
    answer, here or outside, is of the one that is recorded; once it is, nobody asks again.

    Args:
        function: Takes the values of the columns of a row, as a plain Python UDF does; runs where the tasks run.
        columns: What it is asked about.
        returns: The type of its answers, as Spark writes it.

    Raises:
        InvalidError: `[OUTSIDE_STEP]`; `[NOT_DETERMINISTIC]` over changes, or in a transform that is not declared with
            `deterministic=False`. (What is recomputed need not be declared: it is durable before it is seen in any case.)
    """
    from pyspark.sql import functions as F

    said = getattr(function, "__name__", type(function).__name__)
    context = _require(f"bl.call({said})")
    if not context.durable:
        raise InvalidError(
            "NOT_DETERMINISTIC",
            f"{context.processor} calls {said}, which may answer otherwise when it is asked again: declare "
            "transform(…, deterministic=False), so that answers are recorded",
        )
    return F.udf(function, returns, useArrow=False).asNondeterministic()(*columns)


def _draw(what: str, columns: tuple[Column | str, ...], words: int) -> list[Column]:
    """Gives independent 64-bit hashes of the seed, this call and the row."""
    from pyspark.sql import functions as F

    context = _require(what)
    if not columns and not context.positioned:
        raise InvalidError(
            "NO_ROW_POSITION",
            f"{what} in {context.processor}: these rows carry no {POSITION}, so nothing tells them apart: name columns "
            f"that do, as in {what[:-1]}'order_id')",
        )
    row = [F.col(c) if isinstance(c, str) else c for c in columns] or [F.col(POSITION)]
    # NULL leaves a hash as it is: without its own flag, (NULL, 1) and (1, NULL) would draw the same value.
    parts = [part for column in row for part in (column.isNull(), column)]
    call = context.calls
    context.calls += 1
    # A string is handed to generated code by reference: the code stays the same from step to step.
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
            f"{what} in {context.processor}, whose rows are changes: a row would be taken back with another value than "
            "it had: call it before the aggregate",
        )
    return context
