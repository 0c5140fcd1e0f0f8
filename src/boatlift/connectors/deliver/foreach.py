"""A sink that is a function of the user's."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
from typing import Any

from boatlift.connectors.deliver.sink import DeliveringSink, StepPart
from boatlift.connectors.kit import checked_options, whole_number
from boatlift.errors import InvalidError, UnavailableError


@checked_options("bl.foreach")
def foreach(function: Callable[..., object], *, parts: int = 1) -> DeliveringSink:
    """Return a sink that calls a function with the rows of each step, at least once.

    Tasks call the function, with steps in order. Only the step under way may come again after a failure, with the same
    rows in the same order: so a function with effects that are idempotent by the step's number is exact. A task of a
    killed process may end late, after the next process has delivered later steps: a function that overwrites must
    compare the number of the step. A step without rows makes no call. An error of the function counts as a failure of
    the external system: the step is retried a few times, then the dataflow stops.

    Args:
        function: Takes the rows, a `pyarrow.Table`, and the step's number: `function(rows, step)`; with several parts
            also the part's number: `function(rows, step, part)`. If rows are changes, `_weight` is −1 or +1.
        parts: The number of parts of a step, which are delivered at the same time, each by a call of its own.

    Raises:
        InvalidError: `[BAD_OPTION]`.

    Examples:
        >>> flights.sink("seen", bl.foreach(lambda rows, step: print(step, rows.num_rows)))
    """
    wanted = ("rows", "step") if whole_number("parts", parts) == 1 else ("rows", "step", "part")
    if not callable(function):
        raise InvalidError("BAD_OPTION", f"function is {function!r}: give a function of ({', '.join(wanted)})")
    try:
        signature(function).bind(*wanted)
    except TypeError as error:
        raise InvalidError(
            "BAD_OPTION",
            f"bl.foreach calls its function with ({', '.join(wanted)}), and {_name(function)} does not take these: "
            f"{error}",
        ) from None
    except ValueError:  # a function in C has no signature
        pass
    about = {"kind": "foreach", "function": _name(function), "parts": parts}
    return DeliveringSink(_Call(function, _name(function), with_part=parts > 1), about, parts, (function,))


def _name(function: Callable[..., object]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))


@dataclass(frozen=True, slots=True)
class _Call:
    """Calls a function of the user's for a part."""

    function: Callable[..., Any]
    name: str
    with_part: bool

    def __call__(self, part: StepPart) -> None:
        numbers = (part.step, part.part) if self.with_part else (part.step,)
        try:
            self.function(part.rows, *numbers)
        except Exception as error:
            text = " ".join(str(error).split())
            at = traceback.extract_tb(error.__traceback__)[-1]
            raise UnavailableError(
                "SINK_FAILED",
                f"{self.name} raised at step {part.step} of sink {part.sink}: {type(error).__name__}: {text} "
                f"({at.filename}, line {at.lineno}); mend that and run again, or leave the step out with --skip "
                f"{part.sink}:{part.step}",
            ) from error
