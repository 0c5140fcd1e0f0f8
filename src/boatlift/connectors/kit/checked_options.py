"""Checks of calls: a missing or unknown argument is an error with a condition."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, getmembers, isfunction, signature
from typing import ParamSpec, TypeVar

from boatlift.dataflow.policies import Batch, seconds_in
from boatlift.errors import InvalidError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=type)

_NEW_NAMES = {"patience": "retry_for", "max_rounds": "max_iterations", "resident": "long_running"}
"""Options by their old names."""


class CallInvalidError(InvalidError, TypeError):
    """`[BAD_OPTION]`, also a TypeError, as Python raises for such a call."""


def checked_options(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that refuses a call whose arguments do not fit the function, and says what to write.

    Args:
        name: The function's name, as users write it: `bl.sqlite`.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        called = signature(function)
        parameters = [each for each in called.parameters.values() if each.name != "self"]
        bound = len(called.parameters) - len(parameters)

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                called.bind(*args, **kwargs)
            except TypeError as error:
                flaw = _flaw(parameters, len(args) - bound, kwargs, whole=bound > 0) or f"cannot be called so: {error}"
                raise CallInvalidError("BAD_OPTION", f"{name} {flaw}") from None
            return function(*args, **kwargs)

        return checked

    return decorated


def checked_methods(cls: C) -> C:
    """Apply `checked_options` to each public method of a class, inherited ones included."""
    for name, method in getmembers(cls, isfunction):
        if not name.startswith("_"):
            setattr(cls, name, checked_options(f"{cls.__name__}.{name}")(method))
    return cls


def whole_number(name: str, value: object) -> int:
    """Return the value of an option that must be a whole number from 1 on."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidError("BAD_OPTION", f"{name} is {value!r}: give a whole number from 1 on")
    return value


def gathering(every: str | None, rows: int | None) -> Batch | None:
    """Return the bounds of a step of a sink that gathers steps; None if it does not.

    Args:
        every: A period, such as `"1 minute"`.
        rows: With `every`: a step ends earlier, with the one that brings it to this number of rows.

    Raises:
        InvalidError: `[BAD_OPTION]`.
    """
    if rows is not None and every is None:
        raise InvalidError("BAD_OPTION", "rows bounds what every gathers: give every, too, as in every='1 minute'")
    bound = None if rows is None else whole_number("rows", rows)
    return None if every is None else Batch(seconds=seconds_in(every, "every"), rows=bound)


def _flaw(parameters: list[Parameter], given: int, named: Collection[str], *, whole: bool) -> str:
    """Return the flaw of a call and the correction; empty if the flaw is another.

    Args:
        whole: Whether the correction of a missing argument names all that are needed: one may be in another's place.
    """
    kinds = {each.kind for each in parameters}
    known = [each.name for each in parameters if each.kind not in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}]
    unknown = [] if Parameter.VAR_KEYWORD in kinds else [each for each in named if each not in known]
    by_place = [each.name for each in parameters if each.kind is Parameter.POSITIONAL_OR_KEYWORD]
    needed = [each.name for each in parameters if each.name in known and each.default is Parameter.empty]
    missing = [each for each in needed if each not in {*named, *by_place[:given]}]
    if unknown:
        new = _NEW_NAMES.get(unknown[0])
        if new in known:
            return f"has no option {unknown[0]}: write {new}=…"
        near = get_close_matches(unknown[0], known)
        return f"has no option {unknown[0]}: {'write' if near else 'it has'} {_listed(near or known, 'or')}"
    if given > len(by_place) and Parameter.VAR_POSITIONAL not in kinds:
        return f"takes {_listed(by_place, 'and')} alone without a name: write the others as name=value"
    if missing:
        shown = needed if whole else missing
        return f"lacks {_listed(missing, 'and')}: write {', '.join(f'{each}=…' for each in shown)}"
    return ""


def _listed(names: list[str], word: str) -> str:
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last
